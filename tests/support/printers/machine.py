# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print a machine as rocm-smi, amd-smi and the kernel would: parsers are tested by reading it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 90


@dataclass(frozen=True)
class Wire:
    """What the tools say of one pair; weight 0 and bandwidth (0, 0) are "not reported"."""

    type: str = "XGMI"
    weight: int = 15
    hops: int = 1
    bandwidth: tuple[int, int] = (50000, 50000)


@dataclass(frozen=True)
class Card:
    """One GPU: its address, place in the kernel's order (0 is the first GPU) and NUMA node.

    Of a partition ``bdf`` is that of the GPU and ``serial`` the same as its siblings'.
    """

    bdf: str
    rank: int
    numa: int = 0
    device_id: int = 0x74A5
    vram: int = 274861129728
    name: str = "AMD Instinct MI325X"
    compute: str = "SPX"
    memory: str = "NPS1"
    part: int = 0
    serial: int | None = None
    oam: int | None = None

    @property
    def unique_id(self) -> int:
        return 0x1000000000000000 + self.rank if self.serial is None else self.serial

    @property
    def function(self) -> str:
        """The address as tools print it, whose function is the partition's number."""
        return f"{self.bdf[:-1]}{self.part}"


@dataclass(frozen=True)
class Machine:
    """GPUs in the order in which the tools number them, and the wire of each pair."""

    cards: tuple[Card, ...]
    wire: Callable[[Card, Card], Wire] = lambda a, b: Wire()
    cpu_nodes: int = 2

    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.cards)), 2))


def mesh(numa: Sequence[int] = (0, 0, 0, 0, 1, 1, 1, 1)) -> Machine:
    """Eight MI325X as rocm-smi numbers them, the kernel's order being another."""
    buses = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
    ranks = (1, 3, 2, 0, 5, 7, 6, 4)
    return Machine(
        tuple(
            Card(f"0000:{bus:02x}:00.0", rank, node)
            for bus, rank, node in zip(buses, ranks, numa, strict=True)
        )
    )


def _title(text: str) -> str:
    return f" {text} ".center(WIDTH, "=")


def _matrix(title: str, machine: Machine, cell: Callable[[Wire], object], own: str) -> list[str]:
    cards = machine.cards
    lines = [_title(title), " " * 7 + "".join(f"{f'GPU{i}':<12} " for i in range(len(cards)))]
    for i, a in enumerate(cards):
        cells = [own if i == j else str(cell(machine.wire(a, b))) for j, b in enumerate(cards)]
        lines.append(f"{f'GPU{i}':<6} " + "".join(f"{text:<12} " for text in cells))
    return [*lines, ""]


def rocm_smi_topology(machine: Machine) -> str:
    """`rocm-smi --showtopo`, ROCm 6."""
    lines = ["", "", _title("ROCm System Management Interface")]
    lines += _matrix("Weight between two GPUs", machine, lambda wire: wire.weight, "0")
    lines += _matrix("Hops between two GPUs", machine, lambda wire: wire.hops, "0")
    lines += _matrix("Link Type between two GPUs", machine, lambda wire: wire.type, "0")
    lines.append(_title("Numa Nodes"))
    for i, card in enumerate(machine.cards):
        lines.append(f"GPU[{i}]\t\t: (Topology) Numa Node: {card.numa}")
        lines.append(f"GPU[{i}]\t\t: (Topology) Numa Affinity: {card.numa}")
    return "\n".join([*lines, _title("End of ROCm SMI Log"), ""])


def rocm_smi_json(machine: Machine) -> str:
    """`rocm-smi --showbus --showid --showuniqueid --showmeminfo vram --showtopo --json`."""
    document: dict[str, dict[str, str]] = {
        f"card{i}": {
            "Device ID": f"0x{card.device_id:04x}",
            "Unique ID": f"0x{card.unique_id:x}",
            "PCI Bus": card.bdf.upper(),
            "VRAM Total Memory (B)": str(card.vram),
            "(Topology) Numa Node": str(card.numa),
            "(Topology) Numa Affinity": str(card.numa),
        }
        for i, card in enumerate(machine.cards)
    }
    system = document.setdefault("system", {"Driver version": "6.10.5"})
    for i, j in machine.pairs():
        wire = machine.wire(machine.cards[i], machine.cards[j])
        system[f"(Topology) Weight between DRM devices {i} and {j}"] = str(wire.weight)
        system[f"(Topology) Hops between DRM devices {i} and {j}"] = str(wire.hops)
        system[f"(Topology) Link type between DRM devices {i} and {j}"] = wire.type
    return json.dumps(document) + "\n"


