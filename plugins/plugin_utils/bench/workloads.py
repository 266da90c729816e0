# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads and SLOs as they are named on a command line: `5600/140`, `ttft:p90:2s`."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from ..findings import error
from .types import Limit, Metric, Percentile, Workload

_LENGTHS = re.compile(r"(?:(?P<kind>[a-z]+):)?(?P<input>\d{1,7})/(?P<output>\d{1,6})")
_LIMIT = re.compile(
    r"(?P<metric>[a-z0-9]+):(?P<percentile>p\d+):(?P<value>\d+(?:\.\d+)?)(?P<unit>[a-z]*)"
)
_METRICS: tuple[Metric, ...] = typing.get_args(Metric)
_PERCENTILES: tuple[Percentile, ...] = typing.get_args(Percentile)
# Kinds that two lengths tell enough of.
_PLAIN = ("random", "prefix", "sessions", "images")


def names() -> tuple[str, ...]:
    """Return the named workloads, in the order they are documented."""
    return tuple(knowledge("bench/workloads.yml")["workloads"])


def concurrency_of(name: str) -> int | None:
    """Return the concurrency that a named workload was published with, or None."""
    entry = _entries().get(name)
    return None if entry is None else entry[1].get("concurrency")


def workload(text: str) -> Workload:
    """Return the workload that ``text`` names.

    A name or short name of knowledge/bench/workloads.yml, `INPUT/OUTPUT` in tokens, or
    `KIND:INPUT/OUTPUT` for another kind than random. Raises ApiaryError BENCH-WORKLOAD.
    """
    text = text.strip()
    entry = _entries().get(text)
    if entry is not None:
        return _named(*entry)
    match = _LENGTHS.fullmatch(text)
    kind = match and (match["kind"] or "random")
    if match is None or kind not in _PLAIN:
        raise error(
            "BENCH-WORKLOAD",
            "workload",
            f"{text!r} is no workload",
            f"use one of {', '.join(names())}, INPUT/OUTPUT in tokens as 5600/140, or"
            f" {'|'.join(_PLAIN)}:INPUT/OUTPUT",
        )
    tokens, output = int(match["input"]), int(match["output"])
    if not tokens or not output:
        raise error(
            "BENCH-WORKLOAD",
            "workload",
            f"{text!r} asks for no tokens",
            "give at least one token of input and one of output",
        )
    name = f"{tokens}/{output}"
    if kind == "random":
        return Workload(name, tokens, output)
    facts = knowledge("bench/workloads.yml")["defaults"][kind]
    return _named(
        f"{kind}-{name}",
        {
            **facts,
            "kind": kind,
            "input": tokens,
            "output": output,
            "prefix_tokens": int(tokens * facts.get("prefix_share", 0)),
        },
    )


def slo(text: str) -> tuple[Limit, ...]:
    """Return the limits of `METRIC:PERCENTILE:TIME`, separated by commas: `ttft:p90:2s`.

    Times need a unit, s or ms. Raises ApiaryError BENCH-SLO.
    """
    limits: dict[tuple[Metric, Percentile], Limit] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        limit = _limit(part)
        if (limit.metric, limit.percentile) in limits:
            raise _slo_error(part, "repeats a limit", "give each metric's percentile once")
        limits[limit.metric, limit.percentile] = limit
    if not limits:
        raise _slo_error(text, "has no limit", "give one as ttft:p90:2s")
    return tuple(limits.values())


def _limit(part: str) -> Limit:
    units: Mapping[str, float] = knowledge("bench/workloads.yml")["units"]
    match = _LIMIT.fullmatch(part)
    if match is None:
        raise _slo_error(part, "is not METRIC:PERCENTILE:TIME", "write it as ttft:p90:2s")
    metric, percentile, unit = match["metric"], match["percentile"], match["unit"]
    if metric not in _METRICS:
        raise _slo_error(part, f"has no metric {metric}", f"use one of {', '.join(_METRICS)}")
    if percentile not in _PERCENTILES:
        raise _slo_error(part, f"has no {percentile}", f"use one of {', '.join(_PERCENTILES)}")
    if unit not in units:
        found = f"has the unit {unit!r}" if unit else "has no unit"
        raise _slo_error(part, found, f"end the time with one of {', '.join(units)}")
    seconds = float(match["value"]) * units[unit]
    if not seconds:
        raise _slo_error(part, "allows no time at all", "give a time above zero")
    return Limit(metric, percentile, seconds)


def _slo_error(part: str, found: str, remedy: str) -> Exception:
    return error("BENCH-SLO", "slo", f"{part!r} {found}", remedy)


@functools.cache
def _entries() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return each name and short name with what it stands for."""
    entries: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, facts in knowledge("bench/workloads.yml")["workloads"].items():
        for known in (name, *facts.get("same_as", ())):
            entries[known] = (name, facts)
    return entries


def _named(name: str, facts: Mapping[str, Any]) -> Workload:
    parts = tuple(_named(part, _entries()[part][1]) for part in facts.get("parts", ()))
    if parts:
        # Equal shares, so a request has the mean of the parts; rounded, as tokens are whole.
        tokens = round(sum(part.input_tokens for part in parts) / len(parts))
        output = round(sum(part.output_tokens for part in parts) / len(parts))
        return Workload(name, tokens, output, "mixed", parts=parts)
    pixels = facts.get("image_pixels")
    return Workload(
        name,
        facts["input"],
        facts["output"],
        facts.get("kind", "random"),
        prefixes=facts.get("prefixes", 0),
        prefix_tokens=facts.get("prefix_tokens", 0),
        images=facts.get("images", 0),
        image_pixels=tuple(pixels) if pixels else None,
        turns=facts.get("turns", 1),
    )
