# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an engine failed, from what its unit's journal has: the cause that a candidate is given."""

from __future__ import annotations

import re

from ...module_utils.engine_causes import cause_of
from ..documents import knowledge

_FINDING = re.compile(r"^(?:<\d>)?error: (?P<told>[A-Z]+-[A-Z-]+: .*)$")
# systemd's own words.
_EXITED = re.compile(
    r"\S+\.service: (?:Main process exited|A process of this unit has been killed)"
)
_LONGEST = 300


def cause(journal: str, otherwise: str = "") -> str:
    """Return why the engine failed, in one line: the supervisor's finding and the root error.

    ``journal`` is `journalctl -o cat` of the replicas' units. ``otherwise`` is told where it has
    neither.
    """
    return known(journal) or otherwise.strip()[:_LONGEST] or "nothing in its journal says why"


def known(journal: str) -> str:
    """Return the cause that a journal has; empty where it has none."""
    lines = [line.rstrip() for line in journal.splitlines()]
    told = [found["told"] for line in lines if (found := _FINDING.match(line))]
    error = cause_of(lines, knowledge("serving/causes.yml"))
    parts = [told[-1]] if told else []
    # The supervisor has read the same lines by the same rules.
    if error and error.text not in "".join(parts):
        parts.append(str(error))
    return " | ".join(part[: 2 * _LONGEST] for part in parts)


def exited(journal: str) -> str:
    """Return what systemd said last of a process that ended; empty where it said nothing."""
    return next(
        (line[:_LONGEST] for line in reversed(journal.splitlines()) if _EXITED.match(line)), ""
    )
