# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What became of one trial on its host, from what the playbook saw: an outcome to be recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.journal import cause
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome

# How far it came: only what the candidate itself decides may be held against it.
Stage = Literal["plan", "prepare", "start", "measure"]


@dataclass(frozen=True)
class Told:
    """What a host tells of its trial.

    ``message`` is of the task that failed, ``journal`` the engines' lines since the trial began.
    ``lives_before`` and ``lives_after`` name the start of each unit: another one is a restart.
    """

    stage: Stage
    message: str = ""
    journal: str = ""
    bench: dict[str, Any] | None = None
    path: str | None = None
    lives_before: str = ""
    lives_after: str = ""


def outcome_of(told: Told | None, seconds: float) -> Outcome:
    """Return how a trial ended; None is a host that could not be reached any more.

    Where an engine was started anew while it was measured, its numbers are of no configuration.
    """
    if told is None:
        return Outcome("lost", cause="the host could not be reached any more", seconds=seconds)
    first = next(iter(told.message.splitlines()), "")
    if told.stage == "plan":
        return Outcome("failed", cause=first, seconds=seconds)
    if told.stage == "prepare":
        return Outcome("lost", cause=first, seconds=seconds)
    if told.stage == "start":
        return Outcome("failed", cause=cause(told.journal, first), seconds=seconds)
    if told.lives_after != told.lives_before:
        why = cause(told.journal, "an engine was started anew while it was measured")
        return Outcome("failed", cause=why, path=told.path, seconds=seconds)
    if told.bench is None:
        return Outcome("invalid", cause=first or "there is no measurement", seconds=seconds)
    bench = from_document(Bench, told.bench, told.path or "bench")
    found = scores.outcome_of(bench, told.path or "")
    return Outcome(**{**vars(found), "seconds": seconds})
