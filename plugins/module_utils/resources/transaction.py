# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package work in its order: repair, hold, remove, install in stages, build, hold again.

Commands whose need shows in the evidence; a list of it is decided only where something is to do.
"""

from __future__ import annotations

from typing import Any

from ..packages import transaction
from ..packages.managers import MANAGERS, Refusal, runner
from .types import Difference, Host, Refused, Resource, finding

OPTIONS: dict[str, Any] = {"name": {"type": "str", "required": True}, **transaction.ARGUMENTS}


def name(resource: Resource) -> str:
    return str(resource["name"])


def inspect(host: Host, resource: Resource) -> Difference:
    requested = {key: resource[key] for key in transaction.ARGUMENTS if key != "manager"}
    manager = MANAGERS[resource["manager"]](runner(host.module))
    work = transaction.Packages(manager, transaction.Wanted(**requested))
    try:
        lacking = work.settle(refresh=not host.module.check_mode)
    except Refusal as refusal:
        raise Refused(refusal.finding()) from None
    host.installing = host.installing or bool(work.stages)
    findings = tuple(
        finding(
            "ROCM-KERNEL-PACKAGE",
            package,
            "no repository has it, and its kernel may boot without the driver",
            "enable the repository that has it, or remove that kernel",
            "warning",
        )
        for package in lacking
    )
    return Difference(steps=tuple(work.steps()), findings=findings, actual=work)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    try:
        difference.actual.apply()
    except Refusal as refusal:
        raise Refused(refusal.finding()) from None
