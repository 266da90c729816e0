# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a report as text: each load, every level; bench/shown.yml has the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from ..bench.comparison.sameness import by_engine_run
from ..bench.types import Interval, Level
from ..bench.words import STATUS, load_text, milliseconds
from ..documents import from_document, knowledge
from ..numbers import NONE, number, percent, whole
from .data import Configuration, Curve, Point, Report, values_of

_SHOW: Mapping[str, Callable[[float | None], str]] = {
    "number": number,
    "whole": whole,
    "percent": percent,
    "milliseconds": milliseconds,
}


@dataclass(frozen=True)
class Table:
    """The rows of one configuration, without columns that are empty; a row has what it is of."""

    configuration: int
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Level | Point, tuple[str, ...]], ...]


def level_tables(report: Report) -> tuple[Table, ...]:
    """Return every level that was measured, one table a workload and configuration."""
    tables = []
    for work in report.workloads:
        for place, one in enumerate(report.configurations):
            levels = [level for level in one.levels if level.load.workload.name == work.name]
            if levels:
                title = f"{one.name}, {work.name}: {len(levels)} level{'s' * (len(levels) > 1)}"
                rows = list(_level_rows(one, levels))
                tables.append(_table(place, title, shown().levels, rows))
    return tuple(tables)


def _level_rows(
    configuration: Configuration, levels: Sequence[Level]
) -> Iterable[tuple[Level, tuple[str, ...]]]:
    """Yield each level with its cells; which run it is of only where there are several."""
    numbers = {run: place for place, run in enumerate(by_engine_run(levels), 1)}
    repeated = len({level.load.repeat for level in levels}) > 1
    for level in levels:
        run = f"{numbers[level.load.engine_run]}" if len(numbers) > 1 or repeated else NONE
        missed = [f"{item.percentile} {item.metric.upper()}" for item in level.missed]
        codes = dict.fromkeys(finding.code for finding in level.findings)
        texts = {
            "phase": level.load.phase,
            "load": load_text(level.load),
            "run": f"{run}.{level.load.repeat + 1}" if repeated else run,
            "verdict": STATUS[level.status],
            "why": ", ".join([*missed, *codes]),
        }
        values = values_of(level, configuration)
        yield (
            level,
            tuple(
                texts[column.head]
                if column.head in texts
                else _SHOW[column.show](values.get(column.value))
                for column in shown().levels
            ),
        )


def point_table(report: Report, curve: Curve) -> Table:
    """Return a curve as a table, a row a load: repeats and restarts together."""
    limited = {metric: percentile_of(report, metric) for metric in ("ttft", "tpot")}
    columns = [
        replace(one, head=one.head.format(**limited), value=one.value.format(**limited))
        for one in shown().loads
    ]
    closed = curve.by == "concurrency"
    rows = []
    for point in curve.points:
        texts = {
            "concurrency": whole(point.size) if closed else NONE,
            "offered/s": NONE if closed else number(point.size),
            "verdict": verdict_text(point),
            "runs": str(point.runs),
            "findings": ", ".join(point.codes),
        }
        cells = (
            texts[one.head] if one.head in texts else _mean(one, point.values.get(one.value))
            for one in columns
        )
        rows.append((point, tuple(cells)))
    title = f"{report.configurations[curve.configuration].name}, {curve.workload}"
    return _table(curve.configuration, title + ("" if closed else ", open loop"), columns, rows)


def _table(
    configuration: int,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[Level | Point, tuple[str, ...]]],
) -> Table:
    """Return a table without the columns of which nothing was measured."""
    used = [n for n in range(len(columns)) if any(row[n] not in (NONE, "") for _of, row in rows)]
    kept = tuple((of, tuple(row[n] for n in used)) for of, row in rows)
    return Table(configuration, title, tuple(columns[n] for n in used), kept)


def percentile_of(report: Report, metric: str) -> str:
    """Return the percentile that an SLO limits, else p90."""
    named = [limit.percentile for limit in report.limits if limit.metric == metric]
    return named[0] if named else "p90"


def verdict_text(point: Point) -> str:
    """Return the verdict of a point in words."""
    words = [STATUS[point.status]]
    if point.valid and 0 < point.missed < point.runs:
        words = [f"{point.missed} of {point.runs} missed"]
    if point.saturated:
        words.append("saturated")
    return ", ".join(words)


def _mean(column: Column, interval: Interval | None) -> str:
    """Return a mean and half the width of its interval: "8.61 ±0.05"."""
    text = _SHOW[column.show](interval.mean if interval else None)
    if interval is None or interval.low is None or interval.high is None:
        return text
    half = (interval.high - interval.low) / 2
    scales = {"number": 1, "milliseconds": 1000}
    if column.show not in scales:
        return text
    return f"{text} ±{number(half * scales[column.show], 2)}"


@dataclass(frozen=True)
class Column:
    """One column: its heading, what it means, the value that it shows, and how."""

    head: str
    hint: str = ""
    value: str = ""
    show: Literal["number", "whole", "percent", "milliseconds"] = "number"
    minor: bool = False
    numeric: bool = True


@dataclass(frozen=True)
class Drawing:
    """One figure: a value by load, or ``against`` a latency, whose axis says ``axis``."""

    id: str
    title: str
    value: str
    note: str
    unit: str = ""
    per_gpu: bool = False
    against: str | None = None
    axis: str = ""
    scale: float = 1
    log: bool = False
    limited: bool = False
    beside: str | None = None
    rings: bool = False
    top: float | None = None


@dataclass(frozen=True)
class Shown:
    """The columns of every level and each load, figures of closed and open loops, their look."""

    levels: tuple[Column, ...]
    loads: tuple[Column, ...]
    closed: tuple[Drawing, ...]
    open: tuple[Drawing, ...]
    look: dict[str, Any]


@cache
def shown() -> Shown:
    """Return what the file says."""
    return from_document(Shown, dict(knowledge("bench/shown.yml")), "bench/shown.yml")
