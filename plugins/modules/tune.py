#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune action, which decides on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune
short_description: Measure layouts and settings of a deployment, step by step
version_added: 0.1.0
description:
  - Playbooks say which step is next; what a step needs of earlier ones is what they registered.
  - V(host), registered as C(__taken), evaluates whether a host may be taken, what is drained before
    and what is brought back. V(begin), once for all hosts and registered as C(__queue), decides
    what is measured, and writes the state of the tuning, from which a later run goes on; it must
    be of the same question. V(next), likewise and registered as C(__next), records the trials that
    ended, and assigns the next one to each host.
  - V(planned), V(failed), V(serve) and V(ended) are of one trial on its host, registered as
    C(__trial). A step that fails does not fail the task, since that is an outcome; the steps after
    it do nothing.
  - V(choose) writes the winning deployment as C(tuned.yml) beside the state, and shows how it
    differs from the present one. It fails where something is left to be measured.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  step:
    description: What is to be done.
    type: str
    choices: [host, begin, next, planned, failed, serve, ended, choose]
    required: true
  decided:
    description: For V(host) what M(apiary.instinct.plan) returned of the variables' deployments.
    type: dict
    default: {}
  evidence:
    description: For V(host) its evidence, or the file that has it; its plans are among it.
    type: raw
  results:
    description:
      - Results of a loop - of M(apiary.instinct.router_servers) over routers for V(host), of a ping
        of the load hosts for V(begin).
    type: list
    elements: dict
    default: []
  deployment:
    description: The deployment's name, for V(host); without it the host's only one.
    type: str
    default: ""
  workload:
    description: What a request has, as C(5600/140), or a workload's name.
    type: str
    default: ""
  slo:
    description: Limits, as C(ttft:p90:2s,tpot:p90:50ms). The most requests a second count that keep
      them; without any, the requests a second at O(concurrency).
    type: str
    default: ""
  concurrency: {description: "Requests in flight on a host, where there are no limits.", type: int}
  serving:
    description: Whether a host may be taken that serves; in check mode that is a warning.
    type: bool
    default: false
  take_over:
    description: Whether a host or a tuning may be taken that another run has locked.
    type: bool
    default: false
  artifacts:
    description: The directory below which the state, V(apiary.tune/v2), lies on the controller, as
      C(tune/DEPLOYMENT/state.json) or C(ablate/DEPLOYMENT/FLAG/state.json).
    type: path
    default: artifacts
  knobs:
    description: What is varied; C(layouts) and values by the name of a knob or a path of the
      deployment, C(env) and C(args) by the engine's own names. Empty for what Apiary has.
    type: dict
    default: {}
  budget:
    description: Where trying ends; fields of V(apiary.tune/v2) as C(trials), C(seconds),
      C(engine_runs).
    type: dict
    default: {}
  ablate:
    description: One flag as C(FLAG) or C(FLAG=VALUE), instead of O(knobs). The deployment is then
      only measured as it is and without the flag or with that value, in turns.
    type: str
    default: ""
  seed: {description: What prompts are made from., type: int, default: 1}
  measured_by:
    description: What sends the load; a tuning does not go on with another one.
    type: dict
    default: {}
  restart: {description: "Whether to begin anew, whatever is there.", type: bool, default: false}
  result:
    description: What the task before returned, or the one that failed, for the steps of a trial.
    type: dict
    default: {}
  key_file: {description: "A file on the load host with the engines' key.", type: path}
  state: {description: "The file of the state, for V(choose).", type: path}
  serve:
    description: Whether V(choose) names hosts on which the winner is to be served.
    type: bool
    default: false
  report: {description: "A line on the report, for V(choose).", type: str, default: ""}
"""

EXAMPLES = r"""
- name: Evaluate whether the host may be taken
  apiary.instinct.tune:
    step: host
    decided: "{{ decided }}"
    evidence: artifacts/gpu-001/evidence.json
    workload: 5600/140
    slo: ttft:p90:2s
  become: true
  register: __taken

- name: Decide what to try
  apiary.instinct.tune:
    step: begin
    workload: 5600/140
    slo: ttft:p90:2s
  run_once: true
  register: __queue
"""

RETURN = r"""
deployment: {description: "The deployment, or its name.", type: raw, returned: host and begin}
others:
  description: The other deployments, as the variables request them.
  type: list
  elements: dict
  returned: host
drain:
  description: The servers to drain, as routers name them; RV(ignore:out) are those to undrain.
  type: list
  elements: str
  returned: host
ready:
  description: What is restored afterwards, and whether an interrupted run goes on.
  type: dict
  returned: host
owner: {description: "Who this run is, for the lock.", type: str, returned: host}
held_by: {description: Whose lock is on the host., type: str, returned: host}
most: {description: How many steps there are at most., type: int, returned: begin}
state: {description: The whole path of the state., type: str, returned: begin and next}
assigned:
  description: By host, the next trial with its deployment and its benchmark; empty at the end.
  type: dict
  returned: begin and next
progress: {description: How far the trial is., type: dict, returned: steps of a trial}
prepare:
  description: Whether the host is to be prepared.
  type: bool
  returned: steps of a trial
measure:
  description: Whether the replicas serve and are to be measured.
  type: bool
  returned: steps of a trial
outcome: {description: How the trial ended., type: dict, returned: ended}
choice: {description: "The choice, as V(apiary.tune/v2) has it.", type: dict, returned: choose}
winner:
  description: The winner's whole deployment, where it is another than the present one.
  type: dict
  returned: choose
target:
  description: The hosts for which the choice holds, where O(serve) says that it is served.
  type: str
  returned: choose
summary:
  description: What was shown.
  type: list
  elements: str
  returned: begin and choose
"""
