#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_begin action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_begin
short_description: Begin a tuning, or go on with one
version_added: 0.1.0
description:
  - Decides which layouts and settings of a deployment are measured, and in which order, and writes
    the state of the tuning; in check mode only tells of it. Runs on the controller.
  - Where O(state) is there already, the tuning goes on from it; it must be of the same question.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  state:
    description: The file of the state, V(apiary.tune/v1), on the controller.
    type: path
    required: true
  deployment:
    description: The deployment as it is now.
    type: dict
    required: true
  workload:
    description: What a request has, as C(5600/140), or a workload's name.
    type: str
    required: true
  slo:
    description: Limits, as C(ttft:p90:2s,tpot:p90:50ms). The most requests a second count that keep
      them; without any, the requests a second at O(concurrency).
    type: str
    default: ""
  concurrency:
    description: Requests in flight on a host, where there are no limits.
    type: int
  knobs:
    description: What is varied; C(layouts) and values by the name of a knob or a path of the
      deployment, C(env) and C(args) by the engine's own names. Empty for what Apiary knows.
    type: dict
    default: {}
  budget:
    description: Where trying ends; fields of V(apiary.tune/v1) as C(trials), C(seconds), C(lives).
    type: dict
    default: {}
  ablate:
    description: One flag as C(FLAG) or C(FLAG=VALUE), instead of O(knobs). The deployment is then
      only measured as it is and without the flag or with that value, in turns.
    type: str
    default: ""
  seed:
    description: What prompts are made from.
    type: int
    default: 1
  hosts:
    description: The hosts, the first of which decides what is possible.
    type: list
    elements: str
    required: true
  topologies:
    description: The topology of each host.
    type: dict
    required: true
  evidence:
    description: What M(apiary.instinct.evidence_info) returned of each host, to see that several
      are alike.
    type: dict
    default: {}
  engines:
    description: The engine's version on each host, likewise.
    type: dict
    default: {}
  neighbours:
    description: The documents of the plans of other deployments that each host runs, likewise.
    type: dict
    default: {}
  gone:
    description: Hosts that were named and cannot be reached; they take no part.
    type: list
    elements: str
    default: []
  measured_by:
    description: What sends the load; a tuning does not go on with another one.
    type: dict
    default: {}
  running:
    description: The documents of other plans that the host runs, which stay as they are.
    type: list
    elements: dict
    default: []
  others:
    description: Plans of other deployments that the host is to run as well.
    type: list
    elements: dict
    default: []
  restart:
    description: Whether to begin anew, whatever O(state) has.
    type: bool
    default: false
  take_over:
    description: Whether to go on where another run holds the tuning.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide what is tried
  apiary.instinct.tune_begin:
    state: artifacts/tune/qwen3-235b/state.json
    deployment: "{{ apiary_deployment }}"
    workload: 5600/140
    slo: ttft:p90:2s,tpot:p90:50ms
    hosts: [gpu-001]
    topologies: "{{ {'gpu-001': decided.topology} }}"
  register: queue
"""

RETURN = r"""
deployment:
  description: The deployment's name.
  type: str
  returned: success
done:
  description: Whether the choice is made.
  type: bool
  returned: success
most:
  description: How many steps there are at most.
  type: int
  returned: success
state:
  description: The whole path of the state.
  type: str
  returned: success
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
summary:
  description: Candidates and what is not tried, in lines for a person.
  type: list
  elements: str
  returned: success
"""
