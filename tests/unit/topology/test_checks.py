# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a host once it is understood."""

import itertools
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks import check
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.pci import Slot
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)

BUSES = ("05", "26", "46", "65", "85", "a6", "c6", "e5")
KEYS = tuple(f"0000:{bus}:00.0" for bus in BUSES)
VRAM = 274861129728


def host(kind=lambda a, b: "xgmi", count=8, **changes):
    """A healthy MI325X host; ``kind`` is the link type of two GPU numbers."""
    gpus = [
        Gpu(
            key,
            model="MI325X",
            device_id="74a5",
            numa_node=number // 4,
            vram_bytes=VRAM,
            compute_partition="SPX",
            memory_partition="NPS1",
            healthy=True,
        )
        for number, key in enumerate(KEYS[:count])
    ]
    for number, change in changes.items():
        gpus[int(number[1:])] = replace(gpus[int(number[1:])], **change)
    links = [
        Link(KEYS[a], KEYS[b], kind(a, b), 1, 15)
        for a, b in itertools.combinations(range(count), 2)
        if kind(a, b)
    ]
    nodes = (NumaNode(0, "0-63", cores=("0-63",)), NumaNode(1, "64-127", cores=("64-127",)))
    return Topology("h", tuple(gpus), tuple(links), nodes)


def slots(count=8, **changes):
    found = [Slot(key, "amdgpu", 16, 16, 32.0, 32.0, 0) for key in KEYS[:count]]
    for number, change in changes.items():
        found[int(number[1:])] = replace(found[int(number[1:])], **change)
    return found


def hives(*groups):
    """Link type by group: xGMI inside, PCIe between."""
    return lambda a, b: "xgmi" if any({a, b} <= set(group) for group in groups) else "pcie"


def without(*pairs):
    return lambda a, b: "pcie" if (a, b) in pairs else "xgmi"


def test_a_healthy_host_has_no_findings():
    assert check(host(), slots()) == []


@pytest.mark.parametrize(
    "kind",
    [hives((0, 1, 2, 3), (4, 5, 6, 7)), hives((0, 2, 3, 7), (1, 4, 5, 6))],
    ids=["two hives", "interleaved hives"],
)
def test_hives_are_no_fault(kind):
    assert check(host(kind), slots()) == []


@pytest.mark.parametrize(
    ("topology", "bus", "code", "named"),
    [
        (host(without((0, 5))), slots(), "TOPO-XGMI-ABSENT", "0000:05:00.0 – 0000:a6:00.0 is"),
        (
            host(without((0, 5), (1, 2))),
            slots(),
            "TOPO-XGMI-ABSENT",
            "0000:05:00.0 – 0000:a6:00.0, 0000:26:00.0 – 0000:46:00.0 are",
        ),
        (
            host(hives((0, 1, 2), (4, 5, 6, 7))),
            slots(),
            "TOPO-XGMI-ISOLATED",
            "GPU 0000:65:00.0 has no xGMI link",
        ),
        (host(hives((0, 1, 2, 3), (4, 5, 6))), slots(), "TOPO-XGMI-HIVES", "4, 3, 1 GPUs"),
        (host(lambda a, b: "pcie"), slots(), "TOPO-XGMI-NONE", "8 MI325X have no xGMI link"),
        (host(count=7), slots(7), "TOPO-GPU-MISSING", "7 MI325X are on the PCI bus"),
        (host(g2={"healthy": False}), slots(), "TOPO-GPU-UNUSABLE", "GPU 0000:46:00.0 (MI325X)"),
        (host(g3={"numa_node": 1}), slots(), "TOPO-NUMA-IMBALANCE", "node 0: 3, node 1: 5"),
        (host(g3={"numa_node": None}), slots(), "TOPO-NUMA-UNKNOWN", "of 0000:65:00.0"),
        (host(g3={"numa_node": 5}), slots(), "TOPO-NUMA-STRAY", "0000:65:00.0 report"),
        (host(), slots(g1={"link_width": 8}), "TOPO-PCIE-LINK", "0000:26:00.0 trained its"),
        (host(), slots(g1={"link_speed": 16.0}), "TOPO-PCIE-LINK", "16 GT/s; it and its slot"),
        (host(), slots(g6={"uncorrectable_errors": 2}), "TOPO-MEMORY-ERRORS", "had 2 uncorrect"),
        (host(g1={"vram_bytes": 10**9}), slots(), "TOPO-VRAM", "0.9 GiB; MI325X has 256"),
        (
            host(g2={"compute_partition": "CPX"}),
            slots(),
            "TOPO-PARTITION-MIXED",
            "compute_partition differs: CPX: 0000:46:00.0; SPX: 0000:05:00.0",
        ),
        (
            host(g2={"compute_partition": "CPX"}),
            slots(),
            "TOPO-PARTITION-COUNT",
            "0000:46:00.0: 1 of 8 (CPX)",
        ),
        (
            host(g0={"model": "MI300X", "device_id": "74a1"}),
            slots(),
            "TOPO-MIXED-MODELS",
            "MI300X, MI325X",
        ),
        (
            host(g0={"virtual_function": True}),
            slots(),
            "TOPO-VIRTUAL-FUNCTION",
            "0000:05:00.0 are virtual functions",
        ),
        (host(g0={"bdf": None}), slots(), "TOPO-NO-BDF", "1 GPUs are known by"),
    ],
)
def test_a_fault_is_found_and_named(topology, bus, code, named):
    found = {finding.code: finding for finding in check(topology, bus)}
    assert code in found
    assert named in found[code].message
    assert found[code].remedy


def test_a_lost_gpu_is_not_taken_for_lost_links():
    topology = host(g2={"healthy": False})
    topology = replace(
        topology,
        links=tuple(link for link in topology.links if KEYS[2] not in (link.a, link.b)),
    )
    codes = {finding.code for finding in check(topology, slots())}
    assert codes == {"TOPO-GPU-UNUSABLE", "TOPO-NUMA-IMBALANCE"}


def test_part_of_a_host_misses_nothing():
    assert "TOPO-GPU-MISSING" not in {one.code for one in check(host(count=5), slots(5), False)}


def test_without_the_bus_in_view_no_gpu_is_missed():
    assert "TOPO-GPU-MISSING" not in {one.code for one in check(host(count=6))}


def test_a_guests_gpus_are_no_board():
    topology = host(count=2, g0={"virtual_function": True}, g1={"virtual_function": True})
    assert "TOPO-GPU-MISSING" not in {one.code for one in check(topology, slots(2))}


def test_missing_partitions_are_counted_against_the_largest_gpu():
    def partitions(key, count):
        return tuple(Gpu(key, number, model="MI300X") for number in range(count))

    topology = Topology("h", partitions(KEYS[0], 8) + partitions(KEYS[1], 7))
    (finding,) = [one for one in check(topology) if one.code == "TOPO-PARTITION-COUNT"]
    assert "0000:26:00.0: 7 of 8" in finding.message


def test_nps4_is_told():
    changes = {f"g{number}": {"memory_partition": "NPS4"} for number in range(8)}
    assert [one.code for one in check(host(**changes), slots())] == ["TOPO-MEMORY-PARTITION"]


def test_unknown_siblings_are_told():
    topology = replace(host(), numa_nodes=(NumaNode(0, "0-63"), NumaNode(1, "")))
    assert [one.code for one in check(topology, slots())] == ["TOPO-CORES-UNKNOWN"]
