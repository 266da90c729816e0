#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout_steps action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_steps
short_description: Decide in which order replicas are replaced
version_added: 0.1.0
description:
  - Cuts hosts into growing batches and each host's change into steps, so that no more of a
    deployment's replicas than allowed are out at once. Runs on the controller, changes nothing.
  - Fails with the findings that forbid the change.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  deployment: {description: "The deployment's name.", type: str, required: true}
  situations:
    description: The hosts, as M(apiary.instinct.rollout_look) returns them, in their order.
    type: list
    elements: dict
    required: true
  batches:
    description: Hosts of each batch, as numbers or percentages; the last one repeats.
    type: list
    elements: raw
  canary:
    description: The hosts of the first batch; without it the first of O(batches).
    type: list
    elements: str
    default: []
  max_unavailable:
    description: How many of the deployment's replicas may be out at once, or which percentage.
    type: raw
  failure_budget: {description: Failed hosts after which no further one is begun., type: int}
  pool:
    description: All hosts that may serve the deployment, whether they change or not.
    type: list
    elements: str
    default: []
  artifacts: {description: Where the plans of hosts lie on the controller., type: path}
  servers:
    description: What a router knows of the deployment's servers, by deployment/host-replica.
    type: dict
    default: {}
  routers: {description: Whether there are routers., type: bool, default: false}
  allow_outage:
    description: Whether more may be out than allowed, even all.
    type: bool
    default: false
  allow_unhealthy:
    description: Whether hosts may change whose replicas do not serve.
    type: bool
    default: false
  take_over:
    description: Whether hosts may change that another run has locked.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide the order
  apiary.instinct.rollout_steps:
    deployment: qwen3-235b
    situations: >-
      {{ ansible_play_hosts | map('extract', hostvars, 'looked') | map(attribute='situation') }}
    batches: [1, 25%, 100%]
  run_once: true
  register: order
"""

RETURN = r"""
rollout: {description: The document V(apiary.rollout/v1)., type: dict, returned: success}
steps: {description: The steps by host., type: dict, returned: success}
moved:
  description: Whether routers must learn of other replicas, ports or keys than they know.
  type: bool
  returned: success
findings: {description: What a person should know., type: list, elements: dict, returned: success}
summary:
  description: The order in lines for a person.
  type: list
  elements: str
  returned: success
"""
