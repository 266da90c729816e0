# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a host with one deployment."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology


def build_plan(
    deployment: Deployment, topology: Topology, architecture: Architecture, keep: Plan | None = None
) -> Plan:
    """Return the plan of a host with one deployment; see ``build_plans``."""
    return build_plans((PlanRequest(deployment, architecture, keep),), topology)[0]
