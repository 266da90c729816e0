# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an engine ended, from its own lines: the one reader, by knowledge/serving/causes.yml.

Hosts run it in the replica supervisor, the controller on a journal. A log is hostile text: lines
are cut, patterns are linear, and of all that was seen a cause of each rank is held.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

LINE, SHOWN, HEADS = 2000, 300, 4
# What is named first: the first root error, then what may have been handled, then consequences.
_RANKS = ("root", "weak", "follows", "unknown")


class Cause(NamedTuple):
    """A cause by its id, what it says, and what to do; the id of what has no name is unknown."""

    id: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"cause {self.id}: {self.text}" if self.id != "unknown" else self.text


class Causes:
    """What an engine's lines say of its end. Times are monotonic seconds."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        names = ("trigger", "prefix", "heads", "exception", "fatal", "echoes", "plain")
        self._patterns = {name: re.compile(facts[name]) for name in names}
        self._forms = [
            (entry, re.compile(form["pattern"]), form["says"])
            for entry in facts["causes"]
            for form in entry["forms"]
        ]
        self._found: dict[str, tuple[float, Cause]] = {}
        self._fatal = False

    def clear(self) -> None:
        """Forget all: what was before did not end the engine."""
        self._found, self._fatal = {}, False

    def see(self, line: str, now: float | None = None) -> None:
        """Take one line of the engine."""
        line = line[:LINE]
        if not self._patterns["trigger"].search(line):
            return
        now = time.monotonic() if now is None else now
        prefix = self._patterns["prefix"].match(line)
        bare = line[prefix.end() if prefix else 0 :].strip()
        told = bare
        for _head in range(HEADS):
            bare = self._patterns["heads"].sub("", bare, count=1)
        quiet = prefix and {prefix["level"], prefix["glog"]} & set(self._facts["levels"])
        rank, cause = self._read(told, bare, bool(quiet))
        if not self._fatal and self._patterns["fatal"].match(told):
            self._fatal = True
            for handled in ("weak", "unknown"):
                self._found.pop(handled, None)
        if cause is None:
            return
        first, _cause = self._found.get(rank, (float("-inf"), None))
        if rank == "waits" or now - first > self._facts["fresh_seconds"]:
            self._found[rank] = now, cause

    def _read(self, told: str, bare: str, quiet: bool) -> tuple[str, Cause | None]:
        for entry, pattern, says in self._forms:
            waits = entry.get("rank") == "waits"
            match = pattern.search(bare) if waits or not quiet else None
            if match:
                groups = {name: value.strip() for name, value in match.groupdict("").items()}
                text = says.format(**groups)[:SHOWN]
                return entry.get("rank", "root"), Cause(entry["id"], text, entry["advice"])
        error = self._patterns["exception"].match(told) or self._patterns["plain"].search(told)
        if error and not quiet and not self._patterns["echoes"].search(told):
            text = f"its first error: {told[:SHOWN]}"
            return "unknown", Cause("unknown", text, self._facts["advice"])
        return "", None

    def ended(self, since: float = float("-inf")) -> Cause | None:
        """Return why the engine ended, by what was seen since; None where nothing says so."""
        found = (self._found.get(rank) for rank in _RANKS)
        return next((item[1] for item in found if item and item[0] >= since), None)

    def stands_still(self, phase: str, since: float) -> Cause | None:
        """Return why a start makes no progress; ``since`` is its last, in this phase."""
        seen, cause = self._found.get("waits", (since, None))
        if cause is None or seen < since:
            stall = self._facts["stalls"].get(phase)
            cause = stall and Cause(stall["cause"], stall["says"], self._facts["advice"])
        return self.ended() or cause


def cause_of(lines: Iterable[str], facts: Mapping[str, Any]) -> Cause | None:
    """Return why the engine ended whose lines these are."""
    causes = Causes(facts)
    for line in lines:
        causes.see(line, 0.0)
    return causes.ended()


def cause_ids(facts: Mapping[str, Any]) -> list[str]:
    """Return every id that a cause may have: the values of a metric's label."""
    stalls = (stall["cause"] for stall in facts["stalls"].values())
    return sorted({entry["id"] for entry in facts["causes"]} | {*stalls, "unknown"})
