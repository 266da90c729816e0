#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout_room action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_room
short_description: See whether hosts may be taken out of service
version_added: 0.1.0
description:
  - Counts what would be left of each deployment if hosts were taken out as a whole, by what the
    routers say of their replicas. Runs on the controller, changes nothing.
  - Fails where nothing, or less than O(max_unavailable) lets go, would be left.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  hosts:
    description: The hosts that are taken out at the same time.
    type: list
    elements: str
    required: true
  routers:
    description: Results of M(apiary.instinct.router_servers) in a loop over C(__room_router).
    type: list
    elements: dict
    required: true
  max_unavailable:
    description: How many replicas of a deployment may be out at once, or which percentage.
    type: raw
  allow_outage: {description: Whether to go on with a warning., type: bool, default: false}
"""

EXAMPLES = r"""
- name: See whether the host can be spared
  apiary.instinct.rollout_room:
    hosts: [gpu-001]
    routers: "{{ answers.results }}"
    max_unavailable: 25%
"""

RETURN = r"""
findings:
  description: Warnings, where an outage was allowed.
  type: list
  elements: dict
  returned: success
smoke:
  description: The fixed prompts, limits and timeout that M(apiary.instinct.replica_smoke) takes.
  type: dict
  returned: success
"""
