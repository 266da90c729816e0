# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a page of the tutorial or a how-to page tells a reader to do, in order.

A ```console block is commands behind `$ ` and what they print: each line of it has to come, and `…`
stands for anything. A ```bash or ```sh block is one script. Other blocks are not run, and so hold
no commands: each says in which language it is. HTML comments, which no reader sees, say the rest:

    <!-- test: merge FILE -->       the next block is YAML that the reader puts into FILE
    <!-- test: file FILE -->        the next block is what the reader writes into FILE
    <!-- test: drop FILE A.B.C -->  what the reader takes out of FILE
    <!-- test: given COMMAND -->    what is so before the page says more; no block
    <!-- test: hands COMMAND -->    what happens outside the keyboard (reader.py); no block
    <!-- test: on HOST -->          the next block is typed on a host, as root
    <!-- test: as NAME=>TEXT … -->  what the reader puts for words of the next block
    <!-- test: fails [WORDS] -->    the next block's last command is to fail, and says so
    <!-- test: prints -->           the next block is what the last command prints
    <!-- test: skip KIND: WHY -->   the next block is not run, because it needs what no lab has
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

_PART = re.compile(
    r"^<!-- test: (?P<word>\w+) ?(?P<rest>[^\n]*?) ?-->$"
    r"|^```(?P<language>\w*)\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ALONE = ("drop", "given", "hands")
OF_BLOCK = ("merge", "file", "on", "as", "fails", "prints", "skip")
COMMANDS = ("console", "bash", "sh")
# What stands between the columns of a table.
FRAMES = str.maketrans("│┃", "  ")
# What no lab has, nor can have.
KINDS = {
    "bastion": "a host of one's own between controller and hosts",
    "clients": "sessions of an organization's clients, for hours",
    "awx": "a controller of Ansible's Automation Platform or AWX",
    "download": "gigabytes from package indexes or a model hub",
    "fabric": "two hosts on an RDMA network",
    "gpu": "GPUs that compute",
    "kubernetes": "a cluster",
    "mail": "a mail system and cron of one's own",
    "registry": "images of engines in a registry",
    "slurm": "a cluster of Slurm",
}


class PageError(ValueError):
    """A page that cannot be followed."""


@dataclass(frozen=True)
class Run:
    """A command (on a host, where one is named), what it prints, and whether it is to fail."""

    line: int
    command: str
    prints: tuple[str, ...] = ()
    fails: bool = False
    host: str = ""


@dataclass(frozen=True)
class Merge:
    """YAML that the reader puts into a file."""

    line: int
    path: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    line: int
    path: str
    text: str


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


@dataclass(frozen=True)
class Skip:
    """A block that is not run, and what it needs that no lab has."""

    line: int
    kind: str
    why: str


Step = Run | Merge | File | Drop | Hands | Skip


def steps(text: str) -> tuple[Step, ...]:
    """Return the steps of a page; raise PageError where it can't be read, or hides commands."""
    found: list[Step] = []
    told: dict[str, str] = {}
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        word, rest = part["word"], part["rest"]
        if word in ALONE:
            found.append(_alone(line, word, rest))
        elif word in OF_BLOCK:
            told[word] = rest
        elif word:
            raise PageError(f"line {line}: test: {word}: expected one of {ALONE + OF_BLOCK}")
        else:
            if "prints" in told:
                found.append(_with_output(line, found, part["block"]))
            else:
                found += _of_block(line, part["language"], part["block"], told)
            told = {}
    if told:
        raise PageError(f"no block follows test: {', '.join(told)}")
    return tuple(found)


def _alone(line: int, word: str, rest: str) -> Step:
    if word == "given":
        return Run(line, rest)
    if word == "hands":
        return Hands(line, tuple(rest.split()))
    path, place = rest.split()
    return Drop(line, path, tuple(place.split(".")))


def _with_output(line: int, found: list[Step], block: str) -> Run:
    if not found or not isinstance(found[-1], Run):
        raise PageError(f"line {line}: no command is before what is printed")
    lines = tuple(one.strip() for one in block.splitlines() if one.strip())
    last = found.pop()
    assert isinstance(last, Run)
    return replace(last, prints=last.prints + lines)


def _of_block(line: int, language: str, block: str, told: Mapping[str, str]) -> Iterator[Step]:
    if "skip" in told:
        kind, _, why = told["skip"].partition(": ")
        if kind not in KINDS or not why:
            raise PageError(f"line {line}: test: skip: expected one of {tuple(KINDS)}, and why")
        yield Skip(line, kind, why)
    elif "merge" in told:
        yield Merge(line, told["merge"], yaml.safe_load(block))
    elif "file" in told:
        yield File(line, told["file"], block)
    elif language in COMMANDS:
        yield from _commands(line, language, block, told)
    elif told:
        raise PageError(f"line {line}: nothing is run here that could be {', '.join(told)}")
    elif not language:
        raise PageError(f"line {line}: a block without a language; commands are sh or console")
    elif language == "text" and re.search(r"^\s*\$ ", block, re.MULTILINE):
        raise PageError(f"line {line}: commands in a text block; make it console")


def _commands(line: int, language: str, block: str, told: Mapping[str, str]) -> Iterator[Run]:
    for pair in shlex.split(told.get("as", "")):
        name, found, text = pair.partition("=>")
        if not found or name not in block:
            raise PageError(f"line {line}: test: as {pair}: the block does not have it")
        block = block.replace(name, text)
    runs = list(_console(line, block)) if language == "console" else [Run(line, block)]
    if "fails" in told:
        said = (told["fails"],) if told["fails"] else ()
        runs[-1] = replace(runs[-1], prints=runs[-1].prints + said, fails=True)
    yield from (replace(one, host=told.get("on", "")) for one in runs)


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

    Their order does not matter: hosts answer when they are ready. Nor do the lines of tables, and
    `…` alone is any number of lines.
    """
    lines = [" ".join(one.translate(FRAMES).split()) for one in said.splitlines()]
    for wanted in prints:
        if wanted == "…":
            continue
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


def edit(root: Path, step: Merge | File | Drop) -> None:
    """Do to a file what the page says; comments in YAML are lost."""
    path = root / step.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(step, File):
        path.write_text(step.text, encoding="utf-8")
        return
    document = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    if isinstance(step, Merge):
        document = merged(document or {}, step.values)
    else:
        inner = document
        for key in step.place[:-1]:
            inner = inner[key]
        del inner[step.place[-1]]
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
