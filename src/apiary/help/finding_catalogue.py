# SPDX-License-Identifier: GPL-3.0-or-later

"""What is written of every finding code."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge


@dataclass(frozen=True)
class Entry:
    """A finding code's page: what it means, what shows it, what to do."""

    code: str
    severity: str
    meaning: str
    evidence: str
    remedy: str
    source: str | None = None

    @property
    def area(self) -> str:
        """The first word of the code, a key of ``areas()``."""
        return self.code.split("-")[0]


@dataclass(frozen=True)
class Area:
    """What the first word of codes is about, and pages of docs/ to begin with."""

    about: str
    reading: tuple[str, ...]


@functools.cache
def catalogue() -> dict[str, Entry]:
    """Return every documented code in alphabetical order."""
    matches: dict[str, Entry] = {}
    for path in sorted((KNOWLEDGE / "findings").glob("*.yml")):
        for code, entry in (knowledge(f"findings/{path.name}") or {}).items():
            matches[code] = Entry(
                code,
                entry["severity"],
                entry["meaning"],
                entry.get("evidence", ""),
                entry["remedy"],
                entry.get("source"),
            )
    return dict(sorted(matches.items()))


@functools.cache
def areas() -> dict[str, Area]:
    """Return what each first word is about."""
    return {
        name: Area(entry["about"], tuple(entry["reading"]))
        for name, entry in knowledge("finding_areas.yml").items()
    }


def see_also(entry: Entry) -> tuple[str, ...]:
    """Return the codes that begin with the same two words."""
    family = entry.code.split("-")[:2]
    return tuple(
        code for code in catalogue() if code != entry.code and code.split("-")[:2] == family
    )
