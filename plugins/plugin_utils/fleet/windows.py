# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maintenance windows: when hosts may be changed, in the time of where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ..findings import error

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDOW = re.compile(
    r"(?P<days>[A-Za-z]{3,5}(?:[-,][A-Za-z]{3})*)\s+"
    r"(?P<h1>\d\d?):(?P<m1>\d\d)\s*-\s*(?P<h2>\d\d?):(?P<m2>\d\d)(?:\s+(?P<zone>\S+))?"
)
# Longer than this nobody waits for the next one.
HORIZON_DAYS = 15
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Window:
    """A time that comes again each week.

    ``days`` are those it begins on, 0 is Monday; ``start`` and ``end`` are minutes after midnight
    of a clock on the wall in ``zone``; an ``end`` that is not after ``start`` is on the next day.
    """

    days: tuple[int, ...]
    start: int
    end: int
    zone: str


def parse_window(text: str, subject: str) -> Window:
    """Return the window that a text like "Mon-Fri 22:00-04:00 Europe/Berlin" means.

    Days are one, a range, a list of both, or "daily"; without a zone the time is UTC.
    Raises FLEET-WINDOW-TEXT.
    """
    match = _WINDOW.fullmatch(" ".join(text.split()))
    if not match:
        raise _unreadable(text, subject, "is no window")
    start = int(match["h1"]) * 60 + int(match["m1"])
    end = int(match["h2"]) * 60 + int(match["m2"])
    if int(match["m1"]) > 59 or int(match["m2"]) > 59 or start >= 24 * 60 or end > 24 * 60:
        raise _unreadable(text, subject, "has a time that no clock shows")
    zone = match["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, OSError, ValueError) as failure:
        raise _unreadable(text, subject, f"has an unknown time zone, {zone}") from failure
    return Window(_days(match["days"], text, subject), start, end, zone)


def is_open(window: Window, moment: datetime) -> bool:
    """Return whether the clock on the wall shows a time of the window."""
    local = moment.astimezone(ZoneInfo(window.zone))
    minutes = local.hour * 60 + local.minute
    today = local.weekday() in window.days
    if window.end > window.start:
        return today and window.start <= minutes < window.end
    yesterday = (local.weekday() - 1) % 7 in window.days
    return (today and minutes >= window.start) or (yesterday and minutes < window.end)


def may_begin(
    hosts: Sequence[Sequence[Window]], now: datetime, need: timedelta
) -> tuple[bool, datetime | None]:
    """Return whether work of length ``need`` may begin now on all hosts, and else when it may.

    A host without windows is always open. Windows are open and close at whole minutes.
    """
    groups = {tuple(windows) for windows in hosts if windows}
    if not groups:
        return True, None
    now = now.astimezone(UTC)
    begin: datetime | None = None
    for closes in _minutes(now):
        moment = max(now, closes - _MINUTE)
        if not all(any(is_open(window, moment) for window in windows) for windows in groups):
            begin = None
            continue
        begin = begin or moment
        if closes - begin >= need:
            return begin == now, begin
    return False, None


def _minutes(now: datetime) -> Iterator[datetime]:
    """Yield the ends of the minutes from now on, as far as anybody waits."""
    first = now.replace(second=0, microsecond=0)
    for minute in range(HORIZON_DAYS * 24 * 60):
        yield first + (minute + 1) * _MINUTE


def _days(text: str, whole: str, subject: str) -> tuple[int, ...]:
    if text.lower() == "daily":
        return tuple(range(7))
    chosen: set[int] = set()
    for part in text.split(","):
        ends = [name.capitalize() for name in part.split("-")]
        if len(ends) > 2 or any(name not in _DAYS for name in ends):
            raise _unreadable(whole, subject, f"has a day that is none, {part}")
        first, last = _DAYS.index(ends[0]), _DAYS.index(ends[-1])
        chosen |= {day % 7 for day in range(first, last + (8 if last < first else 1))}
    return tuple(sorted(chosen))


def _unreadable(text: str, subject: str, why: str) -> Exception:
    return error("FLEET-WINDOW-TEXT", subject, f"{text!r} {why}")
