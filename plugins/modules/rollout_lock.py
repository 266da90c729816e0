#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have one run at a time change a deployment on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_lock
short_description: Have one run at a time change a deployment on a host
version_added: 0.1.0
description:
  - Takes, updates or gives back the lock of a deployment on a host. The lock names its owner and
    the units that are out of the routers, so that a run which follows an interrupted one can bring
    them back.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: none
    details: The lock is there for the time of the run only.
options:
  deployment: {description: "The deployment's name.", type: str, required: true}
  owner: {description: "Who changes the host, for others to read.", type: str, required: true}
  state:
    description: Whether the lock is to be held.
    type: str
    choices: [present, absent]
    default: present
  out:
    description: The units that are out of the routers from now on.
    type: list
    elements: str
    default: []
  stopped:
    description: Whether the deployment was stopped before, so that it is not to be started again.
    type: bool
    default: false
  take_over:
    description: Whether a lock of another owner may be taken.
    type: bool
    default: false
  take_over_from: {description: "The owner whose lock may be taken, and no other's.", type: str}
  directory: {description: Where locks lie., type: path, default: /var/lib/apiary/rollout}
"""

EXAMPLES = r"""
- name: Keep other runs away
  apiary.instinct.rollout_lock:
    deployment: qwen3-235b
    owner: ann@controller, process 4711
"""

RETURN = r"""
lock:
  description: The lock as it is, or would be; none when it was given back.
  type: dict
  returned: success
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.durable import sync_directory
from ..module_utils.finding import Finding, fail
from ..module_utils.replicas import rollout_lock


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
    held = rollout_lock.read_lock(path)
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
    requested = rollout_lock.wanted_lock(
        held, owner, parameters["out"], now, stopped=parameters["stopped"]
    )
    if requested != held and not module.check_mode:
        os.umask(0o022)
        if not rollout_lock.take_lock(path, requested, fresh=held is None):
            refuse(rollout_lock.read_lock(path) or {})
    module.exit_json(changed=requested != held, lock=requested)


if __name__ == "__main__":
    main()
