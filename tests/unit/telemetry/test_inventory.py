# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is watched of an inventory's hosts."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.targets import watched_host


def test_hosts_are_watched_by_what_they_are():
    hostvars = {
        "gpu-001": {"apiary_address": "10.0.0.1", "apiary_rack": "r1", "apiary_artifacts": "/a"},
        "gpu-002": {"ansible_host": "10.0.0.2", "telemetry_amd_method": "none"},
        "router-001": {"router_admin_port": 9000, "apiary_failure_domain": "pdu"},
        "monitor-001": {},
    }
    found = {
        name: watched_host(name, variables, name.startswith("gpu"), name.startswith("router"))
        for name, variables in hostvars.items()
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
        "node_web": True,
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
    one = watched_host("gpu-001", variables, True, False)
    assert (one["exporters"], one["amd_packaged_only"]) == (exporters, packaged_only)


def test_exporters_are_read_at_the_ports_of_their_host():
    variables = {"telemetry_amd_port": 5001, "telemetry_node_port": 9200}
    one = watched_host("gpu-001", variables, True, False)
    assert (one["amd_port"], one["node_port"]) == (5001, 9200)


@pytest.mark.parametrize("text", [False, "false", "no"])
def test_a_host_without_tls_is_read_without(text):
    variables = {"telemetry_web_enabled": text}
    assert watched_host("gpu-001", variables, True, False)["node_web"] is False
