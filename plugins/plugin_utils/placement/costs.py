# SPDX-License-Identifier: GPL-3.0-or-later

"""What a set of GPUs costs, and how good what stays free is for the next replica: pure functions.

A cost is a vector that is compared from the left, lower is better; functions have names. Most of
it is a sum over the pairs of a set; what is not depends on the set's NUMA nodes and links
(docs/explanation/placement).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..documents import knowledge
from ..topology.types import Link, Topology
from .types import Usable

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Prices:
    """The prices of one host's usable GPUs, by position.

    ``fields`` names the components; ``pairs[i][j]`` is what a pair adds to its set. ``spread`` is
    what a set costs for the distinct ``labels`` of its members, and never less for more of them;
    ``gaps`` what it costs for the ways its pairs hang together, from the members' ``pairs`` alone:
    GPUs of one label and equal pairs may stand for each other. Both are at most ``span_limit`` a
    component and member.
    """

    fields: tuple[str, ...]
    pairs: Sequence[Sequence[Vector]]
    labels: Sequence[object]
    spread: Callable[[Collection[object]], Vector] | None = None
    gaps: Callable[[Sequence[int]], Vector] | None = None
    span_limit: Vector = ()

    def of(self, members: Sequence[int]) -> Vector:
        """Return what a set costs."""
        total = [0] * len(self.fields)
        for index, a in enumerate(members):
            row = self.pairs[a]
            for b in members[:index]:
                for place, value in enumerate(row[b]):
                    total[place] += value
        more = []
        if self.spread is not None:
            more.append(self.spread({self.labels[member] for member in members}))
        if self.gaps is not None:
            more.append(self.gaps(members))
        return tuple(map(sum, zip(total, *more, strict=True)))


CostFunction = Callable[[Topology, Sequence[str]], Prices]


def fabric(topology: Topology, keys: Sequence[str]) -> Prices:
    """Price sets by how they are linked, then by the NUMA nodes they span. The default.

    ``extra_hives``: parts of the set without an xGMI link between them, less one. ``pcie_pairs``
    and ``pcie_weight``: the pairs without xGMI, and how far apart. ``xgmi_weight``: 15 a physical
    hop. ``missing_bandwidth``: GB/s short of the best linked pair of the host. ``extra_nodes``:
    NUMA nodes spanned, less one, and ``node_distance``: the SLIT distances between them.
    """
    rules = knowledge("placement.yml")["fabric"]
    unknown_weight, per_hop = rules["unknown_weight"]["value"], rules["weight_per_hop"]["value"]
    gpus = topology.by_key
    links = _links(topology)
    xgmi = [link for link in topology.links if link.type == "xgmi"]
    weights = [weight for link in xgmi if (weight := _weight(link, per_hop))]
    worst = max(weights, default=0)
    bandwidths = [most for link in xgmi if (most := _bandwidth(link))]
    best, least = max(bandwidths, default=0), min(bandwidths, default=0)
    cached: dict[tuple[object, ...], Vector] = {}

    def pair(link: Link | None) -> Vector:
        if link is None:
            return (0, 1, unknown_weight, 0, 0, 0, 0)
        kind = (link.type, link.weight, link.hops, link.bandwidth_mb_s)
        vector = cached.get(kind)
        if vector is None:
            if link.type == "xgmi":
                short = (best - (_bandwidth(link) or least)) // 1000
                vector = (0, 0, 0, _weight(link, per_hop) or worst, short, 0, 0)
            else:
                far = unknown_weight if link.weight is None else link.weight
                vector = (0, 1, far, 0, 0, 0, 0)
            cached[kind] = vector
        return vector

    nodes = [gpus[key].numa_node for key in keys]
    parents = physical_gpus(topology, keys)
    inside: Vector = (0, 0, 0, rules["weight_inside_gpu"]["value"], 0, 0, 0)
    pairs: list[list[Vector]] = [[inside] * len(keys) for _key in keys]
    for i, a in enumerate(keys):
        row = pairs[i]
        for j in range(i):
            if parents[i] != parents[j]:
                b = keys[j]
                row[j] = pairs[j][i] = pair(links.get((a, b) if a < b else (b, a)))
    distances: dict[tuple[object, object], int] = {
        (node.id, other.id): distance
        for node in topology.numa_nodes
        if len(node.distances) == len(topology.numa_nodes)
        for other, distance in zip(topology.numa_nodes, node.distances, strict=True)
    }
    all_linked = not any(vector[1] for row in pairs for vector in row)

    def spread(spanned: Collection[object]) -> Vector:
        far = sum(
            distances.get((a, b), 0) for a, b in itertools.combinations(sorted(spanned, key=str), 2)
        )
        return (0, 0, 0, 0, 0, max(len(spanned), 1) - 1, far)

    def gaps(members: Sequence[int]) -> Vector:
        return (max(_parts(members, pairs), 1) - 1, 0, 0, 0, 0, 0, 0)

    return Prices(
        fields=(
            "extra_hives",
            "pcie_pairs",
            "pcie_weight",
            "xgmi_weight",
            "missing_bandwidth",
            "extra_nodes",
            "node_distance",
        ),
        pairs=pairs,
        labels=nodes,
        spread=spread,
        gaps=None if all_linked else gaps,
        span_limit=(1, 0, 0, 0, 0, 1, 255 * max(1, len(set(nodes)))),
    )


def device_plugin(topology: Topology, keys: Sequence[str]) -> Prices:
    """Price sets as the ROCm Kubernetes device plugin does: the sum of its pair weights.

    A pair without a link counts as the worst pair; the plugin takes it for the best one.
    """
    weights = knowledge("placement.yml")["device_plugin"]
    same, other = weights["same_gpu"]["value"], weights["other_gpu"]["value"]
    near, far = weights["same_node"]["value"], weights["other_node"]["value"]
    by_type = {"xgmi": weights["xgmi"]["value"], "pcie": weights["pcie"]["value"]}
    any_link, no_link = weights["other_link"]["value"], weights["no_link"]["value"]
    gpus = topology.by_key
    links = _links(topology)
    parents = physical_gpus(topology, keys)
    nodes = [gpus[key].numa_node for key in keys]
    pairs: list[list[Vector]] = [[(0,)] * len(keys) for _key in keys]
    for i, a in enumerate(keys):
        for j in range(i):
            b = keys[j]
            link = links.get((a, b) if a < b else (b, a))
            if link is None:
                weight = no_link
            else:
                weight = same if parents[i] == parents[j] else other
                weight += by_type.get(link.type or "", any_link)
                weight += near if nodes[i] == nodes[j] else far
            pairs[i][j] = pairs[j][i] = (weight,)
    return Prices(fields=("weight",), pairs=pairs, labels=nodes)


COSTS: Mapping[str, CostFunction] = MappingProxyType(
    {"fabric": fabric, "device-plugin": device_plugin}
)


def physical_gpus(topology: Topology, keys: Sequence[str]) -> list[str]:
    """Return which physical GPU each device is or is part of.

    Partitions share the bus and device number of their BDF, and the unique id.
    """
    gpus = topology.by_key
    shared = Counter(gpu.unique_id for gpu in gpus.values() if gpu.unique_id)
    named: dict[str, str] = {}
    parents = []
    for key in keys:
        gpu = gpus[key]
        slot = (gpu.bdf or key).rpartition(".")[0] or key
        if gpu.unique_id and shared[gpu.unique_id] > 1:
            slot = named.setdefault(gpu.unique_id, slot)
        parents.append(slot)
    return parents


def _links(topology: Topology) -> dict[tuple[str, str], Link]:
    return {
        (link.a, link.b) if link.a < link.b else (link.b, link.a): link for link in topology.links
    }


def _weight(link: Link, per_hop: int) -> int | None:
    """Return an xGMI link's weight; the tools' own hop count is 1 whatever the way is."""
    if link.weight:
        return link.weight
    return per_hop * link.hops if link.hops is not None and link.hops > 1 else None


def _bandwidth(link: Link) -> int:
    """Return a link's largest bandwidth in MB/s; 0 where nobody reports it."""
    return link.bandwidth_mb_s[1] if link.bandwidth_mb_s else 0


