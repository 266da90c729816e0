# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Grafana dashboards of a fleet: pure JSON, for import by hand and for provisioning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ..documents import from_document, knowledge
from .dashboards_panels import SOURCE, Json, panel_json
from .dashboards_types import Board, Row, Variable

if TYPE_CHECKING:
    from .types import TelemetryPlan

NAMES = ("fleet", "deployment", "host", "router")
ROUTER = "apiary-router"
SETTINGS = "telemetry/settings.yml"
TAG = "apiary"
# Grafana 11.6; newer ones bring it up themselves.
SCHEMA_VERSION = 41
COLUMNS = 24


@cache
def boards() -> tuple[Board, ...]:
    """Return all dashboards as they are written down."""
    files = (f"telemetry/dashboards_{name}.yml" for name in NAMES)
    return tuple(from_document(Board, knowledge(name), name) for name in files)


def dashboards(plan: TelemetryPlan | None = None) -> dict[str, str]:
    """Return the JSON of each dashboard by file name, with the thresholds of the plan's alerts.

    A fleet without routers gets no dashboard of them; without a plan there are all.
    """
    numbers = {name: one["value"] for name, one in knowledge(SETTINGS)["thresholds"].items()}
    shown = boards()
    if plan is not None:
        numbers |= plan.settings.thresholds
        routed = any(host.router for host in plan.hosts)
        shown = tuple(board for board in shown if routed or board.uid != ROUTER)
    return {
        f"{board.uid}.json": json.dumps(board_json(board, numbers), indent=2, sort_keys=True) + "\n"
        for board in shown
    }


def board_json(board: Board, thresholds: Mapping[str, float]) -> Json:
    """Return one dashboard as Grafana's classic JSON."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "refresh": board.refresh,
        "time": {"from": board.since, "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Apiary",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {"list": [_alerts(board)]},
        "templating": {"list": [_data_source(), *map(_variable, board.variables)]},
        "panels": _panels(board.rows, thresholds),
    }


def _alerts(board: Board) -> Json:
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": board.alerts,
        "titleFormat": "{{alertname}} ({{severity}})",
        "textFormat": "{{deployment}} {{host}} {{replica}} {{gpu}}",
        "tagKeys": "severity",
        "step": "60s",
    }


def _data_source() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "current": {},
    }


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.of}, {variable.label})"
    made: Json = {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{variable.name}"},
        "refresh": 2,
        "regex": "",
        "sort": 7,
        "hide": 2 if variable.hidden else 0,
        "multi": variable.many,
        "includeAll": variable.many,
        "options": [],
        "current": {"text": ["All"], "value": ["$__all"]} if variable.many else {},
    }
    if variable.many and not variable.hidden:
        # One short matcher instead of every name of a large fleet.
        made["allValue"] = ".*"
    return made


def _panels(rows: tuple[Row, ...], thresholds: Mapping[str, float]) -> list[Json]:
    """Lay the rows out from top to bottom, panels from left to right."""
    made: list[Json] = []
    number, y = 1, 0
    for row in rows:
        heading: Json = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        if row.repeat:
            heading["repeat"] = row.repeat
        number, y = number + 1, y + 1
        inside: list[Json] = []
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            inside.append(panel_json(panel, number, x, y, thresholds))
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest
        made.append(heading)
        if row.collapsed:
            heading["panels"] = inside
        else:
            made += inside
    return made
