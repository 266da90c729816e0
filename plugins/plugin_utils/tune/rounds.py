# SPDX-License-Identifier: GPL-3.0-or-later

"""Rounds of a tuning: what they lack, how they end, and which one follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..bench.types import Interval
from ..documents import knowledge
from ..findings import Finding
from . import candidates, choice, knobs, scores
from .types import Dropped, Host, Kind, NotTried, Round, Trial, Tune

HOSTS, CHOICE = "hosts", "choice"
_EXPLORING: tuple[Kind, ...] = ("short", "longer")


def trial(state: Tune, current: Round, candidate: str, host: str, engine_run: int = 0) -> Trial:
    """Return the next trial of a candidate's engine run; ids are unique and good as file names."""
    before = scores.tried(state, current.kind, candidate, engine_run)
    if current.kind == "alike":
        before = [one for one in before if one.host == host]
    attempt = len(before)
    name = f"{current.kind}-{candidate}-{engine_run}-{host}" + (
        f"-again{attempt}" if attempt else ""
    )
    return Trial(name, current.kind, candidate, host, engine_run, attempt)


def open_on(state: Tune, current: Round, host: str) -> bool:
    """Return whether the control is still to be measured on a host."""
    here = [
        one
        for one in scores.tried(state, current.kind, current.candidates[0], 0)
        if one.host == host
    ]
    done = any(scores.ended(one, "measured", "failed") for one in here)
    return not done and len(here) < knowledge("tune.yml")["attempts"]


def missing(state: Tune, current: Round, host: str | None = None) -> list[tuple[str, int]]:
    """Return the candidates and engine runs that a round lacks, candidates in turn.

    What an earlier round of the same kind measured counts. With ``host`` only that host's trials.
    """
    alive = [name for name in current.candidates if scores.out(state, name) is None]
    have = {
        (one.candidate, one.engine_run)
        for one in state.trials
        if one.kind == current.kind and scores.ended(one, "measured") and host in (None, one.host)
    }
    return [
        (name, engine_run)
        for engine_run in range(current.engine_runs)
        for name in alive
        if (name, engine_run) not in have
    ]


def home(state: Tune, current: Round, free: Sequence[str]) -> str:
    """Return the one host of a round: where most of it is measured and least was lost."""

    def price(name: str) -> tuple[int, int]:
        here = [one for one in state.trials if one.kind == current.kind and one.host == name]
        lost = sum(scores.ended(one, "lost") for one in here)
        return lost, -len([one for one in here if scores.ended(one, "measured")])

    return min(free, key=price)


def advance(state: Tune) -> Tune:
    """End rounds that lack nothing and begin what follows, until something is to be measured."""
    while state.choice is None:
        current = state.rounds[-1] if state.rounds else None
        if current is None or current.ended:
            state = _follow(state, current)
        elif _complete(state, current):
            state = _end(state, current)
        else:
            break
    return state


def _complete(state: Tune, current: Round) -> bool:
    if current.kind == "alike":
        return not any(open_on(state, current, one.name) for one in state.hosts if one.used)
    if current.kind in _EXPLORING:
        return not missing(state, current) or _spent(state) is not None
    return _whole(state, current) is not None


def _spent(state: Tune) -> str | None:
    """Return which part of the budget is spent, or None."""
    budget = state.requested.budget
    exploring = [one for one in state.trials if one.kind not in ("final", "confirm")]
    took = sum(one.outcome.seconds for one in exploring if one.outcome is not None)
    if budget.trials is not None and len(exploring) >= budget.trials:
        return f"the budget of {budget.trials} trials is spent"
    if budget.seconds is not None and took >= budget.seconds:
        return f"the budget of {budget.seconds} seconds is spent"
    return None


def _replaced(state: Tune, current: Round) -> Tune:
    return dataclasses.replace(state, rounds=(*state.rounds[:-1], current))


