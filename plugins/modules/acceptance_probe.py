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
  requested:
    description:
      - What to measure, as M(apiary.instinct.acceptance) decides it - replicas to ask in C(health),
        files to read with direct I/O in C(reading), programs to run one after another in C(runs),
        each ended after C(run_seconds) and not begun while a process holds more VRAM than
        C(idle_bytes).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Ask a replica
  apiary.instinct.acceptance_probe:
    requested:
      health:
        - {unit: apiary-qwen3-235b-0.service, address: 127.0.0.1, port: 8000}
      runs: []
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
        argument_spec={"requested": {"type": "dict", "required": True}}, supports_check_mode=True
    )
    requested = module.params["requested"]
    outcome = {
        "health": [
            probe.health(item["unit"], item["address"], item["port"], item.get("authority"))
            for item in requested["health"]
        ],
        "runs": [],
    }
    if not module.check_mode:
        reading = requested.get("reading")
        if reading:
            outcome["read"] = probe.read(
                reading["paths"],
                reading["bytes"],
                reading["seconds"],
                reading["readers"],
                reading["block_bytes"],
            )
        for item in requested["runs"]:
            ran = probe.run(item["attempts"], requested["run_seconds"], requested["idle_bytes"])
            outcome["runs"].append({"test": item["test"], "name": item["name"], **ran})
    module.exit_json(changed=False, **outcome)


if __name__ == "__main__":
    main()
