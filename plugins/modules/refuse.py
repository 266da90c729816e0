#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the refuse action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: refuse
short_description: End a play with a finding
version_added: 0.1.0
description:
  - Fails with a finding of the catalogue, which has its severity, meaning and remedy; the playbook
    gives the facts.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  code: {description: The code of the finding., type: str, required: true}
  subject: {description: The host or thing that it is about., type: str, required: true}
  message: {description: What is wrong there., type: str, required: true}
"""

EXAMPLES = r"""
- name: Refuse to begin without a host
  apiary.instinct.refuse:
    code: TRIAL-HOST-GONE
    subject: "{{ ansible_play_hosts_all | join(', ') }}"
    message: could not be reached, and no other host is named
"""

RETURN = r"""
findings: {description: The finding., type: list, elements: dict, returned: always}
"""
