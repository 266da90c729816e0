# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maintenance windows: when hosts may be changed, in the time of where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from ..findings import error

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDOW = re.compile(
    r"(?P<days>[A-Za-z]{3,5}(?:[-,][A-Za-z]{3})*)\s+"
    r"(?P<h1>\d\d?):(?P<m1>\d\d)\s*-\s*(?P<h2>\d\d?):(?P<m2>\d\d)(?:\s+(?P<zone>\S+))?"
)
# Longer than this nobody waits for the next one.
HORIZON_DAYS = 15


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
    text: str


def parse_window(text: str, subject: str) -> Window:
    """Return the window that a text like "Mon-Fri 22:00-04:00 Europe/Berlin" means.

    Days are one, a range, a list of both, or "daily"; without a zone the time is UTC.
    Raises FLEET-WINDOW-TEXT.
    """
    found = _WINDOW.fullmatch(" ".join(text.split()))
    if not found:
        raise _unreadable(text, subject, "is no window")
    start = int(found["h1"]) * 60 + int(found["m1"])
    end = int(found["h2"]) * 60 + int(found["m2"])
    if int(found["m1"]) > 59 or int(found["m2"]) > 59 or start >= 24 * 60 or end > 24 * 60:
        raise _unreadable(text, subject, "has a time that no clock shows")
    zone = found["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, OSError, ValueError) as failure:
        raise _unreadable(text, subject, f"has an unknown time zone, {zone}") from failure
    return Window(_days(found["days"], text, subject), start, end, zone, text)


def spans(windows: Sequence[Window], now: datetime) -> list[tuple[datetime, datetime]]:
    """Return when windows are open around ``now``, in UTC, joined and in order."""
    found = sorted(span for window in windows for span in _spans(window, now))
    joined: list[tuple[datetime, datetime]] = []
    for start, end in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def common(hosts: Sequence[Sequence[Window]], now: datetime) -> list[tuple[datetime, datetime]]:
    """Return when all hosts are open at once; a host without windows always is."""
    whole = [(now.astimezone(UTC) - timedelta(days=2), _horizon(now))]
    for windows in hosts:
        if not windows:
            continue
        theirs = spans(windows, now)
        whole = [
            (max(start, begin), min(end, stop))
            for start, end in whole
            for begin, stop in theirs
            if max(start, begin) < min(end, stop)
        ]
    return whole


def may_begin(
    hosts: Sequence[Sequence[Window]], now: datetime, need: timedelta
) -> tuple[bool, datetime | None]:
    """Return whether work of length ``need`` may begin now on all hosts, and else when it may."""
    if not any(hosts):
        return True, None
    now = now.astimezone(UTC)
    for start, end in common(hosts, now):
        begin = max(start, now)
        if begin < end and end - begin >= need:
            return begin == now, begin
    return False, None


def _spans(window: Window, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    zone = ZoneInfo(window.zone)
    # From two days ago: the longest window that is still open began on the day before.
    today = now.astimezone(zone).date()
    for offset in range(-2, HORIZON_DAYS + 1):
        day = today + timedelta(days=offset)
        if day.weekday() not in window.days:
            continue
        last = day if window.end > window.start else day + timedelta(days=1)
        starts = _instants(day, window.start, zone)
        ends = _instants(last, window.end, zone)
        # Of a time that a clock shows twice, or never, the one that is inside by every reading.
        start, end = max(starts), min(ends)
        if start >= end and starts[0] < starts[1] and ends[0] < ends[1]:
            start, end = starts[0], ends[0]  # all of it is in the hour that comes twice
        if start < end:
            yield start, end


def _instants(day: date, minutes: int, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the two instants that a wall clock's time can mean; mostly they are one."""
    days, minutes = divmod(minutes, 24 * 60)
    local = datetime.combine(day + timedelta(days=days), time(*divmod(minutes, 60)), zone)
    return local.replace(fold=0).astimezone(UTC), local.replace(fold=1).astimezone(UTC)


def _horizon(now: datetime) -> datetime:
    return now.astimezone(UTC) + timedelta(days=HORIZON_DAYS)


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
