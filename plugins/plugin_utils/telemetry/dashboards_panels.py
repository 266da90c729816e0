# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Panels as Grafana's classic dashboard JSON has them (grafana/kinds, @grafana/schema)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .dashboards_types import Panel, Query, Step

Json = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
LIMIT_COLOUR = "red"
_STATE_KINDS = ("stat", "state-timeline", "bargauge", "table")


def panel_json(panel: Panel, number: int, x: int, y: int, thresholds: Mapping[str, float]) -> Json:
    """Return a panel with its id at a place of the grid; ``thresholds`` are by name."""
    panel = _numbered(panel, thresholds)
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": f"{panel.meaning}\n\n**What to do:** {panel.remedy}",
        "datasource": SOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "targets": [_target(panel, query, place) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }
    if panel.kind == "table":
        made["transformations"] = _columns(panel)
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    return made


def _numbered(panel: Panel, thresholds: Mapping[str, float]) -> Panel:
    """Return the panel with the values of thresholds in place of their names."""

    def numbers(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(
            (thresholds[value] if isinstance(value, str) else value, colour)
            for value, colour in steps
        )

    queries = tuple(replace(query, steps=numbers(query.steps)) for query in panel.queries)
    return replace(panel, steps=numbers(panel.steps), queries=queries)


def ref_id(place: int) -> str:
    """Return Grafana's name of a panel's query: A, B, …"""
    return chr(ord("A") + place)


def _target(panel: Panel, query: Query, place: int) -> Json:
    now = panel.kind in ("stat", "table", "bargauge")
    return {
        "refId": ref_id(place),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": " ".join(query.expr.split()),
        "legendFormat": query.legend or "__auto",
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": now,
        "range": not now,
    }


def _thresholds(steps: Sequence[Step]) -> Json:
    """Return thresholds; the lowest colour reaches down to everything."""
    listed = [{"value": value, "color": colour} for value, colour in steps]
    return {"mode": "absolute", "steps": listed or [{"value": None, "color": "text"}]}


def _mappings(values: Mapping[str, tuple[str, str]]) -> list[Json]:
    if not values:
        return []
    options = {
        value: {"index": place, "text": text, "color": colour}
        for place, (value, (text, colour)) in enumerate(values.items())
    }
    return [{"type": "value", "options": options}]


def _defaults(panel: Panel) -> Json:
    by_state = panel.kind in _STATE_KINDS
    made: Json = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if by_state else "palette-classic"},
        "thresholds": _thresholds(panel.steps),
        "mappings": _mappings(panel.values),
        "links": [_link(panel)] if panel.link and panel.kind != "table" else [],
        "custom": _custom(panel),
    }
    optional = {
        "min": panel.min,
        "max": panel.max,
        "decimals": panel.decimals,
        "noValue": panel.none,
    }
    made |= {name: value for name, value in optional.items() if value is not None}
    return made


def _custom(panel: Panel) -> Json:
    if panel.kind == "timeseries":
        return {
            "drawStyle": "line",
            "lineWidth": 2,
            "lineInterpolation": "linear",
            "fillOpacity": 25 if panel.stack else 0,
            "showPoints": "never",
            # A gap is news: only what two scrapes missed is bridged.
            "spanNulls": 60000,
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"},
            "axisSoftMin": 0,
        }
    if panel.kind == "state-timeline":
        return {"lineWidth": 0, "fillOpacity": 75}
    if panel.kind == "table":
        return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    return {}


def _overrides(panel: Panel) -> list[Json]:
    made = []
    for place, query in enumerate(panel.queries):
        if panel.kind == "table":
            made.append(_override("byName", query.column, _column_look(panel, query)))
            continue
        look = _line_look(query) if panel.kind == "timeseries" else _value_look(query)
        if look:
            made.append(_override("byFrameRefID", ref_id(place), look))
    if panel.kind == "table" and panel.link:
        title = panel.labels[panel.link_labels[0]]
        made.append(_override("byName", title, {"links": [_link(panel)]}))
    return made


def _override(matcher: str, of: str, properties: Mapping[str, Any]) -> Json:
    return {
        "matcher": {"id": matcher, "options": of},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def _line_look(query: Query) -> Json:
    look: Json = {}
    if query.unit:
        look["unit"] = query.unit
    if query.limit:
        look |= {
            "color": {"mode": "fixed", "fixedColor": LIMIT_COLOUR},
            "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
            "custom.lineWidth": 1,
            "custom.fillOpacity": 0,
            "custom.stacking": {"mode": "none", "group": "limit"},
        }
    elif query.color:
        look["color"] = {"mode": "fixed", "fixedColor": query.color}
    return look


def _value_look(query: Query) -> Json:
    return {"thresholds": _thresholds(query.steps)} if query.steps else {}


def _column_look(panel: Panel, query: Query) -> Json:
    look: Json = {"unit": query.unit or panel.unit}
    if query.decimals is not None:
        look["decimals"] = query.decimals
    if query.values:
        look["mappings"] = _mappings(query.values)
    if query.steps:
        look["thresholds"] = _thresholds(query.steps)
    if query.steps or query.values:
        look["custom.cellOptions"] = {"type": "color-text"}
    return look


def _link(panel: Panel) -> Json:
    """Return the way to another board, with the row's labels as its variables."""
    prefix = "__data.fields" if panel.kind == "table" else "__field.labels"
    chosen = [f"var-{label}=${{{_label(panel, prefix, label)}}}" for label in panel.link_labels]
    query = "&".join(["${datasource:queryparam}", *chosen, "${__url_time_range}"])
    return {"title": f"Open {panel.link}", "url": f"/d/{panel.link}?{query}", "targetBlank": False}


def _label(panel: Panel, prefix: str, label: str) -> str:
    if panel.kind == "table":
        return f'{prefix}["{panel.labels[label]}"]'
    return f"{prefix}.{label}"


def _columns(panel: Panel) -> list[Json]:
    """Return what makes one table of several queries: joined by labels, named and in order."""
    values = {f"Value #{ref_id(place)}": query.column for place, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        values = {"Value": panel.queries[0].column}
    names = {**panel.labels, **values}
    order = {name: place for place, name in enumerate(names)}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": order,
                "renameByName": names,
            },
        },
    ]


def _options(panel: Panel) -> Json:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind == "stat":
        return {
            "reduceOptions": reduce,
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "orientation": "auto",
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        }
    if panel.kind == "bargauge":
        return {
            "reduceOptions": reduce,
            "displayMode": "basic",
            "orientation": "horizontal",
            "valueMode": "color",
            "namePlacement": "left",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizWidth": 8,
            "minVizHeight": 16,
            "maxVizHeight": 300,
        }
    if panel.kind == "table":
        options: Json = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}
        if panel.sort:
            name, descending = panel.sort.removeprefix("-"), panel.sort.startswith("-")
            options["sortBy"] = [{"displayName": name, "desc": descending}]
        return options
    legend = _legend(panel)
    if panel.kind == "state-timeline":
        return {
            "legend": legend,
            "tooltip": {"mode": "single", "sort": "none"},
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.9,
        }
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _legend(panel: Panel) -> Json:
    table = panel.legend in ("table", "right")
    return {
        "showLegend": panel.legend != "none",
        "displayMode": "table" if table else "list",
        "placement": "right" if panel.legend == "right" else "bottom",
        "calcs": ["lastNotNull", "max"] if table else [],
    }
