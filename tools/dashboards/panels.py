# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Panels by Grafana's own builders (grafana-foundation-sdk)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

with warnings.catch_warnings():
    # The SDK would rather have schema v2, which only Grafana 12 and later can read.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        bargauge,
        common,
        dashboard,
        prometheus,
        stat,
        statetimeline,
        table,
        timeseries,
    )
    from grafana_foundation_sdk.models import common as shapes
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from boards import Panel, Query, Step

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
LIMIT_COLOUR = "red"
_STATE_KINDS = ("stat", "state-timeline", "bargauge", "table")
Builder = Any  # the SDK's builders of panels share methods, no type


def panel_of(panel: Panel, number: int, x: int, y: int) -> Builder:
    """Return a panel with its id at a place of the grid."""
    builder = {
        "stat": _stat,
        "timeseries": _timeseries,
        "table": _table,
        "state-timeline": _states,
        "bargauge": _bars,
    }[panel.kind](panel)
    builder.id(number).title(panel.title).datasource(SOURCE).unit(panel.unit)
    builder.description(f"{panel.meaning}\n\n**What to do:** {panel.remedy}")
    builder.grid_pos(models.GridPos(h=panel.height, w=panel.width, x=x, y=y))
    mode = "thresholds" if panel.kind in _STATE_KINDS else "palette-classic"
    builder.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId(mode)))
    builder.thresholds(_thresholds(panel.steps))
    builder.mappings(_mappings(panel.values))
    for name in ("min", "max", "decimals"):
        if getattr(panel, name) is not None:
            getattr(builder, name)(getattr(panel, name))
    if panel.none is not None:
        builder.no_value(panel.none)
    if panel.link and panel.kind != "table":
        builder.data_links([_link(panel)])
    for place, query in enumerate(panel.queries):
        builder.with_target(_target(panel, query, place))
        look = _look(panel, query)
        if panel.kind == "table":
            builder.override_by_name(query.column, look)
        elif look:
            builder.override_by_query(_ref_id(place), look)
    if panel.link and panel.kind == "table":
        link = models.DynamicConfigValue(id_val="links", value=[_link(panel)])
        builder.override_by_name(panel.labels[panel.link_labels[0]], [link])
    if panel.repeat:
        builder.repeat(panel.repeat).max_per_row(2)
        builder.repeat_direction("h")
    return builder


def _ref_id(place: int) -> str:
    """Return Grafana's name of a panel's query: A, B, …"""
    return chr(ord("A") + place)


def _target(panel: Panel, query: Query, place: int) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .ref_id(_ref_id(place))
        .datasource(SOURCE)
        .editor_mode(QueryEditorMode.CODE)
        .expr(" ".join(query.expr.split()))
        .legend_format(query.legend or "__auto")
        .format(PromQueryFormat.TABLE if panel.kind == "table" else PromQueryFormat.TIME_SERIES)
    )
    return target.instant() if panel.kind in ("stat", "table", "bargauge") else target.range()


def _thresholds(steps: Sequence[Step]) -> dashboard.ThresholdsConfig:
    """Return thresholds; the lowest colour reaches down to everything.

    The name of one of the operator's thresholds stays in it, for the collection to replace.
    """
    listed = [
        models.Threshold(value=f"@{value}" if isinstance(value, str) else value, color=colour)
        for value, colour in steps
    ]
    builder = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE)
    return builder.steps(listed or [models.Threshold(value=None, color="text")])


def _mappings(values: Mapping[str, tuple[str, str]]) -> list[models.ValueMap]:
    results = {
        value: models.ValueMappingResult(index=place, text=text, color=colour)
        for place, (value, (text, colour)) in enumerate(values.items())
    }
    return [models.ValueMap(options=results)] if results else []


