# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a report as text: levels, published rows, what a level was measured with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.published import (
    Reference,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Level,
    Measured,
    SearchResult,
)

from apiary.app.numbers import NONE, number, percent, whole
from apiary.bench.report.data import By, Configuration, Curve, Point, Report, Run
from apiary.bench.report.words import STATUS, load_text, milliseconds, size_text


@dataclass(frozen=True)
class Column:
    """One column of the table of levels: its heading, what it means, and its text."""

    head: str
    hint: str
    text: Callable[[Configuration, Level], str]
    numeric: bool = True
    # On paper there is no room to scroll: what a reader needs least is left out there.
    minor: bool = False


def _measured(value: Callable[[Measured], str]) -> Callable[[Configuration, Level], str]:
    def text(_configuration: Configuration, level: Level) -> str:
        return NONE if level.measured is None else value(level.measured)

    return text


def _spread(metric: str, percentile: str, show: Callable[[float | None], str]) -> Column:
    unit = "ms" if show is milliseconds else "s"

    def text(_configuration: Configuration, level: Level) -> str:
        spread = getattr(level.measured, metric) if level.measured is not None else None
        return NONE if spread is None else show(getattr(spread, percentile))

    heads = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}
    hints = {
        "ttft": "time to first token",
        "tpot": "time per output token after the first",
        "itl": "time between two tokens",
        "e2el": "request to last token",
    }
    minor = metric == "itl" or percentile in ("p50", "p95")
    head = f"{heads[metric]} {percentile} {unit}"
    return Column(head, f"{hints[metric]}, {percentile}", text, minor=minor)


def _engine(field: str, show: Callable[[float | None], str]) -> Callable[..., str]:
    def text(_configuration: Configuration, level: Level) -> str:
        return NONE if level.engine is None else show(getattr(level.engine, field))

    return text


def _gpus(field: str, pick: Callable[[list[float]], float]) -> Callable[..., str]:
    def text(_configuration: Configuration, level: Level) -> str:
        known = [getattr(gpu, field) for gpu in level.gpus if getattr(gpu, field) is not None]
        return number(pick(known)) if known else NONE

    return text


def _share(field: str) -> Callable[[Configuration, Level], str]:
    """Return output tokens a second for each of the GPUs or hosts."""

    def text(configuration: Configuration, level: Level) -> str:
        count = getattr(configuration, field)
        if level.measured is None or not count:
            return NONE
        return number(level.measured.output_token_rate / count)

    return text


def _phase(_configuration: Configuration, level: Level) -> str:
    return level.load.phase


def _load(_configuration: Configuration, level: Level) -> str:
    return load_text(level.load)


def _verdict(_configuration: Configuration, level: Level) -> str:
    return STATUS[level.status]


def _codes(_configuration: Configuration, level: Level) -> str:
    codes = list(dict.fromkeys(finding.code for finding in level.findings))
    missed = [f"{item.percentile} {item.metric.upper()}" for item in level.missed]
    return ", ".join([*missed, *codes])


def _self_test(_configuration: Configuration, level: Level) -> str:
    return milliseconds(level.client.ttft_error_p90 if level.client else None)


