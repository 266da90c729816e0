# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary finding`: the catalogue of findings; what one means, what shows it and what to do."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    KNOWLEDGE,
    knowledge,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from click.shell_completion import CompletionItem

from apiary.app.inputs import json_option
from apiary.app.output import echo, grid, print_document, show


def _complete(
    _ctx: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    prefix = incomplete.upper()
    matches = [CompletionItem(name, help=area.about) for name, area in areas().items()]
    matches += [CompletionItem(item.code, help=item.meaning) for item in catalogue().values()]
    return [item for item in matches if item.value.startswith(prefix)]


@click.command()
@click.argument("code", required=False, metavar="[CODE|AREA]", shell_complete=_complete)
@json_option
def finding(code: str | None, as_json: bool) -> int:
    """Say what a finding means, what shows it, and what to do about it.

    An AREA is the first word of a code; without either, all areas are listed.

    \b
    apiary finding TOPO-TRUNCATED
    apiary finding replica
    apiary finding
    """
    if code is None:
        _list_areas(as_json)
        return 0
    name = code.strip().rstrip(":").upper()
    if name in catalogue():
        _page(catalogue()[name], as_json)
    elif any(item.area == name for item in catalogue().values()):
        _list_codes((item for item in catalogue().values() if item.area == name), name, as_json)
    else:
        near = difflib.get_close_matches(name, [*catalogue(), *areas()], 3, 0.6)
        raise error(
            "EXPLAIN-NO-FINDING",
            code,
            "is neither the code of a finding nor the first word of one",
            nearest=" or ".join(near) or "none",
        )
    return 0


def _list_areas(as_json: bool) -> None:
    counts: dict[str, int] = dict.fromkeys(areas(), 0)
    for entry in catalogue().values():
        counts[entry.area] += 1
    if as_json:
        rows = [
            {"area": name, "about": areas()[name].about, "codes": counts[name]} for name in counts
        ]
        print_document({"schema": "apiary.finding-areas/v1", "areas": rows})
        return
    rows_ = ((name, areas()[name].about, str(count)) for name, count in counts.items() if count)
    show(grid("Areas of findings", ("area", "about", "codes"), rows_))
    echo("apiary finding AREA lists the codes of one.")


def _list_codes(entries: Iterable[Entry], name: str, as_json: bool) -> None:
    result = list(entries)
    if as_json:
        print_document({"schema": "apiary.finding-codes/v1", "findings": to_document(result)})
        return
    rows = ((item.code, item.severity, item.meaning) for item in result)
    show(grid(f"{name}: {areas()[name].about}", ("code", "severity", "meaning"), rows))
    echo("apiary finding CODE says what shows it and what to do.")


def _page(entry: Entry, as_json: bool) -> None:
    others = see_also(entry)
    if as_json:
        more = {"area": entry.area, "see_also": others}
        print_document({"schema": "apiary.finding-page/v1", **to_document(entry), **more})
        return
    head = f"{entry.code} ({entry.severity})"
    echo(head, bold=True)
    lines = [
        ("about", areas()[entry.area].about),
        ("meaning", entry.meaning),
        ("evidence", entry.evidence),
        ("remedy", entry.remedy),
        ("source", entry.source or ""),
        ("see also", ", ".join(others)),
        ("read", ", ".join(f"docs/{page}" for page in areas()[entry.area].reading)),
    ]
    width = click.formatting.HelpFormatter().width
    for head, text in lines:
        if text:
            indent = " " * 12
            echo(click.wrap_text(" ".join(text.split()), max(40, width), f"{head:<12}", indent))


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
