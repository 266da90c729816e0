# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print a machine as lspci, numactl, rocminfo, rocm_bandwidth_test and the bus would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..printers.machine import Machine

CLASS = "Processing accelerators"
VENDOR = "Advanced Micro Devices, Inc. [AMD/ATI]"


def bridges_of(index: int) -> tuple[str, ...]:
    """The bridges above a GPU, root port first; two GPUs share a switch."""
    base = 0x10 + 0x20 * (index // 2)
    switch = f"0000:{base:02x}:01.1", f"0000:{base + 1:02x}:00.0"
    return (*switch, f"0000:{base + 2:02x}:{index % 2:02x}.0")


def lspci(machine: Machine, options: str = "-D -nn -PP", others: Sequence[str] = ()) -> str:
    """`lspci` with any of -D, -n, -nn, -PP, of the GPUs and other devices.

    Without -D it leaves out domains where there is but one.
    """
    lines = []
    full = "-D" in options or any(not card.bdf.startswith("0000:") for card in machine.cards)
    for index, card in enumerate(machine.cards):
        path = [*bridges_of(index), card.bdf] if "-PP" in options else [card.bdf]
        words = path if full else [word.removeprefix("0000:") for word in path]
        identity = f"1002:{card.device_id:04x}"
        if "-nn" in options:
            rest = f"{CLASS} [1200]: {VENDOR} Device [{identity}] (rev 01)"
        elif "-n" in options:
            rest = f"1200: {identity} (rev 01)"
        else:
            rest = f"{CLASS}: {VENDOR} Device {card.device_id:04x}"
        lines.append("/".join(words) + " " + rest)
    return "\n".join([*lines, *others]) + "\n"


def numactl(cpus: Sequence[Sequence[int]], mib: int = 2**20, distance: int = 32) -> str:
    """`numactl -H` of nodes with these CPUs."""
    count = len(cpus)
    lines = [f"available: {count} nodes (0-{count - 1})" if count > 1 else "available: 1 nodes (0)"]
    for node, numbers in enumerate(cpus):
        lines.append(f"node {node} cpus:" + "".join(f" {number}" for number in numbers))
        lines += [f"node {node} size: {mib} MB", f"node {node} free: {mib // 2} MB"]
    lines += ["node distances:", "node " + "".join(f"{node:>4}" for node in range(count)) + " "]
    for node in range(count):
        cells = "".join(f"{10 if node == other else distance:>4}" for other in range(count))
        lines.append(f"{node:>3}: {cells} ")
    return "\n".join(lines) + "\n"


def rocminfo(machine: Machine) -> str:
    """`rocminfo`: CPUs first, then GPUs in the kernel's order."""
    lines = [
        "ROCk module version 6.16.13 is loaded",
        "=" * 21,
        "HSA System Attributes    ",
        "=" * 21,
    ]
    lines += ["Runtime Version:         1.18", "", "HSA Agents", "=" * 10]
    agents = [f"CPU {node}" for node in range(machine.cpu_nodes)]
    cards = sorted(machine.cards, key=lambda card: card.rank)
    for number, agent in enumerate([*agents, *cards], 1):
        lines += ["*******                  ", f"Agent {number}                  ", "*******"]
        if isinstance(agent, str):
            lines += [
                "  Uuid:                    CPU-XX  ",
                f"  Node:                    {number - 1}",
            ]
            lines += ["  Device Type:             CPU  ", "  Chip ID:                 0(0x0)  "]
        else:
            chip = agent.device_id
            lines.append(f"  Uuid:                    GPU-{agent.unique_id:016x}               ")
            lines.append(f"  Node:                    {machine.cpu_nodes + agent.rank}   ")
            lines += [
                "  Device Type:             GPU   ",
                f"  Chip ID:                 {chip}(0x{chip:x})",
            ]
            lines += ["  Cache Info:", "    L1:                      32(0x20) KB     "]
    return "\n".join([*lines, "*** Done ***             ", ""])


def bandwidth_test(machine: Machine) -> str:
    """`rocm_bandwidth_test`: agents, access and distance of each two, measured bandwidth."""
    cards = sorted(machine.cards, key=lambda card: card.rank)
    agents: list[Any] = [*range(machine.cpu_nodes), *cards]
    lines = []
    for number, agent in enumerate(agents):
        if isinstance(agent, int):
            lines.append(f"Device: {number},  AMD EPYC 9575F 64-Core Processor")
        else:
            bus, rest = agent.bdf.split(":")[1:]
            place = f"{bus}:{int(rest[:2], 16):x}.{rest[-1]}"
            lines.append(f"Device: {number},  ,  GPU-{agent.unique_id:016x},  {place}")

    def distance(a: Any, b: Any) -> int:
        if a is b:
            return 0
        if isinstance(a, int) and isinstance(b, int):
            return 32
        if isinstance(a, int) or isinstance(b, int):
            cpu, card = (a, b) if isinstance(a, int) else (b, a)
            return 20 if card.numa == cpu else 52
        return machine.wire(a, b).weight

    for title, cell in (("Access", lambda a, b: 1), ("Numa Distance", distance)):
        lines += ["", f"Inter-Device {title}", ""]
        lines += ["D/D       " + "".join(f"{number:<10}" for number in range(len(agents))), ""]
        for number, agent in enumerate(agents):
            cells = "".join(f"{cell(agent, other):<10}" for other in agents)
            lines += [f"{number:<10}{cells}", ""]
    return "\n".join([*lines, "Unidirectional copy peak bandwidth GB/s", ""])


def bus(machine: Machine, interfaces: int = 0) -> tuple[dict[str, str], dict[str, str]]:
    """Files and links of GPUs below bridges, with a network card beside every second GPU."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    top = "/sys/bus/pci/devices"
    for index, card in enumerate(machine.cards):
        above = bridges_of(index)
        for place, address in enumerate(above):
            for name, value in {
                "vendor": "0x1022",
                "device": f"0x14a{place}",
                "class": "0x060400",
                "current_link_speed": "32.0 GT/s PCIe",
                "current_link_width": "16",
                "max_link_speed": f"{32 if place else 64}.0 GT/s PCIe",
                "max_link_width": "16",
            }.items():
                files[f"{top}/{address}/{name}"] = value + "\n"
        links[f"{top}/{card.bdf}"] = "../../../devices/pci0000:10/" + "/".join([*above, card.bdf])
    for number in range(interfaces):
        above = bridges_of(2 * number)[:2]
        address = f"0000:{0x14 + 0x20 * number:02x}:00.0"
        device = "../../devices/pci0000:10/" + "/".join([*above, address])
        links[f"/sys/class/net/ens{number}"] = f"{device}/net/ens{number}"
        links[f"/sys/class/infiniband/mlx5_{number}"] = f"{device}/infiniband/mlx5_{number}"
        base = f"/sys/class/net/ens{number}"
        files[f"{base}/speed"] = "400000\n"
        files[f"{base}/operstate"] = "up\n"
        files[f"{base}/device/numa_node"] = f"{machine.cards[2 * number].numa}\n"
    return files, links
