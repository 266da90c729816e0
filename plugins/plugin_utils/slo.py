# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of a service: `ttft:p90:2s,tpot:p90:50ms`."""

from __future__ import annotations

import re
import typing
from dataclasses import dataclass
from typing import Literal

from .findings import error

Metric = Literal["ttft", "tpot", "itl", "e2el"]
Percentile = Literal["p50", "p90", "p95", "p99"]
_LIMIT = re.compile(
    r"(?P<metric>[a-z0-9]+):(?P<percentile>p\d+):(?P<value>\d+(?:\.\d+)?)(?P<unit>[a-z]*)"
)
_METRICS: tuple[Metric, ...] = typing.get_args(Metric)
_PERCENTILES: tuple[Percentile, ...] = typing.get_args(Percentile)
_UNITS = {"s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Limit:
    """One limit of an SLO: a percentile of a metric must be at most ``seconds``."""

    metric: Metric
    percentile: Percentile
    seconds: float


def slo(text: str) -> tuple[Limit, ...]:
    """Return the limits of `METRIC:PERCENTILE:TIME`, separated by commas: `ttft:p90:2s`.

    Times need a unit, s or ms. Raises ApiaryError BENCH-SLO.
    """
    limits: dict[tuple[Metric, Percentile], Limit] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        limit = _limit(part)
        if (limit.metric, limit.percentile) in limits:
            raise _slo_error(part, "repeats a limit")
        limits[limit.metric, limit.percentile] = limit
    if not limits:
        raise _slo_error(text, "has no limit")
    return tuple(limits.values())


def _limit(part: str) -> Limit:
    match = _LIMIT.fullmatch(part)
    if match is None:
        raise _slo_error(part, "is not METRIC:PERCENTILE:TIME")
    metric, percentile, unit = match["metric"], match["percentile"], match["unit"]
    if metric not in _METRICS:
        raise _slo_error(part, f"has no metric {metric}, only {', '.join(_METRICS)}")
    if percentile not in _PERCENTILES:
        raise _slo_error(part, f"has no {percentile}, only {', '.join(_PERCENTILES)}")
    if unit not in _UNITS:
        found = f"has the unit {unit!r}" if unit else "has no unit"
        raise _slo_error(part, found)
    seconds = float(match["value"]) * _UNITS[unit]
    if not seconds:
        raise _slo_error(part, "allows no time at all")
    return Limit(metric, percentile, seconds)


def _slo_error(part: str, found: str) -> Exception:
    return error("BENCH-SLO", "slo", f"{part!r} {found}")
