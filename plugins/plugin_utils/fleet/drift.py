# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a host is not as its inventory asks: because the inventory changed, or because it did."""

from __future__ import annotations

from collections.abc import Mapping

from .ledger import Applied
from .plan_types import Cause
from .types import ConcernSurvey, Survey

REPLICAS = "replicas:"


def causes(survey: Survey, applied: Mapping[str, Applied]) -> dict[str, Cause]:
    """Return the cause of each unsettled concern; ``applied`` is the host's ledger by concern.

    Without a ledger, what runs is taken for what was applied; of a host where nothing runs, all is
    to be applied. A concern that a ledger does not have is new.
    """
    new = bool(applied) or not survey.running
    return {
        one.concern: _cause(one, survey, applied.get(one.concern), new)
        for one in survey.concerns
        if not one.settled
    }


def _cause(one: ConcernSurvey, survey: Survey, applied: Applied | None, new: bool) -> Cause:
    name = one.concern.removeprefix(REPLICAS)
    if name != one.concern:
        running = {each.deployment: each.plan for each in survey.running}.get(name)
        wanted = {each.deployment: each.plan for each in survey.wanted}.get(name)
        if applied and applied.plan and running != applied.plan:
            return "drift"  # somebody else has put another plan there, or none
        if running is not None and running == wanted:
            return "drift"  # the same plan, and yet files or units are not as it has them
        if applied is None:
            return "to apply"
    if applied is None:
        return "to apply" if new else "unknown"
    if applied.asked and one.asked:
        return "drift" if applied.asked == one.asked else "to apply"
    return "unknown"


def behind(survey: Survey, applied: Mapping[str, Applied]) -> tuple[str, ...]:
    """Return the deployments that are as asked, but by a run that the ledger does not have."""
    running = {each.deployment: each.plan for each in survey.running}
    settled = {one.concern for one in survey.concerns if one.settled}
    return tuple(
        concern.removeprefix(REPLICAS)
        for concern, note in applied.items()
        if concern in settled
        and note.plan
        and running.get(concern.removeprefix(REPLICAS), note.plan) != note.plan
    )
