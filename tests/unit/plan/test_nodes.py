# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas over several hosts."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Layout,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.cases import cases_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.nodes import (
    Member,
    Place,
    check_nodes,
    node_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import (
    Node,
    Plan,
    check_plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Nic

from support.engines import KIMI, LLAMA, deployment
from support.topology.topologies import mi325x

HOSTS = ("gpu-001", "gpu-002")
TWO = Layout(8, 1, pipeline_parallel_size=2, nodes=2)


def asked(model=LLAMA, layout=TWO, **changes):
    whole = deployment(model, max_model_len=32768)
    return dataclasses.replace(whole, name="large", layout=layout, **changes)


def planned(rank, one=None, topology=None, interface="ens1", address=None):
    one = one or asked()
    topology = topology or dataclasses.replace(mi325x(), host=HOSTS[rank])
    node = Node(rank, 2, "10.0.0.1", HOSTS)
    place = Place(node, address or f"10.0.0.{rank + 1}", interface)
    return build_plans([PlanRequest(one, known(one.model.name), place=place)], topology)[0]


def test_each_host_has_its_share_of_the_replica_and_its_rank():
    plans = [planned(rank) for rank in range(2)]
    for rank, plan in enumerate(plans):
        (replica,) = plan.replicas
        assert len(replica.gpus) == 8
        argv = " ".join(replica.argv)
        for part in (
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2",
            f"--node-rank {rank} --master-addr 10.0.0.1 --master-port {replica.master_port}",
        ):
            assert part in argv
        assert ("--headless" in replica.argv) == (rank == 1)
        assert plan.node == Node(rank, 2, "10.0.0.1", HOSTS)
        assert "DP1/TP8/PP2 over 2 hosts" in summary(plan)[0]
        check_plan(plan, "plan.json")
        assert from_document(Plan, to_document(plan), "plan.json") == plan
    assert plans[0].replicas[0].master_port == plans[1].replicas[0].master_port
    assert plans[0].memory.gpus_per_engine == 16


def test_the_network_between_the_hosts_is_named():
    nics = (Nic("ens1", "0000:06:00.0", 0, "mlx5_0", up=True),)
    topology = dataclasses.replace(mi325x(), host="gpu-002", nics=nics)
    (replica,) = planned(1, topology=topology).replicas
    assert {
        name: replica.env[name]
        for name in ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA")
    } == {
        "VLLM_HOST_IP": "10.0.0.2",
        "GLOO_SOCKET_IFNAME": "ens1",
        "NCCL_SOCKET_IFNAME": "ens1",
        "NCCL_IB_HCA": "=mlx5_0",
    }
    # Workers that all look from one start on would all find the same port.
    assert "VLLM_PORT" not in replica.env


def test_an_interface_that_nobody_names_is_told():
    plan = planned(0, interface=None, address="gpu-001.example.org")
    assert "PLAN-NODES-INTERFACE" in {one.code for one in plan.findings}
    assert "VLLM_HOST_IP" not in plan.replicas[0].env


def test_memory_is_that_of_a_stage():
    whole = asked(KIMI, Layout(8, 1, True))
    alone = build_plans([PlanRequest(whole, known(KIMI))], mi325x())[0]
    stage = planned(0, asked(KIMI, dataclasses.replace(TWO, expert_parallel=True)))
    assert stage.memory.weights_bytes_per_gpu < 0.6 * alone.memory.weights_bytes_per_gpu
    assert stage.replicas[0].kv_tokens > alone.replicas[0].kv_tokens


def test_a_replica_over_hosts_needs_its_place():
    with pytest.raises(ApiaryError) as caught:
        build_plans([PlanRequest(asked(), known(LLAMA))], mi325x())
    assert [one.code for one in caught.value.findings] == ["PLAN-NODES-UNPLACED"]
    with pytest.raises(ApiaryError) as caught:
        planned(0, asked(layout=Layout(8, 1, pipeline_parallel_size=3, nodes=3)))
    assert [one.code for one in caught.value.findings] == ["PLAN-NODES-GROUP"]


def test_sizes_must_divide_over_the_hosts():
    for layout in (Layout(4, nodes=3), Layout(8, pipeline_parallel_size=0), Layout(8, nodes=0)):
        assert {one.code for one in check_deployment(asked(layout=layout))} == {"DEPLOY-VALUE"}
    assert not check_deployment(asked(layout=Layout(8, 2, nodes=2)))
    assert Layout(8, 2, nodes=2).sizes == (4, 4)


def test_replicas_over_hosts_meet_at_ports_of_their_own():
    one = asked(KIMI, Layout(4, 2, True, pipeline_parallel_size=2, nodes=2))
    first, second = planned(0, one).replicas
    assert first.master_port != second.master_port
    assert len(first.gpus) == 4
    assert not set(first.gpus) & set(second.gpus)


def test_another_version_is_compared_at_the_same_place():
    (case,) = cases_of(planned(1))
    again = case.on_version("0.33.0")
    assert not again.refused
    assert again.recipe.argv == case.recipe.argv


def members(*groups, **changes):
    return [
        Member(f"gpu-{n:03}", f"10.0.0.{n}", group, asked(), mi325x())
        for n, group in enumerate(groups, 1)
    ]


def test_hosts_go_together_in_the_order_of_the_inventory():
    four = members(None, None, None, None)
    assert node_of("gpu-002", four, asked()) == Node(1, 2, "10.0.0.1", ("gpu-001", "gpu-002"))
    assert node_of("gpu-003", four, asked()) == Node(0, 2, "10.0.0.3", ("gpu-003", "gpu-004"))


def test_named_groups_go_first_and_other_deployments_are_left_out():
    fleet = members("a", None, "a", None, None)
    fleet[3] = dataclasses.replace(fleet[3], deployment=None)
    assert node_of("gpu-003", fleet, asked()).hosts == ("gpu-001", "gpu-003")
    assert node_of("gpu-005", fleet, asked()).hosts == ("gpu-002", "gpu-005")


@pytest.mark.parametrize(
    ("groups", "host", "told"),
    [
        ((None, None, None), "gpu-003", "gpu-003 of 3 hosts are left over"),
        (("a", "a", "a"), "gpu-001", "group a has 3 hosts: gpu-001, gpu-002, gpu-003"),
        (("a", None), "gpu-001", "group a has 1 hosts"),
        ((None, None), "gpu-009", "is not among the hosts"),
    ],
)
def test_hosts_that_make_no_group_are_refused(groups, host, told):
    with pytest.raises(ApiaryError) as caught:
        node_of(host, members(*groups), asked())
    (finding,) = caught.value.findings
    assert finding.code == "PLAN-NODES-GROUP"
    assert told in finding.message


def test_hosts_of_a_replica_must_be_alike():
    mine = dataclasses.replace(mi325x(), host="gpu-001")
    node = Node(0, 2, "10.0.0.1", HOSTS)

    def told(**changes):
        fleet = members(None, None)
        fleet[1] = dataclasses.replace(fleet[1], **changes)
        return [(one.code, one.message) for one in check_nodes(node, fleet, mine)]

    assert told() == []
    ((code, message),) = told(topology=None)
    assert code == "PLAN-NODES-UNSEEN"
    ((code, message), *links) = told(topology=mi325x(missing=[3]))
    assert code == "PLAN-NODES-DIFFER"
    assert "8 × MI325X here and 7 × MI325X on gpu-002" in message
    assert links
    other = dataclasses.replace(
        asked(), engine=dataclasses.replace(asked().engine, version="0.32.0")
    )
    assert [code for code, _message in told(deployment=other)] == ["PLAN-NODES-DIFFER"]
    loopback = dataclasses.replace(node, master_address="127.0.0.1")
    (finding,) = check_nodes(loopback, members(None, None), mine)
    assert "127.0.0.1" in finding.message
