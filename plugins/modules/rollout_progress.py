#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout_progress action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_progress
short_description: Take the state of a host's change from one event to the next
version_added: 0.1.0
description:
  - The state of a host's rolling change or maintenance is one document, which each event returns
    anew; register it as C(__progress). Playbooks only say what happened.
  - V(close) fails with what makes the change a failure, V(lost) names hosts that did not end.

author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  event:
    description: What happened.
    type: str
    choices:
      - wait
      - gate
      - begin
      - locked
      - draining
      - answered
      - stepped
      - returning
      - returned
      - stranded
      - maintain
      - inspected
      - leaving
      - changed
      - done
      - failed
      - close
      - lost
    required: true
  progress: {description: What the event before returned., type: dict, default: {}}
  hosts:
    description: Hosts whose progress counts, for V(gate) and V(lost).
    type: list
    elements: str
    default: []
  batch:
    description: The hosts of the present batch, for V(gate).
    type: list
    elements: str
    default: []
  failure_budget: {description: "How many hosts may fail, for V(gate).", type: int, default: 0}
  out:
    description: Units that an earlier run left out of the routers, for V(begin).
    type: list
    elements: str
    default: []
  step: {description: "The step, for V(draining) and V(stepped).", type: dict, default: {}}
  answers:
    description:
      - Results of M(apiary.instinct.replica_smoke) in a loop over C(__unit), for V(answered).
    type: list
    elements: dict
    default: []
  unreached:
    description: Routers that did not answer, for V(stepped).
    type: list
    elements: str
    default: []
  release: {description: "The release that serves again, for V(returned).", type: str, default: ""}
  task:
    description: The name of the task that failed, for V(failed) and V(stranded).
    type: str
    default: ""
  result: {description: What that task returned., type: dict, default: {}}
  served:
    description:
      - What M(apiary.instinct.rollout_info) returned of each deployment, for V(inspected) and
        V(changed).
    type: list
    elements: dict
    default: []
  due:
    description: The roles that would change something, for V(inspected).
    type: list
    elements: str
    default: []
  reboot:
    description: Whether the host is rebooted in any case, for V(inspected).
    type: bool
    default: false
  maintaining:
    description: Whether the hosts were maintained, for V(lost).
    type: bool
    default: false
  artifacts:
    description: The controller's directory, which is part of a maintenance's owner.
    type: path
    default: artifacts
"""

EXAMPLES = r"""
- name: Note why it failed
  apiary.instinct.rollout_progress:
    event: failed
    progress: "{{ __progress }}"
    task: "{{ ansible_failed_task.name }}"
    result: "{{ ansible_failed_result }}"
  register: __progress
"""

RETURN = r"""
outcome:
  description: One of waiting, begun, done, failed and back.
  type: str
  returned: success
word: {description: The outcome as C(apiary rollout) reads it., type: str, returned: success}
note: {description: What a person should know; empty where nothing., type: str, returned: success}
out: {description: Units that are out of the routers., type: list, elements: str, returned: success}
late_servers:
  description: Names of servers that return when the routers know them.
  type: list
  elements: str
  returned: success
maintenance:
  description: What a maintained host served, and what is stopped and started.
  type: dict
  returned: success
"""
