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
    drained before, and what is brought back afterwards. Runs on the controller, changes nothing.
  - Fails where the host serves, or where another run is changing it.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  deployment:
    description: The deployment's name.
    type: str
    required: true
  told:
    description: What M(apiary.instinct.rollout_info) returned.
    type: dict
    required: true
  servers:
    description: What each router knows of the deployment's servers, by deployment/host-replica.
    type: list
    elements: dict
    default: []
  routers:
    description: Whether there are routers.
    type: bool
    default: false
  serving:
    description: Whether a host may be taken that serves.
    type: bool
    default: false
  take_over:
    description: Whether a host may be taken that another run has locked.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See whether the host may be taken
  apiary.instinct.tune_host:
    deployment: qwen3-235b
    told: "{{ told }}"
  register: taken
"""

RETURN = r"""
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
held_by:
  description: Whose lock is on the host.
  type: str
  returned: success
"""
