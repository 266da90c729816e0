# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NUMA nodes, as /sys/devices/system/node shows them."""

from __future__ import annotations

from pathlib import Path

from . import mi325x
from .machine import Machine
from .tree import Tree

NODES = "devices/system/node"
LOCAL_DISTANCE = 10

# In the kernel's order. vLLM on CPUs reads several of them and wants them all to be there.
MEMINFO_KEYS = """
MemTotal MemFree MemUsed SwapCached Active Inactive Active(anon) Inactive(anon) Active(file)
Inactive(file) Unevictable Mlocked Dirty Writeback FilePages Mapped AnonPages Shmem KernelStack
PageTables SecPageTables NFS_Unstable Bounce WritebackTmp KReclaimable Slab SReclaimable
SUnreclaim AnonHugePages ShmemHugePages ShmemPmdMapped FileHugePages FilePmdMapped
HugePages_Total HugePages_Free HugePages_Surp
"""
# Percent of the node's memory; an idle host.
MEMINFO_SHARES = {
    "MemTotal": 100,
    "MemFree": 97,
    "MemUsed": 3,
    "Active": 1,
    "Inactive": 1,
    "Active(file)": 1,
    "Inactive(file)": 1,
    "FilePages": 2,
}
NUMASTAT = """\
numa_hit 1000000
numa_miss 0
numa_foreign 0
interleave_hit 100
local_node 1000000
other_node 0"""


def write_numa(tree: Tree, machine: Machine) -> None:
    """Write every node, and the lists of nodes."""
    for node in range(machine.numa_nodes):
        _write_node(tree, machine, node)
    last = machine.numa_nodes - 1
    online = f"0-{last}" if last else "0"
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        tree.write(f"{NODES}/{name}", online)


def _write_node(tree: Tree, machine: Machine, node: int) -> None:
    directory = f"{NODES}/node{node}"
    distances = [
        LOCAL_DISTANCE if other == node else mi325x.WEIGHT_CPU
        for other in range(machine.numa_nodes)
    ]
    tree.write_all(
        directory,
        {
            "cpulist": machine.cpulist(node),
            "cpumap": machine.cpumask(node),
            "distance": " ".join(map(str, distances)),
            "meminfo": _meminfo(node, machine.node_memory_gib * 2**20),
            "numastat": NUMASTAT,
        },
    )
    for cpu in machine.cpus(node):
        # A link must not dangle: only the machine's own CPUs have a directory.
        if Path(f"/sys/devices/system/cpu/cpu{cpu}").is_dir():
            tree.link(f"{directory}/cpu{cpu}", f"devices/system/cpu/cpu{cpu}")


def _meminfo(node: int, kib: int) -> str:
    lines = []
    for key in MEMINFO_KEYS.split():
        value = kib * MEMINFO_SHARES.get(key, 0) // 100
        unit = "" if key.startswith("HugePages_") else " kB"
        lines.append(f"Node {node} {key + ':':15} {value:8}{unit}")
    return "\n".join(lines)
