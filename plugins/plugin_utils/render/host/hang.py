# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an engine that lives still works: pure decisions on times and counters."""

from __future__ import annotations

from typing import Any

from .client import Load
from .phases import duration


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
