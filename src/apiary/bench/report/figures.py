# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a report as plotly reads them, plain data; the page fills in its colours.

A colour is `var(--name)`, a CSS variable of the page, so that one file reads light, dark and
printed. Trace `meta` is the number of its configuration. What all axes share is in report.js.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval

from apiary.bench.report.data import By, Curve, Point, Report
from apiary.bench.report.shown import Drawing, shown
from apiary.bench.report.tables import percentile_of, verdict_text
from apiary.bench.report.words import STATUS, between, limit_text, size_text

COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon", "star", "hexagon", "cross")
_LOG = {"type": "log", "tickformat": ",.4~r", "dtick": "D2"}
_X: dict[By, dict[str, Any]] = {
    # A tick at each doubling.
    "concurrency": {
        "title": {"text": "concurrent requests (log scale)"},
        **_LOG,
        "dtick": log10(2),
    },
    "request_rate": {"title": {"text": "requests offered, 1/s"}},
}
Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure: what plotly draws, and what stands around it."""

    id: str
    workload: str
    title: str
    note: str
    data: list[Trace] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)


def colour(configuration: int) -> str:
    """Return the colour of a configuration, the same in every figure, card and table."""
    return f"var(--s{configuration % COLOURS})"


def figures(report: Report) -> tuple[Figure, ...]:
    """Return every figure for which there is something to draw, by workload."""
    drawn: list[Figure | None] = []
    kinds = {"concurrency": shown().closed, "request_rate": shown().open}
    for number, work in enumerate(report.workloads):
        for by, drawings in kinds.items():
            curves = [one for one in report.curves if (one.workload, one.by) == (work.name, by)]
            if any(len(curve.points) > 1 for curve in curves):
                key = f"w{number}-open" if by == "request_rate" else f"w{number}"
                maker = _Maker(report, curves, key)
                drawn += map(maker.figure, drawings)
    return tuple(figure for figure in drawn if figure is not None)


class _Maker:
    """Makes the figures of one workload, all with the same curves, colours and axis."""

    def __init__(self, report: Report, curves: Sequence[Curve], key: str) -> None:
        self.report, self.curves, self.key = report, curves, key
        self.by = curves[0].by
        self.percentiles = {name: percentile_of(report, name) for name in ("ttft", "tpot")}

    def figure(self, drawing: Drawing) -> Figure | None:
        """Return one figure by load, None where no curve has such a value."""
        if drawing.against is not None:
            return self._against(drawing, drawing.against.format(**self.percentiles))
        name, unit = drawing.value.format(**self.percentiles), drawing.unit
        drawn: list[Trace] = []
        for curve in self.curves:
            values = [_scaled(point.values.get(name), drawing.scale) for point in curve.points]
            points = list(zip(curve.points, values, strict=True))
            if drawing.beside is not None:
                others = [point.values.get(drawing.beside) for point in curve.points]
                drawn += self._line(curve, zip(curve.points, others, strict=True), unit, True)
            drawn += self._line(curve, points, unit)
            drawn += self._apart(curve, points, unit, drawing.rings)
        if not any(trace["mode"] == "lines+markers" for trace in drawn):
            return None
        axis: dict[str, Any] = {"title": {"text": unit}, "rangemode": "tozero"}
        axis |= _LOG if drawing.log else {}
        axis |= {"range": [0, drawing.top]} if drawing.top is not None else {}
        layout = {"xaxis": _X[self.by], "yaxis": axis, "shapes": []}
        if drawing.limited:
            self._limit(layout, "y", name, 1000 if unit == "ms" else 1)
        return self._made(drawing, drawn, layout)

    def _against(self, drawing: Drawing, name: str) -> Figure | None:
        """Return throughput against latency: what one costs of the other."""
        per_gpu = all(configuration.gpus for configuration in self.report.configurations)
        rate = f"{drawing.value}_gpu" if per_gpu else drawing.value
        drawn = []
        for curve in self.curves:
            points = [p for p in curve.points if p.valid and {rate, name} <= p.values.keys()]
            if points:
                drawn.append(
                    self._curve(curve, points)
                    | {
                        "x": [_rounded(point.values[name].mean * 1000) for point in points],
                        "y": [_rounded(point.values[rate].mean) for point in points],
                        "text": [size_text(curve.by, point.size) for point in points],
                        "hovertemplate": "%{text}<br>%{x} ms a token, %{y} tokens/s"
                        + self._name(curve),
                    }
                )
        if not drawn:
            return None
        wait = f"time per output token, {self.percentiles['tpot']}, ms"
        unit = "output tokens/s per GPU" if per_gpu else "output tokens/s"
        layout = {
            "xaxis": {"title": {"text": wait}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
            "shapes": [],
        }
        self._limit(layout, "x", name, 1000)
        return self._made(drawing, drawn, layout)

    def _made(self, drawing: Drawing, drawn: list[Trace], layout: dict[str, Any]) -> Figure:
        title = drawing.title.format(**self.percentiles)
        name = f"{self.key}-{drawing.id}"
        return Figure(name, self.curves[0].workload, title, drawing.note, drawn, layout)

    def _limit(self, layout: dict[str, Any], axis: str, name: str, scale: float) -> None:
        """Draw the SLO's limits of a metric, and have the axis reach them."""
        other = "x" if axis == "y" else "y"
        for limit in self.report.limits:
            if f"{limit.metric}_{limit.percentile}" != name:
                continue
            at = limit.seconds * scale
            ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
            shape = {
                "type": "line",
                f"{other}ref": "paper",
                "line": {"color": "var(--limit)", "width": 1.5, "dash": "dash"},
                "label": {
                    "text": limit_text(limit),
                    "textposition": "start",
                    "textangle": 0,
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "font": {"size": 11, "color": "var(--limit)"},
                },
            }
            layout["shapes"].append(shape | ends)
            reached = layout[f"{axis}axis"].setdefault("autorangeoptions", {"include": []})
            reached["include"].append((1.4 if layout[f"{axis}axis"].get("type") else 1.1) * at)

    def _curve(self, curve: Curve, points: Sequence[Point]) -> Trace:
        own, place = colour(curve.configuration), curve.configuration
        return {
            "type": "scatter",
            "mode": "lines+markers",
            "name": self._config(curve),
            "meta": place,
            "line": {"color": own, "width": 2.25, "dash": DASHES[place // COLOURS % len(DASHES)]},
            "marker": {
                "color": own,
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "size": 7,
                "opacity": [0.45 if point.status == "SLO_MISS" else 1.0 for point in points],
            },
        }

    def _line(
        self,
        curve: Curve,
        values: Iterable[tuple[Point, Interval | None]],
        unit: str,
        dotted: bool = False,
    ) -> list[Trace]:
        """Return a curve's line; it breaks where a level between is not valid."""
        shown = [(point, mean if point.valid else None) for point, mean in values]
        sizes = {point.size for point, _mean in shown if point.valid}
        shown = [
            (point, mean)
            for point, mean in shown
            if mean is not None or (not point.valid and point.size not in sizes)
        ]
        if not any(mean is not None for _point, mean in shown):
            return []
        line = self._curve(curve, [point for point, _mean in shown]) | {
            "x": [point.size for point, _mean in shown],
            "y": [None if mean is None else _rounded(mean.mean) for _point, mean in shown],
            "connectgaps": False,
        }
        if dotted:
            style = line["line"] | {"dash": "dot", "width": 1.5}
            return [line | {"mode": "lines", "line": style, "hoverinfo": "skip"}]
        line["text"] = [_hover(curve.by, point, mean, unit) for point, mean in shown]
        line["hovertemplate"] = "%{text}" + self._name(curve)
        bars = _bars([mean for _point, mean in shown])
        return [line | ({"error_y": bars | {"color": line["line"]["color"]}} if bars else {})]

    def _apart(
        self,
        curve: Curve,
        values: Iterable[tuple[Point, Interval | None]],
        unit: str,
        rings: bool,
    ) -> list[Trace]:
        """Return the levels that are no part of the curve, and rings around those saturated."""
        own, named = colour(curve.configuration), self._name(curve)
        measured = [(point, mean) for point, mean in values if mean is not None]
        kinds = [
            ([pair for pair in measured if pair[0].status == status], STATUS[status], symbol, tone)
            for status, symbol, tone in (
                ("INVALID", "circle-x-open", own),
                ("FAILED", "x-thin-open", "var(--failed)"),
            )
        ]
        if rings:
            full = [pair for pair in measured if pair[0].saturated]
            kinds.append((full, "saturated", "circle-open", own))
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{self._config(curve)}: {kind}",
                "meta": curve.configuration,
                "x": [point.size for point, _mean in shown],
                "y": [_rounded(mean.mean) for _point, mean in shown],
                "text": [_hover(curve.by, point, mean, unit) for point, mean in shown],
                "hovertemplate": "%{text}" + named,
                "cliponaxis": False,
                "marker": {
                    "symbol": symbol,
                    "size": 17 if kind == "saturated" else 11,
                    "color": tone,
                    "line": {"width": 1.5, "color": tone},
                },
            }
            for shown, kind, symbol, tone in kinds
            if shown
        ]

    def _config(self, curve: Curve) -> str:
        return self.report.configurations[curve.configuration].name

    def _name(self, curve: Curve) -> str:
        return f"<extra>{escaped(self._config(curve))}</extra>"


