#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a host's own files to wanted contents."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Bring a host's own files to wanted contents
version_added: 0.1.0
description:
  - Writes every file whose text or mode differs, each in one step, and removes those that are to be
    gone; a list of files costs one task.
  - Directories that are missing are made, owned by root.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: Passwords in addresses are left out of the diff.
options:
  files:
    description: The files, in the order in which they are written.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Octal mode, four digits.
        type: str
        default: "0644"
      content:
        description: The whole text; without it the file is to be gone.
        type: str
  keep_originals:
    description:
      - Whether what a file held before the first change is kept below C(/var/lib/apiary/originals),
        readable by root alone.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Set what the kernel is told at boot
  apiary.instinct.host_files:
    files:
      - path: /etc/sysctl.d/90-apiary.conf
        content: |
          kernel.numa_balancing = 0
      - path: /etc/sysctl.d/90-old.conf
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/etc/sysctl.d/90-apiary.conf]
removed:
  description: Files that were, or would be, removed.
  type: list
  elements: str
  returned: success
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import host_files


def main() -> None:
    module = AnsibleModule(argument_spec=host_files.ARGUMENTS, supports_check_mode=True)
    changes = host_files.look(module)
    if not module.check_mode:
        try:
            host_files.apply(module, changes, module.params["keep_originals"])
        except OSError as failure:
            host_files.fail(module, failure)
    module.exit_json(**host_files.result(changes))


if __name__ == "__main__":
    main()
