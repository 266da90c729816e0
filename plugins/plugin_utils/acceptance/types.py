# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was found on one host: `apiary.acceptance/v1`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from ..findings import Finding, by_severity
from ..host.types import Check, CheckState

_COUNTED: tuple[tuple[CheckState, str], ...] = (
    ("pass", "pass"),
    ("fail", "fail"),
    ("skip", "do not apply"),
    ("unknown", "unknown"),
)


@dataclass(frozen=True)
class Excerpt:
    """Raw evidence that a failed check rests on: ``origin`` is a file or command of the host."""

    code: str
    subject: str
    origin: str
    text: str


@dataclass(frozen=True)
class Acceptance:
    """Every check of one host, and what its topology and its concerns' decisions complain of.

    ``accepted`` is False where a check of severity error fails, or a complaint is an error.
    ``excerpts`` are cut to what a person reads; the whole is on the host.
    """

    SCHEMA: ClassVar[str] = "apiary.acceptance/v1"

    host: str
    collected_at: str
    accepted: bool
    checks: tuple[Check, ...]
    complaints: tuple[Finding, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return what a person should know: errors first, last what could not be read."""
        found = [finding for check in self.checks if (finding := check.finding())]
        found += self.complaints
        return tuple(sorted(found, key=by_severity))

    def summary(self) -> tuple[str, ...]:
        """Return lines for a person: the count, then every finding with its remedy."""
        counts = Counter(check.state for check in self.checks)
        told = ", ".join(f"{counts[state]} {name}" for state, name in _COUNTED if counts[state])
        verdict = "accepted" if self.accepted else "not accepted"
        lines = [f"{self.host}: {verdict}: {len(self.checks)} checks: {told}"]
        return (*lines, *(line for one in self.findings for line in str(one).splitlines()))