def _bandwidth(wire: Wire) -> str:
    return "N/A" if wire.type == "PCIE" else f"{wire.bandwidth[0]}-{wire.bandwidth[1]}"


def amd_smi_topology(machine: Machine, blank_lines: bool = True) -> str:
    """`amd-smi topology`; ROCm 7 prints no empty line between tables."""
    addresses = [card.function for card in machine.cards]
    lines = []
    for title, cell, own in (
        ("ACCESS", lambda wire: "ENABLED", "ENABLED"),
        ("WEIGHT", lambda wire: wire.weight, "0"),
        ("HOPS", lambda wire: wire.hops, "0"),
        ("LINK TYPE", lambda wire: wire.type, "SELF"),
        ("NUMA BW", _bandwidth, "N/A"),
        ("CACHE COHERANCY", lambda wire: "C", "SELF"),
    ):
        lines += [f"{title} TABLE:", " " * 13 + " ".join(f"{one:<12}" for one in addresses)]
        for a in machine.cards:
            cells = [own if a == b else str(cell(machine.wire(a, b))) for b in machine.cards]
            lines.append(f"{a.function:<12} " + " ".join(f"{text:<12}" for text in cells))
        lines += [""] if blank_lines else []
    return "\n".join([*lines, "", "Legend:", " SELF = Current GPU", ""])


def amd_smi_topology_json(machine: Machine, old: bool = False) -> str:
    """`amd-smi topology --json`, the schema up to ROCm 6.1.0 or the one after it."""
    entries: list[dict[str, object]] = []
    for i, a in enumerate(machine.cards):
        rows = [
            (j, b, machine.wire(a, b) if i != j else Wire("SELF", 0, 0, (0, 0)))
            for j, b in enumerate(machine.cards)
        ]
        if old:
            entries.append(
                {
                    "gpu": i,
                    "link_accessibility": {f"gpu_{j}": "ENABLED" for j, _b, _wire in rows},
                    "weight": {f"gpu_{j}": wire.weight for j, _b, wire in rows},
                    "hops": {f"gpu_{j}": wire.hops for j, _b, wire in rows},
                    "link_type": {f"gpu_{j}": wire.type for j, _b, wire in rows},
                    "numa_bandwidth": {f"gpu_{j}": _bandwidth(wire) for j, _b, wire in rows},
                }
            )
        else:
            links = [
                {
                    "gpu": j,
                    "bdf": b.function,
                    "weight": wire.weight,
                    "link_status": "ENABLED",
                    "link_type": wire.type,
                    "num_hops": wire.hops,
                    "bandwidth": "N/A" if i == j else _bandwidth(wire),
                }
                for j, b, wire in rows
            ]
            entries.append({"gpu": i, "bdf": a.function, "links": links})
    return json.dumps(entries, indent=4) + "\n"


def amd_smi_list_json(machine: Machine) -> str:
    """`amd-smi list -e --json`, ROCm 6.4 and later."""
    entries = [
        {
            "gpu": i,
            "bdf": card.function,
            "uuid": f"{i:02x}ff74a5-0000-1000-8000-000000000000",
            "kfd_id": 5000 + card.rank,
            "node_id": machine.cpu_nodes + card.rank,
            "partition_id": card.part,
            "render": f"renderD{128 + card.rank}",
            "card": f"card{card.rank}",
            "hsa_id": machine.cpu_nodes + card.rank,
            "hip_id": card.rank,
            "hip_uuid": f"GPU-{card.unique_id:016x}",
        }
        for i, card in enumerate(machine.cards)
    ]
    return json.dumps(entries, indent=4) + "\n"


