# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a how-to page tells a reader to do, in order.

A ```console block is commands behind `$ ` and what they print: each line of it has to come, and `…`
stands for anything. A ```bash or ```sh block is one script. HTML comments, which no
reader sees, say the rest:

    <!-- test: merge FILE -->       the next block is YAML that the reader puts into FILE
    <!-- test: drop FILE A.B.C -->  what the reader takes out of FILE
    <!-- test: hands COMMAND -->    what happens outside the keyboard, by tests/docs/hands.py
    <!-- test: fails -->            the next block's last command ends with an error, on purpose
    <!-- test: skip WHY -->         the next block is not run
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_PART = re.compile(
    r"^<!-- test: (?P<word>\w+) ?(?P<rest>[^\n]*?) ?-->$"
    r"|^```(?P<language>\w*)\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WORDS = ("merge", "drop", "hands", "fails", "skip")


class PageError(ValueError):
    """A page that cannot be followed."""


@dataclass(frozen=True)
class Run:
    """A command, the lines that it prints, and whether it is to fail."""

    line: int
    command: str
    prints: tuple[str, ...] = ()
    fails: bool = False


@dataclass(frozen=True)
class Merge:
    """YAML that the reader puts into a file."""

    line: int
    path: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Drop:
    """A place in a YAML file that the reader takes out."""

    line: int
    path: str
    place: tuple[str, ...]


@dataclass(frozen=True)
class Hands:
    """What somebody does to the hosts themselves."""

    line: int
    words: tuple[str, ...]


Step = Run | Merge | Drop | Hands


def steps(text: str) -> tuple[Step, ...]:
    """Return the steps of a page; raise PageError for a comment that says nothing known."""
    return tuple(_steps(text))


def _steps(text: str) -> Iterator[Step]:
    word, rest = "", ""
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["word"]:
            if part["word"] not in WORDS:
                raise PageError(f"line {line}: test: {part['word']}: expected one of {WORDS}")
            if part["word"] == "drop":
                path, place = part["rest"].split()
                yield Drop(line, path, tuple(place.split(".")))
            elif part["word"] == "hands":
                yield Hands(line, tuple(part["rest"].split()))
            else:
                word, rest = part["word"], part["rest"]
            continue
        yield from _of_block(line, part["language"], part["block"], word, rest)
        word, rest = "", ""


def _of_block(line: int, language: str, block: str, word: str, rest: str) -> Iterator[Step]:
    if word == "skip":
        return
    if word == "merge":
        yield Merge(line, rest, yaml.safe_load(block))
    elif language == "console":
        found = list(_console(line, block))
        for number, one in enumerate(found, 1):
            last = number == len(found)
            yield Run(one.line, one.command, one.prints, fails=word == "fails" and last)
    elif language in ("bash", "sh"):
        yield Run(line, block, fails=word == "fails")
    elif word == "fails":
        raise PageError(f"line {line}: nothing is run here that could fail")


def _console(line: int, block: str) -> Iterator[Run]:
    command, prints, begun, open_ended = "", list[str](), line, False
    for number, text in enumerate(block.splitlines(), line + 1):
        if text.startswith("$ "):
            if command:
                yield Run(begun, command, tuple(prints))
            command, prints, begun = text[2:], [], number
        elif open_ended:
            command += f"\n{text}"
        elif not command:
            raise PageError(f"line {number}: a console block begins with a command: $ …")
        elif text.strip():
            prints.append(text.strip())
        open_ended = command.endswith("\\") and not prints
    if command:
        yield Run(begun, command, tuple(prints))


def missing(prints: tuple[str, ...], said: str) -> str | None:
    """Return the first line that did not come; None when all came, each a line of its own.

    Their order does not matter: hosts answer when they are ready.
    """
    lines = [" ".join(one.split()) for one in said.splitlines()]
    for wanted in prints:
        parts = (re.escape(part.strip()) for part in " ".join(wanted.split()).split("…"))
        pattern = re.compile(".*".join(parts))
        found = next((line for line in lines if pattern.search(line)), None)
        if found is None:
            return wanted
        lines.remove(found)
    return None


def merged(old: Any, new: Any) -> Any:
    """Return a document with what is put into it; mappings are merged, all else is replaced."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def edit(root: Path, step: Merge | Drop) -> None:
    """Do to a file what the page says; comments in it are lost."""
    path = root / step.path
    document = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    if isinstance(step, Merge):
        document = merged(document or {}, step.values)
    else:
        inner = document
        for key in step.place[:-1]:
            inner = inner[key]
        del inner[step.place[-1]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
