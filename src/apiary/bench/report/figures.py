# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a report as plotly reads them, plain data; the page fills in its colours.

A colour is `var(--name)`, a CSS variable of the page, so that one file reads light, dark and
printed. Trace `meta` is the number of its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval

from apiary.bench.report.axes import doublings, draw_limits, label, limit_label, rounded, rule
from apiary.bench.report.data import By, Curve, Point, Report
from apiary.bench.report.tables import percentile_of
from apiary.bench.report.words import STATUS, between, size_text

COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon", "star", "hexagon", "cross")
FAILED = "var(--failed)"
_X: dict[By, str] = {
    "concurrency": "requests in flight (log scale)",
    "request_rate": "requests offered, 1/s",
}

Value = Callable[[Point], Interval | None]


@dataclass(frozen=True)
class Figure:
    """One figure: what plotly draws, and what stands around it."""

    id: str
    workload: str
    title: str
    note: str
    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)


def colour(configuration: int) -> str:
    """Return the colour of a configuration, the same in every figure, card and table."""
    return f"var(--s{configuration % COLOURS})"


def figures(report: Report) -> tuple[Figure, ...]:
    """Return every figure for which there is something to draw, by workload."""
    made: list[Figure] = []
    for number_, work in enumerate(report.workloads):
        closed = _of(report, work.name, "concurrency")
        offered = _of(report, work.name, "request_rate")
        drawn: list[Figure | None] = []
        if any(len(curve.points) > 1 for curve in closed):
            drawn += _closed(report, closed, f"w{number_}")
        if any(len(curve.points) > 1 for curve in offered):
            drawn += _open(report, offered, f"w{number_}")
        made += [figure for figure in drawn if figure is not None]
    return tuple(made)


def _of(report: Report, workload: str, by: By) -> list[Curve]:
    return [curve for curve in report.curves if curve.workload == workload and curve.by == by]


def _closed(report: Report, curves: Sequence[Curve], key: str) -> list[Figure | None]:
    make = _Maker(report, curves, key)
    ttft, tpot = percentile_of(report, "ttft"), percentile_of(report, "tpot")
    return [
        make.figure(
            "throughput", "Output throughput", "output tokens/s", _named("output_token_rate"),
            note="More is better; a ring marks where more load brought no more.", rings=True,
        ),
        make.pareto(tpot),
        make.figure(
            "ttft", f"Time to first token, {ttft}", "ms", _named(f"ttft_{ttft}", 1000),
            note="Less is better; the dashed line is the SLO.", log=True, limit=("ttft", ttft),
        ),
        make.figure(
            "tpot", f"Time per output token, {tpot}", "ms", _named(f"tpot_{tpot}", 1000),
            note="Less is better; the dashed line is the SLO.", limit=("tpot", tpot),
        ),
        make.figure(
            "goodput", "Goodput", "requests/s", _named("goodput"),
            note="Requests that met every limit by themselves; dotted: all requests.",
            beside=_named("request_rate"),
        ),
        make.figure(
            "e2el", "End to end, p99", "s", _named("e2el_p99"), log=True,
            note="Less is better.", limit=("e2el", "p99"),
        ),
        make.figure(
            "kv", "KV cache in use, at most", "%", _named("kv_usage_max", 100),
            note="At 100 % the engine preempts or queues.", top=105,
        ),
        make.figure(
            "waiting", "Requests waiting in the engine, at most", "requests", _named("waiting_max"),
            note="What waits has not begun its prompt.",
        ),
        make.figure(
            "power", "Power of a GPU, mean", "W", _named("power_w"),
            note="Mean over the GPUs that were sampled.",
        ),
    ]  # fmt: skip


def _open(report: Report, curves: Sequence[Curve], key: str) -> list[Figure | None]:
    make = _Maker(report, curves, f"{key}-open")
    ttft, tpot = percentile_of(report, "ttft"), percentile_of(report, "tpot")
    return [
        make.figure(
            "goodput", "Goodput by offered rate", "requests/s", _named("goodput"),
            note="Open loop, Poisson arrivals; dotted: all requests that were answered.",
            beside=_named("request_rate"),
        ),
        make.figure(
            "ttft", f"Time to first token by offered rate, {ttft}", "ms",
            _named(f"ttft_{ttft}", 1000), log=True, limit=("ttft", ttft),
            note="Open loop: nobody waits for an answer before the next request.",
        ),
        make.figure(
            "tpot", f"Time per output token by offered rate, {tpot}", "ms",
            _named(f"tpot_{tpot}", 1000), limit=("tpot", tpot),
            note="Open loop: the engine itself decides how many run at once.",
        ),
    ]  # fmt: skip


