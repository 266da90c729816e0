# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a block of tasks failed: what Ansible hands to a rescue, as one message with findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST = 10_000


@dataclass(frozen=True)
class Failure:
    """The task that failed first, and its findings as the module or action returned them."""

    task: str
    message: str
    findings: tuple[dict[str, Any], ...] = ()


def failure_of(task: str, result: Mapping[str, Any]) -> Failure:
    """Return why a task failed; of a loop, the first item that did."""
    items = [one for one in _mappings(result.get("results")) if one.get("failed")]
    first: Mapping[str, Any] = items[0] if items else result
    message = str(first.get("msg", first))[:_LONGEST]
    return Failure(task, message, _mappings(first.get("findings")))


def _mappings(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the mappings of a list; a host may return what it likes."""
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(one for one in listed if isinstance(one, dict))
