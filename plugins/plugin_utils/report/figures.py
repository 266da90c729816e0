# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a report as plotly reads them, plain data; the page fills in its colours.

A colour is `var(--name)`, a CSS variable of the page, so that one file reads light, dark and
printed. Trace `meta` is the number of its configuration. What all axes share is in report.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any

from ..bench.ledger import By
from ..bench.types import Interval
from ..bench.words import between, limit_text, size_text
from .data import Curve, Point, Report
from .tables import Drawing, percentile_of, shown, verdict_text

Trace = dict[str, Any]
# A point, where it stands on the axis, and its mean there.
Row = tuple[Point, float, Interval | None]


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
    return f"var(--s{configuration % shown().look['colours']})"


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
        """Return one figure, None where no curve has such a value."""
        unit, name = drawing.unit, drawing.value.format(**self.percentiles)
        against = drawing.against and drawing.against.format(**self.percentiles)
        if drawing.per_gpu and all(one.gpus for one in self.report.configurations):
            unit, name = f"{unit} per GPU", f"{name}_gpu"
        drawn: list[Trace] = []
        for curve in self.curves:
            if drawing.beside is not None:
                drawn += self._line(curve, _rows(curve, drawing.beside), unit, True)
            rows = _rows(curve, name, drawing.scale, against)
            drawn += self._line(curve, rows, unit)
            drawn += self._apart(curve, rows, unit, drawing.rings)
        if not any(trace["mode"] == "lines+markers" for trace in drawn):
            return None
        axis: dict[str, Any] = {"title": {"text": unit}, "rangemode": "tozero"}
        axis |= shown().look["log"] if drawing.log else {}
        axis |= {"range": [0, drawing.top]} if drawing.top is not None else {}
        layout = {"xaxis": shown().look["axes"][self.by], "yaxis": axis, "shapes": []}
        if against:
            text = drawing.axis.format(**self.percentiles)
            layout["xaxis"] = {"title": {"text": text}, "rangemode": "tozero"}
        if drawing.limited:
            scale = 1000 if against or unit == "ms" else 1
            self._limit(layout, "x" if against else "y", against or name, scale)
        title = drawing.title.format(**self.percentiles)
        key = f"{self.key}-{drawing.id}"
        return Figure(key, self.curves[0].workload, title, drawing.note, drawn, layout)

    def _limit(self, layout: dict[str, Any], axis: str, name: str, scale: float) -> None:
        """Draw the SLO's limits of a metric, and have the axis reach them."""
        other = "x" if axis == "y" else "y"
        for limit in self.report.limits:
            if f"{limit.metric}_{limit.percentile}" != name:
                continue
            at = limit.seconds * scale
            ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
            label = shown().look["limit_label"] | {"text": limit_text(limit)}
            shape = shown().look["limit"] | {f"{other}ref": "paper", "label": label}
            layout["shapes"].append(shape | ends)
            reached = layout[f"{axis}axis"].setdefault("autorangeoptions", {"include": []})
            reached["include"].append((1.4 if layout[f"{axis}axis"].get("type") else 1.1) * at)

    def _curve(self, curve: Curve, points: Sequence[Point]) -> Trace:
        own, place, look = colour(curve.configuration), curve.configuration, shown().look
        dashes, symbols = look["dashes"], look["symbols"]
        dash = dashes[place // look["colours"] % len(dashes)]
        return {
            "type": "scatter",
            "mode": "lines+markers",
            "name": self._config(curve),
            "meta": place,
            "line": {"color": own, "width": 2.25, "dash": dash},
            "marker": {
                "color": own,
                "symbol": symbols[place % len(symbols)],
                "size": 7,
                "opacity": [0.45 if point.status == "SLO_MISS" else 1.0 for point in points],
            },
        }

    def _line(
        self, curve: Curve, rows: Sequence[Row], unit: str, dotted: bool = False
    ) -> list[Trace]:
        """Return a curve's line; it breaks where a level between is not valid."""
        valid = {row[0].size for row in rows if row[0].valid}
        drawn = [
            (point, at, mean if point.valid else None)
            for point, at, mean in rows
            if (mean is not None if point.valid else point.size not in valid)
        ]
        if not any(mean is not None for _point, _at, mean in drawn):
            return []
        line = self._curve(curve, [point for point, _at, _mean in drawn]) | {
            "x": [at for _point, at, _mean in drawn],
            "y": [None if mean is None else _rounded(mean.mean) for _point, _at, mean in drawn],
            "connectgaps": False,
        }
        if dotted:
            style = line["line"] | {"dash": "dot", "width": 1.5}
            return [line | {"mode": "lines", "line": style, "hoverinfo": "skip"}]
        line["text"] = [_hover(curve.by, point, mean, unit) for point, _at, mean in drawn]
        line["hovertemplate"] = "%{text}" + self._name(curve)
        bars = _bars([mean for _point, _at, mean in drawn])
        return [line | ({"error_y": bars | {"color": line["line"]["color"]}} if bars else {})]

    def _apart(self, curve: Curve, rows: Sequence[Row], unit: str, rings: bool) -> list[Trace]:
        """Return the levels that are no part of the curve, and rings around those saturated."""
        own, named = colour(curve.configuration), self._name(curve)
        measured = [(point, mean) for point, _at, mean in rows if mean is not None]
        kinds = {
            "INVALID": [it for it in measured if it[0].status == "INVALID"],
            "failed": [it for it in measured if it[0].status == "FAILED"],
            "saturated": [it for it in measured if rings and it[0].saturated],
        }
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{self._config(curve)}: {look['kind']}",
                "meta": curve.configuration,
                "x": [point.size for point, _mean in points],
                "y": [_rounded(mean.mean) for _point, mean in points],
                "text": [_hover(curve.by, point, mean, unit) for point, mean in points],
                "hovertemplate": "%{text}" + named,
                "cliponaxis": False,
                "marker": {
                    "symbol": look["symbol"],
                    "size": look["size"],
                    "color": look.get("colour", own),
                    "line": {"width": 1.5, "color": look.get("colour", own)},
                },
            }
            for look in shown().look["apart"]
            if (points := kinds[look["kind"]])
        ]

    def _config(self, curve: Curve) -> str:
        return self.report.configurations[curve.configuration].name

    def _name(self, curve: Curve) -> str:
        return f"<extra>{escaped(self._config(curve))}</extra>"


def escaped(text: str) -> str:
    """Return text in which plotly finds no markup and no template."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("%{", "%&#123;")


def _rows(curve: Curve, name: str, scale: float = 1, against: str | None = None) -> list[Row]:
    """Return the points of a curve by their load, or the valid ones by another value."""
    if against is None:
        return [(one, one.size, _scaled(one.values.get(name), scale)) for one in curve.points]
    points = [one for one in curve.points if one.valid and against in one.values]
    return [
        (one, _rounded(one.values[against].mean * 1000), one.values.get(name)) for one in points
    ]


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
    return {**shown().look["bars"], "array": above, "arrayminus": below}