def _properties(**values: int) -> str:
    return "".join(f"{key} {value}\n" for key, value in values.items())


def kfd_files(machine: Machine) -> dict[str, str]:
    """/sys/class/kfd/kfd/topology: CPU nodes first, GPUs in the kernel's order.

    XGMI wires are io_links; of PCIe the kernel writes nothing but the way to the CPU.
    """
    top = "/sys/class/kfd/kfd/topology/nodes"
    files: dict[str, str] = {}
    for node in range(machine.cpu_nodes):
        others = [other for other in range(machine.cpu_nodes) if other != node]
        links = [{"type": 1, "node_to": other, "weight": 32} for other in others]
        near = [card for card in machine.cards if card.numa == node]
        links += [{"type": 2, "node_to": _node(machine, card), "weight": 20} for card in near]
        files |= _kfd_links(f"{top}/{node}", node, links)
        files[f"{top}/{node}/gpu_id"] = "0\n"
        files[f"{top}/{node}/properties"] = _properties(
            cpu_cores_count=96, simd_count=0, io_links_count=len(links)
        )
    for card in machine.cards:
        node = _node(machine, card)
        domain, bus, rest = card.function.split(":")
        device, function = rest.split(".")
        links = [{"type": 2, "node_to": card.numa, "weight": 20, "max_bandwidth": 64000}]
        for other in machine.cards:
            wire = machine.wire(card, other)
            if other != card and wire.type == "XGMI":
                low, high = wire.bandwidth
                values = {"weight": wire.weight, "min_bandwidth": low, "max_bandwidth": high}
                links.append({"type": 11, "node_to": _node(machine, other), **values})
        files |= _kfd_links(f"{top}/{node}", node, links)
        files[f"{top}/{node}/gpu_id"] = f"{5000 + card.rank}\n"
        files[f"{top}/{node}/properties"] = _properties(
            cpu_cores_count=0,
            simd_count=1216,
            io_links_count=len(links),
            vendor_id=0x1002,
            device_id=card.device_id,
            location_id=int(bus, 16) << 8 | int(device, 16) << 3 | int(function),
            domain=int(domain, 16),
            drm_render_minor=128 + card.rank,
            unique_id=card.unique_id,
        )
        files[f"{top}/{node}/mem_banks/0/properties"] = _properties(
            heap_type=1, size_in_bytes=card.vram
        )
    return files


def _node(machine: Machine, card: Card) -> int:
    return machine.cpu_nodes + card.rank


def _kfd_links(base: str, node: int, links: Sequence[dict[str, int]]) -> dict[str, str]:
    return {
        f"{base}/io_links/{number}/properties": _properties(node_from=node, **values)
        for number, values in enumerate(links)
    }


def node_files(cpulists: Sequence[str]) -> dict[str, str]:
    """/sys/devices/system/node of nodes with these CPUs and 1 TiB each."""
    base = "/sys/devices/system/node"
    files = {f"{base}/online": f"0-{len(cpulists) - 1}\n"}
    for number, cpus in enumerate(cpulists):
        distances = ["10" if other == number else "32" for other in range(len(cpulists))]
        files[f"{base}/node{number}/cpulist"] = cpus + "\n"
        files[f"{base}/node{number}/distance"] = " ".join(distances) + "\n"
        files[f"{base}/node{number}/meminfo"] = f"Node {number} MemTotal:   {2**30} kB\n"
    return files


def pci_files(machine: Machine) -> tuple[dict[str, str], dict[str, str]]:
    """Files and links of /sys/bus/pci and /sys/class/drm."""
    files, links = {}, {}
    for card in machine.cards:
        base = f"/sys/bus/pci/devices/{card.bdf}"
        attributes = {
            "vendor": "0x1002",
            "device": f"0x{card.device_id:04x}",
            "class": "0x120000",
            "numa_node": str(card.numa),
            "current_link_speed": "32.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_width": "16",
            "mem_info_vram_total": str(card.vram),
            "current_compute_partition": "SPX",
            "current_memory_partition": "NPS1",
            "unique_id": f"{card.unique_id:016x}",
        }
        files |= {f"{base}/{name}": value + "\n" for name, value in attributes.items()}
        links[base] = f"../../../devices/pci0000:00/{card.bdf}"
        links[f"{base}/driver"] = "../../../../bus/pci/drivers/amdgpu"
        for name in (f"card{card.rank}", f"renderD{128 + card.rank}"):
            links[f"/sys/class/drm/{name}"] = f"../../devices/pci0000:00/{card.bdf}/drm/{name}"
    return files, links


