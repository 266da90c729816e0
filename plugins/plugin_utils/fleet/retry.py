# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which failures are tried again, how often and after how long: knowledge/fleet_retry.yml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import Finding, has_errors


@dataclass(frozen=True)
class Again:
    """One more attempt, after ``delay_seconds``."""

    delay_seconds: float
    because: str
    rule: str


def try_again(
    message: str,
    findings: Iterable[Finding],
    *,
    unreachable: bool,
    attempt: int,
    most: int | None = None,
) -> Again | None:
    """Return whether a host that failed at its ``attempt``-th try gets another, None for no.

    ``most`` is how many further attempts the operator allows, None for what the rule says.
    What was refused with a finding stays refused: to ask again changes nothing.
    """
    for rule in knowledge("fleet_retry.yml")["rules"]:
        if unreachable:
            fits = bool(rule.get("unreachable"))
        else:
            fits = any(re.search(pattern, message) for pattern in rule.get("messages", ()))
        if not fits:
            continue
        if not unreachable and has_errors(findings):
            return None
        allowed = int(rule["attempts"]) if most is None else most + 1
        if attempt >= allowed:
            return None
        return Again(float(rule["delay_seconds"]), str(rule["because"]), str(rule["id"]))
    return None
