# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's deployment on the demo's host, with no host needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan

from support.planned import build_plan
from support.topology.topologies import mi325x

VARIABLES = Path(__file__).parents[2] / "inventory/lab/group_vars/gpu_hosts.yml"


@cache
def demo_deployment() -> Deployment:
    asked = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))["apiary_deployment"]
    return from_document(Deployment, asked, "demo")


@cache
def demo_plan() -> Plan:
    deployment = demo_deployment()
    return build_plan(deployment, mi325x(), architecture_of(deployment, "demo"))
