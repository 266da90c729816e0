# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers and ages as people read them: three digits, thousands apart, 12 min."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from math import floor, isfinite, log10

NONE = "–"


def number(value: float | None, figures: int = 3) -> str:
    """Return so many significant digits, thousands apart: 12,345, 1.46, 0.0123."""
    if value is None or not isfinite(value):
        return NONE
    if value == 0:
        return "0"
    digits = figures - 1 - floor(log10(abs(value)))
    shown = round(value, digits)
    return f"{shown:,.{max(digits, 0)}f}" if digits >= 0 else f"{value:,.0f}"


def whole(value: float | None) -> str:
    """Return a count without decimals where it has none."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if share is None else f"{share * 100:.0f} %"


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return what sorts r2 before r10."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((int(part), part) if part.isdecimal() else (-1, part) for part in parts)


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


def parse_cpulist(text: str) -> tuple[int, ...]:
    """Return the CPUs of a cpulist, ascending; raise ValueError where it isn't one."""
    cpus: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if low < 0 or high < low:
            raise ValueError(f"not a cpulist: {text!r}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def format_cpulist(cpus: Iterable[int]) -> str:
    """Return the shortest cpulist of some CPUs."""
    ordered = sorted(set(cpus))
    parts: list[str] = []
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == cpu else f"{first}-{cpu}")
        start = index + 1
    return ",".join(parts)
