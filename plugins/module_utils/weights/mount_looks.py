# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is at the mount points of a plan, and what each of its steps would do there."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from . import mount_points

ARGUMENTS: dict[str, Any] = {
    "mounts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "action": {
                "type": "str",
                "choices": ["keep", "mount", "remount", "unmount"],
                "required": True,
            },
            "reasons": {"type": "list", "elements": "str", "default": []},
            "readahead_kib": {"type": "int"},
            "readahead_found": {"type": "int"},
            "automounts": {"type": "list", "elements": "str", "default": []},
            "fstab": {"type": "bool", "default": False},
        },
    },
    "timeout_seconds": {"type": "int", "default": 120},
}


def systemctl(module: AnsibleModule, *arguments: str) -> tuple[int, str]:
    """Run systemctl; return its exit code and what it said."""
    code, out, err = module.run_command(["systemctl", "--no-ask-password", *arguments])
    return code, out + err


def state(module: AnsibleModule, unit: str) -> dict[str, str]:
    """Return what systemd knows of a unit."""
    names = "ActiveState,Result,UnitFileState,NeedDaemonReload"
    _code, out = systemctl(module, "show", f"--property={names}", "--", unit)
    pairs = (line.partition("=")[::2] for line in out.splitlines() if "=" in line)
    return dict(pairs)


def found_at(module: AnsibleModule, step: dict[str, Any]) -> mount_points.Found:
    """Return what is at a step's mount point."""
    return mount_points.Found(
        mount_points.mounts_at(step["path"]),
        state(module, step["unit"]),
        mount_points.readahead_of(step["path"]),
        mount_points.wanted_by(step["unit"], mount_points.UNITS),
    )


def look(module: AnsibleModule) -> tuple[list[list[str]], dict[str, Any]]:
    """Return what has to be done at each mount point, and the module's result."""
    steps = module.params["mounts"]
    found = [found_at(module, step) for step in steps]
    told = [mount_points.lines(step, each) for step, each in zip(steps, found)]
    if any(each.unit.get("NeedDaemonReload") == "yes" for each in found):
        told.append(["reload systemd"])
    lines = [line for each in told for line in each]
    outcome: dict[str, Any] = {
        "changed": bool(lines),
        "steps": lines,
        "hidden": [],
        "diff": [{"prepared": "\n".join(lines) + "\n"}] if lines else [],
    }
    return told, outcome
