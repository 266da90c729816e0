#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the bench_place action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_place
short_description: Decide which replicas to measure, and from which host
version_added: 0.1.0
description:
  - Reads the plans that the controller has of hosts, and where the inventory's routers answer. Runs
    on the controller, changes nothing and asks no engine.
  - Fails where a host has no plan, hosts serve different deployments, or several engine runs would
    restart what routers send requests to.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  hosts:
    description: The hosts whose replicas are measured.
    type: list
    elements: str
    required: true
  deployment:
    description: The deployment's name, where hosts have several.
    type: str
    default: ""
  routers:
    description: Whether to measure through the routers of the group C(routers), if there are any.
    type: bool
    default: true
  servers:
    description: What M(apiary.instinct.router_servers) returned of routers, in a loop; it says at
      which port a router has the deployment.
    type: list
    elements: dict
    default: []
  load_host:
    description: The host that sends the load; without it the first of the group
      C(load_generators), else the first of O(hosts).
    type: str
  urls: {description: Other addresses to measure., type: list, elements: str, default: []}
  metrics: {description: Other pages of metrics., type: list, elements: str, default: []}
  dest:
    description: The directory of the result; without it a new one below the artifacts.
    type: path
  runs: {description: How often the engines are started., type: int, default: 1}
  restart_serving:
    description: Whether to restart replicas that routers send requests to.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide what to measure
  apiary.instinct.bench_place:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: place
"""

RETURN = r"""
name: {description: The deployment., type: str, returned: success}
load_host: {description: The host that sends the load., type: str, returned: success}
itself: {description: Whether that is one of the hosts that serve., type: bool, returned: success}
urls: {description: What is measured., type: list, elements: str, returned: success}
metrics:
  description: The engines' pages of metrics.
  type: list
  elements: str
  returned: success
units: {description: "The units of the replicas, by host.", type: dict, returned: success}
dest: {description: The directory of the result., type: str, returned: success}
"""
