#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_trial action, which runs on the host of a trial."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_trial
short_description: One trial of a tuning on its host, step by step
version_added: 0.1.0
description:
  - Has the replicas of a trial's plan serve, and collects what its steps show of it. A step that
    fails does not fail the task, since that is an outcome; the steps after it do nothing.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: none
  diff_mode:
    description: Will return details on what has changed.
    support: none
options:
  step:
    description:
      - V(planned) takes what M(apiary.instinct.plan) returned as O(result), V(failed) the result of
        another task that failed.
      - V(serve) starts the replicas, V(end) takes what M(apiary.instinct.bench) returned.
    type: str
    choices: [planned, failed, serve, end]
    required: true
  trial:
    description: The trial, as M(apiary.instinct.tune_next) assigned it.
    type: dict
    required: true
  progress: {description: What the step before returned., type: dict, default: {}}
  result: {description: The result of the task before., type: dict, default: {}}
  options:
    description: The operator's C(command), C(key_file) and C(rules) of the measurement.
    type: dict
    default: {}
  state:
    description: The file of the tuning's state; paths are relative to its directory.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Serve it
  apiary.instinct.tune_trial:
    step: serve
    trial: "{{ assigned['gpu-001'] }}"
    progress: "{{ trial }}"
  become: true
  register: trial
"""

RETURN = r"""
progress:
  description: How far the trial is, for the next step.
  type: dict
  returned: all steps but the last
prepare:
  description: Whether the host is to be prepared.
  type: bool
  returned: all steps but the last
measure:
  description: Whether the replicas serve and are to be measured.
  type: bool
  returned: all steps but the last
plan: {description: The plan of the trial., type: dict, returned: all steps but the last}
bench:
  description: Arguments of M(apiary.instinct.bench) for it.
  type: dict
  returned: all steps but the last
reported:
  description: What M(apiary.instinct.tune_next) records.
  type: dict
  returned: the last step
"""
