#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_next action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_next
short_description: Record the outcome of trials, and return what to measure next
version_added: 0.1.0
description:
  - Writes the outcome of each trial into the state of a tuning, and returns what each host measures
    next. Runs on the controller.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  state:
    description: The file of the state, as M(apiary.instinct.tune_begin) returned it.
    type: path
    required: true
  hosts: {description: The hosts that can be reached., type: list, elements: str, required: true}
  load_hosts:
    description: Hosts that send load, one for each host that is measured; none where hosts load
      themselves.
    type: list
    elements: str
    default: []
  lost_load_hosts:
    description: Those of O(load_hosts) that could not be reached, as this module returned them.
    type: list
    elements: str
    default: []
  assigned:
    description: The trials that have ended, as this module returned them.
    type: dict
    default: {}
  reported:
    description: What M(apiary.instinct.tune_trial) returned of each host's trial; one that is
      missing could not be reached.
    type: dict
    default: {}
  clients:
    description: The version of vLLM's client on each load host, as this module returned it.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: See what is next
  apiary.instinct.tune_next:
    state: artifacts/tune/qwen3-235b/state.json
    hosts: [gpu-001]
  register: next
"""

RETURN = r"""
assigned:
  description: By host, the next trial with its deployment and its benchmark; empty at the end.
  type: dict
  returned: success
done: {description: Whether the choice is made., type: bool, returned: success}
lost_load_hosts:
  description: Load hosts that could not be reached; their trials stay open.
  type: list
  elements: str
  returned: success
clients:
  description: The version of vLLM's client on each load host.
  type: dict
  returned: success
"""
