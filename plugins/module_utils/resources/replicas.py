# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The replicas of one deployment: units, launch documents, secrets; absent, none of it is left.

``files`` are those of the plan, what others need first; ``unit`` of a file is the replica that
starts anew for it. ``only`` limits a run to some of the services, for updates that roll over the
replicas of a host: files of others, the target and the plan's copy are left to a later run, and
nothing is removed. Without ``restart`` a run that would interrupt a replica that serves is refused;
without ``start`` what was stopped on purpose stays so. ``secrets`` names values of the module's
``secrets``; one without a value keeps the file that the host has.
"""

from __future__ import annotations

from typing import Any

from ..replicas import absent, inspection
from ..replicas import apply as applying
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {
    "deployment": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "mode": {"type": "str", "required": True},
            "content": {"type": "str", "required": True},
            "unit": {"type": "str"},
        },
    },
    "services": {"type": "list", "elements": "str", "default": []},
    "target": {"type": "str"},
    "stale_pattern": {"type": "str", "default": "(?!)"},
    "secrets": {"type": "list", "elements": "str", "no_log": False},
    "only": {"type": "list", "elements": "str"},
    "restart": {"type": "bool", "default": True},
    "start": {"type": "bool", "default": True},
    "caches": {"type": "bool", "default": False},
    "root": {"type": "path", "default": "/"},
}


def name(resource: Resource) -> str:
    return str(resource["deployment"])


def inspect(host: Host, resource: Resource) -> Difference:
    if resource["state"] == "absent":
        return absent.inspect(host, resource)
    return inspection.inspect(host, resource)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    if resource["state"] == "absent":
        absent.apply(host, difference.actual)
    else:
        applying.Applier(host).apply(difference.actual)
