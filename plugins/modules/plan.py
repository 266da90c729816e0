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
extends_documentation_fragment:
  - apiary.instinct.attributes.differs
options:
  deployment:
    description:
      - What is requested; see C(apiary schema deployment).
      - Its C(layout) may be C(auto) or open in part; each host then gets the layout that is
        preferred for its own GPUs. The C(layouts) of the plan say which were considered and why.
      - This, O(deployments) or O(serves) is needed.
    type: dict
  deployments:
    description:
      - The deployments of the host, where it has several. They are placed by one joint search, so
        no cut of the host costs less, and the order says nothing but this - layouts that are open
        are chosen in turn, on the GPUs that the others leave.
    type: list
    elements: dict
  evidence:
    description:
      - What M(apiary.instinct.evidence_info) returned, or the path of a file on the controller that
        it is saved in. Needed with O(deployment) and O(deployments).
    type: raw
  serves:
    description:
      - The text of a plan that was decided before and that the host serves now, such as that of a
        release it went back to. It is saved below O(dest) and recorded in the host's ledger;
        nothing is decided.
    type: str
  dest:
    description:
      - A directory on the controller for C(evidence.json), C(topology.json), the rendered files
        below C(files/), and the plans - C(NAME/plan.json) of each deployment, and C(plan.json) of
        the first. The plans' digests go into the host's ledger, C(../fleet/ledger/NAME.json) for a
        directory NAME; routers and monitoring follow no other plans.
      - Not written in check mode.
    type: path
  keep:
    description:
      - A plan that the host runs now. Its replicas that can stay keep their GPUs, also where
        another cut of the host would cost less.
    type: dict
  running:
    description:
      - The plans of all deployments that the host has now. Without it they are those that the
        evidence has by its scope V(plans).
      - GPUs and ports of those that are not asked for are left to them.
    type: list
    elements: dict
  keep_running:
    description: Whether all plans of O(running) are to keep, as with O(keep).
    type: bool
    default: false
  remove_others:
    description: Whether deployments that are not asked for are removed and leave nothing taken.
    type: bool
    default: false
  hosts:
    description:
      - The hosts, in their order, of which a deployment with C(layout.nodes) above 1 makes groups.
      - Of each are read C(apiary_deployment) or C(apiary_deployments), C(apiary_address) (else
        C(ansible_host)), C(apiary_interface), C(apiary_node_group), and the evidence gathered in
        the same run.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Decide which replicas this host runs
  apiary.instinct.plan:
    deployment: "{{ apiary_deployment }}"
    evidence: "{{ __probed.evidence }}"
    dest: "artifacts/{{ inventory_hostname }}"
  register: __decided

- name: Decide about two deployments on one host, around what it serves already
  apiary.instinct.plan:
    deployments: "{{ apiary_deployments }}"
    evidence: "{{ __probed.evidence }}"
    running: "{{ __running_plans }}"
    keep_running: true
"""

RETURN = r"""
plan:
  description: The plan of the first deployment, as C(apiary schema plan) describes it.
  type: dict
  returned: success
plans:
  description: The plan of each deployment, in the order given.
  type: list
  elements: dict
  returned: success
others:
  description: The plans of O(running) whose deployment is not asked for.
  type: list
  elements: dict
  returned: success
findings:
  description: What is to be said of the host as a whole, beside the findings of the plans.
  type: list
  elements: dict
  returned: success
topology:
  description: What the evidence means, as C(apiary schema topology) describes it.
  type: dict
  returned: success
summary:
  description: The plans in lines for a person.
  type: list
  elements: str
  returned: success
"""
