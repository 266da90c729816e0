#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the quarantine action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: quarantine
short_description: Write down why a host is left out, or let it in again
version_added: 0.1.0
description:
  - Writes or removes C(quarantine.json) among the host's documents on the controller.

author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  dest: {description: "The host's directory on the controller.", type: path, required: true}
  state:
    description: Whether the host is in quarantine.
    type: str
    choices: [present, absent]
    default: present
  progress:
    description:
      - What M(apiary.instinct.rollout) returned of the failure; or O(task) and
        O(result).
    type: dict
  task: {description: The name of the task that failed., type: str, default: ""}
  result: {description: What that task returned., type: dict, default: {}}
  fail: {description: Whether the host fails with the same message., type: bool, default: false}
"""

EXAMPLES = r"""
- name: Write down why, and leave the host out
  apiary.instinct.quarantine:
    dest: artifacts/gpu-001
    task: "{{ ansible_failed_task.name }}"
    result: "{{ ansible_failed_result }}"
    fail: true
"""

RETURN = r"""
message: {description: The reason in lines., type: list, elements: str, returned: success}
"""
