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
  - Where its state is there already, the tuning goes on from it; it must be of the same question.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  artifacts:
    description: The directory below which the state, V(apiary.tune/v2), lies on the controller, as
      C(tune/DEPLOYMENT/state.json) or C(ablate/DEPLOYMENT/FLAG/state.json).
    type: path
    default: artifacts
  workload:
    description: What a request has, as C(5600/140), or a workload's name.
    type: str
    required: true
  slo:
    description: Limits, as C(ttft:p90:2s,tpot:p90:50ms). The most requests a second count that keep
      them; without any, the requests a second at O(concurrency).
    type: str
    default: ""
  concurrency: {description: "Requests in flight on a host, where there are no limits.", type: int}
  knobs:
    description: What is varied; C(layouts) and values by the name of a knob or a path of the
      deployment, C(env) and C(args) by the engine's own names. Empty for what Apiary knows.
    type: dict
    default: {}
  budget:
    description: Where trying ends; fields of V(apiary.tune/v2) as C(trials), C(seconds),
      C(engine_runs).
    type: dict
    default: {}
  ablate:
    description: One flag as C(FLAG) or C(FLAG=VALUE), instead of O(knobs). The deployment is then
      only measured as it is and without the flag or with that value, in turns.
    type: str
    default: ""
  seed: {description: What prompts are made from., type: int, default: 1}
  hosts:
    description: What M(apiary.instinct.tune_host) returned of each host, by its name; the first one
      decides what is possible.
    type: dict
    required: true
  topologies: {description: The topology of each host., type: dict, required: true}
  evidence:
    description: What M(apiary.instinct.evidence_info) returned of each host, to see that several
      are alike.
    type: dict
    default: {}
  load_hosts:
    description: What a ping of each load host returned, by its name; none where hosts load
      themselves.
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
  restart: {description: "Whether to begin anew, whatever is there.", type: bool, default: false}
  take_over:
    description: Whether to go on where another run holds the tuning.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide what to try
  apiary.instinct.tune_begin:
    workload: 5600/140
    slo: ttft:p90:2s,tpot:p90:50ms
    hosts: "{{ {'gpu-001': taken} }}"
    topologies: "{{ {'gpu-001': decided.topology} }}"
  register: queue
"""

RETURN = r"""
deployment: {description: "The deployment's name.", type: str, returned: success}
done: {description: Whether the choice is made., type: bool, returned: success}
most: {description: How many steps there are at most., type: int, returned: success}
state: {description: The whole path of the state., type: str, returned: success}
lost_load_hosts:
  description: Load hosts that could not be reached.
  type: list
  elements: str
  returned: success
findings: {description: What a person should know., type: list, elements: dict, returned: success}
summary:
  description: Candidates and what is not tried, in lines for a person.
  type: list
  elements: str
  returned: success
"""
