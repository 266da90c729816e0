# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that a service reads when it starts: written while it is stopped, then it is started again.

``restart`` has it stopped and started; without it the files are written beside the running service.
It is started after a failure, too, and by the next run after one that was killed. ``awaits`` is a
file that the service writes once it is up.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..finding import error
from . import file
from .types import Difference, Host, Resource, entries

NAMED_BY = "service"
OPTIONS: dict[str, Any] = {
    "service": {"type": "str", "required": True},
    "files": entries(
        {**file.OPTIONS, "keep_original": {"type": "bool", "default": True}}, required=True
    ),
    "restart": {"type": "bool", "default": False},
    "awaits": {"type": "path"},
    "timeout_seconds": {"type": "int", "default": 120},
}
POLL_SECONDS = 0.5


def inspect(host: Host, resource: Resource) -> Difference:
    compared = [(each, file.inspect(host, each)) for each in resource["files"]]
    differ = [(each, difference) for each, difference in compared if difference.changed]
    diff = tuple(entry for _each, difference in differ for entry in difference.diff)
    steps = tuple(step for _each, difference in differ for step in difference.steps)
    if resource["restart"]:
        steps += (f"restart {resource['service']}",)
    elif host.is_due(_due(resource)):
        steps += (f"start {resource['service']}",)
    return Difference(diff, steps, actual=differ)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    service = resource["service"]
    if resource["restart"]:
        host.mark(_due(resource))
        _systemctl(host, "stop", service)
    try:
        for each, changed in difference.actual:
            file.apply(host, each, changed)
    finally:
        if host.is_due(_due(resource)):
            host.reload()
            _systemctl(host, "start", service)
    if host.is_due(_due(resource)):
        _await(resource)
        host.settle(_due(resource))


def _systemctl(host: Host, verb: str, service: str) -> None:
    code, output = host.systemctl(verb, "--", service)
    if code:
        message = f"{verb} failed: {output.strip()}"
        raise error("HOST-UNIT", service, message)


def _await(resource: Resource) -> None:
    path, deadline = resource["awaits"], time.monotonic() + resource["timeout_seconds"]
    while path and not os.path.exists(path):
        if time.monotonic() > deadline:
            service = resource["service"]
            message = f"wrote no {path} in {resource['timeout_seconds']} s"
            raise error("HOST-UNIT", service, message)
        time.sleep(POLL_SECONDS)


def _due(resource: Resource) -> str:
    return f"start of {resource['service']}"
