# SPDX-License-Identifier: GPL-3.0-or-later

"""Cut a whole host into replicas at once, so that the sum of their costs is the least.

Why jointly: asking for one replica after the other leaves the last ones the scraps, which is
where the allocators of the device plugins lose (docs/explanation/placement.md). Each replica is
bound to CPUs and memory of its GPUs' NUMA nodes, and the nearest NICs are named.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import ApiaryError, Finding
from ..numbers import format_cpulist, parse_cpulist
from ..topology.types import Gpu, Nic, NumaNode, Topology
from .costs import COSTS, Cells, Prices, Vector, cells, fragmentation, usable
from .cut import Cuts, Members, cut
from .request import spelled, wanted
from .types import Placement, ReplicaPlacement, Request, RunnerUp


def place(topology: Topology, request: Request) -> Placement:
    """Return the cheapest cut of the host's usable GPUs into the wanted replicas.

    Equal costs are decided by what stays free, then by the lowest BDFs: the same host always
    gives the same placement. Raises ApiaryError with a PLACE-* finding (`request.wanted`), and
    with what is wrong with the host, such as the GPU that is missing.
    """
    return place_together(topology, request, (len(request.sizes),))[0]


def place_together(
    topology: Topology, request: Request, counts: Sequence[int]
) -> tuple[Placement, ...]:
    """Place the replicas of several deployments at once, and return each one's part of the cut.

    ``counts`` says how many of the request's replicas are each deployment's, in order. Costs are
    those of the part; ``exact``, what stays free and the runner-up are of the whole cut. A refusal
    tells what that of ``place`` does.
    """
    try:
        return Placed(topology, request).parts(counts)
    except ApiaryError as refusal:
        carried = [item for item in topology.findings if item.severity != "info"]
        raise ApiaryError(*refusal.findings, *carried) from None


class Placed:
    """The cut of one host, before it is put into words and bound to CPUs."""

    def __init__(self, topology: Topology, request: Request, runner_up: bool = True) -> None:
        self.topology = topology
        self.request = request
        self.wanted = wanted(topology, request)
        self.keys = self.wanted.usable
        self.prices: Prices = COSTS[request.cost](topology, self.keys)
        self.where: Cells = cells(topology, self.keys)
        self.cuts: Cuts = cut(
            self.prices, self.where, request.sizes, self.wanted.required, runner_up
        )
        self.replicas = self.named(self.cuts.best)
        self.costs = [self.prices.of(members) for members in self.cuts.best]

    def named(self, sets: Members) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.keys[member] for member in members) for members in sets)

    def free(self, sets: Members) -> list[int]:
        taken = {member for members in sets for member in members}
        return [place for place in range(len(self.keys)) if place not in taken]

    def findings(self, part: slice = slice(None)) -> Iterator[Finding]:
        """Yield what is to be said of the cut itself, and of the replicas of one part of it."""
        host = self.topology.host
        if not self.cuts.exact:
            yield Finding(
                "PLACE-NOT-EXACT",
                host,
                f"the search for {spelled(self.request.sizes)} on {len(self.keys)} devices "
                "ended before it was proven that no cut costs less",
            )
        wishes = [
            bool(keys) and not stays
            for keys, stays in zip(self.request.keep, self.wanted.kept, strict=False)
        ]
        moved = [str(replica) for replica, lost in enumerate(wishes[part]) if lost]
        if moved:
            yield Finding(
                "PLACE-MOVED",
                host,
                f"replica {', '.join(moved)} can't keep the GPUs it has: not all of them are "
                "usable and free for it, or its size is another",
            )

    def parts(self, counts: Sequence[int]) -> tuple[Placement, ...]:
        """Return the decision in parts of so many replicas each, bound to CPUs together."""
        bindings, notes = bind(self.topology, self.replicas, counts)
        free = self.free(self.cuts.best)
        left = usable(self.where, free)
        ends = list(itertools.accumulate(counts))
        return tuple(
            Placement(
                host=self.topology.host,
                cost_function=self.request.cost,
                cost_fields=self.prices.fields,
                replicas=tuple(
                    ReplicaPlacement(
                        gpus=gpus,
                        cost=cost,
                        cpus=binding.cpus,
                        memory_nodes=binding.memory_nodes,
                        nics=binding.nics,
                    )
                    for gpus, cost, binding in zip(
                        self.replicas[part], self.costs[part], bindings[part], strict=True
                    )
                ),
                cost=total(self.costs[part]),
                exact=self.cuts.exact,
                free=tuple(self.keys[place] for place in free),
                usable=left,
                runner_up=self.runner_up(part),
                findings=(*self.findings(part), *more),
            )
            for part, more in zip(
                (slice(end - count, end) for end, count in zip(ends, counts, strict=True)),
                notes,
                strict=True,
            )
        )

    def runner_up(self, part: slice) -> RunnerUp | None:
        """Return a part of the next best cut; what decided between the two is of the whole."""
        sets = self.cuts.runner_up
        if sets is None:
            return None
        costs = [self.prices.of(members) for members in sets]
        first, second = total(self.costs), total(costs)
        reason = "equal cost; the cut with the lowest BDFs is taken"
        for name, ours, theirs in zip(self.prices.fields, first, second, strict=True):
            if ours != theirs:
                reason = f"{name} {theirs} against {ours}"
                break
        else:
            mine, other = self.lost(self.cuts.best), self.lost(sets)
            if mine != other:
                reason = (
                    "equal cost, but what stays free is cut up more: "
                    f"fragmentation {other[0]} against {mine[0]}"
                    + (f", scattered pairs {other[1]} against {mine[1]}" * (mine[0] == other[0]))
                )
        if not self.cuts.runner_up_exact:
            reason += "; the next best one found, not proven to be the next best there is"
        if len(sets[part]) < len(sets):
            reason += "; of all deployments of the host together"
        return RunnerUp(replicas=self.named(sets)[part], cost=total(costs[part]), reason=reason)

    def lost(self, sets: Members) -> tuple[int, int]:
        free = self.free(sets)
        levels = []
        for level in self.where.levels:
            counts: dict[int, int] = {}
            for place in free:
                if level[place] >= 0:
                    counts[level[place]] = counts.get(level[place], 0) + 1
            levels.append(list(counts.values()))
        return fragmentation(levels)


def total(costs: Sequence[Vector]) -> Vector:
    """Return the sum of costs, by component."""
    return tuple(map(sum, zip(*costs, strict=True)))


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
