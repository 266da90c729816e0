# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a host once it is understood."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks import check
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    NumaNode,
)

from tests.support.checked import KEYS, MI210, bridges, codes, hives, host, routed, slots, without

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/fabric.md"


def test_a_healthy_host_has_no_findings():
    assert check(host(), slots()) == []


FAULTS = [
    (host(without((0, 5))), slots(), "TOPO-XGMI-ABSENT", "0000:05:00.0 – 0000:a6:00.0 is"),
    (
        host(without((0, 5), (1, 2))),
        slots(),
        "TOPO-XGMI-ABSENT",
        "0000:05:00.0 – 0000:a6:00.0, 0000:26:00.0 – 0000:46:00.0 are",
    ),
    (
        host(routed((0, 5))),
        slots(),
        "TOPO-XGMI-INDIRECT",
        "0000:05:00.0 – 0000:a6:00.0 (weight 30): no direct xGMI link",
    ),
    (
        host(hives((0, 1, 2), (4, 5, 6, 7))),
        slots(),
        "TOPO-XGMI-ISOLATED",
        "GPU 0000:65:00.0 has no xGMI link, while 4 others",
    ),
    (
        host(hives((0, 1, 2, 3), (4, 5, 6, 7))),
        slots(),
        "TOPO-XGMI-SPLIT",
        "connects the MI325X in 2 groups (0000:05:00.0, 0000:26:00.0, 0000:46:00.0, "
        "0000:65:00.0 | 0000:85:00.0",
    ),
    (
        host(hives((0, 1, 2, 3), (4, 5, 6)), board=MI210),
        slots(),
        "TOPO-XGMI-HIVES",
        "have 4, 3 GPUs",
    ),
    (host(lambda a, b: "pcie"), slots(), "TOPO-XGMI-NONE", "8 MI325X have no xGMI link"),
    (host(count=7), slots(7), "TOPO-GPU-MISSING", "7 MI325X are on the PCI bus"),
    (host(count=7), slots(7), "TOPO-GPU-MISSING", "NUMA node 1 has one less than the others"),
    (
        host(count=7, board={"model": "MI250X", "device_id": "7408"}),
        slots(7),
        "TOPO-GPU-MISSING",
        "7 MI250X are on the PCI bus; their boards carry 2",
    ),
    (host(g2={"healthy": False}), slots(), "TOPO-GPU-UNUSABLE", "GPU 0000:46:00.0 (MI325X)"),
    (host(g3={"numa_node": 1}), slots(), "TOPO-NUMA-IMBALANCE", "node 0: 3, node 1: 5"),
    (host(board={"numa_node": 0}), slots(), "TOPO-NUMA-IMBALANCE", "node 0: 8, node 1: 0"),
    (host(g3={"numa_node": None}), slots(), "TOPO-NUMA-UNKNOWN", "of 0000:65:00.0"),
    (host(g3={"numa_node": 5}), slots(), "TOPO-NUMA-STRAY", "0000:65:00.0 report"),
    (host(), slots(g1={"link_width": 8}), "TOPO-PCIE-LINK", "0000:26:00.0 trained its PCIe link"),
    (host(), slots(g1={"link_width": 8}), "TOPO-PCIE-LINK", "at x8; it can x16"),
    (
        host(),
        slots(g1={"link_width": 4, "link_speed": 16.0, "bridges": bridges(4, speed=16.0)}),
        "TOPO-PCIE-LINK",
        "at x4 and 16 GT/s; it and its slot can x16 and 32 GT/s",
    ),
    (
        host(),
        slots(g1={"bridges": bridges(16, 16, 8, 8, 16)}),
        "TOPO-PCIE-LINK",
        "0000:02:00.0 – 0000:03:00.0, above GPU 0000:26:00.0, trained at x8; both ends can x16",
    ),
    (
        host(),
        slots(g0={"bridges": bridges(8, 8, 16)}, g1={"bridges": bridges(8, 8, 16)}),
        "TOPO-PCIE-LINK",
        "above GPUs 0000:05:00.0, 0000:26:00.0, trained at x8",
    ),
    (host(), slots(g6={"uncorrectable_errors": 2}), "TOPO-MEMORY-ERRORS", "had 2 uncorrect"),
    (host(g1={"vram_bytes": 10**9}), slots(), "TOPO-VRAM", "0.9 GiB; MI325X has 256"),
    (
        host(g2={"compute_partition": "CPX"}),
        slots(),
        "TOPO-PARTITION-MIXED",
        "compute_partition differs: CPX: 0000:46:00.0; SPX: 0000:05:00.0",
    ),
    (
        host(g2={"memory_partition": "NPS4"}),
        slots(),
        "TOPO-PARTITION-MIXED",
        "memory_partition differs: NPS1: 0000:05:00.0",
    ),
    (
        host(g2={"memory_partition": "NPS4"}),
        slots(),
        "TOPO-MEMORY-PARTITION",
        "of 0000:46:00.0 is in mode NPS4: 4 domains a GPU; a device reports 256 GiB of its",
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
]


@pytest.mark.parametrize(("topology", "bus", "code", "named"), FAULTS)
def test_a_fault_is_found_and_named(topology, bus, code, named):
    found = {finding.code: finding for finding in check(topology, bus)}
    assert code in found
    assert named in found[code].message
    assert found[code].remedy


def test_a_lost_gpu_is_not_taken_for_lost_links_nor_for_imbalance():
    topology = host(g2={"healthy": False})
    topology = replace(
        topology,
        links=tuple(link for link in topology.links if KEYS[2] not in (link.a, link.b)),
    )
    assert codes(check(topology, slots())) == ["TOPO-GPU-UNUSABLE"]
    assert codes(check(host(count=7), slots(7))) == ["TOPO-GPU-MISSING"]


def test_a_stray_node_is_no_imbalance():
    assert codes(check(host(g3={"numa_node": 5}), slots())) == ["TOPO-NUMA-STRAY"]


def test_part_of_a_host_misses_nothing():
    part = host(count=5)
    assert check(part, slots(5), whole=False) == []
    assert codes(check(part, slots(5))) == ["TOPO-GPU-MISSING"]
    uneven = host(count=4, board=MI210, g3={"numa_node": 1})
    assert check(uneven, slots(4), whole=False) == []
    assert codes(check(uneven, slots(4))) == ["TOPO-NUMA-IMBALANCE"]


def test_without_the_bus_in_view_no_gpu_is_missed():
    assert check(host(count=6)) == []


def test_gpus_handed_to_guests_are_not_missed():
    bus = slots(g6={"driver": "vfio-pci"}, g7={"driver": "vfio-pci"})
    assert check(host(count=6), bus) == []
    assert codes(check(host(count=6), slots(g6={"driver": "amdgpu"}))) == ["TOPO-GPU-MISSING"]


def test_of_a_guest_only_that_it_is_one_is_told():
    guest = {"virtual_function": True, "device_id": "74b9", "compute_partition": None}
    topology = host(lambda a, b: "pcie", count=2, board=guest)
    bus = slots(2, g0={"link_width": 1, "link_width_max": 16})
    assert codes(check(topology, bus)) == ["TOPO-VIRTUAL-FUNCTION"]
    split = host(hives((0, 1), (2, 3)), count=4, board=guest)
    assert set(codes(check(split, slots(4)))) == {"TOPO-VIRTUAL-FUNCTION", "TOPO-XGMI-GROUPS"}


def test_a_display_gpu_may_slow_its_link_down_when_idle():
    radeon = {"model": None, "device_id": "744c", "vram_bytes": 24 * 2**30}
    topology = host(lambda a, b: "pcie", count=2, board=radeon)
    found = check(topology, slots(2, g0={"link_speed": 2.5}))
    assert [(finding.code, finding.severity) for finding in found] == [
        ("TOPO-PCIE-LINK-IDLE", "info")
    ]


def test_a_slot_that_can_no_more_is_no_fault():
    narrow = bridges(8, most=8)
    assert check(host(), slots(g1={"link_width": 8, "bridges": narrow})) == []


def test_another_order_of_numbers_is_told():
    hip = (1, 3, 2, 0, 5, 7, 6, 4)
    changes = {f"g{n}": {"smi_index": n, "hip_ordinal": rank} for n, rank in enumerate(hip)}
    (finding,) = check(host(**changes), slots())
    assert (finding.code, finding.severity) == ("TOPO-INDEX-ORDER", "info")
    assert "number 0 to 7 is, in that order, 1 3 2 0 5 7 6 4 to HIP" in finding.message


def test_the_page_for_operators_names_every_finding_of_the_checks():
    package = ROOT / "plugins/plugin_utils/topology/checks"
    found = set().union(
        *(re.findall(r'"(TOPO-[A-Z-]+)"', path.read_text()) for path in package.glob("*.py"))
    )
    page = set(re.findall(r"`(TOPO-[A-Z-]+)`", PAGE.read_text()))
    assert found - page == set()
    assert page <= knowledge("findings/topology.yml").keys()


def test_unknown_siblings_are_told():
    topology = replace(host(), numa_nodes=(NumaNode(0, "0-63"), NumaNode(1, "")))
    assert "TOPO-CORES-UNKNOWN" in codes(check(topology, slots()))
