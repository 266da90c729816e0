#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure on a host what its evidence alone does not say."""

from __future__ import annotations

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
        outcome["runs"] = probe.run_all(requested)
    module.exit_json(changed=False, **outcome)


if __name__ == "__main__":
    main()
