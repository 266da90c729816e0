#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_end action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_end
short_description: Name the winner of a tuning
version_added: 0.1.0
description:
  - Writes the winning deployment as C(tuned.yml) beside the state, shows how it differs from the
    present one, and what was found. Other runs may go on with the tuning from then on. Runs on the
    controller.
  - Fails where something is left to be measured.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.differs
options:
  state:
    description: The file of the state, as M(apiary.instinct.tune_begin) returned it.
    type: path
    required: true
  serve: {description: Whether the winner is to be served., type: bool, default: false}
  hosts: {description: The hosts that can be reached., type: list, elements: str, default: []}
  report: {description: "A line on the report, to be shown below.", type: str, default: ""}
"""

EXAMPLES = r"""
- name: Name the best
  apiary.instinct.tune_end:
    state: artifacts/tune/qwen3-235b/state.json
  register: ended
"""

RETURN = r"""
choice: {description: "The choice, as V(apiary.tune/v2) has it.", type: dict, returned: success}
winner:
  description: The winner's whole deployment, where it is another than the present one.
  type: dict
  returned: success
serve:
  description: The winner, where O(serve) says that it is to be served.
  type: dict
  returned: success
target:
  description: The hosts that took part, so that the choice holds for them, separated by commas.
  type: str
  returned: success
tuned_file: {description: The file with the winner., type: str, returned: success}
summary: {description: What was shown., type: list, elements: str, returned: success}
"""
