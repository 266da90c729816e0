# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages by name, in whatever version the host's repositories have.

Without ``manager`` it is the one that the host has; without names its lists alone are updated.
"""

from __future__ import annotations

import os
from typing import Any

from ..finding import error
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {
    "manager": {"type": "str", "choices": ["apt", "dnf"]},
    "names": {"type": "list", "elements": "str", "required": True},
}
_DPKG = ["dpkg-query", "--show", "--showformat=${db:Status-Status}"]
_RPM = ["rpm", "--query", "--quiet", "--whatprovides"]


def name(resource: Resource) -> str:
    return " ".join(resource["names"])


def inspect(host: Host, resource: Resource) -> Difference:
    query = _DPKG if _manager(resource) == "apt" else _RPM
    missing = []
    for package in resource["names"]:
        code, out, _err = host.run([*query, package])
        if code or out not in ("", "installed"):
            missing.append(package)
    host.installing = host.installing or bool(missing)
    steps = [f"install {package}" for package in missing]
    if not resource["names"]:
        steps = ["update the package manager's lists"]
    return Difference(steps=tuple(steps), actual=missing)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    from ..packages.managers import MANAGERS, last_words, runner

    manager = MANAGERS[_manager(resource)](runner(host.module))
    commands = [manager.command("refresh")]
    if difference.actual:
        commands.append(manager.command("install", difference.actual))
    for argv in commands:
        code, output = manager.run(argv)
        if code:
            message = f"{argv[0]} ended with {code}: {last_words(output)}"
            raise error("HOST-PACKAGES", name(resource), message)


def _manager(resource: Resource) -> str:
    # Not by programs: EPEL has dpkg, Debian has dnf.
    there = "apt" if os.path.exists("/etc/debian_version") else "dnf"
    return str(resource["manager"] or there)
