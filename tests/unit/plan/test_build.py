# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    diff_plans,
    explained,
    grouped,
    shown,
    summary,
)

from support.demo import demo_deployment, demo_plan
from support.planned import build_plan
from support.topology.topologies import mi325x


def planned(topology, **changes):
    deployment = dataclasses.replace(demo_deployment(), **changes)
    return build_plan(deployment, topology, architecture_of(deployment, "demo"))


def codes(caught):
    return [finding.code for finding in caught.value.findings]


def test_replica_0_has_node_0_and_replica_1_node_1():
    first, second = demo_plan().replicas
    assert (first.memory_nodes, second.memory_nodes) == ((0,), (1,))
    assert (first.port, second.port) == (8000, 8001)
    assert set(first.gpus) & set(second.gpus) == set()


def test_each_replica_is_told_what_it_was_promised():
    for index, replica in enumerate(demo_plan().replicas):
        assert replica.env["APIARY_REPLICA"] == str(index)
        assert replica.env["APIARY_GPUS"].split(",") == list(replica.gpus)
        assert replica.env["APIARY_CPUS"] == replica.cpus


def test_no_two_replicas_share_a_cache():
    first, second = demo_plan().replicas
    caches = [
        {value for value in replica.env.values() if value.startswith("/var/cache/")}
        for replica in (first, second)
    ]
    assert caches[0]
    assert caches[0] & caches[1] == set()


def test_the_operators_own_cache_stands():
    engine = dataclasses.replace(demo_deployment().engine, env={"HF_HOME": "/srv/hf"})
    plan = planned(mi325x(), engine=engine)
    assert {replica.env["HF_HOME"] for replica in plan.replicas} == {"/srv/hf"}


def test_findings_of_all_stages_stay_with_the_plan_once():
    note = Finding.from_fields(
        code="TOPO-TOOLS-ABSENT",
        severity="info",
        subject="gpu-001",
        message="x",
        remedy="y",
        source=None,
    )
    plan = planned(dataclasses.replace(mi325x(), findings=(note, note)))
    assert plan.findings.count(note) == 1
    assert "FIT-RESERVE-ASSUMED" in {finding.code for finding in plan.findings}


def test_a_topology_with_an_error_is_not_planned_on():
    broken = Finding.from_fields(
        code="TOPO-TRUNCATED",
        severity="error",
        subject="gpu-001",
        message="x",
        remedy="y",
        source=None,
    )
    with pytest.raises(ApiaryError) as caught:
        planned(dataclasses.replace(mi325x(), findings=(broken,)))
    assert codes(caught) == ["TOPO-TRUNCATED"]


def test_gpus_without_an_address_are_refused():
    topology = mi325x()
    nameless = tuple(dataclasses.replace(gpu, bdf=None) for gpu in topology.gpus)
    with pytest.raises(ApiaryError) as caught:
        planned(dataclasses.replace(topology, gpus=nameless, links=()))
    assert codes(caught) == ["PLAN-NO-BDF"]


def test_partitions_are_refused():
    topology = mi325x()
    parts = tuple(
        dataclasses.replace(gpu, partition=part, compute_partition="DPX", kfd_node=None)
        for gpu in topology.gpus[:4]
        for part in range(2)
    )
    with pytest.raises(ApiaryError) as caught:
        planned(dataclasses.replace(topology, gpus=parts, links=()))
    assert codes(caught) == ["PLAN-PARTITIONED"]


def test_the_summary_says_what_an_operator_asks():
    text = "\n".join(summary(demo_plan()))
    for part in (
        "DP2/TP4/EP4",
        "0000:05:00.0",
        "port 8001",
        "runner-up",
        "extra_nodes 2 against 0",
    ):
        assert part in text


def test_every_element_has_its_value_by_replica_and_its_reason():
    rows = {row.name: row for row in explained(demo_plan())}
    assert rows["--port"].texts == ("--port 8000", "--port 8001")
    assert rows["--port"].replicas == (0, 1)
    assert shown(rows["--tensor-parallel-size"].texts) == "--tensor-parallel-size 4"
    assert shown(rows["--enable-expert-parallel"].texts) == "--enable-expert-parallel"
    assert shown(rows["VLLM_ROCM_USE_AITER"].texts) == "VLLM_ROCM_USE_AITER=1"
    assert rows["model"].texts[0].startswith("/srv/models/")
    assert all(row.reason.reason and row.reason.source for row in rows.values())


def test_the_attention_backend_is_explained_though_it_is_no_element():
    (row,) = [one for one in explained(demo_plan()) if one.name == "(attention backend)"]
    assert set(row.texts) == {"(attention backend) ROCM_AITER_FA"}
    assert row.reason.rule == "VLLM-BACKEND"


def test_groups_have_each_element_once():
    rows = explained(demo_plan())
    members = [row for _title, _about, group in grouped(rows) for row in group]
    assert sorted(map(id, members)) == sorted(map(id, rows))
    assert "Other settings" not in {title for title, _about, _group in grouped(rows)}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["--a 1"], "--a 1"),
        (["--a 1", "--a 1"], "--a 1"),
        (["--port 8000", "--port 8001"], "--port {8000|8001}"),
        (["HOME=/x/y-0/home", "HOME=/x/y-1/home"], "HOME=/x/y-{0|1}/home"),
        (["N=0", "N=1", "N=2", "N=3", "N=4", "N=5"], "N={0|1|2|…|5}"),
    ],
)
def test_values_that_differ_by_replica_are_one_text(texts, expected):
    assert shown(texts) == expected


def test_plans_are_compared_line_by_line():
    other = planned(mi325x(), base_port=9000)
    assert any(line.startswith("+") and "9000" in line for line in diff_plans(demo_plan(), other))
    assert diff_plans(demo_plan(), demo_plan()) == []
