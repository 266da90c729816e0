#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the validate action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: validate
short_description: Find every mistake in an inventory's variables
version_added: 0.1.0
description:
  - Reads the variables of all hosts on the controller and tells all mistakes at once, each once
    for however many hosts have it. No host is connected to and nothing changes.
  - Looked at are the roles' variables (type, choices), deployments, names that are misspelt,
    templates that lead nowhere, secrets in plain text, and what hosts must not share or must have
    in common.
  - Run it once (C(run_once)); it needs no facts and no connection.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  hosts:
    description:
      - Hosts whose mistakes are told; the play's by default. The others of C(gpu_hosts), C(routers)
        and C(weights_writers) are read, too, for what hosts must not share.
    type: list
    elements: str
  strict: {description: "Whether a warning ends the task, too.", type: bool, default: false}
"""

EXAMPLES = r"""
- name: Find every mistake in the variables
  apiary.instinct.validate:
  run_once: true
"""

RETURN = r"""
hosts: {description: How many hosts were requested., type: int, returned: always}
findings:
  description: What is wrong; the C(subject) of each names the hosts.
  type: list
  elements: dict
  returned: always
"""
