# SPDX-License-Identifier: GPL-3.0-or-later

"""Bind each replica to CPUs and memory of its GPUs' NUMA nodes, and name the nearest NICs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import Finding
from ..numbers import format_cpulist, parse_cpulist
from ..topology.types import Gpu, Nic, NumaNode, Topology


@dataclass(frozen=True)
class Binding:
    """CPUs as a cpulist and memory nodes; None and () where the host doesn't say. NICs by name."""

    cpus: str | None
    memory_nodes: tuple[int, ...]
    nics: tuple[str, ...] = ()


def bind(
    topology: Topology, replicas: Sequence[Sequence[str]], counts: Sequence[int]
) -> tuple[list[Binding], list[list[Finding]]]:
    """Return each replica's binding, and what is to be said of each part of ``counts`` replicas.

    A node's physical cores, but for the first ones that the system keeps, go to the replicas on
    it in proportion to their GPUs there, SMT siblings together. A replica with a GPU of unknown
    NUMA node stays unbound (PLACE-NUMA-UNKNOWN); replicas share a node's CPUs where it has fewer
    cores than replicas (PLACE-CPUS-SHARED).
    """
    gpus = topology.by_key
    nodes = {node.id: node for node in topology.numa_nodes}
    spans = [Counter(gpus[key].numa_node for key in keys) for keys in replicas]
    covered = [all(node in nodes for node in span) for span in spans]
    shares, crowded = _shares(
        nodes, [span if k else {} for span, k in zip(spans, covered, strict=True)]
    )
    bindings: list[Binding] = []
    findings: list[list[Finding]] = [[] for _count in counts]
    owners = [(part, own) for part, count in enumerate(counts) for own in range(count)]
    for index, span in enumerate(spans):
        part, own = owners[index]
        nics = _nearest_nics(topology, [gpus[key] for key in replicas[index]])
        if not covered[index]:
            why = "the NUMA node of at least one of its GPUs is unknown"
            if None not in span:
                strange = ", ".join(
                    str(node) for node in sorted(span, key=str) if node not in nodes
                )
                why = f"nothing tells the CPUs of NUMA node {strange}"
            findings[part].append(
                Finding(
                    "PLACE-NUMA-UNKNOWN", topology.host, f"replica {own}: {why}; it is left unbound"
                )
            )
            bindings.append(Binding(None, (), nics))
            continue
        memory_nodes = tuple(sorted(node for node in span if node is not None))
        cpus = [cpu for core in shares[index] for cpu in parse_cpulist(core)]
        bindings.append(Binding(format_cpulist(cpus) or None, memory_nodes, nics))
    for node, count in crowded:
        shared = Finding(
            "PLACE-CPUS-SHARED",
            topology.host,
            f"NUMA node {node} has fewer cores than the {count} replicas on it; "
            "they share its CPUs",
        )
        there = {part for (part, _own), span in zip(owners, spans, strict=True) if node in span}
        for part in sorted(there):
            findings[part].append(shared)
    return bindings, findings


def _shares(
    nodes: Mapping[int, NumaNode], spans: Sequence[Mapping[int | None, int]]
) -> tuple[list[list[str]], list[tuple[int, int]]]:
    """Return each replica's cores, and the nodes whose cores all of their replicas share."""
    shares: list[list[str]] = [[] for _span in spans]
    crowded: list[tuple[int, int]] = []
    for node in sorted(nodes):
        there = [index for index, span in enumerate(spans) if node in span]
        cores = _cores(nodes[node])
        if len(cores) < len(there):
            crowded.append((node, len(there)))
            for index in there:
                shares[index] += cores
            continue
        # Every replica gets a core, the others go by the number of its GPUs on the node.
        spare = len(cores) - len(there)
        bounds = list(itertools.accumulate((spans[index][node] for index in there), initial=0))
        start = 0
        for place, index in enumerate(there):
            end = place + 1 + spare * bounds[place + 1] // bounds[-1]
            shares[index] += cores[start:end]
            start = end
    return shares, crowded


def _cores(node: NumaNode) -> list[str]:
    """Return a node's cores without those that the system keeps: the first ones, as CPU 0 is."""
    rules = knowledge("placement.yml")["system_cores"]
    cores = list(node.cores or [str(cpu) for cpu in parse_cpulist(node.cpus)])
    return cores[min(rules["most"]["value"], len(cores) // rules["one_of"]["value"]) :]


def _nearest_nics(topology: Topology, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return the NICs nearest to any of these GPUs, by name: RDMA devices first, links up first.

    Nearest shares most of the PCIe path, then the NUMA node; equally near ones are all named.
    """
    rdma = [nic for nic in topology.nics if nic.rdma_device]
    candidates = [nic for nic in rdma or topology.nics if nic.up is not False]
    nearest: set[str] = set()
    for gpu in gpus:
        far = {nic.name: _distance(topology, gpu, nic) for nic in candidates}
        least = min(far.values(), default=None)
        nearest |= {name for name, distance in far.items() if distance == least}
    return tuple(sorted(nearest))


def _distance(topology: Topology, gpu: Gpu, nic: Nic) -> tuple[int, int]:
    """Return how far a NIC is from a GPU: bridges not shared on the way up, then node distance."""
    shared = len(
        list(
            itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(gpu.pci_path, nic.pci_path, strict=False)
            )
        )
    )
    if gpu.numa_node is None or nic.numa_node is None:
        return -shared, 0
    ids = [node.id for node in topology.numa_nodes]
    for node in topology.numa_nodes:
        if node.id == gpu.numa_node and nic.numa_node in ids and len(node.distances) == len(ids):
            return -shared, node.distances[ids.index(nic.numa_node)]
    return -shared, 10 if gpu.numa_node == nic.numa_node else 20
