# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible.builtin's modules for units and users would do here: their rules, only to look.

The roles apply with those modules, which can't be asked for several things at once.
"""

from __future__ import annotations

import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule

SERVICES: dict[str, Any] = {
    "services": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "enabled": {"type": "bool"},
            "state": {"type": "str", "choices": ["started", "stopped", "restarted"]},
        },
    },
}
USERS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "home": {"type": "path"},
    "shell": {"type": "path"},
}
# systemd_service takes what `is-enabled` answers with 0 for enabled, but for these two.
NOT_ENABLED = ("indirect", "alias")


def look_at_services(module: AnsibleModule) -> dict[str, Any]:
    """Return which units would be enabled, disabled, started or stopped, a line each."""
    steps = []
    for one in module.params["services"]:
        name = one["name"]
        if one["enabled"] is not None:
            code, said = _systemctl(module, "is-enabled", "--", name)
            enabled = code == 0 and said.splitlines() not in ([word] for word in NOT_ENABLED)
            if enabled != one["enabled"]:
                steps.append(f"{'enable' if one['enabled'] else 'disable'} {name}")
        if one["state"] is not None:
            _code, found = _systemctl(module, "show", "--property=ActiveState", "--value", name)
            verb = _verb(one["state"], found.strip())
            if verb:
                steps.append(f"{verb} {name}")
    return {"changed": bool(steps), "steps": steps}


def _verb(wanted: str, found: str) -> str | None:
    if wanted == "restarted":
        return "restart"
    running = found in ("active", "activating")
    if wanted == "started":
        return None if running else "start"
    return "stop" if running or found == "deactivating" else None


def _systemctl(module: AnsibleModule, *arguments: str) -> tuple[int, str]:
    code, out, _err = module.run_command(["systemctl", "--no-ask-password", *arguments])
    return code, out


def look_at_user(module: AnsibleModule) -> dict[str, Any]:
    """Return whether a user would be created or changed."""
    asked = module.params
    name = asked["name"]
    try:
        known = pwd.getpwnam(name)
    except KeyError:
        return {"changed": True, "steps": [f"create the user {name}"]}
    steps = []
    if asked["home"] is not None and known.pw_dir != asked["home"]:
        steps.append(f"have {asked['home']} as home of {name}")
    if asked["shell"] is not None and known.pw_shell != asked["shell"]:
        steps.append(f"have {asked['shell']} as shell of {name}")
    return {"changed": bool(steps), "steps": steps}
