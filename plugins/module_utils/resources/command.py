# SPDX-License-Identifier: GPL-3.0-or-later

"""A command for what no file shows: run because it is listed, or after a change.

Without ``after`` it is run: who decides lists it only where the evidence shows that it is needed.
With ``after`` (names of resources of the list) it is run when one of them changed, also in the
run after one that was cut off. ``needs`` names a path without which there is nothing to run it for.
"""

from __future__ import annotations

import os
import shlex
from typing import Any

from ..finding import error
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "after": {"type": "list", "elements": "str"},
    "needs": {"type": "path"},
}


def name(resource: Resource) -> str:
    return shlex.join(resource["argv"])


def dues(resource: Resource) -> dict[str, list[str]]:
    """Return that it is due after changes of other resources."""
    return {_due(resource): resource["after"]} if resource["after"] else {}


def inspect(host: Host, resource: Resource) -> Difference:
    if resource["needs"] and not os.path.exists(resource["needs"]):
        return Difference()
    due = resource["after"] is None or host.is_triggered(_due(resource), resource["after"])
    return Difference(steps=(name(resource),) if due else ())


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    host.reload()
    code, out, err = host.run(resource["argv"])
    if code:
        last = " / ".join((err or out).strip().splitlines()[-3:])
        message = f"ended with {code}: {last}"
        raise error("HOST-COMMAND", name(resource), message)
    host.settle(_due(resource))


def _due(resource: Resource) -> str:
    return f"run of {name(resource)}"
