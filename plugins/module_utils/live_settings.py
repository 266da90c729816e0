# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the running kernel: what they are, and which of them would be set."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "settings": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "value": {"type": "str", "required": True},
        },
    },
    "remember": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
CHOSEN = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Seen:
    """What is ``found`` at each path, which are to be ``changed``, what an earlier run found."""

    outcome: dict[str, Any]
    found: dict[str, str]
    changed: dict[str, str]
    before: dict[str, str]


def read(path: str) -> str:
    """Return a value as it reads, the chosen one where the file shows choices."""
    with open(path, encoding="utf-8") as stream:
        text = " ".join(stream.read().split())
    chosen = CHOSEN.search(text)
    return chosen.group(1) if chosen else text


def fail(module: AnsibleModule, path: str, message: str) -> None:
    """End with what the kernel refused."""
    module.fail_json(
        msg=(
            f"error: HOST-LIVE-SETTING: {path}: {message}\n"
            "  remedy: see whether the kernel has this setting, and what `dmesg` says"
        )
    )


def remembered(path: str) -> dict[str, str]:
    """Return the earlier values by path; none where nothing was ever changed."""
    try:
        with open(path, encoding="utf-8") as stream:
            return dict(json.load(stream))
    except FileNotFoundError:
        return {}


def look(module: AnsibleModule) -> Seen:
    """Return what would be set, from the module's parameters."""
    memory = module.params["remember"]
    before: dict[str, str] = {}
    try:
        before = remembered(memory)
    except (OSError, ValueError) as failure:
        fail(module, memory, f"does not tell the earlier values: {failure}")
    if module.params["state"] == "present":
        wanted = {one["path"]: one["value"] for one in module.params["settings"]}
    else:
        wanted = {path: value for path, value in before.items() if os.path.exists(path)}
    found = {}
    for path in wanted:
        try:
            found[path] = read(path)
        except OSError as failure:
            fail(module, path, f"cannot be read: {failure.strerror}")
    changed = {path: value for path, value in wanted.items() if found[path] != value}
    # What is remembered goes with the last value that is given back.
    forgets = module.params["state"] == "absent" and bool(before)
    outcome = {
        "changed": bool(changed) or forgets,
        "set": list(changed),
        "diff": [
            {
                "before_header": path,
                "after_header": path,
                "before": found[path] + "\n",
                "after": value + "\n",
            }
            for path, value in changed.items()
        ],
    }
    return Seen(outcome, found, changed, before)