def _parts(members: Sequence[int], pairs: Sequence[Sequence[Vector]]) -> int:
    """Return into how many parts a set falls along its xGMI links."""
    left = set(members)
    parts = 0
    while left:
        parts += 1
        queue = [left.pop()]
        while queue:
            row = pairs[queue.pop()]
            near = [other for other in left if not row[other][1]]
            left.difference_update(near)
            queue += near
    return parts


@dataclass(frozen=True)
class Cells:
    """Where each usable device is, by position: cells of numbers, from the widest to the narrowest.

    ``hives`` are the groups that xGMI connects, ``nodes`` those parts of them that lie on one NUMA
    node, ``gpus`` the partitions of one GPU; -1 for a device that is alone in its hive or GPU.
    """

    hives: tuple[int, ...]
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        levels = (self.hives, self.nodes, self.gpus)
        return tuple(level for level in levels if max(level, default=-1) >= 0)


def cells(topology: Topology, keys: Sequence[str]) -> Cells:
    """Return the cells of these devices."""
    gpus = topology.by_key
    hives = _shared(_hives(topology, keys))
    nodes = [(hive, gpus[key].numa_node) for hive, key in zip(hives, keys, strict=True)]
    return Cells(
        hives=_numbered(hives),
        nodes=_numbered(nodes),
        gpus=_numbered(_shared(physical_gpus(topology, keys))),
    )


