#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a support bundle shows of a host: units, journals, states, versions."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.evidence.bundle import Look


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sources": {"type": "dict"},
            "since": {"type": "str", "default": "24 hours ago"},
            "lines": {"type": "int", "default": 5000},
            "item_bytes": {"type": "int", "default": 1048576},
            "total_bytes": {"type": "int", "default": 16777216},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        try:
            return module.run_command(argv, handle_exceptions=False)
        except OSError as failure:
            return 127, "", f"{argv[0]}: {failure.strerror}"

    look = Look(run, **module.params)
    look.everything()
    module.exit_json(
        changed=False, items=look.items, problems=look.problems, secrets=look.secrets()
    )


if __name__ == "__main__":
    main()
