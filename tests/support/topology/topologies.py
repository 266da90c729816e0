# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts built in code, named after what they are."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)

MI325X_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
VRAM = 274861129728


def bdf(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"


def host(
    hives: Collection[Collection[int]],
    numa: Collection[Collection[int]],
    missing: Collection[int] = (),
    cross_weight: int = 72,
    cpus_per_node: int = 64,
) -> Topology:
    """Return a host whose GPUs are xGMI-linked within a hive and by PCIe across hives.

    ``hives`` and ``numa`` hold GPU indices; missing GPUs have fallen off the bus.
    """
    hive_of = {gpu: number for number, hive in enumerate(hives) for gpu in hive}
    node_of = {gpu: number for number, node in enumerate(numa) for gpu in node}
    present = [index for index in sorted(hive_of) if index not in missing]
    buses = [MI325X_BUSES[index] if index < 8 else 0xE5 + index for index in present]
    gpus = tuple(
        Gpu(
            bdf=bdf(bus),
            model="MI325X",
            device_id="74a5",
            virtual_function=False,
            smi_index=rank,
            kfd_node=len(numa) + rank,
            hip_ordinal=rank,
            render_node=f"renderD{128 + rank}",
            numa_node=node_of[index],
            vram_bytes=VRAM,
            compute_partition="SPX",
            memory_partition="NPS1",
            healthy=True,
        )
        for rank, (index, bus) in enumerate(zip(present, buses, strict=True))
    )
    links = tuple(
        Link(bdf(a_bus), bdf(b_bus), "xgmi", 1, 15, (50000, 50000))
        if hive_of[a] == hive_of[b]
        else Link(bdf(a_bus), bdf(b_bus), "pcie", 3, cross_weight)
        for (a, a_bus), (b, b_bus) in itertools.combinations(zip(present, buses, strict=True), 2)
    )
    total = cpus_per_node * len(numa)
    nodes = tuple(
        NumaNode(
            id=number,
            cpus=f"{number * cpus_per_node}-{(number + 1) * cpus_per_node - 1},"
            f"{total + number * cpus_per_node}-{total + (number + 1) * cpus_per_node - 1}",
            memory_bytes=1 << 40,
            distances=tuple(10 if other == number else 32 for other in range(len(numa))),
            cores=tuple(
                f"{cpu},{cpu + total}"
                for cpu in range(number * cpus_per_node, (number + 1) * cpus_per_node)
            ),
        )
        for number in range(len(numa))
    )
    return Topology("gpu-001", gpus, links, nodes, sources=("built in code",))


def mi325x(missing: Collection[int] = ()) -> Topology:
    """Return the main case: eight MI325X, full mesh, four to a socket."""
    return host([range(8)], [range(4), range(4, 8)], missing)


def interleaved_hives() -> Topology:
    """Return two hives that no index range describes (vllm-project/vllm#21884)."""
    return host([(0, 2, 3, 7), (1, 4, 5, 6)], [range(4), range(4, 8)])


def partitioned(topology: Topology, parts: int) -> Topology:
    """The host with each GPU cut up, linked as KFD prints it: weight 13 inside a GPU, 41 across."""
    gpus = tuple(
        dataclasses.replace(gpu, partition=part) for gpu in topology.gpus for part in range(parts)
    )
    whole = dataclasses.replace(topology, gpus=gpus)
    links = tuple(
        Link(a, b, "xgmi", 1, 13 if a.partition("#")[0] == b.partition("#")[0] else 41)
        for a, b in itertools.combinations(sorted(whole.by_key), 2)
    )
    return dataclasses.replace(whole, links=links)
