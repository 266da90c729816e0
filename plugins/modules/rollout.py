#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the rollout action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Take a change of hosts that serve from one event to the next
version_added: 0.1.0
description:
  - The state of a rolling change or a maintenance, of which playbooks only report what happened.
    It changes nothing itself.
  - V(inspect) compares what a host runs with what it is to serve; register that as C(__inspected).
    V(order) decides from it in which order the replicas of several hosts are replaced, V(room)
    whether hosts can be spared as a whole, V(lost) names hosts that did not end.
  - Every other event returns the progress of its host; register that as C(__progress), from which
    the next event goes on. V(failed) and V(stranded) belong into a rescue; V(close) fails with what
    makes the change a failure.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  event:
    description: What happened, or what is to be inspected or decided.
    type: str
    choices:
      - inspect
      - order
      - room
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
  hosts:
    description: The hosts that it is about, for V(order), V(room), V(gate) and V(lost).
    type: list
    elements: str
    default: []
  results:
    description:
      - Results of a loop - over C(__router) of M(apiary.instinct.router_servers) for V(inspect) and
        V(room), over C(__unit) of M(apiary.instinct.replica_smoke) for V(answered), over
        C(__serves_name) of M(apiary.instinct.rollout_info) for V(inspected) and V(changed).
    type: list
    elements: dict
    default: []
  deployment: {description: "The deployment, for V(inspect); else the one of O(plans).", type: str}
  plans:
    description: For V(inspect) what the host is to serve, as M(apiary.instinct.plan) returns it.
    type: list
    elements: dict
    default: []
  release:
    description:
      - For V(inspect) the release to go back to, instead of O(plans) - its id, V(current),
        V(previous) or V(rollback).
    type: str
  accept_unrecorded:
    description:
      - Whether V(inspect) accepts a release whose plan the host's ledger on this controller does
        not have; routers then follow it. On the way back it is restored, and they do not.
    type: bool
    default: false
  back:
    description: Whether V(inspect) and V(order) are of the way back from a change that failed.
    type: bool
    default: false
  batches:
    description: Hosts of each batch, as numbers or percentages; the last one repeats.
    type: list
    elements: raw
  canary:
    description: The hosts of the first batch; without it the first of O(batches).
    type: list
    elements: str
    default: []
  max_unavailable:
    description: How many of a deployment's replicas may be out at once, or which percentage.
    type: raw
  failure_budget:
    description: Failed hosts after which no further one is begun, for V(order) and V(gate).
    type: int
  allow_outage:
    description: Whether more may be out than allowed, even all.
    type: bool
    default: false
  allow_unhealthy:
    description: Whether hosts may change whose replicas do not serve.
    type: bool
    default: false
  take_over:
    description: Whether hosts may change that another run has locked.
    type: bool
    default: false
  pool:
    description: All hosts that may serve the deployment, whether they change or not.
    type: list
    elements: str
    default: []
  artifacts:
    description:
      - Where the plans and ledgers of hosts lie on the controller; a maintenance's owner has its
        name.
    type: path
    default: artifacts
  batch:
    description: The hosts of the present batch, for V(gate).
    type: list
    elements: str
    default: []
  step: {description: "The step, for V(draining) and V(stepped).", type: dict, default: {}}
  unreached:
    description: Routers that did not answer, for V(stepped).
    type: list
    elements: str
    default: []
  task:
    description: The name of the task that failed, for V(failed) and V(stranded).
    type: str
    default: ""
  result: {description: What that task returned., type: dict, default: {}}
  due:
    description: The roles that would change something, for V(inspected).
    type: list
    elements: str
    default: []
  reboot:
    description: Whether the host is rebooted in any case, for V(inspected).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Compare the host with what it is to serve
  apiary.instinct.rollout:
    event: inspect
    plans: "{{ decided.plans }}"
    results: "{{ answers.results }}"
  become: true
  register: __inspected

- name: Record the drain of what the step replaces
  apiary.instinct.rollout:
    event: draining
    step: "{{ step }}"
  register: __progress
"""

RETURN = r"""
outcome:
  description: One of waiting, begun, done, failed and back.
  type: str
  returned: events with progress
out:
  description: Units that are out of the routers.
  type: list
  elements: str
  returned: events with progress
word:
  description: The outcome as C(apiary rollout) reads it.
  type: str
  returned: events with progress
note:
  description: What a person should know; empty where nothing.
  type: str
  returned: all events but order and room
to:
  description: What the host is to serve, its plan and resources.
  type: dict
  returned: inspect
situation: {description: The host before the change., type: dict, returned: inspect}
rollout: {description: The document V(apiary.rollout/v1)., type: dict, returned: order}
steps: {description: The steps by host., type: dict, returned: order}
summary:
  description: The order in lines for a person.
  type: list
  elements: str
  returned: order
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: order and room
smoke:
  description: What M(apiary.instinct.replica_smoke) takes as O(ignore:smoke).
  type: dict
  returned: inspect and room
"""
