# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The KFD topology: CPU and GPU nodes, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from . import mi325x
from .machine import Device, Machine
from .tree import Tree

KFD = "devices/virtual/kfd/kfd"
NODES = f"{KFD}/topology/nodes"


class Link(NamedTuple):
    """One direction of a link; bandwidth in MB/s, 0 where the driver reports none."""

    kind: int
    source: int
    target: int
    weight: int
    bandwidth: tuple[int, int]
    flags: int
    engines: int = 0


def write_kfd(tree: Tree, machine: Machine) -> None:
    """Write the device and its topology; a host without the driver has neither."""
    if machine.faults.nodriver:
        return
    tree.link("class/kfd/kfd", KFD)
    tree.write(f"{KFD}/dev", f"{mi325x.KFD_MAJOR}:0")
    tree.directory(f"{KFD}/proc")
    tree.write(f"{KFD}/topology/generation_id", 2)
    system = {"platform_oem": 35498446626881, "platform_id": 14063779, "platform_rev": 2}
    tree.write(
        f"{KFD}/topology/system_properties",
        "\n".join(f"{name} {value}" for name, value in system.items()),
    )
    nodes = [*range(machine.numa_nodes), *machine.kfd_nodes.values()]
    links: dict[int, dict[str, list[Link]]] = {
        node: {"io_links": [], "p2p_links": []} for node in nodes
    }
    for name, found in (("io_links", io_links(machine)), ("p2p_links", p2p_links(machine))):
        for link in found:
            links[link.source][name].append(link)
    counts = {
        node: {f"{name}_count": len(own) for name, own in kinds.items()}
        for node, kinds in links.items()
    }
    for node in range(machine.numa_nodes):
        _write_cpu(tree, machine, node, counts[node])
    for device, node in machine.kfd_nodes.items():
        _write_gpu(tree, machine, device, node, counts[node])
    for node, kinds in links.items():
        for name, own in kinds.items():
            _write_links(tree, node, name, own)


def io_links(machine: Machine) -> Iterator[Link]:
    """Yield the direct links: socket to socket, socket to GPU, xGMI. No xGMI means no link."""
    sockets = range(machine.numa_nodes)
    for a in sockets:
        for b in sockets:
            if a != b:
                yield Link(mi325x.LINK_CPU, a, b, mi325x.WEIGHT_CPU, (0, 0), flags=0)
    kind, weight, bandwidth = mi325x.LINK_PCIE, mi325x.WEIGHT_PCIE, (0, mi325x.PCIE_MB_S)
    for device, node in machine.kfd_nodes.items():
        socket = machine.kfd_numa_node(device.gpu)
        yield Link(kind, socket, node, weight, bandwidth, flags=3, engines=3)
        yield Link(kind, node, socket, weight, bandwidth, flags=1, engines=3)
        for peer, target in machine.kfd_nodes.items():
            if device != peer and machine.has_xgmi(device.gpu, peer.gpu):
                own = machine.xgmi_weight(device, peer)
                width = _xgmi_bandwidth(machine, device, peer)
                yield Link(mi325x.LINK_XGMI, node, target, own, width, flags=1)


def _xgmi_bandwidth(machine: Machine, device: Device, peer: Device) -> tuple[int, int]:
    """Return MB/s as the driver fills it in: nothing between the partitions of two GPUs."""
    if device.gpu == peer.gpu:
        return mi325x.INSIDE_MB_S, mi325x.INSIDE_MB_S
    whole = machine.partitions(device.gpu) == machine.partitions(peer.gpu) == 1
    return (mi325x.XGMI_MB_S, mi325x.XGMI_MB_S) if whole else (0, 0)


