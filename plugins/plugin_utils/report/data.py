# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report says of several benchmarks: configurations, their curves, the headline."""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from ..bench.comparison.sameness import by_engine_run, conditions, merged, question
from ..bench.comparison.statistics import interval
from ..bench.cost import cost_of
from ..bench.ledger import By
from ..bench.search import conclude
from ..bench.types import Bench, Interval, Level, Saturation, SearchResult, Status, Workload
from ..findings import Finding
from ..slo import Limit

SPREADS = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
_MEASURED = (
    "request_rate", "output_token_rate", "total_token_rate", "goodput", "achieved_concurrency",
    "completed", "failed",
)  # fmt: skip
_GPUS: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
    ("power_w", "power_w_mean", plain.fmean),
    ("power_w_max", "power_w_max", max),
    ("clock_mhz", "clock_mhz_mean", plain.fmean),
    ("clock_mhz_min", "clock_mhz_min", min),
)
_ENGINE = ("kv_usage_max", "waiting_max", "preemptions", "cache_hit_share", "queue_seconds_mean")
_NEAR = 1.05
_VALID: tuple[Status, ...] = ("OK", "SLO_MISS")
# Levels that warm the engine up, or that last longer than the rest, are no points of a curve.
_APART = ("warmup", "soak")


@dataclass(frozen=True)
class Point:
    """All runs of one load that have the same verdict; ``values`` are means over them.

    Rates are per second, latencies seconds, ``power_w`` the mean of a GPU. Valid runs (OK and
    SLO_MISS) are one point, of which ``missed`` runs missed the SLO.
    """

    size: float
    status: Status
    runs: int
    missed: int
    values: dict[str, Interval]
    saturated: bool = False
    codes: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Return whether the numbers mean what they say."""
        return self.status in _VALID


@dataclass(frozen=True)
class Curve:
    """The points of one configuration and workload, by concurrency or by the rate offered."""

    configuration: int
    workload: str
    by: By
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Configuration:
    """What was measured under one name, by one benchmark or several of the same plan."""

    name: str
    model: str
    layout: str | None
    gpus: int | None
    hosts: int | None
    benches: tuple[Bench, ...]
    searches: tuple[SearchResult, ...]
    saturation: tuple[Saturation, ...]

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Return the levels of all its benchmarks, their engine runs numbered over all."""
        return merged(self.benches)

    @property
    def counts(self) -> dict[Status, int]:
        """Return how many levels have which verdict, warm-ups left out."""
        return dict(Counter(one.status for one in self.levels if one.load.phase != "warmup"))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return what was found about it and its levels, each once."""
        findings = [finding for bench in self.benches for finding in bench.findings]
        findings += [finding for level in self.levels for finding in level.findings]
        return tuple(dict.fromkeys(findings))


@dataclass(frozen=True)
class Headline:
    """The answer in one sentence, its verdict in a word, and what it rests on."""

    text: str
    verdict: str
    reasons: tuple[str, ...] = ()
    best: int | None = None


@dataclass(frozen=True)
class Report:
    """Everything a report shows; the page, the terminal and --json are made of it."""

    SCHEMA: ClassVar[str] = "apiary.report/v1"

    headline: Headline
    configurations: tuple[Configuration, ...]
    workloads: tuple[Workload, ...]
    curves: tuple[Curve, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return every limit that any benchmark had, each once."""
        benches = [
            bench for configuration in self.configurations for bench in configuration.benches
        ]
        return tuple(dict.fromkeys(limit for bench in benches for limit in bench.requested.slo))


def gather(benches: Sequence[Bench]) -> tuple[Configuration, ...]:
    """Return configurations in the order given; those of one name, measured alike, are one."""
    groups: dict[tuple[str, ...], list[Bench]] = {}
    for bench in benches:
        groups.setdefault(_identity(bench), []).append(bench)
    given = [group[0].name for group in groups.values()]
    collected: list[Configuration] = []
    for group in groups.values():
        first = group[0]
        layout = _text(first.environment.get("layout"))
        plain_name = first.name
        if given.count(first.name) > 1 and layout is not None and layout != first.name:
            plain_name = f"{first.name} {layout}"
        name, number = plain_name, 1
        while any(item.name == name for item in collected):
            number += 1
            name = f"{plain_name} ({number})"
        collected.append(
            Configuration(
                name,
                first.target.model,
                layout,
                first.target.gpus,
                first.target.hosts,
                tuple(group),
                _searches(group),
                tuple(dict.fromkeys(item for bench in group for item in bench.saturation)),
            )
        )
    return tuple(collected)


def _identity(bench: Bench) -> tuple[str, ...]:
    alike = {**question(bench), **conditions(bench)}
    return (bench.name, *map(str, alike.values()))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _searches(benches: Sequence[Bench]) -> tuple[SearchResult, ...]:
    """Return what each search found, over all benchmarks in which it ended."""
    if len(benches) == 1:
        return benches[0].searches
    ended: dict[tuple[str, By], list[Bench]] = {}
    for bench in benches:
        for found in bench.searches:
            ended.setdefault((found.workload, found.by), []).append(bench)
    return tuple(
        replace(conclude(merged(group), *search), cost=cost_of(group, search[1]))
        for search, group in ended.items()
    )


