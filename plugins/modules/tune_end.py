#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the tune_end action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_end
short_description: Name the winner of a tuning, and the change that makes it the deployment
version_added: 0.1.0
description:
  - Writes the change to the deployment's variables as C(winner.diff) beside the state, and applies
    it where asked. Other runs may go on with the tuning from then on. Runs on the controller.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.differs
options:
  state:
    description: The file of the state, as M(apiary.instinct.tune_begin) returned it.
    type: path
    required: true
  file:
    description: The file of variables that has the deployment; without it the only one is taken
      that O(directories) have.
    type: path
  directories:
    description: Where C(group_vars) and C(host_vars) are looked for.
    type: list
    elements: path
    default: []
  write:
    description: Whether to change the file.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Name the best
  apiary.instinct.tune_end:
    state: artifacts/tune/qwen3-235b/state.json
    directories: [inventory/mine]
  register: ended
"""

RETURN = r"""
done:
  description: Whether the choice is made.
  type: bool
  returned: success
choice:
  description: The choice, as V(apiary.tune/v1) has it.
  type: dict
  returned: success
winner:
  description: The winner's whole deployment, where it is another than the present one.
  type: dict
  returned: success
hosts:
  description: The hosts that took part, so that the choice holds for them.
  type: list
  elements: str
  returned: success
diff_file:
  description: The file of the change.
  type: str
  returned: success
apply:
  description: The command that applies it, as it is typed where the run was started.
  type: str
  returned: success
summary:
  description: What was found, measured and not tried, in lines for a person.
  type: list
  elements: str
  returned: success
"""
