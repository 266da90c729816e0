# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is to serve after a change: a new plan's resources, or those of a release."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..documents import to_document
from ..findings import error
from ..plan.check import parse_plan
from ..plan.types import Plan

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
