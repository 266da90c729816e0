# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is to serve after a change: a new plan's files, or those of a retained release."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..documents import to_document
from ..findings import error
from ..plan.types import Plan
from ..render.systemd import render_systemd

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Goal:
    """``release`` is the id of a retained release, empty for a new plan."""

    plan: Document
    plan_text: str
    files: Sequence[Document]
    units: Document
    release: str = ""


def goal_of_plans(plans: Sequence[Plan], deployment: str | None, host: str) -> Goal:
    """Return what serving one of the host's plans means; raise ROLLOUT-WHICH."""
    names = [plan.deployment.name for plan in plans]
    chosen = [plan for plan in plans if deployment in (None, plan.deployment.name)]
    if len(chosen) != 1:
        raise error(
            "ROLLOUT-WHICH",
            host,
            f"serves {', '.join(names)}; rollout_deployment is {deployment or 'not set'}",
        )
    (plan,) = chosen
    name = plan.deployment.name
    files = to_document(render_systemd(plan))
    units = {
        "services": [replica.unit for replica in plan.replicas],
        "target": plan.target,
        "stale_pattern": rf"apiary-{name}-[0-9]+\.service",
    }
    return Goal(to_document(plan), _plan_text(files, name), files, units)


def goal_of_release(release: Document) -> Goal:
    """Return what serving a release means, as rollout_info read it."""
    text = _plan_text(release["files"], release["deployment"])
    plan = json.loads(text)
    return Goal(plan, text, release["files"], release["units"], release["id"])


def _plan_text(files: Sequence[Document], deployment: str) -> str:
    path = f"/etc/apiary/{deployment}/plan.json"
    return next(str(item["content"]) for item in files if item["path"] == path)
