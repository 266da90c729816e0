#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Decide which replicas a host runs
version_added: 0.1.0
description:
  - Turns a host's evidence and a deployment into the plan of that host, on the controller.
  - Decides nothing on the host and connects to none.
  - Fails with every finding that forbids the deployment on this host, before anything is touched.
author:
  - The Apiary authors (@apiary)
attributes:
  action:
    description: Has an action plugin, so it runs on the controller.
    support: full
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
options:
  deployment:
    description:
      - What is asked for; see C(apiary schema deployment).
      - Its C(layout) may be C(auto) or open in part; each host then gets the layout that is
        preferred for its own GPUs. The C(layouts) of the plan say which were considered and why.
    type: dict
    required: true
  evidence:
    description: What M(apiary.instinct.evidence_info) returned.
    type: dict
    required: true
  dest:
    description:
      - A directory on the controller for C(evidence.json), C(topology.json), C(plan.json) and the
        rendered files below C(files/).
      - Not written in check mode.
    type: path
  keep:
    description:
      - The plan that the host runs now. Its replicas that can stay keep their GPUs, also where
        another cut of the host would cost less.
    type: dict
"""

EXAMPLES = r"""
- name: Decide which replicas this host runs
  apiary.instinct.plan:
    deployment: "{{ apiary_deployment }}"
    evidence: "{{ __probed.evidence }}"
    dest: "artifacts/{{ inventory_hostname }}"
  register: __decided
"""

RETURN = r"""
plan:
  description: The plan, as C(apiary schema plan) describes it.
  type: dict
  returned: success
topology:
  description: What the evidence means, as C(apiary schema topology) describes it.
  type: dict
  returned: success
summary:
  description: The plan in lines for a person.
  type: list
  elements: str
  returned: success
"""
