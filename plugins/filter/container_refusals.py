# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a host's container engine can't run a plan's replicas."""

from __future__ import annotations

DOCUMENTATION = r"""
name: container_refusals
short_description: Why a host's container engine can't run a plan's replicas
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Judges what C(podman --version) or C(docker --version) says against what the plan needs.
positional: _input
options:
  _input:
    description: A plan, as P(apiary.instinct.plan#module) returns it.
    type: dict
    required: true
  version:
    description: What the engine says of its version; empty where the host has none.
    type: str
    required: true
"""

EXAMPLES = r"""
that: replicas_plan | apiary.instinct.container_refusals(version='podman version 5.4.2') == []
"""

RETURN = r"""
_value:
  description: A text for each refusal, with its code and remedy; none where the replicas can run.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.render.containers.review import engine_findings


def container_refusals(plan, version):
    """Return every refusal of the engine as a text."""
    try:
        document = plan_of(plan, "replicas_plan")
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from refusal
    runtime = document.deployment.engine.runtime
    found = engine_findings(runtime, version, document.host)
    return [str(ApiaryError(one)) for one in found]


class FilterModule:
    """Judging filters."""

    def filters(self):
        return {"container_refusals": container_refusals}