def command(
    stdout: str, *argv: str, exit_code: int | None = 0, **more: object
) -> dict[str, object]:
    """One command of an evidence bundle."""
    return {
        "argv": list(argv),
        "exit": exit_code,
        "stdout": stdout,
        "stderr": "",
        "seconds": 0.1,
        **more,
    }


def lscpu(cores: Sequence[tuple[int, ...]], node_of: Callable[[int], int]) -> str:
    """`lscpu --parse=CPU,CORE,SOCKET,NODE,ONLINE` of cores with their SMT siblings."""
    lines = ["# CPU,Core,Socket,Node,Online"]
    for number, cpus in enumerate(cores):
        lines += [f"{cpu},{number},{node_of(cpu)},{node_of(cpu)},Y" for cpu in cpus]
    return "\n".join(lines) + "\n"


def bundle(
    machine: Machine,
    sysfs: bool = True,
    rocm_smi: bool = True,
    amd_smi: bool = True,
    host: str = "gpu-001",
) -> dict[str, object]:
    """An evidence bundle with the sources wanted."""
    files, links = {"/sys/module/amdgpu/version": "6.10.5\n"} | node_files(["0-63", "64-127"]), {}
    if sysfs:
        more, links = pci_files(machine)
        files |= kfd_files(machine) | more
    cores = [(cpu, cpu + 32) for start in (0, 64) for cpu in range(start, start + 32)]
    commands = {"lscpu": command(lscpu(cores, lambda cpu: cpu // 64), "lscpu")}
    if rocm_smi:
        commands["rocm_smi_identity"] = command(rocm_smi_json(machine), "rocm-smi")
    if amd_smi:
        commands["amd_smi_version"] = command(
            "AMDSMI Tool: 26.0.0+abc | AMDSMI Library version: 26.0.0 | ROCm version: 7.0.0\n",
            "amd-smi",
            "version",
        )
        commands["amd_smi_list"] = command(amd_smi_list_json(machine), "amd-smi", "list")
        commands["amd_smi_topology"] = command(amd_smi_topology_json(machine), "amd-smi")
    return {
        "schema": "apiary.evidence/v1",
        "host": host,
        "collected_at": "2026-11-21T10:00:00Z",
        "collector": "1",
        "commands": commands,
        "files": files,
        "links": links,
        "unreadable": {},
    }


def partitioned(evidence: dict[str, Any], machine: Machine, parts: int) -> dict[str, object]:
    """The bundle of a machine whose GPUs are all in CPX, as the kernel sees them then."""
    files = {path: text for path, text in evidence["files"].items() if "/kfd/" not in path}
    top = "/sys/class/kfd/kfd/topology/nodes"
    for card in machine.cards:
        files[f"/sys/bus/pci/devices/{card.bdf}/current_compute_partition"] = "CPX\n"
        for part in range(parts):
            node = machine.cpu_nodes + card.rank * parts + part
            bus = int(card.bdf[5:7], 16)
            files[f"{top}/{node}/gpu_id"] = f"{7000 + node}\n"
            files[f"{top}/{node}/properties"] = _properties(
                simd_count=152,
                vendor_id=0x1002,
                device_id=card.device_id,
                location_id=bus << 8 | part,
                unique_id=card.unique_id,
                drm_render_minor=128 + node,
            )
            for other in machine.cards:
                for peer in range(parts):
                    target = machine.cpu_nodes + other.rank * parts + peer
                    if target != node:
                        same = other is card
                        files[f"{top}/{node}/io_links/{target}/properties"] = _properties(
                            type=11,
                            node_from=node,
                            node_to=target,
                            weight=13 if same else 41,
                            max_bandwidth=819200 if same else 0,
                        )
    return {**evidence, "files": files}