def _end(state: Tune, current: Round) -> Tune:
    """Return the state with its last round ended: who is kept, who is not, and who leads."""
    if current.kind == "alike":
        return _end_alike(state, current)
    found = {name: scores.score(state, current.kind, name) for name in current.candidates}
    reasons = {name: scores.out(state, name) for name in current.candidates}
    alive = {name: one for name, one in found.items() if one is not None and reasons[name] is None}
    share = knowledge("tune.yml")["keep_share"] if current.kind in _EXPLORING else 1.0
    kept, dropped = scores.keep(alive, share)
    gone = [Dropped(name, reason) for name, reason in reasons.items() if reason is not None]
    spent = _spent(state)
    scored = {one.candidate for one in state.trials if scores.ended(one, "measured")}
    unmeasured = [name for name in current.candidates if found[name] is None and not reasons[name]]
    state = dataclasses.replace(
        state,
        not_tried=(
            *state.not_tried,
            *(
                NotTried(one.label, spent or "not measured", one.changes)
                for one in map(state.candidate, unmeasured)
                if one.id not in scored
            ),
        ),
    )
    leader = kept[0] if kept else choice.leader(state)
    ended = dataclasses.replace(
        current,
        retained=tuple(kept),
        dropped=(*dropped, *gone),
        leader=leader,
        host=None if current.kind in _EXPLORING else _whole(state, current),
        ended=True,
    )
    return _replaced(state, ended)


def _whole(state: Tune, current: Round) -> str | None:
    """Return the host on which a round lacks nothing."""
    used = (one.name for one in state.hosts if one.used)
    return next((name for name in used if not missing(state, current, name)), None)


def _end_alike(state: Tune, current: Round) -> Tune:
    """Return the state with the hosts that measured the control alike; others are left out."""
    control = current.candidates[0]
    found = {}
    for one in scores.measured(state, "alike", control):
        if one.outcome is not None and one.outcome.score is not None:
            found[one.host] = one.outcome.score
    band = float(knowledge("tune.yml")["host_band"])
    group = _group({name: one.mean for name, one in found.items()}, band)
    best = max((found[name].mean for name in group), default=0.0)
    before = [one.name for one in state.hosts if one.used]
    hosts = tuple(
        Host(
            one.name,
            one.name in group,
            _apart(state, one.name, found, group, best),
            found.get(one.name),
        )
        if one.used
        else one
        for one in state.hosts
    )
    findings = tuple(
        Finding(
            "TRIAL-HOSTS-DIFFER",
            one.name,
            f"takes no part: {one.reason}",
            source=knowledge("tune.yml")["sources"]["mlperf"],
        )
        for one in hosts
        if not one.used and one.name in before
    )
    ended = dataclasses.replace(current, retained=(control,) if group else (), ended=True)
    if not group:  # on no host: the next candidate is the control
        reason = scores.out(state, control) or "the control could not be measured on any host"
        ended = dataclasses.replace(ended, dropped=(Dropped(control, reason),))
        return _replaced(state, ended)
    state = dataclasses.replace(state, hosts=hosts, findings=(*state.findings, *findings))
    return _replaced(state, ended)


def _group(means: dict[str, float], band: float) -> list[str]:
    """Return the largest group of hosts within the band of each other; the fastest of equals."""
    groups = [
        [name for name, one in means.items() if top * (1 - band) <= one <= top]
        for top in means.values()
    ]
    return max(
        groups, key=lambda names: (len(names), max(means[name] for name in names)), default=[]
    )


def _apart(
    state: Tune, name: str, found: dict[str, Interval], group: Sequence[str], best: float
) -> str:
    if name in group:
        return ""
    if name in found:
        return (
            f"the control measured {scores.told(found[name])} here and {best:.3g} on"
            f" {', '.join(group)}"
        )
    told = [one.outcome for one in state.trials if one.kind == "alike" and one.host == name]
    why = [one.cause or one.summary or one.status for one in told if one is not None]
    return f"the control could not be measured here: {why[-1] if why else 'not tried'}"


