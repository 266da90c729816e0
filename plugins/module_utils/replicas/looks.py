# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules would do to a deployment's units and secrets on this host."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from . import unit_files, units
from .unit_apply import Applier, due_units, serving

UNITS: dict[str, Any] = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "mode": {"type": "str", "required": True},
            "content": {"type": "str", "required": True},
            "unit": {"type": "str"},
        },
    },
    "services": {"type": "list", "elements": "str", "required": True},
    "target": {"type": "str", "required": True},
    "stale_pattern": {"type": "str", "required": True},
    "only": {"type": "list", "elements": "str"},
    "outdated": {"type": "list", "elements": "str", "default": []},
    "restart": {"type": "bool", "default": True},
    "start": {"type": "bool", "default": True},
    "unit_directory": {"type": "path", "default": "/etc/systemd/system"},
    "quadlet_directory": {"type": "path", "default": "/etc/containers/systemd"},
}
SECRETS: dict[str, Any] = {
    "directory": {"type": "path", "required": True},
    "names": {"type": "list", "elements": "str", "required": True, "no_log": False},
    "values": {"type": "dict", "default": {}, "no_log": True},
    "services": {"type": "list", "elements": "str", "default": []},
    "restart": {"type": "bool", "default": True},
}


@dataclass(frozen=True)
class SeenUnits:
    """A module's result, and what it takes to apply it."""

    outcome: dict[str, Any]
    applier: Applier
    directories: list[units.DirectoryChange]
    files: list[units.FileChange]
    changes: units.UnitChanges
    states: dict[str, dict[str, str]]


@dataclass(frozen=True)
class SeenSecrets:
    """A module's result, and what it takes to apply it."""

    outcome: dict[str, Any]
    applier: Applier
    directories: list[units.DirectoryChange]
    changed: list[units.FileChange]
    states: dict[str, dict[str, str]]


def in_turn(files: list[units.FileChange], target: str, only: list[str]) -> list[units.FileChange]:
    """Return the files that a run of some replicas writes: theirs, and what they need of others."""
    return [
        item
        for item in files
        if item.unit in only
        or (item.unit is None and os.path.basename(item.path) not in (target, "plan.json"))
    ]


def look_at_units(module: AnsibleModule) -> SeenUnits:
    """Return what the parameters of replica_units make of the host; refuse what must not be."""
    parameters = module.params
    outcome: dict[str, Any] = {}
    applier = Applier(module, outcome)
    places = unit_files.Places(parameters["unit_directory"], parameters["quadlet_directory"])
    services, target = parameters["services"], parameters["target"]
    stale: list[str] = []
    files = units.compare_files(parameters["files"])
    plans = [item.path for item in files if os.path.basename(item.path) == "plan.json"]
    directory = os.path.dirname(plans[0]) if plans else None
    if parameters["only"] is not None:
        unknown = sorted(set(parameters["only"]) - set(services))
        if unknown:
            module.fail_json(msg=f"only: {', '.join(unknown)} is none of the services")
        services = [name for name in services if name in parameters["only"]]
        files, target = in_turn(files, target, services), None
    else:
        found = unit_files.services_matching(places, parameters["stale_pattern"])
        stale = [name for name in found if name not in services]
    states = units.unit_states(applier.systemctl, [*services, *([target] if target else [])])
    if directory is not None:
        root = os.path.dirname(directory)
        taken = unit_files.taken_gpus(root, files, services, stale, applier.systemctl)
        for gpu, holder in taken.items():
            applier.fail(
                "REPLICA-GPU-TAKEN",
                f"GPU {gpu} belongs to {holder}, which is running ({len(taken)} GPUs in all)",
                f"stop that replica first: systemctl disable --now {holder}",
            )
    shadows = unit_files.shadows(places, files, services)
    removed = list(shadows)
    if target is not None:
        removed += unit_files.leftovers(places, directory, files, stale)
    due = due_units(states) | frozenset(parameters["outdated"])
    directories = units.compare_directories(files)
    changes = units.plan_units(
        [*files, *shadows],
        services,
        target,
        states,
        stale,
        due,
        bool(shadows) or unit_files.handed_over(files, states),
    )
    if not parameters["start"]:
        changes = dataclasses.replace(changes, start=[])
    if not parameters["restart"]:
        ended = units.unit_states(applier.systemctl, changes.remove)
        names = [*changes.remove, *changes.move, *changes.restart]
        applier.spare(serving({**states, **ended}, names), "this run would restart or remove them")
    outcome.update(units.result(directories, [*files, *removed], changes))
    return SeenUnits(outcome, applier, directories, [*files, *removed], changes, states)


def look_at_secrets(module: AnsibleModule) -> SeenSecrets:
    """Return what the parameters of replica_secrets make of the host."""
    parameters = module.params
    changes, wrong = unit_files.secret_changes(
        parameters["directory"], parameters["names"], parameters["values"]
    )
    if wrong:
        module.fail_json(
            msg="\n".join(
                f"error: {code}: {message}\n  remedy: {remedy}" for code, message, remedy in wrong
            )
        )
    changed = [item for item in changes if item.changed]
    directories = [
        item
        for item in units.compare_directories([one for one in changes if one.after is not None])
        if item.changed
    ]
    applier = Applier(module, {})
    states: dict[str, dict[str, str]] = {}
    if any(item.before != item.after for item in changed):
        states = units.unit_states(applier.systemctl, parameters["services"])
    up = [name for name in states if states[name].get("ActiveState") not in ("inactive", "failed")]
    if not parameters["restart"]:
        applier.spare(serving(states, parameters["services"]), "a secret of theirs changes")
    outcome = {
        "changed": bool(changed or directories),
        "diff": [item.diff() for item in directories] + [item.diff() for item in changed],
        "written": [item.path for item in changed if item.after is not None],
        "removed": [item.path for item in changed if item.after is None],
        "outdated": up,
    }
    return SeenSecrets(outcome, applier, directories, changed, states)