def _look(panel: Panel, query: Query) -> list[models.DynamicConfigValue]:
    """Return what of a query's values looks otherwise than the panel's."""
    look: dict[str, Any] = {}
    if panel.kind == "timeseries":
        look = {"unit": query.unit} if query.unit else {}
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
    elif panel.kind == "table":
        look["unit"] = query.unit or panel.unit
        if query.decimals is not None:
            look["decimals"] = query.decimals
        if query.values:
            look["mappings"] = _mappings(query.values)
    if query.steps and panel.kind != "timeseries":
        look["thresholds"] = _thresholds(query.steps).build()
    if panel.kind == "table" and (query.steps or query.values):
        look["custom.cellOptions"] = {"type": "color-text"}
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in look.items()]


def _link(panel: Panel) -> dashboard.DashboardLink:
    """Return the way to another board, with the row's labels as its variables."""
    if panel.kind == "table":
        fields = {name: f'__data.fields["{panel.labels[name]}"]' for name in panel.link_labels}
    else:
        fields = {name: f"__field.labels.{name}" for name in panel.link_labels}
    chosen = [f"var-{name}=${{{field}}}" for name, field in fields.items()]
    query = "&".join(["${datasource:queryparam}", *chosen, "${__url_time_range}"])
    url = f"/d/{panel.link}?{query}"
    return {"title": f"Open {panel.link}", "url": url, "targetBlank": False}


def _stat(_panel: Panel) -> stat.Panel:
    return stat.Panel().reduce_options(_last()).graph_mode(shapes.BigValueGraphMode.NONE)


def _bars(_panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(_last())
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .name_placement(shapes.BarGaugeNamePlacement.LEFT)
    )


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _states(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .legend(_legend(panel))
        .tooltip(_tooltip("single", "none"))
        .merge_values(True)
        .line_width(0)
        .fill_opacity(75)
    )


def _timeseries(panel: Panel) -> timeseries.Panel:
    stacked = shapes.StackingMode.NORMAL if panel.stack else shapes.StackingMode.NONE
    style = "dashed" if panel.steps else "off"
    thresholds = common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode(style))
    return (
        timeseries.Panel()
        .draw_style(shapes.GraphDrawStyle.LINE)
        .line_width(2)
        .line_interpolation(shapes.LineInterpolation.LINEAR)
        .fill_opacity(25 if panel.stack else 0)
        .show_points(shapes.VisibilityMode.NEVER)
        # A gap is news: only what two scrapes missed is bridged.
        .span_nulls(60000)
        .stacking(common.StackingConfig().mode(stacked).group("A"))
        .thresholds_style(thresholds)
        .axis_soft_min(0)
        .legend(_legend(panel))
        .tooltip(_tooltip("multi", "desc"))
    )


def _table(panel: Panel) -> table.Panel:
    """Return one table of several queries: joined by labels, named and in order."""
    values = {f"Value #{_ref_id(n)}": query.column for n, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        values = {"Value": panel.queries[0].column}
    names = {**panel.labels, **values}
    columns = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": names,
    }
    builder = table.Panel().cell_height(shapes.TableCellHeight.SM)
    builder.transformations(
        [
            models.DataTransformerConfig(id_val="merge", options={}),
            models.DataTransformerConfig(id_val="organize", options=columns),
        ]
    )
    if panel.sort:
        by = common.TableSortByFieldState().display_name(panel.sort.removeprefix("-"))
        builder.sort_by([by.desc(panel.sort.startswith("-"))])
    return builder


def _tooltip(mode: str, sort: str) -> common.VizTooltipOptions:
    builder = common.VizTooltipOptions().mode(shapes.TooltipDisplayMode(mode))
    return builder.sort(shapes.SortOrder(sort))


def _legend(panel: Panel) -> common.VizLegendOptions:
    rows = panel.legend in ("table", "right")
    mode = shapes.LegendDisplayMode.TABLE if rows else shapes.LegendDisplayMode.LIST
    right = panel.legend == "right"
    return (
        common.VizLegendOptions()
        .show_legend(panel.legend != "none")
        .display_mode(mode)
        .placement(shapes.LegendPlacement.RIGHT if right else shapes.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"] if rows else [])
    )