def workloads_of(configurations: Iterable[Configuration]) -> tuple[Workload, ...]:
    """Return every workload that was measured, what was requested first."""
    benches = [bench for configuration in configurations for bench in configuration.benches]
    matches = {bench.requested.workload.name: bench.requested.workload for bench in benches}
    for bench in benches:
        for level in bench.levels:
            matches.setdefault(level.load.workload.name, level.load.workload)
    return tuple(matches.values())


def curves_of(configurations: Sequence[Configuration]) -> tuple[Curve, ...]:
    """Return every curve, by workload, then kind, then configuration."""
    kinds: tuple[By, ...] = ("concurrency", "request_rate")
    collected = []
    for work in workloads_of(configurations):
        for by in kinds:
            for place, one in enumerate(configurations):
                points = _points(one, work.name, by)
                if points:
                    collected.append(Curve(place, work.name, by, points))
    return tuple(collected)


def _points(configuration: Configuration, workload: str, by: By) -> tuple[Point, ...]:
    groups: dict[tuple[float, str], list[Level]] = {}
    own = [
        level
        for level in configuration.levels
        if getattr(level.load, by) is not None
        and level.load.workload.name == workload
        and level.load.phase not in _APART
    ]
    near = _near([level.load.request_rate for level in own if level.load.phase == "open"])
    for level in own:
        size = getattr(level.load, by)
        if level.load.phase == "open":
            size = near.get(size, size)
        kind = "valid" if level.valid else str(level.status)
        groups.setdefault((float(size), kind), []).append(level)
    full = {
        getattr(item, by)
        for item in configuration.saturation
        if item.workload == workload and getattr(item, by) is not None
    }
    collected = []
    for (size, kind), levels in sorted(groups.items()):
        missed = sum(level.status == "SLO_MISS" for level in levels)
        status: Status = levels[0].status
        if status in _VALID:
            status = "SLO_MISS" if missed * 2 > len(levels) else "OK"
        codes = dict.fromkeys(finding.code for level in levels for finding in level.findings)
        collected.append(
            Point(
                size,
                status,
                len(levels),
                missed,
                _means(levels, configuration),
                saturated=kind == "valid" and size in full,
                codes=tuple(codes),
            )
        )
    return tuple(collected)


def best_load(
    curves: Iterable[Curve], workload: str, figure: str, statuses: Sequence[Status] = _VALID
) -> tuple[Interval, Curve, Point] | None:
    """Return the highest mean of a figure among the points with these statuses, and its place."""
    loads = [
        (point.values[figure], curve, point)
        for curve in curves
        if curve.workload == workload
        for point in curve.points
        if point.status in statuses and figure in point.values
    ]
    return max(loads, key=lambda load: load[0].mean, default=None)


def _near(rates: Iterable[float | None]) -> dict[float, float]:
    """Return what each rate counts as: the mean of those within 5 % of the lowest of them.

    Each engine run is offered shares of its own best rate, which differ a little.
    """
    groups: list[list[float]] = []
    for rate in sorted(rate for rate in rates if rate is not None):
        if groups and rate <= groups[-1][0] * _NEAR:
            groups[-1].append(rate)
        else:
            groups.append([rate])
    return {rate: plain.fmean(group) for group in groups for rate in group}


def _means(levels: Sequence[Level], configuration: Configuration) -> dict[str, Interval]:
    """Return the mean and interval of each figure over levels that repeat one load.

    With restarts in between the restarts are what repeats; levels of one run only vary within it.
    """
    figures: dict[str, list[list[float]]] = {}
    for own in by_engine_run(levels).values():
        of_run: dict[str, list[float]] = {}
        for level in own:
            for name, value in values_of(level, configuration).items():
                of_run.setdefault(name, []).append(value)
        for name, values in of_run.items():
            figures.setdefault(name, []).append(values)
    return {
        name: interval([plain.fmean(run) for run in runs] if len(runs) > 1 else runs[0])
        for name, runs in figures.items()
    }


def values_of(level: Level, configuration: Configuration) -> dict[str, float]:
    """Return the figures of one level that are known, by name; the page and terminal show these."""
    known: dict[str, float | None] = {}
    measured = level.measured
    if measured is not None:
        known |= {name: getattr(measured, name) for name in _MEASURED}
        for name in SPREADS:
            spread = getattr(measured, name)
            if spread is not None:
                known |= {f"{name}_{item}": getattr(spread, item) for item in PERCENTILES}
        for name, count in (("gpu", configuration.gpus), ("host", configuration.hosts)):
            known[f"output_token_rate_{name}"] = count and measured.output_token_rate / count
    if level.engine is not None:
        known |= {name: getattr(level.engine, name) for name in _ENGINE}
    for name, source, join in _GPUS:
        values = [getattr(gpu, source) for gpu in level.gpus if getattr(gpu, source) is not None]
        known[name] = join(values) if values else None
    known["client_ttft_error"] = level.client.ttft_error_p90 if level.client else None
    return {name: float(value) for name, value in known.items() if value is not None}
