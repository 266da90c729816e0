#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the router_answers action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: router_answers
short_description: Evaluate what routers answered
version_added: 0.1.0
description:
  - Reads the results of M(apiary.instinct.router_servers) in a loop whose variable is
    C(__drain_router); fails where what they say must not be.

author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  answers: {description: The results of the loop., type: list, elements: dict, required: true}
  state:
    description:
      - What is evaluated - V(draining) and V(drain) who was reached, V(drained) whether nothing
        is in work any more, V(up) whether replicas are back.
    type: str
    choices: [draining, drain, drained, up]
    required: true
  routers: {description: The routers of the loop., type: list, elements: str, default: []}
  replicas: {description: "What is drained, for messages.", type: list, elements: str, default: []}
  required: {description: Whether every router must be reached., type: bool, default: true}
  forced: {description: "Whether replicas may stay down, for V(up).", type: bool, default: false}
  timeout: {description: "How long was waited, in seconds, for messages.", type: int, default: 300}
  previous:
    description: What was returned before; its results come first.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Evaluate what is left
  apiary.instinct.router_answers:
    state: drained
    answers: "{{ drained.results }}"
"""

RETURN = r"""
answered: {description: The routers that answered., type: list, elements: str, returned: success}
lost: {description: The routers that did not., type: list, elements: str, returned: success}
results:
  description: The results of those that answered.
  type: list
  elements: dict
  returned: success
"""
