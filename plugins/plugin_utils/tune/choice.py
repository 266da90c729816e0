# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tuning comes to: finalists, their comparison with the current one, and the repeat."""

from __future__ import annotations

import dataclasses

from ..bench.comparison.compare import compare_values
from ..bench.comparison.statistics import interval, mean
from ..bench.types import Interval
from ..documents import knowledge
from . import scores
from .types import Choice, Compared, Kind, Tune, Verdict


def leader(state: Tune) -> str | None:
    """Return the best configuration so far: of the latest round that has one, else the first."""
    led = [one.leader for one in reversed(state.rounds) if one.ended and one.leader is not None]
    names = [*led, *(one.id for one in state.candidates)]
    return next((name for name in names if scores.out(state, name) is None), None)


def _best_known(state: Tune) -> dict[str, Interval]:
    """Return each candidate's score of its longest round; who is out has none."""
    found = {}
    for one in state.candidates:
        kinds: tuple[Kind, ...] = ("longer", "short")
        known = (scores.score(state, kind, one.id) for kind in kinds)
        best = next((score for score in known if score is not None), None)
        if best is not None and scores.out(state, one.id) is None:
            found[one.id] = best
    return found


def finalists(state: Tune) -> tuple[str, ...]:
    """Return who is in the finals: the leader, who may equal it, and the current configuration.

    Beside the current one there is always another, if another runs at all.
    """
    first, known = leader(state), _best_known(state)
    current = state.current.id if state.current else None
    if current is not None and scores.out(state, current) is not None:
        current = None
    if first is None:
        return ()
    order = sorted((name for name in known if name != first), key=lambda name: -known[name].mean)
    close = [
        name
        for name in order
        if name != current and first in known and scores.meets(known[name], known[first])
    ]
    most = knowledge("tune.yml")["finalists"]
    chosen = [first, *close][: most if first != current else most + 1]
    others = [name for name in order if name != current]
    if chosen == [current] and others:
        chosen.append(others[0])
    if current is not None and current not in chosen:
        chosen.append(current)
    return tuple(chosen)


def compared(state: Tune, kind: Kind, candidate: str, against: str) -> Compared:
    """Return whether a candidate is faster than another over the engine runs of a round."""
    ours = scores.decided(state, kind, candidate)
    theirs = scores.decided(state, kind, against)
    if min(len(ours), len(theirs)) < 2:
        return Compared(candidate, against, "no difference found")
    if min(*ours, *theirs) <= 0:  # one that never keeps the SLO has no ratio to one that does
        if min(ours) > max(theirs):
            return Compared(candidate, against, "better")
        if max(ours) < min(theirs):
            return Compared(candidate, against, "worse")
        return Compared(candidate, against, "no difference found")
    resolution = max(scores.resolution(state, kind, name) for name in (candidate, against))
    found = compare_values(theirs, ours, resolution=resolution)
    says = "no difference found" if found.verdict == "not decided" else found.verdict
    return Compared(candidate, against, says, found.ratio, found.low, found.high, found.detectable)


def _last(state: Tune) -> tuple[str, ...]:
    """Return the finalists that were measured to the end, the fastest first."""
    final = next((one for one in state.rounds if one.kind == "final" and one.ended), None)
    names = [one for one in final.retained if scores.out(state, one) is None] if final else []
    return tuple(sorted(names, key=lambda name: -_mean(state, "final", name)))


def _mean(state: Tune, kind: Kind, name: str) -> float:
    found = scores.decided(state, kind, name)
    return mean(found) if found else 0.0


def pair(state: Tune) -> tuple[str, str] | None:
    """Return the finalist to choose and what it has to beat; None where there is nothing to beat.

    It is the fastest of those that are better than the current one, else the fastest.
    """
    names = _last(state)
    current = state.current.id if state.current else None
    if current in names:
        others = [name for name in names if name != current]
        better = [
            name for name in others if compared(state, "final", name, current).verdict == "better"
        ]
        return ([*better, *others][0], current) if others else None
    return (names[0], names[1]) if len(names) > 1 else None


