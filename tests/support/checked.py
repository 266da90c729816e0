# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts as the checks of the topology see them: an MI325X host, and what can be wrong with it."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers.pci import (
    Bridge,
    Slot,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)

BUSES = ("05", "26", "46", "65", "85", "a6", "c6", "e5")
KEYS = tuple(f"0000:{bus}:00.0" for bus in BUSES)
VRAM = 274861129728
MI210 = {"model": "MI210", "device_id": "740f", "vram_bytes": 64 * 2**30}
NODES = (NumaNode(0, "0-63", cores=("0-63",)), NumaNode(1, "64-127", cores=("64-127",)))


def host(kind=lambda a, b: "xgmi", count=8, board=None, **changes):
    """A healthy MI325X host; ``kind`` is the link type of two GPU numbers, or (type, weight)."""
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
    for number in range(count):
        own = (board or {}) | changes.get(f"g{number}", {})
        gpus[number] = replace(gpus[number], **own)
    links = []
    for a, b in itertools.combinations(range(count), 2):
        told = kind(a, b)
        name, weight = told if isinstance(told, tuple) else (told, 15 if told == "xgmi" else 40)
        if name:
            links.append(Link(KEYS[a], KEYS[b], name, 1, weight))
    return Topology("h", tuple(gpus), tuple(links), NODES)


def slots(count=8, **changes):
    found = [Slot(key, "amdgpu", 16, 16, 32.0, 32.0, 0) for key in KEYS[:count]]
    for number, change in changes.items():
        found[int(number[1:])] = replace(found[int(number[1:])], **change)
    return found


def bridges(*widths, speed=32.0, most=16):
    """Bridges of these current widths, the root port first."""
    return tuple(
        Bridge(f"0000:0{place}:00.0", None, width, most, speed, 32.0)
        for place, width in enumerate(widths)
    )


def hives(*groups):
    """Link type by group: xGMI inside, PCIe between."""
    return lambda a, b: "xgmi" if any({a, b} <= set(group) for group in groups) else "pcie"


def without(*pairs):
    return lambda a, b: "pcie" if (a, b) in pairs else "xgmi"


def routed(*pairs):
    return lambda a, b: ("xgmi", 30) if (a, b) in pairs else ("xgmi", 15)


def partitions(key, parts, mode="CPX", memory="NPS1", **changes):
    common = {"model": "MI300X", "device_id": "74a1", "healthy": True, "numa_node": 0} | changes
    return tuple(
        Gpu(key, number, compute_partition=mode, memory_partition=memory, **common)
        for number in range(parts)
    )


def codes(found):
    return [finding.code for finding in found]
