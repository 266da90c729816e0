# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One simulated host: which GPUs it has, in what order they were probed, and where they sit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from . import mi325x
from .faults import PARTITIONS, Faults

GPUS = len(mi325x.BUSES)


class Device(NamedTuple):
    """What the driver makes of a GPU: the whole of it, or one of its compute partitions."""

    gpu: int
    partition: int


@dataclass(frozen=True)
class Machine:
    """The hardware that every view (PCI, DRM, KFD, NUMA) is made from.

    ``probe_ranks`` holds, for each GPU in bus order, when the driver saw it: the kernel
    numbers KFD nodes, cards and render nodes in that order.
    """

    numa_nodes: int = 2
    cpus_per_node: int = 1
    node_memory_gib: int = 1024
    bmc: bool = False
    probe_ranks: tuple[int, ...] = mi325x.PROBE_RANKS
    faults: Faults = field(default_factory=Faults)

    @property
    def device_id(self) -> int:
        """Return the GPUs' PCI device id."""
        return mi325x.VF_DEVICE_ID if self.faults.vf else mi325x.DEVICE_ID

    @cached_property
    def present(self) -> list[int]:
        """Return the GPUs on the bus, in the order of their probing."""
        gpus = [gpu for gpu in range(GPUS) if gpu not in self.faults.missing]
        return sorted(gpus, key=self.probe_ranks.__getitem__)

    def partitions(self, gpu: int) -> int:
        """Return how many devices the GPU's compute partition mode makes of it."""
        return PARTITIONS[self.faults.partition.get(gpu, "SPX")]

    @cached_property
    def cards(self) -> dict[Device, int]:
        """Return the DRM card number of each device; a BMC's display adapter takes card0.

        DRM has 64 numbers of a kind: with 64 partitions and a BMC, the last one gets none.
        """
        devices = [
            Device(gpu, part) for gpu in self.present for part in range(self.partitions(gpu))
        ]
        first = int(self.bmc)
        return {
            device: first + place
            for place, device in enumerate(devices)
            if first + place < mi325x.DRM_MINORS
        }

    @cached_property
    def render_minors(self) -> dict[Device, int]:
        """Return the number of each device's render node."""
        return {device: mi325x.FIRST_RENDER_MINOR + n for n, device in enumerate(self.cards)}

    @cached_property
    def kfd_nodes(self) -> dict[Device, int]:
        """Return the KFD node number of each device that has one; the CPUs come first."""
        devices = [device for device in self.cards if device.gpu not in self.faults.nokfd]
        return {device: self.numa_nodes + place for place, device in enumerate(devices)}

    def socket(self, gpu: int) -> int:
        """Return the NUMA node whose CPUs the GPU is wired to."""
        return min(gpu // (GPUS // self.numa_nodes), self.numa_nodes - 1)

    def numa_node(self, gpu: int) -> int:
        """Return the NUMA node that the PCI device reports."""
        return self.faults.numa.get(gpu, self.socket(gpu))

    def kfd_numa_node(self, gpu: int) -> int:
        """Return the CPU node that KFD links the GPU to: the reported one where it exists."""
        reported = self.numa_node(gpu)
        return reported if 0 <= reported < self.numa_nodes else 0

    def has_xgmi(self, gpu: int, peer: int) -> bool:
        """Say whether xGMI joins two GPUs; the partitions of one GPU always are."""
        if gpu == peer:
            return True
        hives = self.faults.hives
        together = any({gpu, peer} <= hive for hive in hives) if hives else True
        return together and frozenset((gpu, peer)) not in self.faults.pcie

    def xgmi_weight(self, device: Device, peer: Device) -> int:
        """Return the weight of the xGMI path from one device to another.

        15 between whole GPUs; in partition modes 13 inside a GPU and 41 between two.
        """
        if device.gpu == peer.gpu:
            return mi325x.WEIGHT_INSIDE
        whole = self.partitions(device.gpu) == self.partitions(peer.gpu) == 1
        usual = mi325x.WEIGHT_XGMI if whole else mi325x.WEIGHT_BETWEEN
        return self.faults.weight.get((device.gpu, peer.gpu), usual)

    def vram_bytes(self, gpu: int) -> int:
        """Return the memory that the GPU reports, all its partitions together."""
        return self.faults.vram.get(gpu, mi325x.VRAM_BYTES)

    def cpus(self, node: int) -> range:
        """Return the CPUs of a NUMA node."""
        return range(node * self.cpus_per_node, (node + 1) * self.cpus_per_node)

    def cpulist(self, node: int) -> str:
        """Return a node's CPUs as sysfs lists them; the empty list for no node."""
        if not 0 <= node < self.numa_nodes:
            return ""
        cpus = self.cpus(node)
        return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}-{cpus[-1]}"

    def cpumask(self, node: int) -> str:
        """Return a node's CPUs as a bitmap: 32-bit words, the highest first."""
        mask = sum(1 << cpu for cpu in self.cpus(node)) if 0 <= node < self.numa_nodes else 0
        words = max(1, -(-self.numa_nodes * self.cpus_per_node // 32))
        return ",".join(f"{mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def read_probe_ranks(text: str) -> tuple[int, ...]:
    """Return the probe ranks that ``bdf`` or a comma list names; ValueError if it is no order."""
    if text == "bdf":
        return tuple(range(GPUS))
    ranks = tuple(int(word) for word in text.split(","))
    if sorted(ranks) != list(range(GPUS)):
        raise ValueError(f"each of 0 to {GPUS - 1} once")
    return ranks