def _follow(state: Tune, last: Round | None) -> Tune:
    """Return the state with the round that follows an ended one, or with the choice."""
    if last is None or (last.kind == "alike" and not last.retained):
        control = _control(state)
        used = [one for one in state.hosts if one.used]
        if len(used) > 1 and control is not None:
            return _begun(state, Round(HOSTS, "alike", (control,), 1))
        if last is not None:
            state = _one_host(state)
    if last is None or last.kind == "alike":
        names = tuple(one.id for one in state.candidates)
        if len(names) > 1:
            return _begun(state, _round(candidates.LAYOUTS, "short", names))
        return _knobs(state, None)
    if last.kind == "short" and _longer(state, last):
        return _begun(state, _round(last.stage, "longer", last.retained))
    if last.kind in _EXPLORING:
        return _knobs(state, last.stage)
    if last.kind == "final" and state.requested.budget.confirm_engine_runs:
        pair = choice.pair(state)
        if pair is not None:
            return _begun(
                state, Round(CHOICE, "confirm", pair, state.requested.budget.confirm_engine_runs)
            )
    return _chosen(state)


def _chosen(state: Tune) -> Tune:
    """Return the state with its choice, and with what varying one knob at a time leaves out."""
    made = choice.choose(state)
    combinations = sum(
        one.stage in (candidates.CURRENT, candidates.LAYOUTS) for one in state.candidates
    )
    for path, values in _wanted(state).items():
        present = knobs.of(state.requested.deployment, path)
        combinations *= len({str(value) for value in (*values, present)})
    left = combinations - len(state.candidates)
    if left > 0 and _wanted(state):
        reason = f"knobs are varied one after the other around the best so far: {left} are left"
        others = NotTried("other combinations of layouts and values", reason)
        state = dataclasses.replace(state, not_tried=(*state.not_tried, others))
    return dataclasses.replace(state, choice=made)


def _one_host(state: Tune) -> Tune:
    """Return the state with the first host alone: nothing showed that the others are like it."""
    used = [one.name for one in state.hosts if one.used]
    reason = "no configuration could be measured on the hosts to show that they are alike"
    hosts = tuple(
        dataclasses.replace(one, used=False, reason=reason) if one.name in used[1:] else one
        for one in state.hosts
    )
    return dataclasses.replace(state, hosts=hosts)


def _control(state: Tune) -> str | None:
    tried_ = {one.candidates[0] for one in state.rounds if one.kind == "alike"}
    return next((one.id for one in state.candidates if one.id not in tried_), None)


def _round(stage: str, kind: Kind, names: tuple[str, ...]) -> Round:
    return Round(stage, kind, names, knowledge("tune.yml")["rounds"][kind]["engine_runs"])


def _begun(state: Tune, new: Round) -> Tune:
    return dataclasses.replace(state, rounds=(*state.rounds, new))


def _wanted(state: Tune) -> knobs.Knobs:
    return knobs.wanted(state.requested.knobs)


def _longer(state: Tune, last: Round) -> bool:
    """Return whether a short round needs a longer one: its leader matters, or too many are left."""
    if len(last.retained) < 2 or _spent(state) is not None:
        return False
    paths = list(_wanted(state))
    rest = paths[paths.index(last.stage) + 1 :] if last.stage in paths else paths
    return bool(rest) or len(last.retained) > knowledge("tune.yml")["finalists"] + 1


def _knobs(state: Tune, stage: str | None) -> Tune:
    """Return the state with the first round of the next knob that leaves something to try."""
    wanted = _wanted(state)
    paths = list(wanted)
    leader = choice.leader(state)
    for path in paths[paths.index(stage) + 1 :] if stage in wanted else paths:
        spent = _spent(state)
        if leader is None or spent is not None:
            reason = spent or "no engine of any layout could be measured"
            left = NotTried(f"other values of {path}", reason)
            state = dataclasses.replace(state, not_tried=(*state.not_tried, left))
            continue
        queue = candidates.around(state, state.candidate(leader), path, wanted[path])
        state = dataclasses.replace(
            state,
            candidates=(*state.candidates, *queue.candidates),
            not_tried=(*state.not_tried, *queue.not_tried),
        )
        if queue.candidates:
            names = (leader, *(one.id for one in queue.candidates))
            return _begun(state, _round(path, "short", names))
    finalists = choice.finalists(state)
    if not finalists:
        return _chosen(state)
    return _begun(state, Round(CHOICE, "final", finalists, state.requested.budget.engine_runs))
