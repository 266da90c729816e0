# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The trials of a tuning, sorted: which gave a score, and who is measured no further."""

from __future__ import annotations

from collections.abc import Iterable

from ..documents import knowledge
from .types import Kind, State, Trial, Tune


def measured(state: Tune, kind: Kind, candidate: str, host: str | None = None) -> list[Trial]:
    """Return the trials of a kind that gave a score, one an engine run, in order."""
    found = {
        (one.engine_run, one.host if kind == "alike" else ""): one
        for one in state.trials
        if one.kind == kind
        and one.candidate == candidate
        and one.outcome is not None
        and one.outcome.status == "measured"
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
