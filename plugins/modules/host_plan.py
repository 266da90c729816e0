#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the host_plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_plan
short_description: Decide what a concern of a host has to become
version_added: 0.1.0
description:
  - Decides from evidence and settings which files, packages, settings and mounts a host needs, what
    has to be checked, and whether it must be rebooted. Runs on the controller and changes nothing.
  - Findings of severity error end the task; warnings are shown.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  concern:
    description: What to decide, by the name of the role that applies it.
    type: str
    required: true
    choices: [rocm, host_tuning, weight_cache, container_runtime, device_plugin, reboot]
  settings:
    description:
      - The role's settings, without the prefix of their names.
      - Without it they are the role's variables on this host, its defaults among them, checked
        against the role's argument specification; one that is wrong ends the task.
    type: dict
  evidence:
    description:
      - The host's evidence, as M(apiary.instinct.evidence_info) returns it, or the path of a file
        on the controller that it is saved in.
    type: raw
    required: true
  refuse:
    description: Whether findings of severity error end the task; acceptance reads them instead.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Decide how to tune the host, by what the inventory has of host_tuning_*
  apiary.instinct.host_plan:
    concern: host_tuning
    evidence: "{{ host.evidence }}"
  register: tuning

- name: Decide it by other settings
  apiary.instinct.host_plan:
    concern: host_tuning
    settings:
      profile: serving
    evidence: "artifacts/{{ inventory_hostname }}/evidence.json"
"""

RETURN = r"""
plan:
  description: The concern's plan, with C(files), C(checks), C(findings), C(skipped) and C(reboot).
  type: dict
  returned: success
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
"""
