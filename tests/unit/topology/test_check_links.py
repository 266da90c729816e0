# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How xGMI connects a host: what is a fault there, and what only looks like one."""

import itertools

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks import check
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.fabric import Fabric
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    Topology,
)

from tests.support.checked import KEYS, MI210, codes, hives, host, slots


@pytest.mark.parametrize(
    ("fabric", "messages"),
    [
        (Fabric(down_ports={KEYS[0]: (4,)}), [f"GPU {KEYS[0]}: xGMI port 4 is down"]),
        (Fabric(down_ports={KEYS[0]: (2, 4)}), [f"GPU {KEYS[0]}: xGMI ports 2, 4 are down"]),
        (
            Fabric(down_ports={KEYS[0]: (4,), KEYS[5]: (1,)}),
            [
                f"GPU {KEYS[0]}: xGMI port 4 is down; so is one of {KEYS[5]}, most likely the "
                "other end",
                f"GPU {KEYS[5]}: xGMI port 1 is down; so is one of {KEYS[0]}, most likely the "
                "other end",
            ],
        ),
        (
            Fabric(
                down_links=((KEYS[0], KEYS[5]),),
                dead_links=((KEYS[0], KEYS[5]),),
                down_ports={KEYS[0]: (4,), KEYS[5]: (1,)},
            ),
            [f"the xGMI link {KEYS[0]} – {KEYS[5]} is down"],
        ),
        (
            Fabric(down_links=((KEYS[0], KEYS[5]),), sources={"down_links": "amd-smi"}),
            [f"part of the xGMI link {KEYS[0]} – {KEYS[5]} is down (amd-smi)"],
        ),
        (Fabric(), []),
    ],
)
def test_what_is_down_is_named_once(fabric, messages):
    found = check(host(), slots(), fabric=fabric)
    assert [finding.message for finding in found] == messages
    assert set(codes(found)) <= {"TOPO-XGMI-DOWN"}


def test_what_is_down_is_data_as_well():
    pair = (KEYS[0], KEYS[5])
    links = Fabric(down_links=(pair,), down_ports={KEYS[0]: (4,), KEYS[2]: (1,)})
    result = check(host(), slots(), fabric=links)
    assert [finding.parts for finding in result] == [(pair,), ((KEYS[2],),)]


def test_a_link_that_is_down_is_not_absent_as_well():
    """Reading calls the way of such a pair PCIe."""
    dead = (KEYS[0], KEYS[5])
    topology = host(lambda a, b: ("pcie", None) if (a, b) == (0, 5) else "xgmi")
    found = check(topology, slots(), fabric=Fabric(down_links=(dead,), dead_links=(dead,)))
    assert codes(found) == ["TOPO-XGMI-DOWN"]


def test_a_mesh_pair_without_physical_link_is_routed_though_no_weight_says_so():
    topology = host(lambda a, b: ("xgmi", None))
    counts = {pair: 1 for pair in itertools.combinations(KEYS, 2)} | {(KEYS[0], KEYS[5]): 0}
    (finding,) = check(topology, slots(), fabric=Fabric(num_links=counts))
    assert finding.code == "TOPO-XGMI-INDIRECT"
    assert finding.message.startswith(f"{KEYS[0]} – {KEYS[5]}: no direct")


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (((0, 1, 2, 3), (4, 5, 6, 7)), ["TOPO-XGMI-GROUPS"]),
        (((0, 2, 3, 7), (1, 4, 5, 6)), ["TOPO-XGMI-GROUPS", "TOPO-XGMI-ACROSS-NUMA"]),
        (((0, 1), (2, 3), (4, 5), (6, 7)), ["TOPO-XGMI-GROUPS"]),
    ],
    ids=["two hives", "interleaved hives", "pairs"],
)
def test_bridged_hives_are_told_and_are_no_fault(groups, found):
    findings = check(host(hives(*groups), board=MI210), slots())
    assert codes(findings) == found
    assert {finding.severity for finding in findings} == {"info"}


def test_two_boards_are_two_groups_and_no_split():
    keys = [f"0000:{bus:02x}:00.0" for bus in range(1, 17)]
    gpus = [Gpu(key, model="MI325X", device_id="74a5", healthy=True) for key in keys]
    links = [
        Link(a, b, "xgmi" if (keys.index(a) < 8) == (keys.index(b) < 8) else "pcie")
        for a, b in itertools.combinations(keys, 2)
    ]
    assert codes(check(Topology("h", tuple(gpus), tuple(links)))) == ["TOPO-XGMI-GROUPS"]


def test_groups_are_compared_among_gpus_of_one_model():
    topology = host(hives((0, 1, 2, 3)), count=5, board=MI210, g4={"model": None})
    assert "TOPO-XGMI-ISOLATED" not in codes(check(topology))


def test_unknown_links_are_no_lost_links():
    assert check(host(lambda a, b: None), slots()) == []
    assert check(host(lambda a, b: "xgmi" if {a, b} <= {0, 1, 2, 3} else None), slots()) == []
