#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure on a host what its evidence alone does not say."""

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_probe
short_description: Measure on a host what its evidence alone does not say
version_added: 0.1.0
description:
  - Asks replicas for their health, reads files past the page cache, and runs programs that load
    the GPUs. What they print is returned as it is; nothing is judged.
  - M(apiary.instinct.acceptance) decides what is requested and judges it.
  - In check mode only replicas are asked; nothing is read and no program runs.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.reads
options:
  health:
    description: Replicas to ask.
    type: list
    elements: dict
    default: []
    suboptions:
      unit: {description: "The replica's unit.", type: str, required: true}
      port: {description: Where it listens., type: int, required: true}
      address: {description: Where it listens., type: str, default: 127.0.0.1}
  reading:
    description: Files to read with direct I/O, the largest first.
    type: dict
    suboptions:
      paths: {description: Directories., type: list, elements: path, required: true}
      bytes: {description: After how much to stop., type: int, required: true}
      seconds: {description: After which time to stop., type: float, required: true}
      readers: {description: How many read at once., type: int, default: 8}
      block_bytes: {description: How much one read asks for., type: int, default: 4194304}
  runs:
    description: Programs to run, one after another.
    type: list
    elements: dict
    default: []
    suboptions:
      test: {description: What it belongs to., type: str, required: true}
      name: {description: Its part of it., type: str, required: true}
      attempts:
        description: Ways to start it, C(argv) and C(needs), a file; the first possible is taken.
        type: list
        elements: dict
        required: true
  run_seconds: {description: After which time a program is ended., type: int, default: 900}
  idle_bytes:
    description: No program runs while a process holds more VRAM than this.
    type: int
    default: 1073741824
"""

EXAMPLES = r"""
- name: Ask a replica, and measure the weights' mount for at most 20 s
  apiary.instinct.acceptance_probe:
    health:
      - {unit: apiary-qwen3-235b-0.service, port: 8000}
    reading:
      paths: [/srv/models]
      bytes: 8589934592
      seconds: 20
  register: measured
"""

RETURN = r"""
health:
  description: For each replica C(unit), and C(status) or C(error).
  type: list
  elements: dict
  returned: success
read:
  description: C(bytes), C(seconds), C(files), and C(error) where something went wrong.
  type: dict
  returned: when reading was requested and it is not check mode
runs:
  description: For each program C(argv), C(exit), C(output), C(seconds), C(installed), C(error).
  type: list
  elements: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.evidence import acceptance as probe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "health": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "unit": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                    "address": {"type": "str", "default": "127.0.0.1"},
                },
            },
            "reading": {
                "type": "dict",
                "options": {
                    "paths": {"type": "list", "elements": "path", "required": True},
                    "bytes": {"type": "int", "required": True},
                    "seconds": {"type": "float", "required": True},
                    "readers": {"type": "int", "default": 8},
                    "block_bytes": {"type": "int", "default": 4194304},
                },
            },
            "runs": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "test": {"type": "str", "required": True},
                    "name": {"type": "str", "required": True},
                    "attempts": {"type": "list", "elements": "dict", "required": True},
                },
            },
            "run_seconds": {"type": "int", "default": 900},
            "idle_bytes": {"type": "int", "default": 1073741824},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    outcome = {
        "health": [
            probe.health(item["unit"], item["address"], item["port"])
            for item in parameters["health"]
        ],
        "runs": [],
    }
    if not module.check_mode:
        reading = parameters["reading"]
        if reading:
            outcome["read"] = probe.read(
                reading["paths"],
                reading["bytes"],
                reading["seconds"],
                reading["readers"],
                reading["block_bytes"],
            )
        for item in parameters["runs"]:
            ran = probe.run(item["attempts"], parameters["run_seconds"], parameters["idle_bytes"])
            outcome["runs"].append({"test": item["test"], "name": item["name"], **ran})
    module.exit_json(changed=False, **outcome)


if __name__ == "__main__":
    main()
