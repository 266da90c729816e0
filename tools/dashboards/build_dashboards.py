#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the Grafana dashboards that the collection ships, of what lies beside in *.yml.

build_dashboards.py          write them
build_dashboards.py --check  fail if what is shipped is not what this makes
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from boards import Board, Row, Variable
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import dashboard as models
    from panels import SOURCE, panel_of

SHIPPED = HERE.parents[1] / "plugins/plugin_utils/knowledge/telemetry/dashboards"
NAMES = ("fleet", "deployment", "host", "router")
TAG = "apiary"
COLUMNS = 24
# Grafana 11.6; newer ones bring it up themselves.
SCHEMA_VERSION = 41


def boards() -> tuple[Board, ...]:
    """Return all dashboards as they are written down."""
    texts = {name: (HERE / f"{name}.yml").read_text(encoding="utf-8") for name in NAMES}
    return tuple(from_document(Board, yaml.safe_load(text), name) for name, text in texts.items())


def built() -> dict[str, str]:
    """Return the JSON of each dashboard by file name."""
    texts = {}
    for board in boards():
        data = json.loads(JSONEncoder(sort_keys=True).encode(_dashboard(board)))
        for variable in data["templating"]["list"]:
            variable.setdefault("current", {})  # Grafana chooses the first
        texts[f"{board.uid}.json"] = json.dumps(data, indent=1, sort_keys=True) + "\n"
    return texts


def _dashboard(board: Board) -> models.Dashboard:
    link = dashboard.DashboardLink("Apiary").type(models.DashboardLinkType.DASHBOARDS)
    alerts = models.AnnotationQuery(
        name="Alerts",
        datasource=SOURCE,
        icon_color="red",
        expr=board.alerts,
        title_format="{{alertname}} ({{severity}})",
        text_format="{{deployment}} {{host}} {{replica}} {{gpu}}",
        tag_keys="severity",
        step="60s",
    )
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .version(1)
        .editable()
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh(board.refresh)
        .time(board.since, "now")
        .link(link.tags([TAG]).keep_time(True).icon("external link"))
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for variable in board.variables:
        builder.with_variable(_variable(variable))
    made: models.Dashboard = builder.build()
    made.schema_version = SCHEMA_VERSION
    made.annotations = models.AnnotationContainer(list_val=[alerts])
    made.panels = _panels(board.rows)
    return made


def _variable(variable: Variable) -> Any:
    query = f"label_values({variable.of}, {variable.label})"
    builder = (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(SOURCE)
        .definition(query)
        .query({"query": query, "refId": f"variable-{variable.name}"})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(variable.many)
        .include_all(variable.many)
    )
    if variable.hidden:
        builder.hide(models.VariableHide.HIDE_VARIABLE)
    if variable.many:
        builder.current(models.VariableOption(text=["All"], value=["$__all"]))
    if variable.many and not variable.hidden:
        # One short matcher instead of every name of a large fleet.
        builder.all_value(".*")
    return builder


def _panels(rows: tuple[Row, ...]) -> list[models.Panel | models.RowPanel]:
    """Lay the rows out from top to bottom, panels from left to right."""
    panels: list[models.Panel | models.RowPanel] = []
    number, y = 1, 0
    for row in rows:
        heading = dashboard.Row(row.title).id(number).collapsed(row.collapsed)
        heading.grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=y))
        if row.repeat:
            heading.repeat(row.repeat)
        number, y = number + 1, y + 1
        inside = []
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            inside.append(panel_of(panel, number, x, y).build())
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest
        title = heading.build()
        panels.append(title)
        title.panels = inside if row.collapsed else []
        panels += [] if row.collapsed else inside
    return panels


def main() -> int:
    """Write the files, or compare them."""
    wrong = []
    for name, text in built().items():
        path = SHIPPED / name
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.append(str(path))
    print("\n".join(f"{path} is not what `make docs` makes" for path in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
