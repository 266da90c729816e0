#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the units of a deployment and have them serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_units
short_description: Install the units of a deployment and have them serve
version_added: 0.1.0
description:
  - Writes the files that a plan was rendered to, removes units that the plan no longer has,
    enables the others and starts what does not run.
  - A running replica is restarted only when its own unit file changes, one after the other;
    replicas that do not run start together. Where replicas exchange devices, all that change are
    stopped first.
  - Returns when every replica answers, because its unit's start job ends only then.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
options:
  files:
    description: Files to be there, as P(apiary.instinct.systemd_files#filter) gives them.
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
        required: true
      content:
        description: The whole text.
        type: str
        required: true
  services:
    description: The replicas' services, in start order; each is among O(files).
    type: list
    elements: str
    required: true
  target:
    description: The target that holds the services.
    type: str
    required: true
  stale_pattern:
    description:
      - A regular expression for the whole name of units of this deployment.
      - Units that match and are not wanted are stopped and removed.
    type: str
    required: true
  unit_directory:
    description: Where administrators' units live.
    type: path
    default: /etc/systemd/system
"""

EXAMPLES = r"""
- name: Serve what the plan says
  apiary.instinct.replica_units:
    files: "{{ replicas_plan | apiary.instinct.systemd_files }}"
    services: "{{ replicas_plan.replicas | map(attribute='unit') }}"
    target: "{{ replicas_plan.target }}"
    stale_pattern: "apiary-qwen3-235b-[0-9]+\\.service"
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/etc/systemd/system/apiary-qwen3-235b-0.service]
started:
  description: Units that were, or would be, started.
  type: list
  elements: str
  returned: success
  sample: [apiary-qwen3-235b-0.service]
restarted:
  description: Serving replicas that were, or would be, restarted because their unit changed.
  type: list
  elements: str
  returned: success
  sample: []
removed:
  description: Units of earlier plans that were, or would be, stopped and removed.
  type: list
  elements: str
  returned: success
  sample: []
enabled:
  description: Units that were, or would be, enabled.
  type: list
  elements: str
  returned: success
  sample: []
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.apiary.instinct.plugins.module_utils import units
from ansible_collections.apiary.instinct.plugins.module_utils.host_files import write_file


def fail_start(module: AnsibleModule, systemctl, name: str, since: int, outcome: dict) -> None:
    """End with the replica's own last words: systemctl only says that a job failed."""
    _code, status, _err = systemctl(
        ["show", "--property=Result,ExecMainStatus,ActiveState", "--", name]
    )
    # Only this start's lines: the previous run's say nothing about it.
    command = ["journalctl", "--unit", name, f"--since=@{since}"]
    _code, journal, _err = module.run_command([*command, "--no-pager", "--output=cat", "-n", "20"])
    module.fail_json(
        msg=(
            f"error: REPLICA-START-FAILED: {name} did not start "
            f"({', '.join(status.split())})\n"
            f"  remedy: read its last lines below, or journalctl -u {name} on the host\n{journal}"
        ),
        **outcome,
    )


def apply(module, systemctl, directories, files, removed, changes, outcome) -> None:
    """Do what was decided, in an order that keeps a working replica working.

    A restarted unit is written right before its restart, so that a run that ends early leaves the
    rest to the next one.
    """

    def must(*arguments: str) -> None:
        code, _out, err = systemctl(list(arguments))
        if code != 0:
            module.fail_json(
                msg=(
                    f"error: REPLICA-SYSTEMCTL: systemctl {' '.join(arguments)}: {err.strip()}\n"
                    "  remedy: run the same command on the host and mend what it says"
                ),
                **outcome,
            )

    def start(verb: str, names: list[str]) -> None:
        # A replica that has used up its start limit gets a new one: somebody asked.
        systemctl(["reset-failed", "--", *names])
        since = int(time.time())
        if systemctl([verb, "--", *names])[0] != 0:
            states = units.unit_states(systemctl, names)
            broken = [name for name in names if states[name].get("ActiveState") != "active"]
            fail_start(module, systemctl, (broken or names)[0], since, outcome)

    os.umask(0o022)  # a strict login umask would close what we create to the service user
    changed = {os.path.basename(change.path): change for change in files if change.changed}
    if changes.remove:
        must("disable", "--now", "--", *changes.remove)
    if changes.move:
        must("stop", "--", *changes.move)
    for change in removed:
        os.unlink(change.path)
    for directory in directories:
        if directory.changed:
            os.makedirs(directory.path, exist_ok=True)
            module.set_mode_if_different(directory.path, "0755", False)
    for name, change in changed.items():
        if name not in changes.restart:
            write_file(module, change.path, change.after, change.mode_after)
    if changes.reload:
        must("daemon-reload")
    if changes.enable:
        must("enable", "--", *changes.enable)
    for name in changes.restart:
        if name in changed:
            write_file(module, changed[name].path, changed[name].after, changed[name].mode_after)
        must("daemon-reload")
        start("restart", [name])
    if changes.move or changes.start:
        start("start", [*changes.move, *changes.start])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "mode": {"type": "str", "required": True},
                    "content": {"type": "str", "required": True},
                },
            },
            "services": {"type": "list", "elements": "str", "required": True},
            "target": {"type": "str", "required": True},
            "stale_pattern": {"type": "str", "required": True},
            "unit_directory": {"type": "path", "default": "/etc/systemd/system"},
        },
        supports_check_mode=True,
    )
    parameters = module.params

    def systemctl(arguments: list[str]) -> tuple[int, str, str]:
        return module.run_command(["systemctl", "--no-ask-password", *arguments])

    wanted = [*parameters["services"], parameters["target"]]
    files = units.compare_files(parameters["files"])
    stale = units.stale_units(parameters["unit_directory"], parameters["stale_pattern"], wanted)
    removed = []
    for name in stale:
        path = os.path.join(parameters["unit_directory"], name)
        before, mode = units.read_file(path)
        removed.append(units.FileChange(path, before, None, mode, None))
    taken = units.taken_devices(
        parameters["unit_directory"], files, parameters["services"], stale, systemctl
    )
    if taken:
        device, holder = next(iter(taken.items()))
        module.fail_json(
            msg=(
                f"error: REPLICA-GPU-TAKEN: {device} belongs to {holder}, which is running "
                f"({len(taken)} devices in all)\n"
                "  remedy: stop that deployment first: systemctl disable --now "
                f"{holder.rpartition('-')[0]}.target"
            )
        )
    directories = units.compare_directories(files)
    states = units.unit_states(systemctl, wanted)
    changes = units.plan_units(files, stale, parameters["services"], parameters["target"], states)
    outcome = units.result(directories, files, removed, changes)
    if not module.check_mode:
        apply(module, systemctl, directories, files, removed, changes, outcome)
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
