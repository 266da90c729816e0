# SPDX-License-Identifier: GPL-3.0-or-later

"""What plans print for a person: elements in groups, layouts, changes, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.migration import Change
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, by_severity
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    Explained,
    grouped,
    shown,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import (
    ConsideredLayout,
    LayoutChoice,
)
from rich.table import Table
from rich.text import Text

from apiary.app.output import echo, show

GIB = 2**30


class Sources:
    """Numbers sources in the order they are cited, to be listed once at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cite(self, source: str | None) -> str:
        """Return "[3]" for a source, nothing for none."""
        if not source:
            return ""
        return f"[{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def show(self) -> None:
        for source, number in self._numbers.items():
            echo(f"[{number}] {source}")


def _table(title: str, whole: Sequence[str], shares: Mapping[str, int]) -> Table:
    """Return an empty table: columns that are never broken, then those that share the rest."""
    table = Table(title=title, title_justify="left", expand=True)
    for name in whole:
        table.add_column(name, no_wrap=True)
    for name, share in shares.items():
        table.add_column(name, ratio=share, overflow="fold")
    return table


def show_elements(rows: Sequence[Explained], replicas: int) -> None:
    """Print the elements in groups, each with what it is about, then the sources."""
    sources = Sources()
    shares = {"element": 5, "why": 6, "rule [source]": 3}
    table = _table("the command, element by element", (), shares)
    for title, about, members in grouped(rows):
        table.add_section()
        table.add_row(Text(title, style="bold"), Text(about, style="italic"))
        for row in members:
            who = "" if len(row.replicas) == replicas else f"  (replica {_numbers(row.replicas)})"
            rule = f"{row.reason.rule} {sources.cite(row.reason.source)}"
            table.add_row(shown(row.texts) + who, row.reason.reason, rule)
    show(table)
    sources.show()


def show_changes(changes: Sequence[Change], title: str) -> None:
    """Print what changes from one version to another, one row an element."""
    if not changes:
        echo(f"{title}: nothing changes")
        return
    sources = Sources()
    table = _table(title, ("element", "change"), {"before": 3, "after": 3, "why": 6})
    for change in changes:
        why = f"{change.reason} {sources.cite(change.source)}"
        table.add_row(change.element, change.kind, change.before or "", change.after or "", why)
    show(table)
    sources.show()


def show_problems(findings: Sequence[Finding], title: str, file: str) -> None:
    """Print what is wrong with a file and what to do, the gravest first."""
    if not findings:
        echo(f"{title}: nothing is wrong")
        return
    sources = Sources()
    table = _table(title, ("line", "", "finding"), {"what": 1, "do": 1})
    for finding in sorted(findings, key=by_severity):
        table.add_row(
            finding.subject.removeprefix(f"{file}:"),
            finding.severity,
            finding.code,
            f"{finding.message} {sources.cite(finding.source)}",
            finding.remedy,
        )
    show(table)
    sources.show()


def _numbers(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def layout_table(choice: LayoutChoice) -> Table:
    """Return the layouts that were considered; impossible ones with one reason share a row."""
    table = Table(
        title=f"layouts, in the order preferred for {choice.preference} ({choice.because})",
        title_justify="left",
    )
    for name in ("layout", "verdict"):
        table.add_column(name, overflow="fold", max_width=24)
    for name in ("weights\nGiB/GPU", "KV tokens\non the host", "free\nGPUs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for item in choice.considered:
        if item.verdict != "dropped":
            style = "bold" if item.verdict == "chosen" else None
            table.add_row(item.name, item.verdict, *_layout_numbers(item), item.reason, style=style)
    for names, reason in _dropped(choice):
        table.add_row(names, "impossible", "", "", "", reason, style="dim")
    return table


def _layout_numbers(layout: ConsideredLayout) -> Iterator[str]:
    weights, tokens = layout.weights_bytes_per_gpu, layout.kv_tokens_per_host
    yield "?" if weights is None else f"{weights / GIB:.1f}"
    yield "?" if tokens is None else f"{tokens:,}"
    yield "?" if layout.free_gpus is None else str(layout.free_gpus)


def _dropped(choice: LayoutChoice) -> Iterator[tuple[str, str]]:
    """Yield the names of impossible layouts that one kind of finding drops, and what it says."""
    kinds: dict[tuple[str, ...], list[ConsideredLayout]] = {}
    for item in choice.considered:
        if item.verdict == "dropped":
            kinds.setdefault(item.codes, []).append(item)
    for codes, members in kinds.items():
        names = " ".join(member.name for member in members)
        more = "" if len({member.reason for member in members}) == 1 else "; the others likewise"
        yield names, f"{members[0].reason}{more} ({', '.join(codes)})"
