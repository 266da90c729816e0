# SPDX-License-Identifier: GPL-3.0-or-later

"""A benchmark, or several beside each other, for a terminal: the answer first, then each load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import (
    STATUS,
    between,
    found_text,
    saturation_text,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import NONE
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.data import Curve, Report
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.tables import point_table
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_STYLES = {"OK": "green", "SLO_MISS": "yellow", "FAILED": "red", "INVALID": "dim red"}


def bench_summary(bench: Bench) -> RenderableType:
    """Return one benchmark for a terminal."""
    if not bench.levels:
        return Text(f"{bench.name}: no level was measured")
    return report_summary(make_report((bench,)))


def report_summary(report: Report) -> RenderableType:
    """Return all benchmarks of a report for a terminal."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterator[RenderableType]:
    headline = report.headline
    style = {"better": "bold green", "no result": "bold red", "SLO missed": "bold red"}
    yield Text.assemble(
        (headline.verdict, style.get(headline.verdict, "bold cyan")), ": ", headline.text
    )
    for reason in headline.reasons:
        yield Text(f"  {reason}")
    yield Text()
    yield _configurations(report)
    for curve in report.curves:
        yield Text()
        yield _curve(report, curve)


def _grid(title: str) -> Table:
    return Table(
        title=title, title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0)
    )


def _configurations(report: Report) -> Table:
    table = _grid("configurations")
    for name in ("name", "requests/s under the SLO", "kept the SLO at", "saturation", "levels"):
        table.add_column(name, overflow="fold", no_wrap=name == "name")
    for configuration in report.configurations:
        words = [f"{count} {STATUS[status]}" for status, count in configuration.counts.items()]
        table.add_row(
            configuration.name,
            "\n".join(between(found.request_rate) for found in configuration.searches) or NONE,
            "\n".join(found_text(found) for found in configuration.searches) or NONE,
            "\n".join(saturation_text(item) for item in configuration.saturation) or NONE,
            ", ".join(words),
        )
    return table


def _curve(report: Report, curve: Curve) -> Table:
    shown = point_table(report, curve)
    table = _grid(shown.title)
    heads = [column.head for column in shown.columns]
    for column in shown.columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        table.add_column(column.head, justify=justify, no_wrap=column.head != "findings")
    for point, cells in shown.rows:
        verdict = heads.index("verdict")
        row = [
            Text(cell, style=_STYLES[point.status] if place == verdict else "")
            for place, cell in enumerate(cells)
        ]
        table.add_row(*row, style="dim" if point.status in ("INVALID", "FAILED") else None)
    return table