def p2p_links(machine: Machine) -> Iterator[Link]:
    """Yield the ways over PCIe that pass a socket; their weight is that of the way."""
    kind, step = mi325x.LINK_PCIE, mi325x.WEIGHT_PCIE
    for device, node in machine.kfd_nodes.items():
        home = machine.kfd_numa_node(device.gpu)
        for socket in range(machine.numa_nodes):
            if socket != home:
                weight = step + mi325x.WEIGHT_CPU
                yield Link(kind, socket, node, weight, (0, 0), flags=3)
                yield Link(kind, node, socket, weight, (0, 0), flags=1)
        for peer, target in machine.kfd_nodes.items():
            if device != peer and not machine.has_xgmi(device.gpu, peer.gpu):
                across = 0 if machine.kfd_numa_node(peer.gpu) == home else mi325x.WEIGHT_CPU
                yield Link(kind, node, target, 2 * step + across, (0, 0), flags=3)


def _write_links(tree: Tree, node: int, name: str, links: list[Link]) -> None:
    directory = f"{NODES}/{node}/{name}"
    tree.directory(directory)
    for number, link in enumerate(sorted(links, key=lambda link: link.target)):
        tree.properties(
            f"{directory}/{number}",
            {
                "type": link.kind,
                "version_major": 0,
                "version_minor": 0,
                "node_from": link.source,
                "node_to": link.target,
                "weight": link.weight,
                "min_latency": 0,
                "max_latency": 0,
                "min_bandwidth": link.bandwidth[0],
                "max_bandwidth": link.bandwidth[1],
                "recommended_transfer_size": 0,
                "recommended_sdma_engine_id_mask": link.engines,
                "flags": link.flags,
            },
        )


def _write_cpu(tree: Tree, machine: Machine, node: int, links: dict[str, int]) -> None:
    directory = f"{NODES}/{node}"
    tree.write(f"{directory}/gpu_id", 0)
    tree.write(f"{directory}/name", "")
    # The kernel writes every property for every node; a CPU has none of a GPU's.
    own = {
        "cpu_cores_count": machine.cpus_per_node,
        "mem_banks_count": 1,
        "cpu_core_id_base": machine.cpus(node)[0],
        **links,
    }
    tree.properties(directory, {**dict.fromkeys(_names(), 0), **own})
    memory = machine.node_memory_gib * 2**30
    _write_memory(tree, directory, heap=0, size=memory, width=72, clock=4800)


def _write_gpu(
    tree: Tree, machine: Machine, device: Device, node: int, links: dict[str, int]
) -> None:
    directory = f"{NODES}/{node}"
    gpu, parts = device.gpu, machine.partitions(device.gpu)
    shared = mi325x.KFD_GPU_PROPERTIES
    simds = shared["simd_count"] // parts
    tree.write(f"{directory}/gpu_id", mi325x.gpu_id(*device))
    tree.write(f"{directory}/name", "ip discovery")
    own = {
        "simd_count": simds,
        "array_count": shared["array_count"] // parts,
        "num_xcc": shared["num_xcc"] // parts,
        "simd_id_base": mi325x.FIRST_SIMD_ID
        + shared["simd_count"] * gpu
        + simds * device.partition,
        "device_id": machine.device_id,
        # The function bits hold the partition.
        "location_id": mi325x.BUSES[gpu] << 8 | device.partition,
        "drm_render_minor": machine.render_minors[device],
        "unique_id": mi325x.unique_id(gpu, machine.faults.vf),
        **links,
    }
    tree.properties(directory, {**dict.fromkeys(_names(), 0), **shared, **own})
    size = machine.vram_bytes(gpu) // parts
    _write_memory(tree, directory, heap=1, size=size, width=8192, clock=1300)


def _names() -> list[str]:
    own = ["simd_id_base", "device_id", "location_id", "drm_render_minor", "unique_id"]
    return [*mi325x.KFD_GPU_PROPERTIES, "io_links_count", "p2p_links_count", *own]


def _write_memory(
    tree: Tree, directory: str, *, heap: int, size: int, width: int, clock: int
) -> None:
    values = {
        "heap_type": heap,
        "size_in_bytes": size,
        "flags": 0,
        "width": width,
        "mem_clk_max": clock,
    }
    tree.properties(f"{directory}/mem_banks/0", values)
