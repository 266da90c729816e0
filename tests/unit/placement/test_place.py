# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement import place as placing
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.exact import solve
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    Request,
    Usable,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Nic

from support.topology.topologies import (
    MI325X_BUSES,
    bdf,
    host,
    interleaved_hives,
    mi325x,
    partitioned,
)


def place(topology, size, replicas=1, busy=(), **more):
    return placing.place(topology, Request((size,) * replicas, busy=tuple(busy), **more))


def cut(topology, *sizes, **more):
    return placing.place(topology, Request(sizes, **more))


def gpus(*indices):
    return tuple(bdf(MI325X_BUSES[index]) for index in indices)


def sets(placement):
    return [share.gpus for share in placement.replicas]


def without_weights(topology):
    """As amdgpu 6.16 prints a healthy MI355X mesh: every weight 0, that is, not reported."""
    links = tuple(dataclasses.replace(link, weight=None) for link in topology.links)
    return dataclasses.replace(topology, links=links)


@pytest.mark.parametrize(
    ("topology", "size", "replicas", "expected"),
    [
        pytest.param(mi325x(), 4, 2, [gpus(0, 1, 2, 3), gpus(4, 5, 6, 7)], id="mesh-by-socket"),
        pytest.param(mi325x(), 8, 1, [gpus(*range(8))], id="whole-host"),
        pytest.param(
            without_weights(mi325x()),
            4,
            2,
            [gpus(0, 1, 2, 3), gpus(4, 5, 6, 7)],
            id="unreported-weights-are-equal-not-best",
        ),
        pytest.param(
            interleaved_hives(), 4, 2, [gpus(0, 2, 3, 7), gpus(1, 4, 5, 6)], id="hive-beats-socket"
        ),
        pytest.param(mi325x(missing=[3]), 4, 1, [gpus(4, 5, 6, 7)], id="whole-socket-left"),
        pytest.param(
            host([(0, 1), (2, 3)], [(0, 1, 2, 3)]), 2, 2, [gpus(0, 1), gpus(2, 3)], id="pairs"
        ),
    ],
)
def test_cut(topology, size, replicas, expected):
    placement = place(topology, size, replicas)
    assert sets(placement) == expected
    assert placement.exact


def test_xgmi_at_weight_45_beats_pcie_at_40():
    """Type ranks before weight: 45 over three xGMI hops is better than 40 over one PCIe root."""
    topology = host([(0, 1), (2, 3)], [(0, 1, 2, 3)], cross_weight=40)
    links = tuple(
        dataclasses.replace(link, weight=45) if link.type == "xgmi" else link
        for link in topology.links
    )
    topology = dataclasses.replace(topology, links=links)
    assert sets(place(topology, 2, 2)) == [gpus(0, 1), gpus(2, 3)]


def test_absent_link_counts_as_the_worst():
    topology = mi325x()
    gone = {(gpus(2)[0], gpus(5)[0])}
    links = tuple(link for link in topology.links if (link.a, link.b) not in gone)
    placement = place(dataclasses.replace(topology, links=links), 4, 2)
    assert placement.cost == (0, 0, 0, 180, 0, 0, 0)
    assert sets(placement) == [gpus(0, 1, 2, 3), gpus(4, 5, 6, 7)]


def test_runner_up_says_what_decided():
    placement = place(mi325x(), 4, 2)
    names = placement.cost_fields
    assert dict(zip(names, placement.cost, strict=True))["xgmi_weight"] == 180
    runner_up = dict(zip(names, placement.runner_up.cost, strict=True))
    assert (runner_up["xgmi_weight"], runner_up["extra_nodes"]) == (180, 2)
    assert placement.runner_up.reason == "extra_nodes 2 against 0"


def test_runner_up_of_equal_cost_leaves_the_host_more_cut_up():
    placement = place(mi325x(), 2, 2)
    assert sets(placement) == [gpus(0, 1), gpus(2, 3)]
    assert placement.runner_up.reason == (
        "equal cost, but what stays free is cut up more: fragmentation 4 against 0"
    )


def test_what_stays_free_is_said_with_its_use():
    placement = cut(mi325x(), 2)
    assert placement.free == gpus(2, 3, 4, 5, 6, 7)
    assert placement.usable == (Usable(4, 1, 1), Usable(2, 3, 3), Usable(1, 6, 6))


def test_busy_and_unhealthy_gpus_stay_out():
    topology = mi325x()
    sick = dataclasses.replace(topology.gpus[0], healthy=False)
    topology = dataclasses.replace(topology, gpus=(sick, *topology.gpus[1:]))
    placement = place(topology, 2, 2, busy=gpus(4))
    assert sets(placement) == [gpus(1, 2), gpus(5, 6)]
    assert placement.free == gpus(3, 7)


def test_each_replica_gets_the_cpus_and_memory_of_its_socket():
    shares = place(mi325x(), 4, 2).replicas
    assert [(share.cpus, share.memory_nodes) for share in shares] == [
        ("2-63,130-191", (0,)),
        ("66-127,194-255", (1,)),
    ]


