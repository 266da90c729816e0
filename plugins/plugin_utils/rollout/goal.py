# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is to serve after a change: a new plan's resources, or those of a release."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..documents import to_document
from ..findings import error
from ..plan.types import Plan

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Goal:
    """What is converged: ``prepare`` before the first replica, ``replicas`` step by step.

    ``retain`` records the release once all steps are done; ``release`` is the id of a retained
    one, empty for a new plan.
    """

    plan: Document
    plan_text: str
    replicas: Document
    retain: Sequence[Document]
    prepare: Sequence[Document] = field(default=())
    release: str = ""


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


def goal_of_release(release: Document) -> Goal:
    """Return what serving a release means, as rollout_info read it; secrets stay as they are."""
    name, files = release["deployment"], release["files"]
    text = _plan_text(files, name)
    return Goal(
        plan=json.loads(text),
        plan_text=text,
        replicas={"kind": "replicas", "deployment": name, "files": files, **release["units"]},
        retain=[{"kind": "release", "deployment": name, "release": release["id"]}],
        release=release["id"],
    )


def _is(resource: Document, kind: str, plan: Plan) -> bool:
    return (resource["kind"], resource.get("deployment")) == (kind, plan.deployment.name)


def _plan_text(files: Sequence[Document], deployment: str) -> str:
    path = f"/etc/apiary/{deployment}/plan.json"
    return next(str(item["content"]) for item in files if item["path"] == path)
