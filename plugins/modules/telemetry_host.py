#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the telemetry_host action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: telemetry_host
short_description: Decide which exporters a host has, and what it tells of itself
version_added: 0.1.0
description:
  - Turns the settings of the role P(apiary.instinct.telemetry#role) and a host's evidence into
    services, files and packages, on the controller.
  - Decides nothing on the host and connects to none.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  settings:
    description: The role's options, without its prefix.
    type: dict
    default: {}
  evidence:
    description: What M(apiary.instinct.evidence_info) returned of the host.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Decide what the host tells of itself
  apiary.instinct.telemetry_host:
    settings:
      listen: 192.0.2.11
    evidence: "{{ probed.evidence }}"
  register: decided
"""

RETURN = r"""
plan:
  description: Services with their files and packages, what the host is to have, and its ports.
  type: dict
  returned: success
  sample:
    method: package
    ports: {amd: 5000, node: 9100}
looks:
  description: The same as steps of M(apiary.instinct.host_check).
  type: list
  elements: dict
  returned: success
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
"""
