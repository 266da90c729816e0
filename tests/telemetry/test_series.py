# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What panels and rules ask for is what exporters really serve: asked of a real Prometheus."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.programs import dashboards
from watched import HOSTS, until

from support.telemetry.dashboards import boards
from support.telemetry.series import SERVERS, known, recorded_series

# What does not happen to this fleet, or not within a minute.
NEVER = {
    "an experiment",
    "a critical alert fires",
    "somebody drained a host",
    "somebody drained a replica",
    "a warning fires",
    "an alert fires",
    "the host mounts NFS and reads from it",
    "the host mounts NFS",
    "serial numbers say nothing",
    "requests of a week ago",
    "questions of the last six hours",
}
# Wants systemd, which the machine that tests may lack; hosts of the lab have it.
ELSEWHERE = {
    "node_systemd_unit_state",
    # What supervisors leave of engines that ran: tests/unit/telemetry_host/test_host_metrics.py.
    "apiary_replica_died_timestamp_seconds",
    "apiary_replica_kv_tokens",
    "apiary_replica_weights_bytes",
}
PATIENCE = 90
BOARDS = pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)


def chosen(prometheus, board):
    """Yield what a viewer can choose: each single value, everything where several may be."""
    values = {}
    for variable in board.variables:
        if variable.many and not variable.hidden:
            values[variable.name] = [".*"]
            continue
        for host in values.get("host", [""]):
            of = variable.of.replace("$host", host)
            found = prometheus.values(of, variable.label)
            values.setdefault(variable.name, []).extend(found)
        values[variable.name] = sorted(set(values[variable.name]))
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def filled(expression, variables):
    """Return an expression as Grafana sends it."""
    text = re.sub(r"\$__(rate_interval|interval|range)\b", "1m", expression)
    return re.sub(r"\$\{?(\w+)\}?", lambda found: variables[found[1]], text)


def queries(board):
    """Return what a board asks for, with the panel's title, but for what never happens here."""
    return [
        (panel.title, query.expr)
        for row in board.rows
        for panel in row.panels
        for query in panel.queries
        if query.only_when not in NEVER
    ]


@BOARDS
def test_every_panel_shows_something(fleet, board):
    left = queries(board)

    def all_there():
        choices = list(chosen(fleet.prometheus, board))
        left[:] = [
            (title, expression)
            for title, expression in left
            if not any(fleet.prometheus.query(filled(expression, one)) for one in choices)
        ]
        return not left

    until(all_there, lambda: f"series for {left}", PATIENCE)


@BOARDS
def test_hidden_variables_have_values_for_every_host(fleet, board):
    """A row or panel that is repeated for nothing is not there."""
    choices = list(chosen(fleet.prometheus, board))
    assert choices
    for one in choices:
        assert all(one.values())


def test_every_rule_can_be_evaluated(fleet):
    def evaluated():
        rules = [
            rule for group in fleet.prometheus.ask("rules")["groups"] for rule in group["rules"]
        ]
        wrong = [(one["name"], one.get("lastError")) for one in rules if one["health"] == "err"]
        assert wrong == []
        return all(one["health"] == "ok" for one in rules)

    until(evaluated, lambda: "an evaluation of every rule", PATIENCE)


def test_every_recorded_series_is_there_with_its_labels(fleet):
    labels = known()
    wanted = {one["record"] for one in recorded_series() if one.get("only_when") not in NEVER}

    def missing():
        return wanted - set(fleet.prometheus.ask("label/__name__/values"))

    until(lambda: not missing(), lambda: f"series {sorted(missing())}", PATIENCE)
    for name in wanted:
        assert fleet.prometheus.labels(name) <= labels[name], name


def test_every_table_names_what_exporters_serve(fleet):
    """Each series of the tables is served, by an engine of its versions, with its labels."""
    absent = []
    versions = [order(version) for _address, version, _faults in HOSTS.values()]
    for table in ("amd", "haproxy", "node", "vllm"):
        for entry in knowledge(f"telemetry/{table}.yml")["series"]:
            since, until_ = entry.get("since"), entry.get("until")
            if table == "vllm" and not any(
                (since is None or order(since) <= one) and (until_ is None or one <= order(until_))
                for one in versions
            ):
                continue
            suffix = "_bucket" if entry["kind"] == "histogram" else ""
            name = entry["name"] + suffix
            found = fleet.prometheus.labels(name)
            if not found:
                absent += [] if "only_when" in entry else [name]
                continue
            own = set(entry["labels"]) - {"model_name", "engine", "serial_number"}
            assert own <= found, f"{name} has {sorted(found)}"
    # Alertmanager does not run without its package's templates; its role's scenario has one.
    servers = [name for name in SERVERS if name.startswith("prometheus_")]
    for name in (*knowledge("telemetry/host.yml")["metrics"], *servers):
        if not fleet.prometheus.query(name):
            absent.append(name)
        assert set(SERVERS.get(name, ())) <= fleet.prometheus.labels(name)
    assert set(absent) <= ELSEWHERE


def test_every_gpu_series_has_its_bdf_and_place(fleet):
    prometheus = fleet.prometheus
    until(
        lambda: len(prometheus.query("apiary:gpu_junction_celsius")) == 15,
        lambda: "15 GPUs",
        PATIENCE,
    )
    for one in prometheus.query("apiary:gpu_junction_celsius"):
        told = one["metric"]
        assert re.fullmatch(r"0000:[0-9a-f]{2}:00\.0", told["gpu"])
        assert {"host", "rack", "numa_node", "hive", "deployment", "replica"} <= told.keys()


def test_the_board_names_the_gpu_that_fell_off(fleet):
    found = fleet.prometheus.query("apiary_planned_gpu_present == 0")
    assert [(one["metric"]["host"], one["metric"]["gpu"]) for one in found] == [
        ("gpu-002", "0000:e5:00.0")
    ]


def test_dashboards_of_this_fleet_are_all_four(fleet):
    assert len(dashboards(fleet.plan)) == len(boards())
    for text in dashboards(fleet.plan).values():
        json.loads(text)


def test_answers_that_supervisors_count_show_by_replica(fleet):
    hosts = [host for host in fleet.hosts if host.plans]
    for host in hosts:
        root = fleet.directory / host.name
        fleet.answered(root, host.plans[0], right=70, wrong=10)
        fleet.textfile(root)

    def shown():
        found = fleet.prometheus.query("apiary:quality_right:ratio_6h")
        return [round(float(one["value"][1]), 2) for one in found]

    until(
        lambda: shown() == [0.75] * 4, lambda: f"four shares of 30 in 40, not {shown()}", PATIENCE
    )
    assert {
        one["value"][1] for one in fleet.prometheus.query("apiary:quality_differing:count")
    } == {"0"}
