# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one change means for one host: steps, and how many replicas they take out at once."""

from __future__ import annotations

from .types import HostSteps, Situation, Step


def host_steps(situation: Situation) -> HostSteps:
    """Return the steps of a host; none where it is as wanted already.

    Replicas that keep their unit, port and GPUs are replaced one at a time; the others change
    places together, after them, because a GPU is free only when its last owner has stopped.
    """
    places = {slot.unit: slot for slot in situation.running}
    kept = {slot.unit for slot in situation.wanted if places.get(slot.unit) == slot}
    wanted = [slot.unit for slot in situation.wanted]
    changed = set(situation.changed)
    parked = set(situation.parked)
    missing = down(situation)
    steps = [*_returns(situation, changed, kept)]
    alone = [unit for unit in wanted if unit in kept & changed]
    # What is down already costs nothing, and gives room for the others.
    for unit in sorted(alone, key=lambda unit: unit not in missing):
        up = unit in situation.serving
        reason = "its unit or its environment changes" if up else "it does not serve"
        back = tuple(one for one in (unit,) if one not in parked)
        now, later = _when(situation, back)
        steps.append(Step("replace", (unit,), (unit,), now, reason, later))
    leaving = tuple(slot.unit for slot in situation.running if slot.unit not in kept)
    coming = tuple(unit for unit in wanted if unit not in kept)
    if leaving or coming:
        # Of those that are new, routers learn by their own playbook; those that an interrupted
        # change took out they know, even where the host does not run them.
        left = set(situation.lock.out) if situation.lock else set[str]()
        known = {*places, *left, *situation.routed} - parked
        now, later = _when(situation, tuple(unit for unit in coming if unit in known))
        steps.append(Step("swap", leaving, coming, now, _swap_reason(leaving, coming), later))
    elif situation.files or steps:
        steps.append(Step("finish", (), (), (), "what no replica runs from, and the record"))
    return HostSteps(
        situation.host,
        tuple(steps),
        out=extra_out(situation, steps),
        back=brought_back(situation, steps),
    )


def down(situation: Situation) -> frozenset[str]:
    """Return the replicas of the host that do not serve now, or that nobody is sent to."""
    units = {slot.unit for slot in situation.running}
    left = set(situation.lock.out) & units if situation.lock else set[str]()
    return frozenset((units - set(situation.serving)) | left | (units & set(situation.parked)))


def extra_out(situation: Situation, steps: list[Step]) -> int:
    """Return how many more replicas than now are out at the worst moment of the steps."""
    missing = set(down(situation))
    units = {slot.unit for slot in situation.running}
    before, worst = len(missing), 0
    for step in steps:
        missing |= set(step.drain) & units
        worst = max(worst, len(missing) - before)
        missing -= set(step.undrain) | (set(step.drain) - set(step.ask))
    return worst


def brought_back(situation: Situation, steps: list[Step]) -> int:
    """Return how many of the replicas that an interrupted run left out the steps bring back."""
    if situation.lock is None:
        return 0
    missing = down(situation)
    after = set(missing)
    for step in steps:
        after = (after | set(step.drain)) - set(step.undrain) - (set(step.drain) - set(step.ask))
    # What other steps leave out is taken off; what others left out, nobody counts on.
    return max(0, min(len(missing) - len(after), len(missing & set(situation.lock.out))))


def _when(situation: Situation, back: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which units come back at once, and which when the routers know them as they are."""
    before = {slot.unit: slot.reached for slot in situation.running}
    after = {slot.unit: slot.reached for slot in situation.wanted}
    later = tuple(
        unit
        for unit in back
        if situation.engine_key or before.get(unit, after[unit]) != after[unit]
    )
    return tuple(unit for unit in back if unit not in later), later


def _returns(situation: Situation, changed: set[str], kept: set[str]) -> list[Step]:
    """Return the step that brings back what an interrupted run has replaced, but left out."""
    if situation.lock is None:
        return []
    left = tuple(unit for unit in situation.lock.out if unit in kept - changed)
    if not left:
        return []
    now, later = _when(situation, left)
    return [Step("return", (), left, now, "an interrupted run left it out of the routers", later)]


def _swap_reason(leaving: tuple[str, ...], coming: tuple[str, ...]) -> str:
    if not leaving:
        return "replicas are added"
    if not coming:
        return "replicas are removed"
    return "replicas change GPUs, ports, TLS or number"
