# SPDX-License-Identifier: GPL-3.0-or-later

"""What stays free beside the replicas, and how good it is for the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..topology.types import Topology
from .costs import physical_gpus
from .types import Usable


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
