#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the decide action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: decide
short_description: Decide which resources a role gives a host
version_added: 0.1.0
description:
  - Decides from evidence and settings which files, packages, settings and mounts a host needs, what
    has to be checked, and whether it must be rebooted. Runs on the controller and changes nothing.
  - M(apiary.instinct.converge) brings the host to the resources.
  - Findings of severity error end the task; warnings are shown.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  role:
    description: The role.
    type: str
    required: true
    choices: [rocm, host_tuning, weight_cache, container_runtime, device_plugin, reboot, replicas,
      router, telemetry, monitoring, weights]
  settings:
    description:
      - The role's settings, without the prefix of their names.
      - Without it they are the role's variables on this host, its defaults among them, checked
        against the role's argument specification; one that is wrong ends the task.
    type: dict
  evidence:
    description:
      - The host's evidence, as M(apiary.instinct.evidence_info) returns it, or the path of a file
        on the controller that it is saved in. Only replicas that run on the host itself need none.
    type: raw
    default: {}
  plan:
    description: The plan that the role replicas serves, as M(apiary.instinct.plan) returns it.
    type: dict
  require:
    description:
      - Whether checks that fail with severity error end the task, but for those that pass only
        after the plan's reboot; for a host that has just been converged.
    type: bool
    default: false
  refuse:
    description: Whether findings of severity error end the task; acceptance reads them instead.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Decide how to tune the host, by what the inventory has of host_tuning_*
  apiary.instinct.decide:
    role: host_tuning
    evidence: "{{ host.evidence }}"
  register: tuning

- name: Decide it by other settings
  apiary.instinct.decide:
    role: host_tuning
    settings:
      profile: serving
    evidence: "artifacts/{{ inventory_hostname }}/evidence.json"
"""

RETURN = r"""
plan:
  description: The role's plan, with C(files), C(checks), C(findings), C(skipped) and C(reboot).
  type: dict
  returned: success
resources:
  description:
    - What the host is to have, in order, with C(ROLE_extra_resources) and without C(ROLE_omit).
  type: list
  elements: dict
  returned: success
findings: {description: What a person should know., type: list, elements: dict, returned: success}
"""
