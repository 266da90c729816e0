#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the router_plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: router_plan
short_description: Decide what a router runs
version_added: 0.1.0
description:
  - Turns the plans of all hosts into a router's pools and files, on the controller.
  - Decides nothing on the host and connects to none.
  - Fails with every finding that forbids it, before anything is touched.
  - In check mode it is skipped on a fleet that has no plan yet.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.differs
options:
  plans:
    description: Every host that may have replicas.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: Its name in the inventory.
        type: str
        required: true
      address:
        description: The address that the router reaches it at.
        type: str
        required: true
      plan:
        description: Its plan, as M(apiary.instinct.plan) returns it.
        type: dict
      artifacts:
        description: The directory on the controller with its plans, read without O(plans[].plan).
        type: path
  settings:
    description: What an operator sets; see C(apiary schema router).
    type: dict
    default: {}
  virtual:
    description:
      - The address that several routers share; C(addresses), C(interface), C(peers) with C(host)
        and C(address), C(router_id), C(password) for whether there is one.
    type: dict
  before:
    description: The document of the router that runs, for what leaves it to be named.
    type: dict
  engine_keys:
    description: The names of deployments whose engines' key the router is given.
    type: list
    elements: str
    default: []
  python:
    description: The Python interpreter of the router's host.
    type: path
    default: /usr/bin/python3
"""

EXAMPLES = r"""
- name: Decide what the router runs
  apiary.instinct.router_plan:
    plans:
      - host: gpu-001
        address: 192.0.2.11
        artifacts: artifacts/gpu-001
    settings:
      first_port: 8080
  register: decided
"""

RETURN = r"""
pools:
  description: The port and the servers of each deployment.
  type: dict
  returned: success
  sample:
    qwen3-235b: {port: 8080, servers: {gpu-001-0: "192.0.2.11:8000"}}
files:
  description: Files that everybody on the router may read.
  type: list
  elements: dict
  returned: success
secrets:
  description: Files that root alone may read, such as digests of API keys.
  type: list
  elements: dict
  returned: success
virtual_files:
  description: Files of keepalived.
  type: list
  elements: dict
  returned: success
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
"""
