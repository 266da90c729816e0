#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the acceptance action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance
short_description: See whether a host is what its settings say
version_added: 0.1.0
description:
  - Joins the checks of the roles' plans, decided on fresh evidence, with those of the GPUs, the
    kernel's log and the replicas. Runs on the controller and changes nothing on the host.
  - Does not fail by itself; RV(accepted) says whether the host is right.
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
    support: none
    details: The action changes nothing on the host.
options:
  evidence:
    description:
      - The host's evidence of the scopes V(gpu) and V(acceptance), as
        M(apiary.instinct.evidence_info) returns it.
    type: dict
    required: true
  plans:
    description: Plans by concern, as M(apiary.instinct.host_plan) makes them of this evidence.
    type: dict
    default: {}
  gpus:
    description: How many GPUs the host is to have; without it, as many as its board carries.
    type: int
  strict:
    description: Whether a warning, too, means that the host is not accepted.
    type: bool
    default: false
  dest:
    description: A directory on the controller where the document is saved, except in check mode.
    type: path
"""

EXAMPLES = r"""
- name: See whether the host is right
  apiary.instinct.acceptance:
    evidence: "{{ host.evidence }}"
    plans:
      host_tuning: "{{ tuning.plan }}"
    dest: "artifacts/{{ inventory_hostname }}"
  register: acceptance
"""

RETURN = r"""
acceptance:
  description: The document V(apiary.acceptance/v1).
  type: dict
  returned: success
accepted:
  description: Whether no check of severity error fails.
  type: bool
  returned: success
findings:
  description: What a person should know, errors first.
  type: list
  elements: dict
  returned: success
summary:
  description: The same in lines for a person.
  type: list
  elements: str
  returned: success
"""
