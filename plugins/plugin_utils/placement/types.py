# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs, CPUs and memory nodes each replica gets: `apiary.placement/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding


@dataclass(frozen=True, order=True)
class Cost:
    """Lexicographic, lower is better; each field outweighs all after it.

    ``unlinked_pairs`` have no known xGMI path (PCIe or unknown), ``pcie_weight`` ranks those,
    ``xgmi_weight`` is the sum of link weights over xGMI pairs (15 per physical hop), and
    ``numa_crossings`` counts the pairs that lie on different NUMA nodes.
    """

    unlinked_pairs: int = 0
    pcie_weight: int = 0
    xgmi_weight: int = 0
    numa_crossings: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.unlinked_pairs + other.unlinked_pairs,
            self.pcie_weight + other.pcie_weight,
            self.xgmi_weight + other.xgmi_weight,
            self.numa_crossings + other.numa_crossings,
        )


@dataclass(frozen=True)
class ReplicaPlacement:
    """One replica's share of the host; ``gpus`` are topology keys in BDF order."""

    gpus: tuple[str, ...]
    cost: Cost
    cpus: str | None = None
    memory_nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunnerUp:
    """The best cut that was not taken, and what decided."""

    replicas: tuple[tuple[str, ...], ...]
    cost: Cost
    reason: str


@dataclass(frozen=True)
class Placement:
    """A whole host cut into replicas, jointly."""

    SCHEMA: ClassVar[str] = "apiary.placement/v1"

    host: str
    tensor_parallel_size: int
    replicas: tuple[ReplicaPlacement, ...]
    cost: Cost
    exact: bool
    free: tuple[str, ...] = ()
    runner_up: RunnerUp | None = None
    findings: tuple[Finding, ...] = ()
