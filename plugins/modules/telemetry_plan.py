#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the telemetry_plan action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: telemetry_plan
short_description: Decide what Prometheus watches
version_added: 0.1.0
description:
  - Turns the plans of all hosts into targets, rules, Alertmanager's routes and dashboards, on the
    controller.
  - Decides nothing on the host and connects to none.
  - Fails with every finding that forbids it, before anything is touched.
  - A host without a plan is watched, and serves nothing.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  hosts:
    description: Every host that is watched, routers too.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: Its name in the inventory.
        type: str
        required: true
      address:
        description: The address that Prometheus reaches it at.
        type: str
        required: true
      plans:
        description: Its plans, as M(apiary.instinct.plan) returns them.
        type: list
        elements: dict
      artifacts:
        description:
          - The directory on the controller with its plans, read without O(hosts[].plans), and its
            C(evidence.json) where there is one.
        type: path
      rack:
        description: The rack that it stands in.
        type: str
      failure_domain:
        description: What fails as one with it.
        type: str
      router_port:
        description: Where its HAProxy serves metrics; without it the host is no router.
        type: int
      exporters:
        description: The exporters that it has.
        type: list
        elements: str
        choices: [amd, node]
        default: [amd, node]
      amd_port:
        description: The port of AMD's exporter, where it is not that of the settings.
        type: int
      node_port:
        description: The port of node_exporter, where it is not that of the settings.
        type: int
      amd_packaged_only:
        description:
          - Whether AMD's exporter is there only where AMD has a package of it for the system that
            C(survey.json) in O(hosts[].artifacts) tells of.
        type: bool
        default: false
  settings:
    description: What an operator sets, as SLOs, receivers and routes.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Decide what is watched
  apiary.instinct.telemetry_plan:
    hosts:
      - host: gpu-001
        address: 192.0.2.11
        artifacts: artifacts/gpu-001
        rack: r17
      - host: router-001
        address: 192.0.2.1
        router_port: 8405
        exporters: [node]
    settings:
      slos:
        qwen3-235b: ttft:p90:2500ms,tpot:p90:50ms
      receivers:
        - {name: on-call, kind: webhook, url: "https://alerts.example.org/apiary"}
      routes:
        critical: [on-call]
  register: decided
"""

RETURN = r"""
files:
  description: Texts by path, below the directory that Prometheus' configuration is in.
  type: dict
  returned: success
  sample:
    prometheus.yml: "…"
    alertmanager.yml: "…"
    targets/vllm.json: "…"
    rules/alerts.yml: "…"
dashboards:
  description: Grafana's dashboards by the name of their file.
  type: dict
  returned: success
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
"""
