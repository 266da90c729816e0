# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a changed file costs a service: a restart where only a start reads it, else a reload."""

import pytest
from ansible_collections.apiary.instinct.plugins.filter.monitoring_files import monitoring_files
from ansible_collections.apiary.instinct.plugins.filter.telemetry_hosts import telemetry_hosts
from ansible_collections.apiary.instinct.plugins.module_utils.replicas.units import FileChange
from ansible_collections.apiary.instinct.plugins.module_utils.service_config import (
    fingerprint,
    plan_steps,
    read_by,
)

ETC = "/etc/prometheus/apiary"
MAIN, RULES = f"{ETC}/prometheus.yml", f"{ETC}/rules/alerts.yml"
FLAGS = "/etc/systemd/system/prometheus.service.d/50-apiary.conf"
RUNS = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
TEXTS = {FLAGS: "flags", RULES: "rules", MAIN: "rule_files: [rules/alerts.yml]"}


def changes(*changed):
    """All files, of which these differ from what the host has."""
    return [
        FileChange(path, "former" if path in changed else text, text, "0644", "0644")
        for path, text in TEXTS.items()
    ]


def taken(*changed, taken="", restarts=frozenset({FLAGS}), was_ours=True):
    """What systemd is told for these changes."""
    return plan_steps(changes(*changed), MAIN, RUNS, taken, was_ours, restarts).take


def test_a_file_that_is_named_from_the_main_ones_directory_is_read():
    assert [one.path for one in read_by(changes(), MAIN)] == [RULES, MAIN]


@pytest.mark.parametrize(
    ("changed", "told"),
    [((), None), ((RULES,), "reload"), ((MAIN,), "reload"), ((FLAGS,), "restart")],
)
def test_options_cost_a_restart_and_rules_a_reload(changed, told):
    assert taken(*changed) == told


def test_without_a_reload_every_file_costs_a_restart():
    assert taken(RULES, restarts=None) == "restart"
    assert taken(restarts=None) is None


def test_what_a_run_that_ended_early_left_is_made_up_for():
    before = fingerprint(changes(), MAIN, frozenset({FLAGS}))
    assert taken(taken=before) is None
    assert taken(taken="taking") == "restart"
    rules, flags = before.split()
    assert taken(taken=f"{rules} other") == "restart"
    assert taken(taken=f"other {flags}") == "reload"


def test_a_service_without_such_files_keeps_its_stamp():
    assert " " not in fingerprint(changes(), MAIN)


def test_what_others_name_comes_first_and_what_is_left_over_goes():
    found = monitoring_files(
        {"prometheus.yml": "a", "rules/alerts.yml": "b"}, ETC, [f"{ETC}/targets/old.json", RULES]
    )
    assert found == [
        {"path": RULES, "content": "b"},
        {"path": MAIN, "content": "a"},
        {"path": f"{ETC}/targets/old.json"},
    ]


def test_hosts_are_watched_by_what_they_are():
    hostvars = {
        "gpu-001": {"apiary_address": "10.0.0.1", "apiary_rack": "r1", "apiary_artifacts": "/a"},
        "gpu-002": {"ansible_host": "10.0.0.2", "telemetry_amd_method": "none"},
        "router-001": {"router_admin_port": 9000, "apiary_failure_domain": "pdu"},
        "monitor-001": {},
    }
    found = {
        one["host"]: one
        for one in telemetry_hosts(hostvars, hostvars, ["gpu-001", "gpu-002"], ["router-001"])
    }
    assert found["gpu-001"] == {
        "host": "gpu-001",
        "address": "10.0.0.1",
        "artifacts": "/a/gpu-001",
        "rack": "r1",
        "failure_domain": "r1",
        "router_port": None,
        "exporters": ["amd", "node"],
        "amd_port": None,
        "node_port": None,
        "amd_packaged_only": True,
    }
    assert found["gpu-002"]["exporters"] == ["node"]
    assert found["gpu-002"]["address"] == "10.0.0.2"
    assert found["router-001"]["router_port"] == 9000
    assert found["router-001"]["failure_domain"] == "pdu"
    assert found["monitor-001"]["artifacts"] is None


@pytest.mark.parametrize(
    ("variables", "exporters", "packaged_only"),
    [
        ({}, ["amd", "node"], True),
        ({"telemetry_amd_digest": "sha256:0"}, ["amd", "node"], False),
        ({"telemetry_amd_suite": "noble"}, ["amd", "node"], False),
        ({"telemetry_amd_method": "package"}, ["amd", "node"], False),
        ({"telemetry_amd_method": "container"}, ["node"], False),
        (
            {"telemetry_amd_method": "container", "telemetry_amd_digest": "sha256:0"},
            ["amd", "node"],
            False,
        ),
        ({"telemetry_amd_method": "none"}, ["node"], False),
    ],
)
def test_amds_exporter_is_read_where_the_role_brings_it(variables, exporters, packaged_only):
    (one,) = telemetry_hosts(["gpu-001"], {"gpu-001": variables}, ["gpu-001"])
    assert (one["exporters"], one["amd_packaged_only"]) == (exporters, packaged_only)


def test_exporters_are_read_at_the_ports_of_their_host():
    hostvars = {"gpu-001": {"telemetry_amd_port": 5001, "telemetry_node_port": 9200}}
    (one,) = telemetry_hosts(["gpu-001"], hostvars, ["gpu-001"])
    assert (one["amd_port"], one["node_port"]) == (5001, 9200)
