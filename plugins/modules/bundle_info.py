#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a support bundle shows of a host: units, journals, states, versions."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_info
short_description: Collect what a support bundle shows of a host
version_added: 0.1.0
description:
  - Returns texts by name - unit files and what systemd makes of them, the ends of the journals of
    replicas, router and kernel, HAProxy's configuration and statistics, versions, the kernel's
    command line, processes.
  - Directories of credentials, private keys and files that are named like secrets are not read.
    Other secrets may be in what is returned, so use C(no_log) and have C(apiary support-bundle)
    clean it.
  - Sizes are bounded; what was cut or could not be read is in RV(problems).
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.reads
options:
  sources:
    description:
      - Which units, files and commands. The controller fills it in, so a task leaves it out.
    type: dict
  since:
    description: How far back journals go, as journalctl's C(--since).
    type: str
    default: 24 hours ago
  lines:
    description: The most lines of each journal; the last ones are returned.
    type: int
    default: 5000
  item_bytes: {description: The most characters of one text., type: int, default: 1048576}
  total_bytes:
    description: The most characters of all texts together.
    type: int
    default: 16777216
"""

EXAMPLES = r"""
- name: Collect what help needs to see
  apiary.instinct.bundle_info:
    since: 2 hours ago
  become: true
  no_log: true
  register: seen
"""

RETURN = r"""
items:
  description: Texts by name, such as C(journals/haproxy.service.log) or C(files/proc/cmdline).
  type: dict
  returned: success
secrets:
  description: The values of the host's credentials, for the command to mask them.
  type: list
  elements: str
  returned: success
problems:
  description: Why others are missing or are cut, by their name.
  type: dict
  returned: success
"""

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
