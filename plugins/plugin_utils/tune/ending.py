# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What became of one trial on its host, from what the playbook saw: an outcome to be recorded."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from ..bench.types import Bench
from ..documents import from_document
from . import scores
from .journal import cause, exited, known
from .types import Outcome, State

# How far it came: only what the candidate itself decides may be held against it. load: the load
# host could not be reached.
Stage = Literal["plan", "prepare", "start", "measure", "load"]


@dataclass(frozen=True)
class Told:
    """What a host tells of its trial.

    ``message`` is of the task that failed, ``journal`` the engines' lines since the trial began.
    ``engine_runs_before`` and ``engine_runs_after`` are the states of units: a difference is an
    end or a restart.
    """

    stage: Stage
    message: str = ""
    journal: str = ""
    bench: dict[str, Any] | None = None
    path: str | None = None
    engine_runs_before: str = ""
    engine_runs_after: str = ""


def outcome_of(told: Told | None, seconds: float) -> Outcome:
    """Return how a trial ended; None is a host that could not be reached any more.

    Where an engine ended while it was measured, its numbers are of no configuration.
    """
    if told is None:
        return Outcome("lost", cause="the host could not be reached any more", seconds=seconds)
    first = next(iter(told.message.splitlines()), "")
    if told.stage in ("plan", "prepare"):  # of this host and what else is on it
        return Outcome("lost", cause=first, seconds=seconds)
    if told.stage == "load":
        return Outcome("lost", cause=first or "the load host was lost", seconds=seconds)
    if told.stage == "start":
        return Outcome("failed", cause=cause(told.journal, first), seconds=seconds)
    if told.engine_runs_after != told.engine_runs_before:
        ended = exited(told.journal) or "an engine ended while it was measured"
        why = cause(told.journal, ended)
        return Outcome("failed", cause=why, path=told.path, seconds=seconds)
    if told.bench is None:
        return Outcome("invalid", cause=first or "there is no measurement", seconds=seconds)
    bench = from_document(Bench, told.bench, told.path or "bench")
    found = scores.outcome_of(bench, told.path or "")
    if found.status == "failed":
        why = known(told.journal)
        # Engines that live and say nothing: the way to them may be at fault, so it is tried again.
        state: State = "failed" if why else "invalid"
        cause_ = f"{why} | {found.cause}" if why else found.cause
        found = dataclasses.replace(found, status=state, cause=cause_)
    return dataclasses.replace(found, seconds=seconds)
