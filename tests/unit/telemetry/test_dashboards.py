# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dashboards as Grafana reads them: its own schema, their layout, and the ways between them."""

from __future__ import annotations

import json
import re
import warnings

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.programs import (
    SHIPPED,
    dashboards,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units

from support.demo import demo_plan
from support.telemetry.dashboards import NAMES, boards, built

with warnings.catch_warnings():
    # The SDK would rather have schema v2, which only Grafana 12 and later can read.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.models.dashboard import Dashboard

MADE = {name: json.loads(text) for name, text in dashboards().items()}
ALL = pytest.mark.parametrize("made", MADE.values(), ids=MADE)
COLOURS = {"text", "green", "orange", "red", "blue", "light-blue", "purple"}


@pytest.fixture(scope="module", autouse=True)
def _plugins():
    register_default_plugins()


def panels_of(made):
    """Return all panels, rows among them."""
    return [one for row in made["panels"] for one in (row, *row.get("panels", ()))]


def lost(mine, theirs, path=""):
    """Yield what Grafana's schema does not know or takes otherwise."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key, value in mine.items():
            if key not in theirs:
                yield f"{path}.{key}"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from lost(one, other, f"{path}[{place}]")
    elif mine != theirs:
        yield f"{path}: {mine!r} became {theirs!r}"


def test_what_is_shipped_is_what_the_tool_makes():
    assert {path.name: path.read_text() for path in SHIPPED.iterdir()} == built()


@ALL
def test_grafanas_schema_knows_every_field(made):
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(made)))
    assert list(lost(made, back)) == []


def test_a_field_that_grafana_does_not_know_is_found():
    made = json.loads(json.dumps(MADE["apiary-fleet.json"]))
    panel = next(one for one in made["panels"] if one["type"] == "timeseries")
    panel["options"]["legend"]["showLegends"] = True
    panel["fieldConfig"]["defaults"]["unitt"] = "s"
    panel["fieldConfig"]["defaults"]["custom"]["lineWidths"] = 2
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(made)))
    assert len(list(lost(made, back))) == 3


@ALL
def test_uid_and_data_source_are_fit_for_provisioning(made):
    assert re.fullmatch(r"[a-z][a-z0-9-]{7,39}", made["uid"])
    assert "id" not in made, "a number is one server's own"
    assert "__inputs" not in made, "provisioning asks nobody"
    for panel in panels_of(made):
        for one in (panel, *panel.get("targets", ())):
            if panel["type"] != "row":
                assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@ALL
def test_panels_fill_the_grid_without_overlap(made):
    taken = set()
    for panel in panels_of(made):
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@ALL
def test_a_repeated_panel_has_its_line_for_itself(made):
    """Grafana gives it all 24 columns, over whatever stands beside."""
    for panel in panels_of(made):
        if panel["type"] != "row" and "repeat" in panel:
            assert (panel["gridPos"]["x"], panel["gridPos"]["w"]) == (0, 24)


@ALL
def test_ids_are_unique(made):
    panels = panels_of(made)
    assert len({one["id"] for one in panels}) == len(panels)
    for panel in panels:
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)


@ALL
def test_every_way_leads_to_a_board_of_ours(made):
    uids = {one["uid"]: one for one in MADE.values()}
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(made)):
        uid, _, query = url.removeprefix("/d/").partition("?")
        assert uid in uids
        variables = {one["name"] for one in uids[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= variables


def test_there_are_ways_between_all_boards():
    assert {one["uid"] for one in MADE.values()} == {f"apiary-{name}" for name in NAMES}
    for made in MADE.values():
        (link,) = made["links"]
        assert (link["type"], link["tags"]) == ("dashboards", made["tags"])


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
def test_every_panel_says_what_it_means_and_what_to_do(board):
    assert board.answers
    for row in board.rows:
        for panel in row.panels:
            assert panel.meaning.endswith(".")
            assert panel.remedy.endswith((".", "it."))
            for step in (*panel.steps, *(one for query in panel.queries for one in query.steps)):
                assert step[1] in COLOURS
            for query in panel.queries:
                named = query.column if panel.kind == "table" else query.legend
                assert named, query.expr


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
def test_titles_are_unique_in_their_row(board):
    for row in board.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
def test_units_are_grafanas(board):
    known = {value for value in vars(units).values() if isinstance(value, str)}
    for row in board.rows:
        for panel in row.panels:
            for unit in (panel.unit, *(query.unit for query in panel.queries)):
                assert unit is None or unit in known or unit.startswith("suffix: "), unit


def test_limits_of_a_deployment_are_drawn_as_dashed_lines():
    made = MADE["apiary-deployment.json"]
    ttft = next(one for one in made["panels"] if "TTFT" in one["title"])
    refs = [one["refId"] for one in ttft["targets"] if "apiary:slo_limit_seconds" in one["expr"]]
    (override,) = [
        one for one in ttft["fieldConfig"]["overrides"] if one["matcher"]["options"] in refs
    ]
    looks = {one["id"]: one["value"] for one in override["properties"]}
    assert looks["custom.lineStyle"]["fill"] == "dash"
    assert looks["color"]["fixedColor"] == "red"


def test_gpus_are_laid_out_by_hive_and_numa_node():
    made = MADE["apiary-host.json"]
    rows = [one for one in made["panels"] if one.get("repeat") == "hive"]
    assert [one["type"] for one in rows] == ["row"]
    (gpus,) = [one for one in made["panels"] if one.get("repeat") == "numa_node"]
    assert all('hive=~"$hive", numa_node=~"$numa_node"' in one["expr"] for one in gpus["targets"])


def steps_of(made, title):
    (panel,) = [one for one in panels_of(made) if one["title"] == title]
    return panel["fieldConfig"]["defaults"]["thresholds"]["steps"]


def test_thresholds_are_those_of_the_alerts():
    title = "Die temperature, hive $hive"
    assert steps_of(MADE["apiary-host.json"], title)[-1] == {"value": 100, "color": "red"}
    plan = telemetry_plan(
        [MonitoredHost("gpu-001", "10.0.0.1", plans=(demo_plan(),))],
        TelemetrySettings(thresholds={"gpu_junction_celsius": 90.0}),
    )
    made = json.loads(dashboards(plan)["apiary-host.json"])
    assert steps_of(made, title)[-1] == {"value": 90, "color": "red"}


@pytest.mark.parametrize("port", [None, 8405])
def test_only_a_fleet_with_routers_gets_their_board(port):
    host = MonitoredHost("gpu-001", "10.0.0.1", plans=(demo_plan(),), router_port=port)
    assert ("apiary-router.json" in dashboards(telemetry_plan([host]))) == (port is not None)


def test_made_twice_it_is_the_same():
    assert dashboards() == dashboards()
