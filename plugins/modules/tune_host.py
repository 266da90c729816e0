#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_host action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_host
short_description: Say what it takes to tune on a host
version_added: 0.1.0
description:
  - Decides whether a host may be taken for tuning a deployment, which of its replicas have to be
    drained before, and what is brought back afterwards; returns what else the host serves. Reads
    the host, changes nothing.
  - Fails where the host serves, or where another run is changing it.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  plans:
    description: The plans that the variables ask for, as M(apiary.instinct.plan) returned them.
    type: list
    elements: dict
    required: true
  evidence:
    description: The evidence of the host, or the file that has it; its plans are among it.
    type: raw
    required: true
  deployment:
    description: The deployment's name; without it the host's only one.
    type: str
    default: ""
  workload: {description: What will be measured; refused where it is empty., type: str, default: ""}
  load:
    description: The limits or the requests in flight; refused where there are none.
    type: raw
  routers:
    description: What M(apiary.instinct.router_servers) returned of routers, in a loop.
    type: list
    elements: dict
    default: []
  serving: {description: Whether a host may be taken that serves., type: bool, default: false}
  take_over:
    description: Whether a host may be taken that another run has locked.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Evaluate whether the host may be taken
  apiary.instinct.tune_host:
    plans: "{{ decided.plans }}"
    evidence: artifacts/gpu-001/evidence.json
    workload: 5600/140
    load: ttft:p90:2s
  become: true
  register: taken
"""

RETURN = r"""
deployment: {description: The deployment that is tuned., type: dict, returned: success}
others:
  description: The other deployments, as the variables ask for them.
  type: list
  elements: dict
  returned: success
waiting:
  description: Those of RV(others) that the host does not run yet.
  type: list
  elements: dict
  returned: success
running:
  description: The plans of other deployments that the host runs.
  type: list
  elements: dict
  returned: success
planned: {description: The plans of RV(waiting)., type: list, elements: dict, returned: success}
drain:
  description: The servers to drain, as routers name them.
  type: list
  elements: str
  returned: success
out:
  description: The servers to bring back, likewise.
  type: list
  elements: str
  returned: success
ready:
  description:
    - C(drain) and C(out), units to drain and to bring back; C(restore), V(release) or V(nothing);
      C(resumed), whether an interrupted run goes on; C(stopped), whether nothing of the deployment
      was up, so that it is left stopped.
  type: dict
  returned: success
owner:
  description: Who this run is, for the lock.
  type: str
  returned: success
  sample: tuning by ann@controller, process 4711
held_by: {description: Whose lock is on the host., type: str, returned: success}
"""
