#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the apply action, which runs on the controller and converges the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Apply what a survey of the same run decided for a host
version_added: 0.1.0
description:
  - Converges roles of a host with the resources that M(apiary.instinct.survey) decided for it in
    this run; nothing is gathered, decided or rendered again. Each role is one
    M(apiary.instinct.converge), in the order of O(roles).
  - After a change of the driver or ROCm the host must pass the role's checks, but for those that
    pass only after a reboot.
  - Brings the survey that the controller has of the host up to date, and saves the plans that are
    served from now on, which routers follow.
  - In check mode the host is not inspected once more - the result is the survey's.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.differs
options:
  roles:
    description: The roles, in the order in which they are applied. All that they need is decided
      before the first; a refusal of one ends the task before anything is changed. V(reboot) removes
      what an earlier reboot recorded, and reboots nothing.
    type: list
    elements: str
    choices: [rocm, host_tuning, reboot, weight_cache, replicas]
    required: true
  dest:
    description: The directory on the controller that has the survey, as O(dest) of
      M(apiary.instinct.survey).
    type: path
"""

EXAMPLES = r"""
- name: See what would change
  apiary.instinct.survey:
    dest: "artifacts/{{ inventory_hostname }}"
  become: true
  register: seen

- name: Tune the host
  apiary.instinct.apply:
    roles: [host_tuning]
    dest: "artifacts/{{ inventory_hostname }}"
  become: true
  when: "'host_tuning' in seen.due"
"""

RETURN = r"""
resources:
  description: The names of the resources that were changed by their role, or C(replicas:NAME).
  type: dict
  returned: success
  sample: {host_tuning: [file /etc/sysctl.d/90-apiary.conf]}
reboot:
  description: Why the host must be rebooted.
  type: list
  elements: str
  returned: success
  sample: []
stale:
  description: Whether decisions of the survey no longer hold, as the driver or ROCm has changed.
  type: bool
  returned: success
findings: {description: What ends the task., type: list, elements: dict, returned: failure}
"""
