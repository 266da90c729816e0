# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Axes of a report's figures: logarithmic ones with round ticks, and the SLO's limits on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log2, log10
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from apiary.app.numbers import whole
from apiary.bench.report.words import METRICS, duration


def rounded(value: float) -> float:
    """Return four significant digits: what a figure can show."""
    return round(value, 3 - floor(log10(abs(value)))) if value else 0.0


def draw_limits(
    layout: dict[str, Any],
    drawn: Sequence[dict[str, Any]],
    wanted: Sequence[Limit],
    scale: float,
    log: bool,
) -> None:
    """Draw the SLO's limits, and have the axis reach them."""
    for item in wanted:
        at = item.seconds * scale
        layout["shapes"].append(rule("y", at))
        layout["annotations"].append(label("y", log10(at) if log else at, f"≤ {limit_label(item)}"))
    values = [y for trace in drawn for y in trace["y"] if y] + [
        item.seconds * scale for item in wanted
    ]
    axis = layout["yaxis"]
    if log and values:
        axis |= decades(min(values), max(values))
    elif wanted:
        axis["range"] = [0, rounded(max(values) * 1.08)]


def limit_label(limit: Limit) -> str:
    return f"{duration(limit.seconds)} {limit.percentile} {METRICS[limit.metric]}"


def rule(axis: str, at: float) -> dict[str, Any]:
    other = "x" if axis == "y" else "y"
    return {
        "type": "line",
        f"{axis}0": at,
        f"{axis}1": at,
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": "paper",
        "line": {"color": "var(--limit)", "width": 1.5, "dash": "dash"},
    }


def label(axis: str, at: float, text: str) -> dict[str, Any]:
    common = {"text": text, "showarrow": False, "font": {"size": 11, "color": "var(--limit)"}}
    if axis == "y":
        place = {"xref": "paper", "x": 0.01, "xanchor": "left", "y": at, "yanchor": "bottom"}
    else:
        place = {"yref": "paper", "y": 0.02, "yanchor": "bottom", "x": at, "xanchor": "left"}
    return common | place


def decades(low: float, high: float) -> dict[str, Any]:
    """Return a log axis with ticks at 1, 2 and 5 of each decade, or at 1 where there are many."""
    ends = log10(low), log10(high)
    room = max(0.08, (ends[1] - ends[0]) * 0.08)
    leads = (1, 2, 5) if ends[1] - ends[0] < 2.2 else (1,)
    ticks = [
        lead * 10.0**power for power in range(floor(ends[0]), ceil(ends[1]) + 1) for lead in leads
    ]
    return {
        "type": "log",
        "range": [rounded(ends[0] - room), rounded(ends[1] + room)],
        "tickvals": ticks,
        "ticktext": [whole(tick) for tick in ticks],
    }


def doublings(sizes: Iterable[float]) -> dict[str, Any]:
    """Return a log axis with a tick at each doubling within the sizes."""
    matches = [size for size in sizes if size > 0]
    first, last = floor(log2(min(matches))), ceil(log2(max(matches)))
    ticks = [2**power for power in range(first, last + 1)]
    room = 0.12
    ends = [log10(min(matches)) - room, log10(max(matches)) + room]
    return {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [whole(tick) for tick in ticks],
        "range": [rounded(end) for end in ends],
    }