def test_replicas_of_one_socket_split_its_cores_with_siblings_together():
    shares = place(mi325x(), 2, 4).replicas
    assert [share.cpus for share in shares] == [
        "2-32,130-160",
        "33-63,161-191",
        "66-96,194-224",
        "97-127,225-255",
    ]


def test_more_replicas_than_cores_share_them_and_say_so():
    placement = place(host([range(8)], [range(4), range(4, 8)], cpus_per_node=1), 2, 4)
    assert [share.cpus for share in placement.replicas] == ["0,2", "0,2", "1,3", "1,3"]
    assert {finding.code for finding in placement.findings} == {"PLACE-CPUS-SHARED"}


def test_unknown_numa_node_leaves_the_replica_unbound():
    topology = mi325x()
    lost = dataclasses.replace(topology.gpus[0], numa_node=None)
    placement = place(dataclasses.replace(topology, gpus=(lost, *topology.gpus[1:])), 8)
    assert placement.replicas[0].cpus is None
    assert [finding.code for finding in placement.findings] == ["PLACE-NUMA-UNKNOWN"]


def test_a_node_whose_cpus_nobody_tells_is_not_called_unknown():
    placement = place(dataclasses.replace(mi325x(), numa_nodes=()), 4)
    (finding,) = placement.findings
    assert finding.code == "PLACE-NUMA-UNKNOWN"
    assert "nothing tells the CPUs of NUMA node 0" in finding.message


@pytest.mark.parametrize(
    ("topology", "size", "replicas", "busy", "code", "says"),
    [
        pytest.param(host([], []), 4, 1, (), "PLACE-NO-GPUS", "no GPUs", id="none"),
        pytest.param(mi325x(), 0, 1, (), "PLACE-BAD-SIZE", "at least one GPU", id="zero"),
        pytest.param(
            mi325x(missing=[3]),
            8,
            1,
            (),
            "PLACE-TOO-FEW-GPUS",
            "7 GPUs healthy",
            id="seven-for-tp8",
        ),
        pytest.param(mi325x(), 4, 3, (), "PLACE-TOO-FEW-GPUS", "it needs 12", id="twelve"),
        pytest.param(mi325x(), 4, 1, ("x",), "PLACE-UNKNOWN-GPU", "busy GPU x", id="typo"),
    ],
)
def test_refusal(topology, size, replicas, busy, code, says):
    with pytest.raises(ApiaryError) as caught:
        place(topology, size, replicas, busy)
    (finding,) = caught.value.findings
    assert finding.code == code
    assert says in finding.message


def test_refusal_says_what_is_possible():
    with pytest.raises(ApiaryError) as caught:
        place(mi325x(missing=[3]), 4, 2)
    assert "TP4 × 1 leaves 3 free; TP2 × 3 leaves 1 free" in caught.value.findings[0].remedy


def test_sizes_that_do_not_tile_leave_the_rest_free():
    placement = place(mi325x(), 3, 2)
    assert sets(placement) == [gpus(0, 1, 2), gpus(4, 5, 6)]
    assert placement.free == gpus(3, 7)


def test_several_sizes_are_placed_at_once():
    """One after the other, in this order, the TP4 would span both sockets."""
    placement = cut(mi325x(), 1, 4, busy=gpus(5, 6, 7))
    assert sets(placement) == [gpus(4), gpus(0, 1, 2, 3)]


def test_what_is_required_is_had_and_what_is_busy_is_not():
    placement = cut(mi325x(), 4, 2, require=(gpus(7), ()), busy=gpus(4))
    assert gpus(7)[0] in placement.replicas[0].gpus
    assert gpus(4)[0] not in [key for share in placement.replicas for key in share.gpus]
    # Three GPUs are left there: one replica must span both sockets, and only one does.
    names = placement.cost_fields
    assert [
        dict(zip(names, share.cost, strict=True))["extra_nodes"] for share in placement.replicas
    ] == [1, 0]


@pytest.mark.parametrize(
    ("sizes", "more", "says"),
    [
        ((4,), {"require": (gpus(0), gpus(1))}, "2 replicas of 1"),
        ((2, 2), {"require": (gpus(0), gpus(0))}, "required by 2 replicas"),
        ((1,), {"require": (gpus(0, 1),)}, "replica 0 of 1 GPUs requires 2"),
        ((2,), {"require": (gpus(3),), "busy": gpus(3)}, "which is busy"),
    ],
)
def test_requirements_that_contradict_are_refused(sizes, more, says):
    with pytest.raises(ApiaryError) as caught:
        cut(mi325x(), *sizes, **more)
    (finding,) = caught.value.findings
    assert finding.code == "PLACE-REQUIRED"
    assert says in finding.message


