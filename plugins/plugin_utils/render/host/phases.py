# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a start has come, from the engine's own lines."""

from __future__ import annotations

import re
import threading
import time
from typing import Any


class Phases:
    """The phase of one start; it only goes forward, for workers and draft models repeat lines.

    ``progress`` is when something new was seen last, ``since`` when the phase began (monotonic).
    """

    def __init__(self, life: dict[str, Any], now: float | None = None) -> None:
        self._entries: list[dict[str, Any]] = life["phases"]["entries"]
        self._index = {entry["id"]: place for place, entry in enumerate(self._entries)}
        self._patterns = [
            (place, re.compile(pattern))
            for place, entry in enumerate(self._entries)
            for pattern in entry.get("patterns", ())
        ]
        self._idle = [re.compile(pattern) for pattern in life["idle_lines"]["patterns"]]
        self._lock = threading.Lock()
        self._place = 0
        self._count: tuple[int, int] | None = None
        self.since = self.progress = time.monotonic() if now is None else now
        # The engine's last line that meant something, for whoever asks why it ended.
        self.last_line = ""
        self.watching = True

    @property
    def phase(self) -> str:
        """The id of the phase."""
        return str(self._entries[self._place]["id"])

    def enter(self, phase: str, now: float | None = None) -> None:
        """Go to a phase that no line tells."""
        with self._lock:
            self._enter(self._index[phase], time.monotonic() if now is None else now)

    def _enter(self, place: int, now: float) -> None:
        if place > self._place:
            self._place, self._count, self.since = place, None, now
        self.progress = now

    def see(self, line: str, now: float | None = None) -> None:
        """Take one line of the engine."""
        if not self.watching:
            return
        now = time.monotonic() if now is None else now
        with self._lock:
            if any(pattern.search(line) for pattern in self._idle):
                return
            self.last_line = line.strip()[:500]
            self.progress = now
            for place, pattern in self._patterns:
                if place < self._place:
                    continue
                match = pattern.search(line)
                if match is None:
                    continue
                self._enter(place, now)
                groups = match.groupdict()
                if groups.get("total"):
                    self._count = int(groups["done"]), int(groups["total"])
                return

    def text(self, now: float | None = None) -> str:
        """Return the phase as a person reads it: loading weights 12/24, 3 min."""
        now = time.monotonic() if now is None else now
        with self._lock:
            count = f" {self._count[0]}/{self._count[1]}" if self._count else ""
            return f"{self._entries[self._place]['text']}{count}, {duration(now - self.since)}"


def has_read_weights(life: dict[str, Any], phase: str) -> bool:
    """Say whether a replica that published this phase has the weights behind it."""
    ids = [entry["id"] for entry in life["phases"]["entries"]]
    (reading,) = (
        place for place, entry in enumerate(life["phases"]["entries"]) if entry.get("reads_weights")
    )
    return phase in ids and reading < ids.index(phase) < ids.index("stopping")


def duration(seconds: float) -> str:
    """Return a length of time in its largest fitting unit: 45 s, 3 min, 1 h 5 min."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
