# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy host of any kind is not called damaged, whichever of its sources are there."""

import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from tests.support.printers import machine as printers
from tests.support.printers.machine import Card, Machine, Wire

GIB = 2**30
OAM = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
IN_BUS_ORDER = tuple(range(8))
SOURCES = {
    "all": {},
    "sysfs": {"rocm_smi": False, "amd_smi": False},
    "rocm-smi": {"sysfs": False, "amd_smi": False},
    "amd-smi": {"sysfs": False, "rocm_smi": False},
}


def cards(device_id, gib, numa=(0, 0, 0, 0, 1, 1, 1, 1), ranks=IN_BUS_ORDER):
    """GPUs on the buses of an 8-OAM board, or on as many of them as have a NUMA node."""
    return tuple(
        Card(f"0000:{bus:02x}:00.0", rank, node, device_id, gib * GIB - 16 * 2**20)
        for bus, rank, node in zip(OAM, ranks, numa, strict=False)
    )


def hives(machine_cards, *groups, xgmi=15):
    """Wires of bridged cards: xGMI of this weight inside a group, PCIe across."""
    hive_of = {machine_cards[n].bdf: number for number, group in enumerate(groups) for n in group}
    inside = Wire("XGMI", xgmi)
    return lambda a, b: inside if hive_of[a.bdf] == hive_of[b.bdf] else pcie(a, b)


def mi250x(a, b):
    """Eight dies: four links inside a package, two or one to some, none to the others."""
    linked = {(0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4, (0, 6): 2, (1, 3): 1, (0, 2): 1}
    linked |= {(1, 5): 1, (2, 4): 2, (3, 7): 1, (4, 6): 1, (5, 7): 1}
    pair = tuple(sorted((a.rank, b.rank)))
    if pair in linked:
        return Wire("XGMI", 15, 1, (50000, 50000 * linked[pair]))
    return Wire("XGMI", 45 if abs(a.rank - b.rank) > 4 else 30, 1, (0, 0))


def pcie(a, b):
    """Wires of a host without xGMI."""
    same = a.numa == b.numa
    return Wire("PCIE", 40 if same else 72, 2 if same else 3, (0, 0))


TWO_HIVES = cards(0x740F, 64)
INTERLEAVED = cards(0x738C, 32, ranks=(2, 3, 1, 0, 6, 7, 5, 4))
UNREPORTED = Wire("XGMI", 0, 1, (0, 0))

MACHINES = {
    "MI325X": (Machine(cards(0x74A5, 256)), set()),
    "MI300X": (Machine(cards(0x74A1, 192)), set()),
    "MI300X, HIP order other": (
        Machine(cards(0x74A1, 192, ranks=(2, 3, 1, 0, 6, 7, 5, 4))),
        {"TOPO-INDEX-ORDER"},
    ),
    "MI355X": (Machine(cards(0x75A3, 288)), set()),
    "MI355X, weight and bandwidth 0": (Machine(cards(0x75A3, 288), lambda a, b: UNREPORTED), set()),
    "MI250X, 15/30/45": (Machine(cards(0x7408, 64, (0, 0, 1, 1, 2, 2, 3, 3)), mi250x, 4), set()),
    "MI210, two hives": (
        Machine(TWO_HIVES, hives(TWO_HIVES, range(4), range(4, 8))),
        {"TOPO-XGMI-GROUPS"},
    ),
    "MI100, interleaved hives": (
        Machine(INTERLEAVED, hives(INTERLEAVED, (0, 2, 3, 7), (1, 4, 5, 6))),
        {"TOPO-XGMI-GROUPS", "TOPO-XGMI-ACROSS-NUMA", "TOPO-INDEX-ORDER"},
    ),
    # 45 over three hops of xGMI is within a hive, 40 over one PCIe root is not.
    "MI210, xGMI 45 beside PCIe 40": (
        Machine(TWO_HIVES, hives(TWO_HIVES, (0, 1, 4, 5), (2, 3, 6, 7), xgmi=45)),
        {"TOPO-XGMI-GROUPS", "TOPO-XGMI-ACROSS-NUMA"},
    ),
    "MI210, PCIe only": (Machine(cards(0x740F, 64, (0, 0, 1, 1)), pcie), set()),
    "Radeon, PCIe only": (
        Machine(cards(0x744C, 24, (-1, -1, -1)), pcie, 1),
        {"TOPO-PCIE-LINK-IDLE"},
    ),
    "three MI210 on two sockets": (Machine(cards(0x740F, 64, (0, 0, 1)), pcie), set()),
    "one MI210": (Machine(cards(0x740F, 64, (0,))), set()),
}


def evidence(machine, **sources):
    """The machine's bundle, with as many NUMA nodes as it has."""
    found = printers.bundle(
        replace(machine, cards=tuple(replace(c, numa=max(c.numa, 0)) for c in machine.cards)),
        **sources,
    )
    cpus = [range(32 * node, 32 * node + 32) for node in range(machine.cpu_nodes)]
    found["files"] = {
        path: text for path, text in found["files"].items() if "/devices/system/node/" not in path
    } | printers.node_files([f"{own[0]}-{own[-1]}" for own in cpus])
    if "amd_smi_list" in found["commands"]:
        static = [
            {
                "gpu": number,
                "asic": {"device_id": f"{card.device_id:#06x}"},
                "bus": {"bdf": card.bdf},
                "numa": {"node": max(card.numa, 0), "affinity": card.numa},
            }
            for number, card in enumerate(machine.cards)
        ]
        found["commands"]["amd_smi_static"] = printers.command(json.dumps(static), "amd-smi")
    pairs = [(cpu, cpu + 16) for own in cpus for cpu in own[:16]]
    found["commands"]["lscpu"]["stdout"] = printers.lscpu(pairs, lambda cpu: cpu // 32)
    for card in machine.cards:
        base = f"/sys/bus/pci/devices/{card.bdf}"
        if f"{base}/device" in found["files"] and card.numa < 0:
            # A display GPU on a host with one node, idle.
            found["files"] |= {
                f"{base}/class": "0x030000\n",
                f"{base}/numa_node": "-1\n",
                f"{base}/current_link_speed": "2.5 GT/s PCIe\n",
            }
            for mode in ("compute", "memory"):
                del found["files"][f"{base}/current_{mode}_partition"]
    return found


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(("machine", "notes"), MACHINES.values(), ids=MACHINES)
def test_a_healthy_host_has_nothing_but_notes(machine, notes, sources):
    topology = from_evidence(evidence(machine, **sources))
    assert len(topology.gpus) == len(machine.cards)
    assert [one for one in topology.findings if one.severity != "info"] == []
    found = {one.code for one in topology.findings} - {"TOPO-TOOLS-ABSENT"}
    assert found == notes if not sources else found <= notes


def test_on_the_full_mesh_of_an_instinct_board_the_same_wires_are_damage():
    """What bridges make of MI210 is a fault on the board of MI325X."""
    board = cards(0x74A5, 256)
    wires = hives(board, range(4), range(4, 8))
    found = from_evidence(evidence(Machine(board, wires))).findings
    assert [(one.code, one.severity) for one in found] == [("TOPO-XGMI-SPLIT", "warning")]
