# SPDX-License-Identifier: GPL-3.0-or-later

"""What trials say: the score of each, a candidate's interval, who is measured no further."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

from ..bench.comparison.statistics import interval, mean, stdev
from ..bench.types import Bench, Interval, Level
from ..documents import knowledge
from .types import Dropped, Kind, Outcome, State, Trial, Tune

_CONFIDENCE = 0.95


def outcome_of(bench: Bench, path: str | None = None, seconds: float = 0.0) -> Outcome:
    """Return the outcome of a benchmark of one engine run: requests a second of one host.

    Requests that failed are the engine's fault, unless the search went on and found the edge.
    A search that concluded nothing, or levels that are all invalid, mean nothing.
    """
    hosts = bench.target.hosts or 1
    counted = [one for one in bench.levels if one.load.phase in bench.requested.phases]
    failed = [one for one in counted if one.status == "FAILED"]
    valid = [one for one in counted if one.status in ("OK", "SLO_MISS")]
    concluded = bool(bench.searches) if bench.requested.slo else not failed
    if failed and not (valid and concluded):
        return Outcome("failed", cause=_reported(failed), path=path, seconds=seconds)
    if not valid or not concluded:
        reasons = (f"{one.code}: {one.message}" for one in bench.findings if one.severity != "info")
        why = _reported(counted) or "; ".join(dict.fromkeys(reasons)) or "no level was measured"
        return Outcome("invalid", summary=why, path=path, seconds=seconds)
    if bench.requested.slo:
        score, most, summary = _found(bench, hosts)
    else:
        score, most, summary = _fixed(valid, hosts)
    # Where a search found none that keeps the SLO, no limit keeps it.
    kept = [(one.best or 0) / hosts for one in bench.searches if one.by == "concurrency"]
    within = min(kept, default=0) or None
    return Outcome("measured", score, most, summary, path=path, seconds=seconds, within=within)


def _found(bench: Bench, hosts: int) -> tuple[Interval, float | None, str]:
    """Return what an SLO search found; nothing that kept the limits is a score of 0."""
    kept = [one for one in bench.searches if one.best is not None and one.request_rate is not None]
    if not kept:
        return Interval(1, 0.0), None, "no level kept the SLO"
    found = kept[0]
    score = _scaled(found.request_rate or Interval(1, 0.0), hosts)
    if found.fails is None:
        return score, None, f"{score.mean:.3g} requests/s, and no level broke the SLO"
    most = score.mean * found.fails / (found.best or found.fails)
    unit = "concurrent" if found.by == "concurrency" else "requests/s requested"
    text = f"{score.mean:.3g} requests/s under the SLO at {found.best:g} {unit}"
    return score, most, f"{text}, not at {found.fails:g}"


def _fixed(levels: Sequence[Level], hosts: int) -> tuple[Interval, float | None, str]:
    score = _scaled(
        interval([one.measured.request_rate for one in levels if one.measured is not None]), hosts
    )
    return score, None, f"{score.mean:.3g} requests/s at {levels[0].load.concurrency} concurrent"


def _scaled(rate: Interval, hosts: int) -> Interval:
    low = None if rate.low is None else rate.low / hosts
    high = None if rate.high is None else rate.high / hosts
    return Interval(rate.n, rate.mean / hosts, low, high, rate.cov)


def _reported(levels: Iterable[Level]) -> str:
    errors = (finding for one in levels for finding in one.findings if finding.severity == "error")
    return "; ".join(dict.fromkeys(f"{one.code}: {one.message}" for one in errors))


def noise(state: Tune) -> float:
    """Return the coefficient of variation between engine runs: what is assumed, or more if seen."""
    squares, freedom = 0.0, 0
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for one in state.trials:
        if one.outcome is not None and one.outcome.status == "measured":
            groups.setdefault((one.kind, one.candidate, one.host), []).append(one)
    for engine_runs in groups.values():
        scores = values(engine_runs)
        if len(scores) > 1 and mean(scores) > 0:
            squares += (stdev(scores) / mean(scores)) ** 2 * (len(scores) - 1)
            freedom += len(scores) - 1
    assumed = float(knowledge("tune.yml")["restart_cov"])
    return max(assumed, math.sqrt(squares / freedom)) if freedom else assumed


def score(state: Tune, kind: Kind, candidate: str) -> Interval | None:
    """Return a candidate's score of one kind of round, wide enough for all that is not known.

    That is the noise between runs; what lies between the level that kept the SLO and the one that
    broke it; and where several hosts measure, how far apart alike ones may be.
    """
    engine_runs = measured(state, kind, candidate)
    scores = values(engine_runs)
    if not scores:
        return None
    middle, cov = mean(scores), noise(state)
    half = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * cov * middle / math.sqrt(len(scores))
    tops = [one.outcome.most or 0.0 for one in engine_runs if one.outcome is not None]
    above = max(0.0, mean(tops) - middle)
    if len({one.host for one in state.trials}) > 1 and kind not in ("final", "confirm"):
        half += middle * float(knowledge("tune.yml")["host_band"]) / 2
    return Interval(len(scores), middle, middle - half, middle + half + above, cov)


def keep(scores: Mapping[str, Interval], share: float) -> tuple[list[str], list[Dropped]]:
    """Return who goes on, best first, and who does not.

    The best ``share`` goes on, at least one, and everybody whose interval meets the best one's:
    what may still be the best is never dropped.
    """
    order = sorted(scores, key=lambda name: -scores[name].mean)
    kept = order[: max(1, math.ceil(share * len(order) - 1e-9))]
    floor = _low(scores[order[0]]) if order else 0.0
    kept += [name for name in order[len(kept) :] if _high(scores[name]) >= floor]
    best = scores[order[0]] if order else None
    dropped = [
        Dropped(name, f"{told(scores[name])}, below {told(best)} of {order[0]}")
        for name in order
        if name not in kept and best is not None
    ]
    return kept, dropped


def _low(one: Interval) -> float:
    return one.mean if one.low is None else one.low


def _high(one: Interval) -> float:
    return one.mean if one.high is None else one.high


def meets(one: Interval, other: Interval) -> bool:
    """Return whether two intervals overlap."""
    return _high(one) >= _low(other) and _high(other) >= _low(one)


def told(one: Interval | None) -> str:
    """Return a score in words."""
    if one is None:
        return "not measured"
    if one.low is None or one.high is None:
        return f"{one.mean:.3g} requests/s"
    return f"{one.mean:.3g} requests/s ({one.low:.3g} to {one.high:.3g})"


def measured(state: Tune, kind: Kind, candidate: str, host: str | None = None) -> list[Trial]:
    """Return the trials of a kind that gave a score, one an engine run, in order."""
    found = {
        (one.engine_run, one.host if kind == "alike" else ""): one
        for one in state.trials
        if one.kind == kind
        and one.candidate == candidate
        and ended(one, "measured")
        and host in (None, one.host)
    }
    return [found[key] for key in sorted(found)]


def decided(state: Tune, kind: Kind, candidate: str) -> list[float]:
    """Return a candidate's scores, one a run, in the finals or the repeat: of their one host."""
    host = next((one.host for one in state.rounds if one.kind == kind), None)
    return values(measured(state, kind, candidate, host))


