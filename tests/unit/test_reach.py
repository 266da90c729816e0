# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may reach replicas, by the inventory: addresses, and names that nobody knows."""

import dataclasses
import socket

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils import reach, role_plans
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import save_documents

from support.demo import demo_plan

GROUPS = {
    "gpu_hosts": ["gpu-001", "gpu-002"],
    "routers": ["router-001", "router-002"],
    "monitoring": ["watch"],
}
VARIABLES = {
    "gpu-001": {"apiary_address": "10.0.1.1"},
    "gpu-002": {"apiary_address": "10.0.1.2"},
    "router-001": {"apiary_address": "10.0.0.11"},
    "router-002": {"ansible_host": "fd00::12"},
    "watch": {},
}
NAMES = {"watch": ["10.0.0.21", "10.0.0.22"], "debian": ["127.0.1.1"], "lb": ["10.0.0.31"]}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """A resolver that knows a few names."""

    def answer(name, *_rest, **_more):
        if name not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in NAMES[name]]

    reach.resolved.cache_clear()
    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield
    reach.resolved.cache_clear()


def reached(host="gpu-001", groups=GROUPS, variables=VARIABLES, **options):
    given = {
        "replicas_state": "present",
        "replicas_ports_closed": None,
        "replicas_reach_from": [],
        **options,
    }
    return reach.with_reach(host, given, variables, groups).get("reach", "as it is")


def test_routers_and_monitoring_reach_replicas_by_default():
    assert reached() == ["10.0.0.11/32", "10.0.0.21/32", "10.0.0.22/32", "fd00::12/128"]


@pytest.mark.parametrize(
    ("groups", "value", "closed"),
    [
        (GROUPS, None, True),
        (GROUPS, False, False),
        (GROUPS, "no", False),
        ({"gpu_hosts": ["gpu-001"]}, None, False),
        ({"gpu_hosts": ["gpu-001"], "routers": []}, None, False),
        ({"gpu_hosts": ["gpu-001"]}, True, True),
    ],
)
def test_ports_are_closed_where_there_are_routers_or_somebody_says_so(groups, value, closed):
    assert (reached(groups=groups, replicas_ports_closed=value) is not None) is closed


def test_nobody_is_asked_for_a_deployment_that_goes():
    assert reached(groups={**GROUPS, "routers": ["nowhere"]}, replicas_state="absent") is None


def test_others_are_named_by_host_address_network_or_name():
    more = reached(replicas_reach_from=["gpu-002", "192.0.2.7", "198.51.100.9/24", "lb"])
    assert set(more) - set(reached()) == {
        "10.0.1.2/32",
        "192.0.2.7/32",
        "198.51.100.0/24",
        "10.0.0.31/32",
    }


@pytest.mark.parametrize(
    ("nodes", "group", "reaches"),
    [(2, "a", True), (2, None, False), (1, "a", False)],
)
def test_hosts_that_share_an_engine_reach_one_another(nodes, group, reaches):
    deployment = {"name": "x", "layout": {"tensor_parallel_size": 8, "nodes": nodes}}
    variables = {
        **VARIABLES,
        "gpu-001": {
            "apiary_address": "10.0.1.1",
            "apiary_node_group": "a",
            "apiary_deployment": deployment,
        },
        "gpu-002": {"apiary_address": "10.0.1.2", "apiary_node_group": group},
    }
    assert ("10.0.1.2/32" in reached(variables=variables)) is reaches
    assert "10.0.1.1/32" not in reached(variables=variables)


def test_each_name_that_nobody_knows_is_a_finding_of_its_own():
    """Debian has a host's own name at 127.0.1.1, which is no address for others."""
    names = ["nowhere", "debian", "10.0.0.300", "nowhere", "lb"]
    with pytest.raises(ApiaryError) as refusal:
        reached(replicas_reach_from=names, replicas_ports_closed=True)
    found = [(one.code, one.subject) for one in refusal.value.findings]
    assert found == [("REPLICA-REACH", name) for name in ("nowhere", "debian", "10.0.0.300")]


def test_nobody_is_locked_out_who_set_no_option():
    """A name of ~/.ssh/config alone is enough for Ansible; then nothing opens or closes."""
    groups = {**GROUPS, "routers": ["router-001", "alias"]}
    variables = {**VARIABLES, "alias": {}}
    assert reached(groups=groups, variables=variables) == "as it is"
    known = reach.Known()
    addresses, unknown = reach.reach_of("gpu-001", {}, variables, groups, known)
    assert addresses is None
    assert [(one.code, one.subject, one.severity) for one in unknown] == [
        ("REPLICA-REACH", "alias", "warning")
    ]
    # Of the next host nothing is asked again.
    assert set(known.addresses) == {"router-001", "alias", "watch"}


def test_a_machine_that_routes_and_serves_needs_no_address_for_itself():
    groups = {"gpu_hosts": ["box"], "routers": ["box"]}
    assert reached("box", groups, {"box": {}}) == []


class Counted(dict):
    """Variables of hosts, and how often they were gathered."""

    gathered = 0

    def __getitem__(self, name):
        self.gathered += 1
        return super().__getitem__(name)


def test_the_variables_of_hosts_are_gathered_in_proportion_to_the_hosts():
    deployment = {"name": "x", "layout": {"nodes": 2}}
    hosts = [f"gpu-{number:03}" for number in range(40)]
    variables = Counted(VARIABLES)
    for number, name in enumerate(hosts):
        own = {"apiary_node_group": number // 2, "apiary_deployment": deployment}
        variables[name] = {**own, "apiary_address": f"10.0.2.{number}"}
    known = reach.Known()
    for name in hosts:
        addresses, _unknown = reach.reach_of(
            name, {}, variables, {**GROUPS, "gpu_hosts": hosts}, known
        )
        assert len(addresses) == 5
    assert variables.gathered < 5 * len(hosts)


def test_a_new_monitor_reaches_replicas_whose_ports_are_closed_already(tmp_path):
    """By telemetry.yml alone; what is open stays open."""
    plan = dataclasses.replace(demo_plan(), host="gpu-001")
    save_documents(tmp_path / "gpu-001", {"qwen3-235b/plan.json": dumps(plan)})
    variables = {
        "gpu-001": {"apiary_artifacts": str(tmp_path), "apiary_address": "192.0.2.11"},
        "router-001": {"apiary_address": "192.0.2.1"},
        "monitor-002": {"apiary_address": "192.0.2.7"},
    }
    groups = {"routers": ["router-001"], "monitoring": ["monitor-002"]}
    inventory = role_plans.Inventory(variables, groups)
    rules = "/etc/apiary/qwen3-235b/ports.nft"
    evidence = Evidence("gpu-001", "2026-11-27T19:00:00Z", "2", files={rules: "as it was"})
    more = list(role_plans._reaching(evidence, inventory))
    (text,) = (one["content"] for one in more if one.get("path") == rules)
    assert "{ 192.0.2.1/32, 192.0.2.7/32 } accept" in text
    assert not list(role_plans._reaching(dataclasses.replace(evidence, files={}), inventory))
