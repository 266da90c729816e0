# SPDX-License-Identifier: GPL-3.0-or-later

"""What one change means for one host: steps, and how many replicas they take out at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..documents import to_document
from ..findings import error
from ..plan.types import Plan, parse_plan
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


Document = Mapping[str, Any]
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}", re.ASCII)
# What a release may say of its units; the rest of the resource is this controller's.
_UNITS = ("services", "target", "stale_pattern")


@dataclass(frozen=True)
class Goal:
    """What is converged: ``prepare`` before the first replica, ``replicas`` step by step.

    ``retain`` records the release once all steps are done; ``release`` is the id of a retained
    one, empty for a new plan. ``recorded`` says whether routers may follow the plan: this
    controller decided it, or its operator accepted it.
    """

    plan: Document
    plan_text: str
    replicas: Document
    retain: Sequence[Document]
    prepare: Sequence[Document] = field(default=())
    release: str = ""
    recorded: bool = True


def chosen_plan(plans: Sequence[Plan], deployment: str | None, host: str) -> Plan:
    """Return the plan that is meant; raise ROLLOUT-WHICH."""
    names = [plan.deployment.name for plan in plans]
    chosen = [plan for plan in plans if deployment in (None, plan.deployment.name)]
    if len(chosen) != 1:
        raise error(
            "ROLLOUT-WHICH",
            host,
            f"serves {', '.join(names)}; rollout_deployment is {deployment or 'not set'}",
        )
    return chosen[0]


def goal_of_plan(plan: Plan, resources: Sequence[Document], by: str) -> Goal:
    """Return what serving a plan means, by the resources of the role replicas."""
    (replicas,) = (item for item in resources if _is(item, "replicas", plan))
    return Goal(
        plan=to_document(plan),
        plan_text=_plan_text(replicas["files"], plan.deployment.name),
        prepare=[item for item in resources if item["kind"] not in ("replicas", "release")],
        replicas=replicas,
        retain=[{**item, "by": by} for item in resources if _is(item, "release", plan)],
    )


def goal_of_release(release: Document, deployment: str, host: str) -> Goal:
    """Return what serving a release means, as the host returned it; secrets stay as they are.

    It has to be of this very deployment. Raises ROLLOUT-RELEASE, or why its plan is none.
    """
    subject = f"{host}: its release"
    try:
        files, units, id_ = release["files"], release["units"], release["id"]
        text = _plan_text(files, deployment)
        known = {name: units[name] for name in _UNITS if name in units}
        if release["deployment"] != deployment or not _ID.fullmatch(id_):
            raise ValueError(f"found {release['deployment']!r:.100}, {id_!r:.100}")
    except (KeyError, StopIteration, TypeError, ValueError) as failure:
        message = f"is none of {deployment}: {failure}"
        raise error("ROLLOUT-RELEASE", subject, message) from failure
    plan = parse_plan(text, subject)
    if plan.deployment.name != deployment:
        message = f"has a plan of {plan.deployment.name}, not of {deployment}"
        raise error("ROLLOUT-RELEASE", subject, message)
    return Goal(
        plan=to_document(plan),
        plan_text=text,
        replicas={"kind": "replicas", "deployment": deployment, "files": files, **known},
        retain=[{"kind": "release", "deployment": deployment, "release": id_}],
        release=id_,
    )


def _is(resource: Document, kind: str, plan: Plan) -> bool:
    return (resource["kind"], resource.get("deployment")) == (kind, plan.deployment.name)


def _plan_text(files: Sequence[Document], deployment: str) -> str:
    path = f"/etc/apiary/{deployment}/plan.json"
    return next(str(item["content"]) for item in files if item["path"] == path)
