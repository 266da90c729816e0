# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is written of every finding code, and which files print it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge

COLLECTION = KNOWLEDGE.parents[2]
SOURCES = Path(__file__).parents[2]
_CODE = r"(?<![A-Z0-9-]){}(?![A-Z0-9-])"


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


def printed_by(code: str) -> tuple[str, ...]:
    """Return the files of the collection and the command that have a code, as in the repository."""
    pattern = re.compile(_CODE.format(re.escape(code)))
    matches = [(name, text) for name, text in _texts() if code in text and pattern.search(text)]
    # A Python file that prints it has it as a text of its own; others only speak of it.
    printing = [name for name, text in matches if not name.endswith(".py") or f'"{code}' in text]
    return tuple(printing or (name for name, _ in matches))


@functools.cache
def _texts() -> tuple[tuple[str, str], ...]:
    return tuple((name, path.read_text(encoding="utf-8")) for name, path in _files())


def _files() -> Iterator[tuple[str, Path]]:
    """Yield what can print findings; the catalogue itself is none of it."""
    for folder, endings in (
        ("playbooks", ".yml"),
        ("plugins", ".py .yml"),
        ("roles", ".py .yml .j2"),
    ):
        for path in sorted((COLLECTION / folder).rglob("*")):
            inner = path.relative_to(COLLECTION).as_posix()
            about = inner.startswith("plugins/plugin_utils/knowledge/finding")
            if path.suffix in endings.split() and not about and "/docs/" not in inner:
                yield inner, path
    for path in sorted((SOURCES / "apiary").rglob("*.py")):
        yield f"src/{path.relative_to(SOURCES).as_posix()}", path
    # Of a clone: an installed command has no lab.
    for path in sorted((SOURCES.parent / "tests/lab").rglob("*.py")):
        yield path.relative_to(SOURCES.parent).as_posix(), path