def escaped(text: str) -> str:
    """Return text in which plotly finds no markup and no template."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("%{", "%&#123;")


def _scaled(value: Interval | None, scale: float) -> Interval | None:
    if value is None:
        return None
    ends = (None if end is None else end * scale for end in (value.low, value.high))
    return Interval(value.n, value.mean * scale, *ends)


def _rounded(value: float) -> float:
    """Return four significant digits: what a figure can show."""
    return round(value, 3 - floor(log10(abs(value)))) if value else 0.0


def _hover(by: By, point: Point, mean: Interval | None, unit: str) -> str:
    runs = f"{point.runs} run{'s' if point.runs > 1 else ''}"
    return f"{size_text(by, point.size)}: {between(mean, unit)}<br>{runs}, {verdict_text(point)}"


def _bars(means: Sequence[Interval | None]) -> dict[str, Any] | None:
    """Return error bars where any mean has an interval."""
    if not any(item is not None and item.high is not None for item in means):
        return None
    above = [_rounded(m.high - m.mean) if m and m.high is not None else 0.0 for m in means]
    # Nothing that is measured here can be less than nothing.
    below = [_rounded(m.mean - max(m.low, 0)) if m and m.low is not None else 0.0 for m in means]
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return bars | {"thickness": 1.25, "width": 3}
