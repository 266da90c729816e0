# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles that follow plans: reads them on the controller, or takes one, then decides.

For the action `decide`; nothing that decides imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .evidence.types import Evidence
from .findings import error
from .fleet import router_role
from .fleet.saved import quarantined, saved_plans
from .host.types import ConcernPlan
from .plan.check import plan_of
from .render import replicas
from .router.fleet import MissingHost
from .router.pools import PlannedHost

ROLES = ("router",)


def decide_role(
    role: str, options: Mapping[str, Any], evidence: Evidence, python: str, check_mode: bool
) -> ConcernPlan:
    """Return what one of ROLES makes of a host; raise ApiaryError with every refusal."""
    return _router(options, evidence, python, check_mode)


def decide_replicas(
    host: str,
    document: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    evidence: Evidence | None,
    check_mode: bool,
) -> replicas.ReplicasPlan:
    """Return what the role replicas makes of a host by a plan; raise ApiaryError."""
    if options["replicas_state"] == "absent":
        deployment = replicas.absent_deployment(options, document, host)
        return replicas.decide_absent(deployment, options)
    if not document:
        name = "replicas_plan"
        raise error("FLEET-VARIABLE", f"{host}: {name}", "is not set", name=name)
    plan = plan_of(document, "replicas_plan")
    # In check mode another role may not have brought the container engine yet.
    restart = options["replicas_restart"]
    return replicas.decide(plan, options, evidence, restart, engine_later=check_mode)


def _router(
    options: Mapping[str, Any], evidence: Evidence, python: str, check_mode: bool
) -> ConcernPlan:
    plans, missing = [], []
    for place in options["router_plans"]:
        found, reason = _plans(place)
        plans += [PlannedHost(place["host"], place["address"], plan) for plan in found]
        if reason:
            missing.append(MissingHost(place["host"], reason))
    present = options["router_state"] == "present"
    if check_mode and present and not plans and not router_role.runs(evidence):
        # On a fresh fleet check mode has saved no plan: there is nothing to route to yet.
        return router_role.RouterRolePlan(programs=router_role.programs(options, evidence))
    return router_role.decide(options, evidence, plans, missing, python)


def _plans(place: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return a host's plans, and why they do not count or are not there."""
    if place.get("plan"):
        return [plan_of(place["plan"], place["host"])], None
    directory = Path(place.get("artifacts") or "artifacts").absolute()
    if quarantined(directory):
        return [], "is quarantined"
    found = saved_plans(directory)
    return found, None if found else f"has no plan below {directory}"
