# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys and source files of package repositories, proven in a trial before any is written."""

from __future__ import annotations

from typing import Any

from ..finding import error
from ..packages import repositories
from ..packages.managers import MANAGERS, runner
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {"name": {"type": "str", "required": True}, **repositories.ARGUMENTS}


def name(resource: Resource) -> str:
    return str(resource["name"])


def inspect(host: Host, resource: Resource) -> Difference:
    manager = MANAGERS[resource["manager"]](runner(host.module))
    work = repositories.Repositories(host, manager, resource)
    proven = f"repository {name(resource)} is proven"
    work.read()
    if proven not in host.memo:
        work.prove()
        host.memo.add(proven)
    return Difference(tuple(work.diff()), actual=work)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    try:
        difference.actual.write()
    except OSError as failure:
        subject = str(failure.filename or "this host")
        raise error("HOST-FILE", subject, str(failure.strerror)) from None
