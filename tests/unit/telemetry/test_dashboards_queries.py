# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No panel or rule asks for what does not exist: a series, a label, a join that never matches."""

from __future__ import annotations

import re

import promql_parser
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)

from support.demo import demo_plan
from support.each import each
from support.telemetry import promql
from support.telemetry.dashboards import boards
from support.telemetry.promql import BadQueryError, labels_of
from support.telemetry.series import known

KNOWN = known()
PANELS = [(board, panel) for board in boards() for row in board.rows for panel in row.panels]
LABEL = re.compile(r"\{\{(\w+)\}\}")
VARIABLE = re.compile(r"\$\{?(\w+)")
GRAFANAS = {"__rate_interval", "__interval", "__range"}


@each(PANELS, name=lambda part: part.title)
def test_every_series_and_label_of_a_panel_exists(board, panel):
    for query in panel.queries:
        have = labels_of(query.expr, KNOWN)
        assert set(LABEL.findall(query.legend)) <= have, query.expr


@each(PANELS, name=lambda part: part.title)
def test_a_panel_uses_only_variables_of_its_board(board, panel):
    own = {variable.name for variable in board.variables}
    texts = [panel.title, (panel.repeat and f"${panel.repeat}") or ""]
    for text in (*texts, *(query.expr for query in panel.queries)):
        assert set(VARIABLE.findall(text)) <= own | GRAFANAS, text


@pytest.mark.parametrize(("board", "panel"), [one for one in PANELS if one[1].kind == "table"])
def test_the_columns_of_a_table_join(board, panel):
    """Rows become one where all of their labels are equal: the panel's, without the name."""
    for query in panel.queries:
        parsed = promql_parser.parse(promql.plain(query.expr))
        aggregated = (promql_parser.AggregateExpr, promql_parser.BinaryExpr)
        assert isinstance(parsed, aggregated), f"{query.expr} keeps the series' name"
        assert labels_of(query.expr, KNOWN) == set(panel.labels), query.expr
    assert set(panel.link_labels) <= set(panel.labels)


@pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
def test_variables_and_alerts_ask_for_what_exists(board):
    for variable in board.variables:
        assert variable.label in labels_of(variable.of, KNOWN)
    labels_of(board.alerts, KNOWN)


@pytest.mark.parametrize("version", ["0.11.0", "0.14.1", "0.24.0", "0.33.0"])
def test_panels_hold_for_every_engine_version(version):
    """What is an engine's own comes through recorded series, which know the versions."""
    have = known(version)
    for board in boards():
        for row in board.rows:
            for panel in row.panels:
                for query in panel.queries:
                    assert promql.names(query.expr) <= have.keys(), (panel.title, query.expr)


def test_a_spread_of_values_has_no_fixed_number_of_lines():
    """A stat shows a few values; without an aggregation it would show one for each GPU."""
    for board in boards():
        for row in board.rows:
            for panel in row.panels:
                if panel.kind == "stat":
                    for query in panel.queries:
                        have = labels_of(query.expr, KNOWN)
                        assert "gpu" not in have, (panel.title, query.expr)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("vllm:gpu_cache_usage", "no series"),
        ('apiary:gpu_power_watts{bdf="0000:05:00.0"}', "no label 'bdf'"),
        ("sum by (gpu) (apiary:replica_up)", "by"),
        ("apiary:gpu_power_watts / apiary:host_up", "never matches"),
        ("apiary:gpu_power_watts * on (gpu) group_left (rack) apiary:host_up", "on (gpu)"),
        ("apiary:host_up * on (host) group_left (model) apiary:amd_exporter_up", "takes"),
        ("histogram_quantile(0.9, apiary:ttft_seconds:p90_5m)", "le"),
        ("sum(apiary:host_up", "unclosed"),
    ],
)
def test_what_cannot_be_is_found(expression, why):
    with pytest.raises(BadQueryError, match=re.escape(why)):
        labels_of(expression, KNOWN)


def rules():
    """Return every rule of a fleet with limits of all kinds."""
    slo = "ttft:p90:2s,tpot:p90:50ms,itl:p99:100ms,e2el:p90:10s"
    host = MonitoredHost("gpu-001", "10.0.0.1", plans=(demo_plan(),), router_port=8405)
    plan = telemetry_plan([host], TelemetrySettings(slos={demo_plan().deployment.name: slo}))
    for name, text in plan.files.items():
        if name.startswith("rules/"):
            for group in yaml.safe_load(text)["groups"]:
                yield from group["rules"]


@each(rules(), name=lambda rule: rule.get("record") or rule["alert"])
def test_every_series_and_label_of_a_rule_exists(rule):
    have = labels_of(rule["expr"], KNOWN) | rule.get("labels", {}).keys()
    if "record" in rule:
        assert have <= KNOWN[rule["record"]], f"the table does not say {rule['record']} has them"
    asked = re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values()))
    assert set(asked) <= have, rule["expr"]
