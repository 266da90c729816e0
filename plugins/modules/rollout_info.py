#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tell what a host runs of a deployment, and what it could go back to."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, fail
from ..module_utils.host_plan import DIRECTORY, parse_host_plan
from ..module_utils.replicas import releases, units
from ..module_utils.resources import file


def read_plan(path: str):
    """Return a plan, None where there is none or it cannot be read."""
    content = file.read(path)
    try:
        return None if content is None else parse_host_plan(content)
    except ValueError:
        return None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "deployment": {"type": "str", "required": True},
            "release": {"type": "str"},
            "directory": {"type": "path", "default": "/var/lib/apiary/releases"},
            "plan_directory": {"type": "path", "default": DIRECTORY},
            "lock_directory": {"type": "path", "default": "/var/lib/apiary/rollout"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    name = parameters["deployment"]
    directory = os.path.join(parameters["directory"], name)

    def systemctl(arguments: list[str]) -> tuple[int, str, str]:
        return module.run_command(["systemctl", "--no-ask-password", *arguments])

    plan = read_plan(os.path.join(parameters["plan_directory"], name, "plan.json"))
    services = [replica.unit for replica in plan.replicas] if plan else []
    states = units.unit_states(systemctl, services)
    shelf = releases.read_shelf(directory)
    outcome = {
        "plan": plan.document if plan else None,
        "serving": [one for one in services if states[one].get("ActiveState") == "active"],
        "stopped": [one for one in services if states[one].get("ActiveState") == "inactive"],
        "lock": releases.read_lock(os.path.join(parameters["lock_directory"], f"{name}.lock")),
        "releases": list(shelf.releases),
        "current": shelf.current,
        "previous": shelf.previous,
    }
    wanted = parameters["release"]
    try:
        if wanted == "rollback":
            wanted = releases.default_rollback(shelf)
            outcome["release"] = None
        if wanted:
            outcome["release"] = releases.restore(directory, shelf, wanted)
    except ApiaryError as refusal:
        fail(module, refusal, **outcome)
    module.exit_json(changed=False, **outcome)


if __name__ == "__main__":
    main()
