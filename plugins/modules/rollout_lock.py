#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have one run at a time change a deployment on a host."""

from __future__ import annotations

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.durable import sync_directory
from ..module_utils.finding import Finding, fail
from ..module_utils.replicas import releases


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "deployment": {"type": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "out": {"type": "list", "elements": "str", "default": []},
            "stopped": {"type": "bool", "default": False},
            "take_over": {"type": "bool", "default": False},
            "take_over_from": {"type": "str"},
            "directory": {"type": "path", "default": "/var/lib/apiary/rollout"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    owner = parameters["owner"]
    path = os.path.join(parameters["directory"], f"{parameters['deployment']}.lock")
    held = releases.read_lock(path)
    # Of a torn one no run can say that it is its own.
    foreign = held is not None and held.get("owner") != owner and not held.get("torn")

    def refuse(holder) -> None:
        message = f"{holder.get('owner')} has been changing it since {holder.get('since')}"
        finding = Finding("ROLLOUT-IN-PROGRESS", parameters["deployment"], message)
        fail(module, finding, lock=holder)

    named = held is not None and held.get("owner") == parameters["take_over_from"]
    if foreign and not named and not parameters["take_over"]:
        refuse(held)
    if parameters["state"] == "absent":
        if held is not None and not module.check_mode:
            os.unlink(path)
            sync_directory(parameters["directory"])
        module.exit_json(changed=held is not None, lock=None)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    requested = releases.wanted_lock(
        held, owner, parameters["out"], now, stopped=parameters["stopped"]
    )
    if requested != held and not module.check_mode:
        os.umask(0o022)
        if not releases.take_lock(path, requested, fresh=held is None):
            refuse(releases.read_lock(path) or {})
    module.exit_json(changed=requested != held, lock=requested)


if __name__ == "__main__":
    main()
