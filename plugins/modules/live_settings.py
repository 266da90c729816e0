#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Set values of the running kernel, and see that they hold."""

from __future__ import annotations

DOCUMENTATION = r"""
module: live_settings
short_description: Set values of the running kernel, and see that they hold
version_added: 0.1.0
description:
  - Writes every value that differs to its file in C(/proc/sys) or C(/sys) and reads it back.
  - A file that shows its choices, as C(always [madvise] never), is compared by the one in brackets.
  - What a value was before the first change is remembered, so that O(state=absent) can put it back.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.applies
options:
  settings:
    description: The values, in the order in which they are written.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path in C(/proc/sys) or C(/sys).
        type: path
        required: true
      value:
        description: The value as it reads, without its line end.
        type: str
        required: true
  remember:
    description: Where earlier values are remembered.
    type: path
    required: true
  state:
    description: V(present) sets the values, V(absent) puts back those remembered.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Turn automatic NUMA balancing off
  apiary.instinct.live_settings:
    settings:
      - path: /proc/sys/kernel/numa_balancing
        value: "0"
    remember: /var/lib/apiary/host_tuning.json
"""

RETURN = r"""
set:
  description: Paths that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/proc/sys/kernel/numa_balancing]
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host_files import write_file
from ..module_utils.live_settings import ARGUMENTS, fail, look, read


def put(path: str, value: str) -> None:
    """Write one value."""
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(value + "\n")


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    memory = module.params["remember"]
    seen = look(module)
    outcome, found, changed, before = seen.outcome, seen.found, seen.changed, seen.before
    if module.check_mode:
        module.exit_json(**outcome)
    if changed and module.params["state"] == "present":
        earlier = {**{path: found[path] for path in changed}, **before}
        os.makedirs(os.path.dirname(memory), mode=0o755, exist_ok=True)
        write_file(module, memory, json.dumps(earlier, indent=2, sort_keys=True) + "\n", "0644")
    for path, value in changed.items():
        try:
            put(path, value)
            now = read(path)
        except OSError as failure:
            fail(module, path, f"cannot be set to {value}: {failure.strerror}")
        if now != value:
            fail(module, path, f"was set to {value} and reads {now}")
    if module.params["state"] == "absent" and before:
        os.unlink(memory)
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