def resolution(state: Tune, kind: Kind, candidate: str) -> float:
    """Return how far above its scores a candidate may be: up to what broke the SLO, as a share."""
    host = next((one.host for one in state.rounds if one.kind == kind), None)
    outcomes = [one.outcome for one in measured(state, kind, candidate, host)]
    shares = (
        one.most / one.score.mean - 1
        for one in outcomes
        if one is not None and one.most and one.score is not None and one.score.mean > 0
    )
    return max(shares, default=0.0)


def values(trials: Iterable[Trial]) -> list[float]:
    """Return the scores of trials."""
    scores = (one.outcome.score for one in trials if one.outcome is not None)
    return [one.mean for one in scores if one is not None]


def tried(state: Tune, kind: Kind, candidate: str, engine_run: int) -> list[Trial]:
    """Return the trials of one engine run in a kind of round, whatever their outcome."""
    return [
        one
        for one in state.trials
        if (one.kind, one.candidate, one.engine_run) == (kind, candidate, engine_run)
    ]


def ended(one: Trial, *states: State) -> bool:
    return one.outcome is not None and one.outcome.status in states


def out(state: Tune, candidate: str) -> str | None:
    """Return why a candidate is not measured any further, or None.

    Its engine failed; or every attempt at one of its runs was lost, through no fault of its own.
    The current configuration is what others must beat, so an engine run that failed is tried again.
    """
    attempts = knowledge("tune.yml")["attempts"]
    is_control = state.current is not None and state.current.id == candidate
    lost: dict[tuple[Kind, int], int] = {}
    for one in state.trials:
        if one.candidate != candidate or one.kind == "alike" or one.outcome is None:
            continue
        failed = one.outcome.status == "failed"
        if failed or one.outcome.status in ("lost", "invalid"):
            key = (one.kind, one.engine_run)
            lost[key] = lost.get(key, 0) + 1
            if failed and (not is_control or lost[key] >= attempts):
                return f"the engine failed: {one.outcome.cause or 'the cause is not known'}"
            if lost[key] >= attempts:
                why = one.outcome.summary or one.outcome.cause or one.outcome.status
                return f"not measured in {attempts} attempts: {why}"
    return _failed_alike(state, candidate)


def _failed_alike(state: Tune, candidate: str) -> str | None:
    """Return the cause where a candidate's engine failed on every host."""
    control = [one for one in state.trials if (one.kind, one.candidate) == ("alike", candidate)]
    failed = {one.host: one for one in control if ended(one, "failed")}
    # A host that was left out before had no control at all.
    if control and failed.keys() >= {one.name for one in state.hosts if one.used}:
        outcome = next(iter(failed.values())).outcome
        return f"the engine failed: {(outcome and outcome.cause) or 'the cause is not known'}"
    return None
