# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers of a benchmark as people read them: three digits, units, what a limit says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Interval,
    Load,
    Saturation,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from apiary.app.numbers import NONE, number, whole

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}
STATUS = {"OK": "OK", "SLO_MISS": "missed SLO", "FAILED": "failed", "INVALID": "INVALID"}


def milliseconds(value: float | None) -> str:
    """Return seconds as milliseconds, without the unit."""
    return NONE if value is None else number(value * 1000)


def duration(seconds: float) -> str:
    """Return seconds with the unit that reads best: 50 ms, 2 s."""
    return f"{seconds * 1000:,.6g} ms" if seconds < 1 else f"{seconds:,.6g} s"


def between(interval: Interval | None, unit: str = "", scale: float = 1) -> str:
    """Return a mean with its interval: "12.4 (12.1 to 12.7) requests/s"."""
    if interval is None:
        return NONE
    after = f" {unit}" if unit else ""
    mean = number(interval.mean * scale)
    if interval.low is None or interval.high is None:
        return f"{mean}{after}"
    return f"{mean} ({number(interval.low * scale)} to {number(interval.high * scale)}){after}"


def limit_text(limit: Limit) -> str:
    """Return a limit of an SLO: "p90 TTFT ≤ 2 s"."""
    return f"{limit.percentile} {METRICS[limit.metric]} ≤ {duration(limit.seconds)}"


def slo_text(slo: Iterable[Limit]) -> str:
    """Return all limits of an SLO."""
    return " and ".join(map(limit_text, slo)) or "no SLO"


def load_text(load: Load) -> str:
    """Return how much a level is: "64 concurrent" or "8.2 requests/s"."""
    if load.concurrency is not None:
        return f"{load.concurrency:,} concurrent"
    return f"{number(load.request_rate)} requests/s"


def size_text(by: str, size: float | None) -> str:
    """Return a concurrency or request rate with what it is."""
    return f"{whole(size)} concurrent" if by == "concurrency" else f"{number(size)} requests/s"


def saturation_text(one: Saturation) -> str:
    """Return where more load brought no more, and how that is known."""
    sure = "" if one.verified else " (not verified)"
    if one.concurrency is not None:
        return f"{size_text('concurrency', one.concurrency)}{sure}"
    if one.request_rate is not None:
        return f"{size_text('request_rate', one.request_rate)}{sure}"
    return one.reason


def workload_text(work: Workload) -> str:
    """Return what a request of a workload has."""
    parts = [f"{work.input_tokens:,} tokens in, {work.output_tokens:,} out"]
    if work.prefix_tokens:
        parts.append(f"{work.prefix_tokens:,} of them one of {work.prefixes} shared texts")
    if work.images:
        pixels = f" of {work.image_pixels[0]} × {work.image_pixels[1]}" if work.image_pixels else ""
        parts.append(f"{work.images} distinct image{'s' if work.images > 1 else ''}{pixels}")
    if work.turns > 1:
        parts.append(f"{work.turns} turns a session")
    if work.parts:
        parts = ["equal shares of " + "; ".join(map(workload_text, work.parts))]
    return ", ".join(parts)


def flat(data: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return nested facts as rows of name and text, in their order."""
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{before}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += flat(value, f"{name} ")
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
            for place, one in enumerate(value):
                inner = one if isinstance(one, Mapping) else {"": one}
                rows += flat(inner, f"{name} {place} ")
        elif isinstance(value, (list, tuple)):
            rows.append((name, ", ".join(map(str, value)) or NONE))
        else:
            rows.append((name, NONE if value is None else str(value)))
    return rows
