# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report says of several benchmarks: configurations, their curves, the headline."""

from __future__ import annotations

import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.engine_runs import (
    Place,
    engine_runs_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.published import (
    Reference,
    Source,
    references,
    sources,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.sameness import (
    conditions,
    question,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.statistics import (
    interval,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Interval,
    Level,
    Saturation,
    SearchResult,
    Status,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

By = Literal["concurrency", "request_rate"]
Run = tuple[int, Level]
SPREADS = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
_RATES = ("request_rate", "output_token_rate", "total_token_rate", "goodput")
_ENGINE = ("kv_usage_max", "waiting_max", "preemptions", "cache_hit_share", "queue_seconds_mean")
_NEAR = 1.05
_VALID = ("OK", "SLO_MISS")
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

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the levels of all its benchmarks, each with the number of its benchmark."""
        return tuple(
            (number, level) for number, bench in enumerate(self.benches) for level in bench.levels
        )

    @property
    def counts(self) -> dict[Status, int]:
        """Return how many levels have which verdict, warm-ups left out."""
        counted: dict[Status, int] = {}
        for _bench, level in self.runs:
            if level.load.phase != "warmup":
                counted[level.status] = counted.get(level.status, 0) + 1
        return counted

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return what was found about it and its levels, each once."""
        told = [finding for bench in self.benches for finding in bench.findings]
        told += [finding for _bench, level in self.runs for finding in level.findings]
        return tuple(dict.fromkeys(told))


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
    references: tuple[Reference, ...] = ()
    sources: dict[str, Source] | None = None
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
    made: list[Configuration] = []
    for group in groups.values():
        first = group[0]
        layout = _text(first.environment.get("layout"))
        plain_name = first.name
        if given.count(first.name) > 1 and layout is not None and layout != first.name:
            plain_name = f"{first.name} {layout}"
        name, number = plain_name, 1
        while any(item.name == name for item in made):
            number += 1
            name = f"{plain_name} ({number})"
        made.append(
            Configuration(
                name,
                first.target.model,
                _text(first.environment.get("layout")),
                first.target.gpus,
                first.target.hosts,
                tuple(group),
                pooled([found for bench in group for found in bench.searches]),
                tuple(dict.fromkeys(item for bench in group for item in bench.saturation)),
            )
        )
    return tuple(made)


def _identity(bench: Bench) -> tuple[str, ...]:
    alike = {**question(bench), **conditions(bench)}
    return (bench.name, *map(str, alike.values()))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def pooled(found: Sequence[SearchResult]) -> tuple[SearchResult, ...]:
    """Return one search result a workload and kind: the widest bounds, the mean of the rates."""
    groups: dict[tuple[str, str], list[SearchResult]] = {}
    for item in found:
        groups.setdefault((item.workload, item.by), []).append(item)
    made = []
    for group in groups.values():
        rates = [item.request_rate.mean for item in group if item.request_rate is not None]
        kept = [item.best for item in group if item.best is not None]
        failing = [item.fails for item in group if item.fails is not None]
        made.append(
            group[0]
            if len(group) == 1
            else replace(
                group[0],
                best=min(kept) if len(kept) == len(group) else None,
                fails=max(failing, default=None),
                request_rate=interval(rates) if rates else None,
                levels=sum(item.levels for item in group),
                missed=tuple(dict.fromkeys(limit for item in group for limit in item.missed)),
            )
        )
    return tuple(made)


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
    made = []
    for work in workloads_of(configurations):
        for by in kinds:
            for place, one in enumerate(configurations):
                points = _points(one, work.name, by)
                if points:
                    made.append(Curve(place, work.name, by, points))
    return tuple(made)


def _points(configuration: Configuration, workload: str, by: By) -> tuple[Point, ...]:
    groups: dict[tuple[float, str], list[Run]] = {}
    runs_of = [
        run
        for run in configuration.runs
        if getattr(run[1].load, by) is not None
        and run[1].load.workload.name == workload
        and run[1].load.phase not in _APART
    ]
    near = _near([run[1].load.request_rate for run in runs_of if run[1].load.phase == "open"])
    for run in runs_of:
        level = run[1]
        size = getattr(level.load, by)
        if level.load.phase == "open":
            size = near.get(size, size)
        kind = "valid" if level.status in _VALID else str(level.status)
        groups.setdefault((float(size), kind), []).append(run)
    full = {
        getattr(item, by)
        for item in configuration.saturation
        if item.workload == workload and getattr(item, by) is not None
    }
    engine_runs = engine_runs_of(configuration.benches)
    made = []
    for (size, kind), runs in sorted(groups.items()):
        levels = [level for _bench, level in runs]
        missed = sum(level.status == "SLO_MISS" for level in levels)
        status: Status = levels[0].status
        if levels[0].status in _VALID:
            status = "SLO_MISS" if missed * 2 > len(levels) else "OK"
        codes = dict.fromkeys(finding.code for level in levels for finding in level.findings)
        made.append(
            Point(
                size,
                status,
                len(levels),
                missed,
                means(runs, engine_runs),
                saturated=kind == "valid" and size in full,
                codes=tuple(codes),
            )
        )
    return tuple(made)


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


def means(runs: Sequence[Run], same: Mapping[Place, int]) -> dict[str, Interval]:
    """Return the mean and interval of each figure over runs that repeat one load.

    With restarts in between the restarts are what repeats; runs in one run only vary within it.
    ``same`` numbers the engine runs, by benchmark and what it calls an engine run.
    """
    engine_runs: dict[int, list[dict[str, float]]] = {}
    for bench, level in runs:
        engine_runs.setdefault(same[bench, level.load.engine_run], []).append(values_of(level))
    names = dict.fromkeys(
        name for engine_run in engine_runs.values() for run in engine_run for name in run
    )
    made = {}
    for name in names:
        of_engine_runs = [
            [run[name] for run in engine_run if name in run] for engine_run in engine_runs.values()
        ]
        of_engine_runs = [engine_run for engine_run in of_engine_runs if engine_run]
        repeated = (
            [plain.fmean(engine_run) for engine_run in of_engine_runs]
            if len(of_engine_runs) > 1
            else of_engine_runs[0]
        )
        made[name] = interval(repeated)
    return made


def values_of(level: Level) -> dict[str, float]:
    """Return the figures of one level that are known, by name."""
    matches: dict[str, float | None] = {}
    measured = level.measured
    if measured is not None:
        matches |= {name: getattr(measured, name) for name in _RATES}
        matches["achieved_concurrency"] = measured.achieved_concurrency
        for name in SPREADS:
            spread = getattr(measured, name)
            if spread is not None:
                matches |= {f"{name}_{item}": getattr(spread, item) for item in PERCENTILES}
    if level.engine is not None:
        matches |= {name: getattr(level.engine, name) for name in _ENGINE}
    powers = [gpu.power_w_mean for gpu in level.gpus if gpu.power_w_mean is not None]
    clocks = [gpu.clock_mhz_mean for gpu in level.gpus if gpu.clock_mhz_mean is not None]
    matches["power_w"] = plain.fmean(powers) if powers else None
    matches["clock_mhz"] = plain.fmean(clocks) if clocks else None
    return {name: float(value) for name, value in matches.items() if value is not None}


def references_of(
    configurations: Iterable[Configuration],
) -> tuple[tuple[Reference, ...], dict[str, Source]]:
    """Return what was published of the models that were measured, and where."""
    names: list[str | None] = []
    for item in configurations:
        names += [item.model, item.benches[0].target.tokenizer]
        names.append(_text(item.benches[0].environment.get("model")))
    rows = references(*names)
    every = sources()
    return rows, {row.source: every[row.source] for row in rows}