def test_an_unknown_cost_function_is_refused_by_name():
    with pytest.raises(ApiaryError) as caught:
        cut(mi325x(), 4, cost="cheap")
    assert caught.value.findings[0].code == "PLACE-UNKNOWN-COST"
    assert "fabric, device-plugin" in caught.value.findings[0].remedy


@pytest.mark.parametrize("spelling", [str.upper, lambda key: key.removeprefix("0000:")])
def test_a_gpu_may_be_spelled_as_tools_spell_it(spelling):
    assert spelling(gpus(5)[0]) != gpus(5)[0]
    assert gpus(5)[0] not in place(mi325x(), 4, busy=[spelling(gpus(5)[0])]).free


def test_after_a_loss_the_other_replica_keeps_its_gpus():
    before = place(mi325x(), 2, 2)
    lost = mi325x(missing=[1])
    after = place(lost, 2, 2, keep=tuple(sets(before)))
    assert sets(after)[1] == sets(before)[1]
    assert sets(after)[0] != sets(before)[0]
    assert [finding.code for finding in after.findings] == ["PLACE-MOVED"]
    assert "replica 0" in after.findings[0].message


def test_a_kept_cut_may_cost_more_than_a_fresh_one():
    crossed = (gpus(0, 1, 2, 4), gpus(3, 5, 6, 7))
    assert tuple(sets(place(mi325x(), 4, 2, keep=crossed))) == crossed


@pytest.mark.parametrize("cost", ["fabric", "device-plugin"])
@pytest.mark.parametrize("sizes", [(8,) * 8, (4,) * 16, (16,) * 4, (32, 32), (7,) * 8, (5,) * 8])
def test_64_partitions_are_cut_exactly_along_gpus_and_sockets(sizes, cost):
    placement = cut(partitioned(mi325x(), 8), *sizes, cost=cost)
    assert placement.exact
    for share in placement.replicas:
        assert len({key[:12] for key in share.gpus}) == -(-len(share.gpus) // 8)
        assert len(share.memory_nodes) == 1


def test_63_of_64_devices_leave_the_short_gpu_to_whom_it_fits():
    whole = partitioned(mi325x(), 8)
    short = dataclasses.replace(whole, gpus=whole.gpus[:-1])
    placement = cut(short, *(8,) * 7, 7)
    assert placement.replicas[7].gpus == tuple(
        key for key in short.by_key if key[:12] == gpus(7)[0]
    )
    assert placement.exact


def test_a_bdf_stands_for_all_of_its_partitions():
    placement = cut(partitioned(mi325x(), 8), 8, busy=gpus(0))
    assert {key[:12] for key in placement.replicas[0].gpus} == set(gpus(1))


def test_a_search_out_of_budget_answers_and_says_so(monkeypatch):
    monkeypatch.setattr(
        "ansible_collections.apiary.instinct.plugins.plugin_utils.placement.cut.solve",
        lambda problem, runner_up, budget: solve(problem, runner_up, 3),
    )
    topology = host([(0, 1, 2), (3, 4), (5, 6, 7)], [(0, 2, 4, 6), (1, 3, 5, 7)])
    placement = cut(topology, 3, 2, 2)
    assert [len(keys) for keys in sets(placement)] == [3, 2, 2]
    assert not placement.exact
    assert [finding.code for finding in placement.findings] == ["PLACE-NOT-EXACT"]


def test_mi250x_prefers_the_pair_with_four_links():
    """Four links in a package, one to the next: the hop count is 1 for both."""
    topology = host([range(4)], [range(4)])
    wide = {(0, 1), (2, 3)}
    links = tuple(
        dataclasses.replace(
            link,
            bandwidth_mb_s=(50000, 200000)
            if (link.a, link.b) in {(gpus(a)[0], gpus(b)[0]) for a, b in wide}
            else (50000, 50000),
        )
        for link in topology.links
    )
    topology = dataclasses.replace(topology, links=links)
    assert sets(place(topology, 2, busy=gpus(1))) == [gpus(2, 3)]


def test_the_nearest_nic_shares_the_switch_then_the_node():
    topology = mi325x()
    paths = {0: ("0000:00:01.1", "0000:01:00.0"), 4: ("0000:80:01.1", "0000:81:00.0")}
    split = tuple(
        dataclasses.replace(gpu, pci_path=paths.get(place_, (f"0000:{place_}0:01.1",)))
        for place_, gpu in enumerate(topology.gpus)
    )
    nics = (
        Nic("eno1", "0000:f0:00.0", 0, None, 125, True),
        Nic("rdma0", "0000:02:00.0", 0, "mlx5_0", 50000, True, paths[0]),
        Nic("rdma1", "0000:82:00.0", 1, "mlx5_1", 50000, True, ("0000:90:01.1",)),
        Nic("rdma2", "0000:83:00.0", 1, "mlx5_2", 50000, False, paths[4]),
    )
    topology = dataclasses.replace(topology, gpus=split, nics=nics)
    shares = place(topology, 4, 2).replicas
    assert [share.nics for share in shares] == [("rdma0",), ("rdma1",)]
