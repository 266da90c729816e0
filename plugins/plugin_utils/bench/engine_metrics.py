# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's /metrics before and after a level to what it did in between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ...module_utils.load.scrape import Series, series_of
from ..documents import knowledge
from .types import EngineUse, Raw, Scrape

Pairs = Sequence[tuple[Series, Series]]


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
    whole: Pairs = [({}, {})] if restarted(raw) else pairs
    counts = {key: _rise(whole, _names(fact)) for key, fact in facts["counters"].items()}
    means = {key: _mean(whole, _names(fact)) for key, fact in facts["means"].items()}
    gauges = {key: _highest(raw.metrics, pairs, fact) for key, fact in facts["gauges"].items()}
    hits, queries = counts["hits"], counts["queries"]
    share = None
    if hits is not None and queries is not None:
        # An engine without a prefix cache asks it nothing: no prompt came from it.
        share = hits / queries if queries else 0.0
    begun = [
        value
        for _before, after in pairs
        for (name, _labels), value in after.items()
        if name in facts["engine_run"]["changes"]
    ]
    return EngineUse(
        kv_usage_max=gauges["kv_usage"],
        waiting_max=gauges["waiting"],
        running_max=gauges["running"],
        preemptions=_whole(counts["preemptions"]),
        prompt_tokens=_whole(counts["prompt_tokens"]),
        cached_tokens=_whole(counts["cached_tokens"]),
        cache_hit_share=share,
        queue_seconds_mean=means["queue_seconds"],
        ttft_mean=means["ttft"],
        started=max(begun, default=0.0) or None,
    )


def restarted(raw: Raw) -> tuple[str, ...]:
    """Return the engines that began anew during a level: a counter fell, or none answers."""
    return tuple(
        scrape.url
        for scrape in raw.metrics
        if scrape.before is not None
        and (scrape.after is None or _began_anew(series_of(scrape.before), series_of(scrape.after)))
    )


def _began_anew(before: Series, after: Series) -> bool:
    facts = knowledge("bench/metrics.yml")["engine_run"]
    return any(
        (key[0] in facts["falls"] and after.get(key, 0.0) < value)
        or (key[0] in facts["changes"] and after.get(key, value) != value)
        for key, value in before.items()
    )


def _names(fact: Mapping[str, Any]) -> list[str]:
    return [item["name"] for item in fact["names"]]


def _rise(pairs: Pairs, names: Sequence[str]) -> float | None:
    """Return by how much a counter rose over all engines; None if one of them doesn't serve it.

    Of several names the first that an engine serves is its counter.
    """
    rise = 0.0
    for before, after in pairs:
        served = {name for name, _labels in after}
        counter = next((name for name in names if name in served), None)
        if counter is None or not before:
            return None
        for series, sign in ((after, 1), (before, -1)):
            rise += sign * math.fsum(
                value for (name, _labels), value in series.items() if name == counter
            )
    return rise


def _mean(pairs: Pairs, names: Sequence[str]) -> float | None:
    """Return the mean of what a histogram was given between the two readings."""
    total = _rise(pairs, [f"{name}_sum" for name in names])
    count = _rise(pairs, [f"{name}_count" for name in names])
    return total / count if total is not None and count else None


def _highest(scrapes: Sequence[Scrape], pairs: Pairs, fact: Mapping[str, Any]) -> float | None:
    """Return the highest value of a gauge in the samples, engines joined at each time."""
    names, join = _names(fact), (max if fact["join"] == "max" else math.fsum)
    rows: list[list[float]] = []
    for scrape, (before, after) in zip(scrapes, pairs, strict=True):
        row = [
            join(values)
            for _seconds, sample in scrape.samples
            if (values := [value for name, value in sample.items() if name in names])
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


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
