#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout_look action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_look
short_description: Work out what a change means for one host
version_added: 0.1.0
description:
  - Reads what a host runs, compares it with what it is to serve, and says how each replica must
    answer afterwards, for M(apiary.instinct.rollout_steps). Changes nothing.

author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  deployment: {description: The deployment; not needed where O(plans) has one., type: str}
  plans:
    description: The host's plans, as M(apiary.instinct.plan) returns them; or O(release).
    type: list
    elements: dict
  release:
    description: The release to go back to, its id, V(current), V(previous) or V(rollback).
    type: str
  routers:
    description:
      - The results of M(apiary.instinct.router_servers) in a loop whose variable is C(__router).
    type: list
    elements: dict
    default: []
  back:
    description: Whether this is the way back from a change that failed.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Compare the host with what it is to serve
  apiary.instinct.rollout_look:
    plans: "{{ decided.plans }}"
    routers: "{{ answers.results }}"
  become: true
  register: looked
"""

RETURN = r"""
to:
  description: What the host is to serve, its plan and resources.
  type: dict
  returned: success
reported:
  description: What M(apiary.instinct.rollout_info) returned.
  type: dict
  returned: success
servers:
  description: What the first router that answered has of the deployment's servers.
  type: dict
  returned: success
situation: {description: The host before the change., type: dict, returned: success}
owner: {description: "Who this run is, for the lock.", type: str, returned: success}
compare:
  description: By unit, whether it must answer as before (must, should, no), and why.
  type: dict
  returned: success
smoke: {description: The prompts and limits of the smoke test., type: dict, returned: success}
note:
  description: What a person should know of the choice of a release.
  type: str
  returned: success
"""
