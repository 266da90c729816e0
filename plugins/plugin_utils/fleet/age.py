# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How old a document is, by the time that it has."""

from __future__ import annotations

from datetime import UTC, datetime


def time_of(text: str | None) -> datetime | None:
    """Return the time that a document has (UTC), None where it has none."""
    try:
        moment = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def age_seconds(text: str | None, now: datetime) -> int | None:
    """Return how old a document is; 0 where a host's clock is ahead."""
    made = time_of(text)
    return None if made is None else max(0, int((now - made).total_seconds()))


def age_text(seconds: int) -> str:
    """Return an age in the unit that people would say: 40 s, 12 min, 5 h, 3 days."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"