COLUMNS: tuple[Column, ...] = (
    Column("phase", "phase of the benchmark", _phase, False),
    Column("load", "requests in flight, or offered a second", _load),
    Column("verdict", "OK, missed SLO, failed, INVALID", _verdict, False),
    Column("why", "limits missed, and codes of the findings below", _codes, False),
    Column("requests", "answered", _measured(lambda m: f"{m.completed:,}"), minor=True),
    Column("errors", "requests that failed", _measured(lambda m: f"{m.failed:,}"), minor=True),
    Column(
        "in flight",
        "sum of latencies by wall time: what was really achieved",
        _measured(lambda m: number(m.achieved_concurrency)),
    ),
    Column("req/s", "requests a second", _measured(lambda m: number(m.request_rate))),
    Column("goodput", "requests/s that met each limit", _measured(lambda m: number(m.goodput))),
    Column("out tok/s", "output tokens/s", _measured(lambda m: number(m.output_token_rate))),
    Column(
        "total tok/s",
        "prompt tokens that were computed, and output tokens, a second",
        _measured(lambda m: number(m.total_token_rate)),
        minor=True,
    ),
    Column("out/GPU", "output tokens/s a GPU", _share("gpus")),
    Column("out/host", "output tokens/s a host", _share("hosts"), minor=True),
    _spread("ttft", "p50", milliseconds),
    _spread("ttft", "p90", milliseconds),
    _spread("ttft", "p95", milliseconds),
    _spread("ttft", "p99", milliseconds),
    _spread("tpot", "p50", milliseconds),
    _spread("tpot", "p90", milliseconds),
    _spread("tpot", "p95", milliseconds),
    _spread("tpot", "p99", milliseconds),
    _spread("itl", "p50", milliseconds),
    _spread("itl", "p99", milliseconds),
    _spread("e2el", "p50", number),
    _spread("e2el", "p90", number),
    _spread("e2el", "p99", number),
    Column("KV max", "share of the KV cache in use, at most", _engine("kv_usage_max", percent)),
    Column("waiting", "requests waiting in the engine, at most", _engine("waiting_max", whole)),
    Column(
        "queue s",
        "mean wait in the engine's queue",
        _engine("queue_seconds_mean", number),
        minor=True,
    ),
    Column("preempted", "requests the engine put back", _engine("preemptions", whole), minor=True),
    Column("cache hits", "share of prompt tokens", _engine("cache_hit_share", percent), minor=True),
    Column("W/GPU", "mean power of a GPU", _gpus("power_w_mean", fmean)),
    Column("max W", "highest power of a GPU", _gpus("power_w_max", max), minor=True),
    Column("MHz", "mean clock of a GPU", _gpus("clock_mhz_mean", fmean), minor=True),
    Column("min MHz", "lowest clock of a GPU", _gpus("clock_mhz_min", min), minor=True),
    Column(
        "client ms",
        "TTFT that the client itself adds, p90, by the self-test",
        _self_test,
        minor=True,
    ),
)


@dataclass(frozen=True)
class LevelTable:
    """The levels of one configuration and workload, without columns that are empty."""

    configuration: int
    workload: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Level, tuple[str, ...]], ...]


def level_tables(report: Report) -> tuple[LevelTable, ...]:
    """Return every level that was measured, one table a workload and configuration."""
    made = []
    for work in report.workloads:
        for place, one in enumerate(report.configurations):
            runs = [run for run in one.runs if run[1].load.workload.name == work.name]
            if runs:
                made.append(_level_table(place, work.name, one, runs))
    return tuple(made)


def _level_table(
    place: int, workload: str, configuration: Configuration, runs: Sequence[Run]
) -> LevelTable:
    levels = [level for _bench, level in runs]
    columns = list(COLUMNS)
    engine_runs = {(bench, level.load.engine_run) for bench, level in runs}
    repeats = {level.load.repeat for level in levels}
    if len(engine_runs) > 1 or len(repeats) > 1:
        numbers = {key: number_ for number_, key in enumerate(sorted(engine_runs), 1)}
        keys = {id(level): numbers[bench, level.load.engine_run] for bench, level in runs}

        def run_text(_configuration: Configuration, level: Level) -> str:
            of_engine_run = f".{level.load.repeat + 1}" if len(repeats) > 1 else ""
            return f"{keys[id(level)]}{of_engine_run}"

        columns.insert(2, Column("run", "restart of the engine, and repeat within", run_text))
    texts = {
        id(level): [column.text(configuration, level) for column in columns] for level in levels
    }
    used = [
        number_
        for number_, column in enumerate(columns)
        if any(text[number_] not in (NONE, "") for text in texts.values())
    ]
    rows = tuple((level, tuple(texts[id(level)][n] for n in used)) for level in levels)
    return LevelTable(place, workload, tuple(columns[n] for n in used), rows)


@dataclass(frozen=True)
class PointTable:
    """One curve as a table: a row a load, repeats and restarts together."""

    configuration: int
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Point, tuple[str, ...]], ...]