def _shared(names: Sequence[str]) -> list[str | None]:
    """Return the names that more than one device has, None for the others."""
    counts = Counter(names)
    return [name if counts[name] > 1 else None for name in names]


def _numbered(names: Iterable[object]) -> tuple[int, ...]:
    numbers: dict[object, int] = {None: -1}
    return tuple(numbers.setdefault(name, len(numbers) - 1) for name in names)


def _hives(topology: Topology, keys: Sequence[str]) -> list[str]:
    """Return the first member of each device's xGMI group."""
    leader = {key: key for key in keys}

    def find(key: str) -> str:
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for link in topology.links:
        if link.type == "xgmi" and link.a in leader and link.b in leader:
            low, other = find(link.a), find(link.b)
            if low != other:
                leader[max(low, other)] = min(low, other)
    return [find(key) for key in keys]


def fragmentation(levels: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return what cutting the free devices up this way loses, from the free devices a cell a level.

    First the devices that whole replicas of 2, 4, 8 … could use if all were in one cell and can't
    as they are, summed over those sizes and the levels; then the pairs that lie in two cells.
    """
    lost = scattered = 0
    for counts in levels:
        total = sum(counts)
        size = 2
        while size <= total:
            lost += size * (total // size - sum(count // size for count in counts))
            size *= 2
        scattered += (total * total - sum(count * count for count in counts)) // 2
    return lost, scattered


def usable(where: Cells, free: Sequence[int]) -> tuple[Usable, ...]:
    """Return how many replicas of each size the free devices still hold without a PCIe hop."""
    # GPUs that nothing links are a hive each.
    hives = Counter(where.hives[index] if where.hives[index] >= 0 else ~index for index in free)
    nodes = Counter(where.nodes[index] for index in free)
    sizes = [size for size in (64, 32, 16, 8, 4, 2, 1) if size <= len(free)]
    return tuple(
        Usable(
            tensor_parallel_size=size,
            replicas=sum(count // size for count in hives.values()),
            on_one_node=sum(count // size for count in nodes.values()),
        )
        for size in sizes
    )