def _named(name: str, scale: float = 1.0) -> Value:
    def value(point: Point) -> Interval | None:
        result = point.values.get(name)
        if result is None:
            return None
        low = None if result.low is None else result.low * scale
        high = None if result.high is None else result.high * scale
        return Interval(result.n, result.mean * scale, low, high, result.cov)

    return value


class _Maker:
    """Makes the figures of one workload, all with the same curves, colours and axis."""

    def __init__(self, report: Report, curves: Sequence[Curve], key: str) -> None:
        self.report, self.curves, self.key = report, curves, key
        self.by = curves[0].by
        self.several = len(report.configurations) > 1

    def figure(
        self,
        name: str,
        title: str,
        unit: str,
        value: Value,
        *,
        note: str,
        log: bool = False,
        limit: tuple[str, str] | None = None,
        beside: Value | None = None,
        rings: bool = False,
        top: float | None = None,
    ) -> Figure | None:
        """Return one figure by load, None where no curve has such a value."""
        drawn: list[dict[str, Any]] = []
        for curve in self.curves:
            if beside is not None:
                drawn += self._line(curve, beside, unit, dotted=True)
            drawn += self._line(curve, value, unit)
            drawn += self._marks(curve, value, unit)
            if rings:
                drawn += self._rings(curve, value)
        if not any(trace.get("mode") == "lines+markers" for trace in drawn):
            return None
        wanted = [
            item
            for item in self.report.limits
            if limit is not None and (item.metric, item.percentile) == limit
        ]
        layout = self._layout(unit, _X[self.by])
        scale = 1000 if unit == "ms" else 1
        draw_limits(layout, drawn, wanted, scale, log)
        if not log and top is not None:
            layout["yaxis"]["range"] = [0, top]
        if self.by == "concurrency":
            layout["xaxis"] |= doublings(point.size for c in self.curves for point in c.points)
        return Figure(f"{self.key}-{name}", self.curves[0].workload, title, note, drawn, layout)

    def pareto(self, tpot: str) -> Figure | None:
        """Return throughput against latency: what one costs of the other."""
        per_gpu = all(configuration.gpus for configuration in self.report.configurations)
        drawn: list[dict[str, Any]] = []
        for curve in self.curves:
            gpus = self.report.configurations[curve.configuration].gpus if per_gpu else 1
            points = [
                point
                for point in curve.points
                if point.valid and {"output_token_rate", f"tpot_{tpot}"} <= set(point.values)
            ]
            if not points:
                continue
            drawn.append(
                self._trace(curve)
                | {
                    "x": [rounded(point.values[f"tpot_{tpot}"].mean * 1000) for point in points],
                    "y": [
                        rounded(point.values["output_token_rate"].mean / (gpus or 1))
                        for point in points
                    ],
                    "text": [size_text(curve.by, point.size) for point in points],
                    "hovertemplate": "%{text}<br>%{x} ms a token, %{y} tokens/s"
                    + self._name(curve),
                    "marker": self._marker(curve, [point.status for point in points]),
                }
            )
        if not drawn:
            return None
        unit = "output tokens/s per GPU" if per_gpu else "output tokens/s"
        layout = self._layout(unit, f"time per output token, {tpot}, ms")
        layout["yaxis"]["rangemode"] = "tozero"
        wanted = [limit for limit in self.report.limits if limit.metric == "tpot"]
        for item in wanted:
            if item.percentile == tpot:
                layout["shapes"].append(rule("x", item.seconds * 1000))
                layout["annotations"].append(
                    label("x", item.seconds * 1000, f"≤ {limit_label(item)}")
                )
        layout["xaxis"]["rangemode"] = "tozero"
        note = "Up and to the left is better: more tokens for the same wait."
        return Figure(
            f"{self.key}-pareto", self.curves[0].workload, "Throughput against latency", note,
            drawn, layout,
        )  # fmt: skip

    def _trace(self, curve: Curve) -> dict[str, Any]:
        own = colour(curve.configuration)
        return {
            "type": "scatter",
            "mode": "lines+markers",
            "name": self.report.configurations[curve.configuration].name,
            "meta": curve.configuration,
            "line": {
                "color": own,
                "width": 2.25,
                "dash": DASHES[curve.configuration // COLOURS % len(DASHES)],
            },
        }

    def _marker(self, curve: Curve, statuses: Iterable[str]) -> dict[str, Any]:
        return {
            "color": colour(curve.configuration),
            "symbol": SYMBOLS[curve.configuration % len(SYMBOLS)],
            "size": 7,
            "opacity": [0.45 if status == "SLO_MISS" else 1.0 for status in statuses],
        }

    def _line(
        self, curve: Curve, value: Value, unit: str, dotted: bool = False
    ) -> list[dict[str, Any]]:
        """Return a curve's line; it breaks where a level between is not valid."""
        matches: list[tuple[Point, Interval | None]] = []
        for point in curve.points:
            mean = value(point) if point.valid else None
            if mean is not None or (not point.valid and not _measured(curve, point.size)):
                matches.append((point, mean))
        if not any(mean is not None for _point, mean in matches):
            return []
        line = self._trace(curve) | {
            "x": [point.size for point, _mean in matches],
            "y": [None if mean is None else rounded(mean.mean) for _point, mean in matches],
            "connectgaps": False,
        }
        if dotted:
            line["mode"] = "lines"
            line["line"] = line["line"] | {"dash": "dot", "width": 1.5}
            return [line | {"hoverinfo": "skip"}]
        line["marker"] = self._marker(curve, [point.status for point, _mean in matches])
        line["text"] = [_hover(curve.by, point, mean, unit) for point, mean in matches]
        line["hovertemplate"] = "%{text}" + self._name(curve)
        bars = _bars(mean for _point, mean in matches)
        return [line | ({"error_y": bars | {"color": line["line"]["color"]}} if bars else {})]

    def _marks(self, curve: Curve, value: Value, unit: str) -> list[dict[str, Any]]:
        """Return the levels that are no part of the curve: hollow and crossed."""
        made = []
        for status, symbol, tone in (
            ("INVALID", "circle-x-open", colour(curve.configuration)),
            ("FAILED", "x-thin-open", FAILED),
        ):
            pairs = [(p, value(p)) for p in curve.points if p.status == status]
            shown = [(point, mean) for point, mean in pairs if mean is not None]
            if shown:
                made.append(
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "name": f"{self._config(curve)}: {STATUS[status]}",
                        "meta": curve.configuration,
                        "x": [point.size for point, _mean in shown],
                        "y": [rounded(mean.mean) for _point, mean in shown],
                        "text": [_hover(curve.by, point, mean, unit) for point, mean in shown],
                        "hovertemplate": "%{text}" + self._name(curve),
                        "marker": {
                            "symbol": symbol,
                            "size": 11,
                            "color": tone,
                            "line": {"width": 2, "color": tone},
                        },
                    }
                )
        return made

    def _rings(self, curve: Curve, value: Value) -> list[dict[str, Any]]:
        shown = [(p, value(p)) for p in curve.points if p.saturated]
        matches = [(point, mean) for point, mean in shown if mean is not None]
        if not matches:
            return []
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{self._config(curve)}: saturated",
                "meta": curve.configuration,
                "x": [point.size for point, _mean in matches],
                "y": [rounded(mean.mean) for _point, mean in matches],
                "hoverinfo": "skip",
                "cliponaxis": False,
                "marker": {
                    "symbol": "circle-open",
                    "size": 17,
                    "color": colour(curve.configuration),
                    "line": {"width": 1.5},
                },
            }
        ]

    def _config(self, curve: Curve) -> str:
        return self.report.configurations[curve.configuration].name

    def _name(self, curve: Curve) -> str:
        return f"<extra>{escaped(self._config(curve))}</extra>"

    def _layout(self, unit: str, x: str) -> dict[str, Any]:
        axis = {
            "gridcolor": "var(--grid)",
            "zeroline": False,
            "linecolor": "var(--axis)",
            "ticks": "outside",
            "tickcolor": "var(--axis)",
            "ticklen": 4,
            "fixedrange": True,
            "automargin": True,
            "exponentformat": "none",
            "separatethousands": True,
        }
        return {
            "xaxis": axis | {"title": {"text": x, "standoff": 8}, "showgrid": False},
            "yaxis": axis | {"title": {"text": unit, "standoff": 6}, "rangemode": "tozero"},
            "shapes": [],
            "annotations": [],
        }


def escaped(text: str) -> str:
    """Return text in which plotly finds no markup and no template."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("%{", "%&#123;")


def _measured(curve: Curve, size: float) -> bool:
    return any(point.valid and point.size == size for point in curve.points)


def _hover(by: By, point: Point, mean: Interval | None, unit: str) -> str:
    runs = f"{point.runs} run{'s' if point.runs > 1 else ''}"
    status = STATUS[point.status]
    if point.valid and 0 < point.missed < point.runs:
        status = f"{point.missed} of {point.runs} missed the SLO"
    return f"{size_text(by, point.size)}: {between(mean, unit)}<br>{runs}, {status}"


def _bars(means: Iterable[Interval | None]) -> dict[str, Any] | None:
    """Return error bars where any mean has an interval."""
    listed = list(means)
    if not any(item is not None and item.high is not None for item in listed):
        return None
    above = [rounded(m.high - m.mean) if m and m.high is not None else 0.0 for m in listed]
    # Nothing that is measured here can be less than nothing.
    below = [rounded(m.mean - max(m.low, 0)) if m and m.low is not None else 0.0 for m in listed]
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return bars | {"thickness": 1.25, "width": 3}
