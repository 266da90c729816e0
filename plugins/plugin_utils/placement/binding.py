# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bind each replica to the CPUs and memory of the NUMA nodes its GPUs hang off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.cpulist import (
    format_cpulist,
    parse_cpulist,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    NumaNode,
    Topology,
)


@dataclass(frozen=True)
class Binding:
    """CPUs as a cpulist and memory nodes; None and () where the host doesn't say."""

    cpus: str | None
    memory_nodes: tuple[int, ...]


def bind(
    topology: Topology, replicas: Sequence[Sequence[str]]
) -> tuple[list[Binding], list[Finding]]:
    """Return each replica's binding: a node's physical cores are split fairly among its replicas.

    A replica with a GPU of unknown NUMA node stays unbound (PLACE-NUMA-UNKNOWN); replicas share
    a node's CPUs where it has fewer cores than replicas (PLACE-CPUS-SHARED).
    """
    gpus = topology.by_key
    nodes = {node.id: node for node in topology.numa_nodes}
    spans = [sorted({gpus[key].numa_node for key in keys}, key=str) for keys in replicas]
    known = [all(node in nodes for node in span) for span in spans]
    bindings: list[Binding] = []
    findings: list[Finding] = []
    for index, span in enumerate(spans):
        if not known[index]:
            findings.append(
                Finding(
                    "PLACE-NUMA-UNKNOWN",
                    "warning",
                    topology.host,
                    f"replica {index}: the NUMA node of at least one of its GPUs is unknown; "
                    "it is left unbound",
                    "bind it by hand if the host has more than one NUMA node",
                )
            )
            bindings.append(Binding(None, ()))
            continue
        cpus: list[int] = []
        memory_nodes = [node for node in span if node is not None]
        for node in memory_nodes:
            sharers = [
                other for other, theirs in enumerate(spans) if known[other] and node in theirs
            ]
            share, shared = _share(nodes[node], len(sharers), sharers.index(index))
            cpus += share
            if shared and index == sharers[0]:
                findings.append(
                    Finding(
                        "PLACE-CPUS-SHARED",
                        "warning",
                        topology.host,
                        f"NUMA node {node} has fewer cores than the {len(sharers)} replicas on it; "
                        "they share its CPUs",
                        "use fewer, larger replicas",
                    )
                )
        bindings.append(Binding(format_cpulist(cpus), tuple(memory_nodes)))
    return bindings, findings


def _share(node: NumaNode, sharers: int, position: int) -> tuple[list[int], bool]:
    """Return one sharer's CPUs of a node, SMT siblings together, and whether all share them all."""
    cores = node.cores or tuple(str(cpu) for cpu in parse_cpulist(node.cpus))
    shared = len(cores) < sharers
    if shared:
        mine = cores
    else:
        start, end = (len(cores) * step // sharers for step in (position, position + 1))
        mine = cores[start:end]
    return [cpu for core in mine for cpu in parse_cpulist(core)], shared
