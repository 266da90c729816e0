#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Merge settings into a JSON file that others write, too."""

from __future__ import annotations

DOCUMENTATION = r"""
module: json_settings
short_description: Merge settings into a JSON file that others write, too
version_added: 0.1.0
description:
  - Sets the given values in a JSON file such as C(/etc/docker/daemon.json), and leaves all others
    as they are. A list is a value and replaces another.
  - What a value was before is remembered, so that O(state=absent), or leaving it out of
    O(settings), can put it back.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: Shows the values that are set here, and never those of others.
options:
  path:
    description: The file; it is made, mode 0644, where it is missing.
    type: path
    required: true
  settings:
    description: The values, in objects as they are in the file.
    type: dict
    default: {}
  remember:
    description: Where earlier values are remembered.
    type: path
    required: true
  validate:
    description:
      - The command, a word an element, that judges the new file before it takes the place of the
        old one; C(%s) stands for its path. Where it does not end with 0, nothing is changed.
    type: list
    elements: str
    default: []
  state:
    description: V(present) sets the values, V(absent) puts back those remembered.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Have Docker know CDI
  apiary.instinct.json_settings:
    path: /etc/docker/daemon.json
    settings:
      features:
        cdi: true
    validate: [dockerd, --validate, --config-file, "%s"]
    remember: /var/lib/apiary/docker.json
"""

RETURN = r"""
set:
  description: Values that were, or in check mode would be, changed, by their path in the file.
  type: list
  elements: str
  returned: success
  sample: [features.cdi]
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import json_settings
from ..module_utils.host_files import write_file


def store(module: AnsibleModule, path: str, text: str | None, mode: str) -> None:
    """Bring a file to this text, which None removes; a mode that others gave it stays."""
    if text is None:
        if os.path.exists(path):
            os.unlink(path)
        return
    if text != json_settings.read(path):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        kept = f"{os.stat(path).st_mode & 0o7777:04o}" if os.path.exists(path) else mode
        write_file(module, path, text, kept)


def judge(module: AnsibleModule, path: str, text: str) -> None:
    """Have the program that reads the file judge it, before it has to."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=module.tmpdir) as trial:
        trial.write(text)
        trial.flush()
        argv = [trial.name if word == "%s" else word for word in module.params["validate"]]
        code, out, err = module.run_command(argv)
    if code != 0:
        said = (err or out).strip().replace(trial.name, path)
        json_settings.fail(module, path, f"{argv[0]} would not take it: {said}")


def main() -> None:
    module = AnsibleModule(argument_spec=json_settings.ARGUMENTS, supports_check_mode=True)
    path, memory = module.params["path"], module.params["remember"]
    seen = json_settings.look(module)
    if not module.check_mode:
        if seen.changed and seen.wanted and module.params["validate"]:
            judge(module, path, json_settings.dumps(seen.after))
        kept = seen.remembered
        # Remembered first: a run that ends between the two can still be undone.
        store(module, memory, json_settings.write_earlier(kept) if kept else None, "0600")
        if seen.changed:
            gone = not seen.after and not kept
            store(module, path, None if gone else json_settings.dumps(seen.after), "0644")
    module.exit_json(**seen.outcome)


if __name__ == "__main__":
    main()
