# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a deployment has on a host, to be taken away."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .unit_files import Places, services_matching

ARGUMENTS: dict[str, Any] = {
    "deployment": {"type": "str", "required": True},
    "caches": {"type": "bool", "default": False},
    "root": {"type": "path", "default": "/"},
}
# Of all deployments together; they go with the last one.
SHARED = (
    "etc/systemd/system/apiary.slice",
    "usr/libexec/apiary/launch",
    "usr/libexec/apiary/apiary_launch",
)


@dataclass(frozen=True)
class Found:
    """Units to stop, and files and directories to remove, in this order."""

    units: list[str]
    paths: list[str]

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff: what is named here, and in the end is not."""
        steps = [f"{name} enabled\n" for name in self.units]
        return {"before": "".join([*steps, *(f"{path}\n" for path in self.paths)]), "after": ""}


def find(root: str, deployment: str, caches: bool) -> Found:
    """Return what the host has of a deployment below ``root``, whatever plan it is from."""

    def below(path: str) -> str:
        return os.path.join(root, path)

    places = Places(below("etc/systemd/system"), below("etc/containers/systemd"))
    mine = f"apiary-{re.escape(deployment)}-[0-9]+"
    services = services_matching(places, rf"{mine}\.service")
    target = f"apiary-{deployment}.target"
    units = [*services, *([target] if os.path.exists(places.of(target)[0]) else [])]
    paths = [path for name in services for path in places.of(name)]
    paths += [places.of(target)[0], below(f"etc/apiary/{deployment}")]
    paths.append(below(f"var/lib/apiary/releases/{deployment}"))
    if caches and os.path.isdir(below("var/cache")):
        names = sorted(os.listdir(below("var/cache")))
        paths += [below(f"var/cache/{name}") for name in names if re.fullmatch(mine, name)]
    replicas = services_matching(places, r"apiary-.*-[0-9]+\.service")
    if not set(replicas) - set(services):
        paths += [below(path) for path in SHARED]
    return Found(units, [path for path in paths if os.path.lexists(path)])


def found_for(module: AnsibleModule) -> Found:
    """Return what the host has of the deployment that the module's parameters name."""
    asked = module.params
    return find(asked["root"], asked["deployment"], asked["caches"])


def result(found: Found) -> dict[str, Any]:
    """Return the module's result: what is, or in check mode would be, stopped and removed."""
    return {
        "changed": bool(found.units or found.paths),
        "stopped": found.units,
        "removed": found.paths,
        "diff": found.diff(),
    }
