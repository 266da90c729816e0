# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.search import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Cost

from support.topologies import MI325X_BUSES, bdf, host, interleaved_hives, mi325x


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
    assert placement.cost.unlinked_pairs == 0
    assert sets(placement) == [gpus(0, 1, 2, 3), gpus(4, 5, 6, 7)]


def test_runner_up_says_what_decided():
    placement = place(mi325x(), 4, 2)
    assert placement.cost == Cost(xgmi_weight=180)
    assert placement.runner_up.cost == Cost(xgmi_weight=180, numa_crossings=6)
    assert placement.runner_up.reason == "numa_crossings 6 against 0"


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
        ("0-63,128-191", (0,)),
        ("64-127,192-255", (1,)),
    ]


def test_replicas_of_one_socket_split_its_cores_with_siblings_together():
    shares = place(mi325x(), 2, 4).replicas
    assert [share.cpus for share in shares] == [
        "0-31,128-159",
        "32-63,160-191",
        "64-95,192-223",
        "96-127,224-255",
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


@pytest.mark.parametrize(
    ("topology", "size", "replicas", "busy", "code", "says"),
    [
        pytest.param(host([], []), 4, 1, (), "PLACE-NO-GPUS", "no GPUs", id="none"),
        pytest.param(mi325x(), 0, 1, (), "PLACE-BAD-SIZE", "at least 1", id="zero"),
        pytest.param(mi325x(), 3, 2, (), "PLACE-TP-DIVIDES", "8 GPUs", id="three-of-eight"),
        pytest.param(
            mi325x(missing=[3]), 8, 1, (), "PLACE-TOO-FEW-GPUS", "7 are usable", id="seven-for-tp8"
        ),
        pytest.param(mi325x(), 4, 3, (), "PLACE-TOO-FEW-GPUS", "needs 12 GPUs", id="twelve"),
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


def test_more_devices_than_the_exact_search_takes_are_cut_and_said_to_be():
    topology = host([range(20)], [range(20)])
    placement = place(topology, 4, 5)
    assert sorted(key for keys in sets(placement) for key in keys) == [
        topology.key(gpu) for gpu in topology.gpus
    ]
    assert not placement.exact
    assert [finding.code for finding in placement.findings] == ["PLACE-NOT-EXACT"]
