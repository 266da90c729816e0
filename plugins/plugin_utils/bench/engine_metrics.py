# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's /metrics before and after a level to what it did in between."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ...module_utils.load.scrape import Series, series_of
from ..documents import knowledge
from .raw import Raw, Scrape
from .types import EngineUse


def use_of(raw: Raw) -> EngineUse | None:
    """Return what all engines did during a level, added up; None if none told anything.

    A figure is None if an engine doesn't serve it, or began anew meanwhile: half of a sum is none.
    """
    pairs = [
        (series_of(scrape.before or ""), series_of(scrape.after or "")) for scrape in raw.metrics
    ]
    if not any(after for _before, after in pairs):
        return None
    facts = knowledge("bench/metrics.yml")
    whole = not restarted(raw)
    counts = {
        key: _difference(pairs, _names(facts["counters"][key])) if whole else None
        for key in facts["counters"]
    }
    means = {
        key: _mean(pairs, _names(facts["means"][key])) if whole else None for key in facts["means"]
    }
    gauges = {key: _highest(raw.metrics, pairs, fact) for key, fact in facts["gauges"].items()}
    return EngineUse(
        kv_usage_max=gauges["kv_usage"],
        waiting_max=gauges["waiting"],
        running_max=gauges["running"],
        preemptions=_whole(counts["preemptions"]),
        prompt_tokens=_whole(counts["prompt_tokens"]),
        cached_tokens=_whole(counts["cached_tokens"]),
        cache_hit_share=_hit_share(counts),
        queue_seconds_mean=means["queue_seconds"],
        ttft_mean=means["ttft"],
        started=_started(pairs),
    )


def _started(pairs: Sequence[tuple[Series, Series]]) -> float | None:
    """Return when the engine that began last did so; None where none tells."""
    names = knowledge("bench/metrics.yml")["engine_run"]["changes"]
    times = [value for _b, after in pairs for key, value in after.items() if key[0] in names]
    return max(times, default=0.0) or None


def restarted(raw: Raw) -> tuple[str, ...]:
    """Return the engines that began anew during a level: a counter fell, or none answers."""
    engine_run = knowledge("bench/metrics.yml")["engine_run"]
    found = []
    for scrape in raw.metrics:
        if scrape.before is None:
            continue
        if scrape.after is None:
            found.append(scrape.url)
            continue
        before, after = series_of(scrape.before), series_of(scrape.after)
        fell = any(
            after.get(key, 0.0) < value
            for key, value in before.items()
            if key[0] in engine_run["falls"]
        )
        other = any(
            key in after and after[key] != value
            for key, value in before.items()
            if key[0] in engine_run["changes"]
        )
        if fell or other:
            found.append(scrape.url)
    return tuple(found)


def _names(fact: Mapping[str, Any]) -> list[str]:
    return [item["name"] for item in fact["names"]]


def _served(series: Series, names: Iterable[str]) -> str | None:
    """Return the first of several names that the engine serves."""
    served = {name for name, _labels in series}
    return next((name for name in names if name in served), None)


def _total(series: Series, name: str) -> float:
    return math.fsum(value for (found, _labels), value in series.items() if found == name)


def _difference(pairs: Sequence[tuple[Series, Series]], names: Sequence[str]) -> float | None:
    """Return by how much a counter rose over all engines; None if one of them doesn't serve it."""
    rise = 0.0
    for before, after in pairs:
        name = _served(after, names)
        if name is None or not before:
            return None
        rise += _total(after, name) - _total(before, name)
    return rise


def _mean(pairs: Sequence[tuple[Series, Series]], names: Sequence[str]) -> float | None:
    """Return the mean of what a histogram was given between the two readings."""
    total = _difference(pairs, [f"{name}_sum" for name in names])
    count = _difference(pairs, [f"{name}_count" for name in names])
    return total / count if total is not None and count else None


def _hit_share(counts: Mapping[str, float | None]) -> float | None:
    hits, queries = counts["hits"], counts["queries"]
    if hits is None or queries is None:
        return None
    # An engine without a prefix cache asks it nothing: no prompt came from it.
    return hits / queries if queries else 0.0


def _highest(
    scrapes: Sequence[Scrape], pairs: Sequence[tuple[Series, Series]], fact: Mapping[str, Any]
) -> float | None:
    """Return the highest value of a gauge in the samples, engines joined at each time."""
    names, join = _names(fact), (max if fact["join"] == "max" else math.fsum)
    rows: list[list[float]] = []
    for scrape, (before, after) in zip(scrapes, pairs, strict=True):
        row = [
            join(values)
            for _seconds, sample in scrape.samples
            if (values := [sample[name] for name in _sampled(sample, names)])
        ]
        if not row:
            # Never sampled: the readings before and after are what there is.
            row = [
                join(values)
                for series in (before, after)
                if (values := [value for (name, _labels), value in series.items() if name in names])
            ]
        rows.append(row)
    moments = [[value for value in moment if value is not None] for moment in zip_longest(*rows)]
    return max((join(moment) for moment in moments if moment), default=None)


def _sampled(sample: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [key for key in sample if key.split("{", 1)[0] in names]


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
