# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a block of tasks failed: what Ansible hands to a rescue, as one message with findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """The task that failed first, and its findings as the module or action returned them."""

    task: str
    message: str
    findings: tuple[dict[str, Any], ...] = ()


def failure_of(task: str, result: Mapping[str, Any]) -> Failure:
    """Return why a task failed; of a loop, the first item that did."""
    items = [one for one in result.get("results", ()) if one.get("failed")]
    first: Mapping[str, Any] = items[0] if items else result
    return Failure(task, str(first.get("msg", first)), tuple(first.get("findings", ())))
