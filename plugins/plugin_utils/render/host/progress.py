# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a start has come, and whether an engine that lives still works, from its own words."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from .client import Load


class Hang:
    """Judges a serving engine by its own counters. Times are monotonic seconds.

    Requests that are there while no token is made for ``seconds`` mean that it hangs, and so does
    silence. One that idles is asked for a token now and then: its counters are those of before it
    hung, and whoever waits for it isn't among them.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._moved = self._asked = now
        self._silent_since: float | None = None
        self._tokens: float | None = None
        self._requests = 0
        self._told = False
        self._busy_since = now

    def take(self, load: Load | None, now: float) -> None:
        """Take what /metrics said, None for no answer."""
        if load is None:
            self._silent_since = now if self._silent_since is None else self._silent_since
            return
        self._silent_since = None
        self._told = self._told or load.told
        if load.tokens != self._tokens:
            self._tokens, self._moved = load.tokens, now
        requests = int(load.running + load.waiting)
        if requests and not self._requests:
            self._busy_since = now
        self._requests = requests

    def verdict(self, now: float) -> str | None:
        """Return why the engine hangs, or None."""
        silent = 0.0 if self._silent_since is None else now - self._silent_since
        if silent > self._seconds:
            return f"/metrics has not answered for {duration(silent)}"
        still = now - max(self._moved, self._busy_since)
        if self._requests and still > self._seconds:
            return f"{self._requests} requests and not one token for {duration(still)}"
        return None

    def means_hang(self) -> bool:
        """Return whether no answer to the last question means a hang.

        Not where tokens were made since: it waits behind a burst that came just before it.
        """
        return self._moved <= self._asked

    def wants_proof(self, now: float) -> bool:
        """Say whether an idle engine should be asked for a token now; asking counts as asked.

        One that keeps no statistics never: busy, it would let the question wait in its queue.
        """
        due = (
            self._told
            and not self._requests
            and now - max(self._moved, self._asked) > self._seconds
        )
        if due:
            self._asked = now
        return due


def overdue(life: dict[str, Any], timeout: float, since: float, progress: float) -> str | None:
    """Return why a start has failed, or None. ``timeout`` is what a start is planned to take.

    ``since`` are the seconds since the engine began, ``progress`` those since something new.
    """
    limits = life["start"]
    if progress > limits["stall_seconds"]:
        return f"nothing new for {duration(progress)}"
    if since > timeout and progress > limits["late_stall_seconds"]:
        return f"not up after {duration(since)}, and nothing new for {duration(progress)}"
    if since > timeout * limits["most_timeouts"]:
        return f"not up after {duration(since)}"
    return None


def drains_itself(command: list[str], flag: str) -> bool:
    """Say whether the engine finishes its requests after SIGTERM; ``flag`` says for how long."""
    for place, word in enumerate(command):
        name, _equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            value = value or (command[place + 1] if place + 1 < len(command) else "")
            return value not in ("", "0")
    return False


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