def choose(state: Tune) -> Choice:
    """Return the choice: a faster configuration only where finals and repeat both say so.

    A current configuration that was not measured to the end, without having failed, stays: against
    it nothing was shown. One that failed still counts with what it measured while it ran.
    """
    names, both = _last(state), pair(state)
    current = state.current
    if current is not None and current.id not in names:
        why = scores.out(state, current.id) or "not measured"
        if not why.startswith("the engine failed"):
            return Choice(None, "nothing measured", f"{current.label} stays: {why}")
        if names and not _beaten(state, current.id, names[0]):
            label = state.candidate(names[0]).label
            reason = f"{current.label} stays: {why}; but {label} is not faster than it was before"
            return Choice(None, "no difference found", reason)
    if not names:
        return Choice(None, "nothing measured", "no configuration could be measured to the end")
    if both is None:
        return _alone(state, names[0])
    others = (name for name in names if name != both[1])
    comparisons = tuple(compared(state, "final", name, both[1]) for name in others)
    first = next(one for one in comparisons if one.candidate == both[0])
    repeat = confirmed = None
    if any(one.kind == "confirm" and one.ended for one in state.rounds):
        if min(len(scores.decided(state, "confirm", name)) for name in both) > 1:
            repeat = compared(state, "confirm", *both)
            confirmed = repeat.verdict == first.verdict
        elif first.verdict == "better":
            confirmed = False
    better = first.verdict == "better" and confirmed is not False
    standing = current is not None and current.id == both[1]
    # Without a current configuration something has to serve: the faster one, whatever its lead.
    chosen = both[0] if better or not standing else both[1]
    worse = standing and first.verdict == "worse"
    kept: Verdict = "current is best" if worse else "no difference found"
    made = Choice(
        candidate=chosen,
        verdict="better" if better else kept,
        reason="",
        score=_interval(state, chosen),
        current=_interval(state, current.id) if current and current.id in names else None,
        comparisons=comparisons,
        repeat=repeat,
        confirmed=confirmed,
    )
    return dataclasses.replace(made, reason=_reason(state, made, both))


def _beaten(state: Tune, current: str, other: str) -> bool:
    """Return whether a finalist is surely faster than all that the current one ever measured."""
    kinds: tuple[Kind, ...] = ("short", "longer", "final", "confirm")
    known = [one for kind in kinds if (one := scores.score(state, kind, current)) is not None]
    ours = scores.score(state, "final", other)
    return ours is not None and all(
        ours.mean > one.mean and not scores.meets(ours, one) for one in known
    )


def _alone(state: Tune, name: str) -> Choice:
    label = state.candidate(name).label
    is_current = state.current is not None and state.current.id == name
    reason = f"{label} is the only configuration that could be measured to the end"
    verdict: Verdict = "current is best" if is_current else "better"
    return Choice(
        name,
        verdict,
        reason,
        _interval(state, name),
        _interval(state, name) if is_current else None,
    )


def _interval(state: Tune, name: str) -> Interval | None:
    """Return the mean over runs with its t-interval, of the finals and the repeat together."""
    found = [value for kind in ("final", "confirm") for value in scores.decided(state, kind, name)]
    return interval(found) if found else None


def _reason(state: Tune, made: Choice, both: tuple[str, str]) -> str:
    ours, theirs = (state.candidate(name).label for name in both)
    first = next(one for one in made.comparisons if one.candidate == both[0])
    reported = f"{ours} against {theirs}: {say(first)}"
    if made.repeat is not None:
        reported += f"; in the repeat: {say(made.repeat)}"
    elif made.confirmed is False:
        reported += "; the repeat could not be measured"
    if made.verdict == "better":
        return reported
    if made.confirmed is False and first.verdict == "better":
        return f"{reported}. What the finals found did not come again, so {theirs} stays"
    stays = f"{theirs} stays" if made.candidate == both[1] else f"{ours} was the faster one"
    return f"{reported}; {stays}"


def say(one: Compared) -> str:
    """Return a comparison in words."""
    if one.ratio is None or one.low is None or one.high is None:
        return one.verdict
    return f"{one.verdict}, {one.ratio - 1:+.1%} ({one.low - 1:+.1%} to {one.high - 1:+.1%})"
