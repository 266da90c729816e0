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

import os
import re
import shutil
from dataclasses import dataclass
from typing import Any

from ..replicas import apply as applying
from ..replicas import inspection
from ..replicas.apply import must
from ..replicas.unit_files import Places, services_matching
from .types import PATH, REQUIRED, TEXT, Difference, Host, Resource, entries

NAMED_BY = "deployment"
OPTIONS: dict[str, Any] = {
    "deployment": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "files": entries(
        {"path": PATH, "mode": REQUIRED, "content": REQUIRED, "unit": TEXT}, default=[]
    ),
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


def inspect(host: Host, resource: Resource) -> Difference:
    if resource["state"] == "absent":
        return inspect_absent(host, resource)
    return inspection.inspect(host, resource)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    if resource["state"] == "absent":
        apply_absent(host, difference.actual)
    else:
        applying.Applier(host).apply(difference.actual)


# Of all deployments together; they go with the last one.
SHARED = (
    "etc/systemd/system/apiary.slice",
    "usr/libexec/apiary/launch",
    "usr/libexec/apiary/apiary_launch",
    "usr/libexec/apiary/container",
    "usr/libexec/apiary/seccomp.json",
)


@dataclass(frozen=True)
class Remains:
    """Units to stop, files and directories to remove, in this order, and caches that stay.

    Those become root's until another start takes them: the number of their user may come again.
    """

    units: list[str]
    paths: list[str]
    due: str
    kept: tuple[str, ...] = ()


def remains_of(root: str, deployment: str, caches: bool) -> Remains:
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
    names = sorted(os.listdir(below("var/cache"))) if os.path.isdir(below("var/cache")) else []
    cached = [below(f"var/cache/{name}") for name in names if re.fullmatch(mine, name)]
    paths += cached if caches else []
    kept = [path for path in cached if not caches and os.path.isdir(path)]
    replicas = services_matching(places, r"apiary-.*-[0-9]+\.service")
    if not set(replicas) - set(services):
        paths += [below(path) for path in SHARED]
    present = [path for path in paths if os.path.lexists(path)]
    closed = tuple(path for path in kept if os.stat(path).st_uid != os.getuid())
    return Remains(units, present, f"reload without {deployment}", closed)


def inspect_absent(host: Host, resource: Resource) -> Difference:
    remains = remains_of(resource["root"], resource["deployment"], resource["caches"])
    steps = tuple(f"give {path} to root" for path in remains.kept)
    if not remains.units and not remains.paths:
        due = host.is_due(remains.due)
        return Difference(steps=(*steps, *(("reload systemd",) if due else ())), actual=remains)
    before = "".join(
        [*(f"{name} enabled\n" for name in remains.units), *(f"{path}\n" for path in remains.paths)]
    )
    return Difference(({"before": before, "after": ""},), steps, actual=remains)


def apply_absent(host: Host, remains: Remains) -> None:
    host.mark(remains.due)
    if remains.units:
        # A generated unit can be stopped only; its file, which goes, is what enables it.
        must(host, "stop", "--", *remains.units)
        host.systemctl("disable", "--", *remains.units)
    for path in remains.paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    for path in remains.kept:
        os.chown(path, os.getuid(), os.getgid())
        os.chmod(path, 0o700)
    must(host, "daemon-reload")
    if remains.units:
        host.systemctl("reset-failed", "--", *remains.units)
    host.settle(remains.due)
