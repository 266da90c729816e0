# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/playbooks.md: what each playbook does, to whom, with which tags and variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from text import ROOT, code, table

HEAD = """# Playbooks

What an operator runs: `ansible-playbook -i inventory/mine playbooks/NAME.yml`, or
`ansible-playbook apiary.instinct.NAME` of the installed collection. Below each: its plays in order
with the hosts that they are for, its tags, and the variables that it reads from `-e` or the
inventory beside [those of roles and inventory](variables.md). `--check --diff` shows what a run
would do; `--limit` and `-e target=HOSTS` keep it to some hosts.
"""
# `NAME | default(…)`: what may be given; the playbooks' own begin with two underscores.
_GIVEN = re.compile(
    r"(?<![\w.\[])([a-z][a-z0-9]*(?:_[a-z0-9]+)+|target|deployment|replica)\s*\|\s*default\("
)
_FILE = re.compile(r"(?:tasks|include_tasks|import_tasks|import_playbook)[:/ ]+\"?([\w/]+\.yml)")
_ANSIBLES = ("ansible_", "inventory_")


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        lines += _playbook(path)
    return "\n".join(lines)


def _playbook(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    plays = yaml.safe_load(text)
    yield f"## {path.stem}\n"
    yield from (f"{line}\n" for line in _header(text))
    rows = [
        (play.get("name", "-"), code(_hosts(play)), ", ".join(map(code, _tags(play))))
        for play in plays
    ]
    yield from table(("play", "hosts", "tags"), rows)
    tags = sorted(
        _all_tags(plays) | {tag for file in _files(path) for tag in _all_tags(_load(file))}
    )
    if tags:
        yield f"Tags: {', '.join(map(code, tags))}.\n"
    given: dict[str, str] = {}
    for file in (path, *_files(path)):
        given = {**_variables(file), **given}
    if given:
        told = [
            code(name) + (f" ({code(given[name])})" if given[name] else "")
            for name in sorted(given)
        ]
        yield f"Variables, with what holds without them: {', '.join(told)}.\n"


def _header(text: str) -> Iterator[str]:
    """Yield the comment above the first play: its commands as code, its sentences as they are."""
    words: list[str] = []
    for line in text.splitlines():
        if line.startswith("- "):
            break
        said = line.removeprefix("# ").strip() if line.startswith("# ") else ""
        if said.startswith("ansible-playbook "):
            command, _, said = said.partition(": ")
            yield code(command)
        words += [said] if said else []
    told = re.sub(r"docs/([\w/-]+\.md)", _page_link, " ".join(words))
    if told:
        yield told if told.endswith((".", ")")) else f"{told}."


def _page_link(found: re.Match[str]) -> str:
    """Return a link by the page's own title."""
    text = (ROOT / found[0]).read_text(encoding="utf-8")
    title = text.split("# ", 1)[1].splitlines()[0]
    return f"[{title}](../{found[1]})"


def _hosts(play: dict[str, Any]) -> str:
    found = play.get("hosts") or play.get("ansible.builtin.import_playbook", "")
    return str(found)


def _tags(play: dict[str, Any]) -> list[str]:
    found = play.get("tags", [])
    return [found] if isinstance(found, str) else list(found)


def _all_tags(node: Any) -> set[str]:
    """Return every tag below a node that is spelt out."""
    if isinstance(node, dict):
        own = node.get("tags", [])
        mine = {own} if isinstance(own, str) else {one for one in own if isinstance(one, str)}
        below = {tag for value in node.values() for tag in _all_tags(value)}
        # One task applies several roles, each of which has its tag.
        words = re.findall(r"'(\w+)'", node.get("apiary.instinct.apply", {}).get("roles", ""))
        below |= {word for word in words if (ROOT / "roles" / word).is_dir()}
        return {tag for tag in mine if "{{" not in tag and tag != "always"} | below
    if isinstance(node, list):
        return {tag for value in node for tag in _all_tags(value)}
    return set()


@cache
def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def _files(path: Path) -> tuple[Path, ...]:
    """Return the task files and playbooks that one includes, and theirs."""
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        current = waiting.pop()
        for name in _FILE.findall(current.read_text(encoding="utf-8")):
            for base in (current.parent, ROOT / "playbooks", ROOT / "playbooks/tasks"):
                file = (base / name).resolve()
                if file.is_file() and file not in found and file != path:
                    found[file] = None
                    waiting.append(file)
                    break
    return tuple(sorted(found))


def _variables(path: Path) -> dict[str, str]:
    """Return the variables that a file reads if they are given, with their short defaults."""
    text = path.read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for match in _GIVEN.finditer(text):
        if not match[1].startswith(_ANSIBLES):
            found.setdefault(match[1], "")
            found[match[1]] = found[match[1]] or _literal(text[match.end() :])
    return found


def _literal(text: str) -> str:
    """Return a default that is one plain value; others depend on other variables."""
    found = re.match(r"('[^']*'|\"[^\"]*\"|[\d.]+|true|false|\[\]|\{\})\s*[,)]", text)
    value = found[1].strip("'\"") if found else ""
    return "" if value in ("[]", "{}", "none") else value
