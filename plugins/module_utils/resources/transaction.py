# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package work in its order: repair, hold, remove, install in stages, build, hold again.

Commands whose need shows in the evidence; a list of it is decided only where something is to do.
"""

from __future__ import annotations

from typing import Any

from ..finding import Finding
from ..packages import transaction
from ..packages.managers import MANAGERS, runner
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {"name": {"type": "str", "required": True}, **transaction.ARGUMENTS}


def name(resource: Resource) -> str:
    return str(resource["name"])


def inspect(host: Host, resource: Resource) -> Difference:
    requested = {key: resource[key] for key in transaction.ARGUMENTS if key != "manager"}
    manager = MANAGERS[resource["manager"]](runner(host.module))
    work = transaction.Packages(manager, transaction.Wanted(**requested))
    lacking = work.settle(refresh=not host.module.check_mode)
    host.installing = host.installing or bool(work.stages)
    message = "no repository has it, and its kernel may boot without the driver"
    warnings = tuple(Finding("ROCM-KERNEL-PACKAGE", package, message) for package in lacking)
    return Difference(steps=tuple(work.steps()), warnings=warnings, actual=work)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    difference.actual.apply()
