#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout_situation action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_situation
short_description: Work out what a change means for one host
version_added: 0.1.0
description:
  - Joins what a host runs with what it is to run, for M(apiary.instinct.rollout_steps), and says
    how each replica is to answer afterwards. Runs on the controller and changes nothing.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  told:
    description: What M(apiary.instinct.rollout_info) returned.
    type: dict
    required: true
  wanted:
    description: The new plan.
    type: dict
    required: true
  would:
    description:
      - What M(apiary.instinct.replica_units) returned for the new plan in check mode, with
        V(secrets), the files of secrets that change.
    type: dict
    required: true
  servers:
    description: What a router knows of the deployment's servers, by deployment/host-replica.
    type: dict
    default: {}
  back:
    description: Whether this is the way back from a change that failed.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Work out what that means
  apiary.instinct.rollout_situation:
    told: "{{ told }}"
    wanted: "{{ plan }}"
    would: "{{ would }}"
  register: looked
"""

RETURN = r"""
situation:
  description: The host before the change.
  type: dict
  returned: success
owner:
  description: Who this run is, for the lock.
  type: str
  returned: success
  sample: ann@controller, process 4711
lock_is_dead:
  description: Whether the host's lock is of a run on this controller that has ended.
  type: bool
  returned: success
compare:
  description: By unit, whether it must answer as before (must, should, no), and why.
  type: dict
  returned: success
smoke:
  description: The prompts and limits of the smoke test.
  type: dict
  returned: success
"""