def point_table(report: Report, curve: Curve) -> PointTable:
    """Return a curve as text; what nobody measured is left out."""
    ttft, tpot = percentile_of(report, "ttft"), percentile_of(report, "tpot")
    one = report.configurations[curve.configuration]
    columns: dict[str, Callable[[Point], str]] = {
        "concurrency" if curve.by == "concurrency" else "offered/s": partial(_size, curve.by),
        "verdict": verdict_text,
        "runs": _runs,
        "req/s": partial(_pair, "request_rate", 1),
        "goodput": partial(_pair, "goodput", 1),
        "out tok/s": partial(_pair, "output_token_rate", 1),
        "out/GPU": partial(_pair, "output_token_rate", 1 / one.gpus if one.gpus else None),
        f"TTFT {ttft} ms": partial(_pair, f"ttft_{ttft}", 1000),
        f"TPOT {tpot} ms": partial(_pair, f"tpot_{tpot}", 1000),
        "E2E p99 s": partial(_pair, "e2el_p99", 1),
        "KV max": _kv,
        "findings": _point_codes,
    }
    texts = [[text(point) for text in columns.values()] for point in curve.points]
    used = [n for n in range(len(columns)) if any(row[n] not in (NONE, "") for row in texts)]
    heads = list(columns)
    by = "" if curve.by == "concurrency" else ", open loop"
    return PointTable(
        curve.configuration,
        f"{one.name}, {curve.workload}{by}",
        tuple(heads[n] for n in used),
        tuple(
            (point, tuple(row[n] for n in used))
            for point, row in zip(curve.points, texts, strict=True)
        ),
    )


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


def _size(by: By, point: Point) -> str:
    return whole(point.size) if by == "concurrency" else number(point.size)


def _runs(point: Point) -> str:
    return str(point.runs)


def _kv(point: Point) -> str:
    return percent(point.values["kv_usage_max"].mean) if "kv_usage_max" in point.values else NONE


def _point_codes(point: Point) -> str:
    return ", ".join(point.codes)


def _pair(name: str, scale: float | None, point: Point) -> str:
    """Return a mean and half the width of its interval: "8.61 ±0.05"."""
    interval = point.values.get(name)
    if interval is None or scale is None:
        return NONE
    shown = number(interval.mean * scale)
    if interval.low is None or interval.high is None:
        return shown
    return f"{shown} ±{number((interval.high - interval.low) / 2 * scale, 2)}"


def found_text(found: SearchResult) -> str:
    """Return between which loads the SLO's limit lies."""
    if found.best is None:
        return "no level kept the SLO"
    kept = size_text(found.by, found.best)
    if found.edge and found.edge.n > 1:
        kept += (
            f" ({number(found.edge.low)} to {number(found.edge.high)}, {found.edge.n} engine runs)"
        )
    kept += " of random arrivals" if found.by == "request_rate" else ""
    if found.fails is None:
        return f"{kept} and perhaps more: no level broke it"
    return f"{kept}; {size_text(found.by, found.fails)} broke it"


def reference_cells(row: Reference) -> tuple[str, ...]:
    """Return a published row: what, on what, how loaded, what came out."""
    lengths = NONE
    if row.input_tokens is not None:
        images = f" + {row.images} image" if row.images else ""
        lengths = f"{row.input_tokens:,}{images} / {row.output_tokens or 0:,}"
    engine = " ".join(part for part in (row.engine, row.engine_version) if part) or "not told"
    load = row.load
    if row.effective is not None and row.effective != row.concurrency:
        load += f" ({row.effective} really in flight)"
    if row.cached:
        load += ", cached prompts"
    return (
        f"{row.gpus} × {row.hardware}",
        row.precision or "not told",
        engine,
        row.layout or "not told",
        lengths,
        load,
        ", ".join(metrics_text(row.metrics)),
    )


REFERENCE_HEADS = (
    "hardware", "precision", "engine", "layout", "in / out", "load", "published figure",
)  # fmt: skip
_METRICS = {
    "output_token_rate": "output tok/s",
    "total_token_rate": "total tok/s",
    "token_rate": "tok/s",
}


def metrics_text(metrics: dict[str, float]) -> Iterable[str]:
    """Yield each published figure with its unit."""
    for name, value in metrics.items():
        if name in _METRICS:
            yield f"{number(value)} {_METRICS[name]}"
        else:
            metric, _, percentile = name.partition("_")
            shown = (
                f"{milliseconds(value)} ms" if metric in ("ttft", "tpot") else f"{number(value)} s"
            )
            yield f"{metric.upper().removesuffix('L')} {percentile} {shown}"
