# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The allocators' recorded requests, as topologies and requests of our own."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    NumaNode,
    Topology,
)

# What a pair weighs that the plugin has no entry for (docs/explanation/placement.md).
NO_LINK = 90


@dataclass(frozen=True)
class Case:
    """One request, and what the peers made of it; sets are positions of devices.

    ``plugin`` and ``nvidia`` are their picks, None where they gave none; ``optimum`` is the least
    total weight, None where nobody found it; ``seconds`` are theirs.
    """

    kind: str
    topology: str
    available: tuple[int, ...]
    sizes: tuple[int, ...]
    required: tuple[int, ...]
    plugin: tuple[tuple[int, ...], ...] | None
    nvidia: tuple[tuple[int, ...], ...] | None
    optimum: int | None
    plugin_us: float | None = None
    nvidia_us: float | None = None


@dataclass(frozen=True)
class Cases:
    """All topologies by name, their pair weights, and all requests."""

    topologies: Mapping[str, Topology]
    keys: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, Mapping[tuple[int, int], int]]
    requests: tuple[Case, ...]

    def request(self, case: Case, cost: str) -> Request:
        """Return a recorded request as one of ours."""
        keys, free = self.keys[case.topology], set(case.available)
        return Request(
            sizes=case.sizes,
            busy=tuple(key for place, key in enumerate(keys) if place not in free),
            require=(tuple(keys[member] for member in case.required),) if case.required else (),
            cost=cost,
        )

    def members(self, case: Case, sets: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return an answer of ours as positions of devices."""
        position = {key: number for number, key in enumerate(self.keys[case.topology])}
        return [[position[key] for key in keys] for keys in sets]

    def complete(self, topology: str) -> bool:
        """Tell whether all pairs have a link: only then is the recorded optimum ours."""
        return len(self.weights[topology]) == math.comb(len(self.keys[topology]), 2)

    def weight(self, topology: str, members: Sequence[int]) -> int:
        """Return the weight of a set; a missing link is the worst pair."""
        known = self.weights[topology]
        return sum(
            known.get((min(a, b), max(a, b)), NO_LINK)
            for place, a in enumerate(members)
            for b in members[:place]
        )


def load(path: Path) -> Cases:
    """Read the file of recorded requests."""
    data = json.loads(path.read_text())
    read = {name: _topology(name, entry) for name, entry in data["topologies"].items()}
    return Cases(
        topologies={name: topology for name, (topology, _keys) in read.items()},
        keys={name: keys for name, (_topology, keys) in read.items()},
        weights={
            name: {(i, j): weight for i, j, _type, _hops, _links, weight in entry["links"]}
            for name, entry in data["topologies"].items()
        },
        requests=tuple(_requests(data)),
    )


def sound(case: Case, sets: Sequence[Sequence[int]] | None) -> bool:
    """Tell whether a peer's picks are an answer: as many different devices as were asked for."""
    return sets is not None and [len(set(one)) for one in sets] == list(case.sizes)


def _topology(name: str, entry: Mapping[str, Any]) -> tuple[Topology, tuple[str, ...]]:
    """Return a recorded topology; partitions become `BDF#n`, as our reader names them."""
    devices = entry["devices"]
    shared = Counter(device["physical_gpu"] for device in devices)
    parents = {
        device["physical_gpu"]: device["bdf"]
        for device in reversed(devices)
        if ":" in device["bdf"]
    }
    seen: Counter[int] = Counter()
    gpus, keys = [], []
    for device in devices:
        parent = device["physical_gpu"]
        bdf = parents[parent]
        gpus.append(
            Gpu(
                bdf=bdf,
                partition=seen[parent],
                kfd_node=device["kfd_node"],
                numa_node=device["numa_node"],
            )
        )
        keys.append(f"{bdf}#{seen[parent]}" if shared[parent] > 1 else bdf)
        seen[parent] += 1
    links = [
        Link(
            a=min(keys[i], keys[j]),
            b=max(keys[i], keys[j]),
            type=kind,
            weight=15 * hops if kind == "xgmi" else 40,
            bandwidth_mb_s=(50000, 50000 * count) if kind == "xgmi" and count else None,
        )
        for i, j, kind, hops, count, _weight in entry["links"]
    ]
    nodes = sorted({device["numa_node"] for device in devices})
    return Topology(
        host=name,
        gpus=tuple(gpus),
        links=tuple(sorted(links, key=lambda link: (link.a, link.b))),
        numa_nodes=tuple(NumaNode(id=node, cpus="") for node in nodes),
    ), tuple(keys)


def _requests(data: Mapping[str, Any]) -> Iterator[Case]:
    for row in data["single"]:
        nvidia = row.get("nvidia") or {}
        plugin = row.get("plugin") or {}
        yield Case(
            kind="single",
            topology=row["topology"],
            available=tuple(row["available"]),
            sizes=(row["size"],),
            required=tuple(row["required"]),
            plugin=_picks([plugin.get("picked")]),
            nvidia=_picks([nvidia.get("picked")]),
            optimum=row.get("optimal_weight"),
            plugin_us=plugin.get("min_us"),
            nvidia_us=nvidia.get("min_us"),
        )
    for row in data["sequential"]:
        yield Case(
            kind="sequential",
            topology=row["topology"],
            available=tuple(row["available"]),
            sizes=tuple(row["sizes"]),
            required=(),
            plugin=_picks(row.get("plugin_picks")),
            nvidia=_picks(row.get("nvidia_picks")),
            optimum=row.get("optimal_total"),
        )
    for row in data["cpx_sequential"]:
        # Eight partitions a GPU; the first ones of each are the free ones.
        available = [
            gpu * 8 + part for gpu, count in enumerate(row["free_per_gpu"]) for part in range(count)
        ]
        yield Case(
            kind="cpx",
            topology="mi300x_cpx64",
            available=tuple(available),
            sizes=tuple(row["sizes"]),
            required=(),
            plugin=_dealt(row),
            nvidia=None,
            optimum=row.get("opt_total", row.get("lower_bound")),
        )


def _picks(sets: Sequence[Sequence[int] | None] | None) -> tuple[tuple[int, ...], ...] | None:
    if not sets or any(not members for members in sets):
        return None
    return tuple(tuple(members or ()) for members in sets)


def _dealt(row: Mapping[str, Any]) -> tuple[tuple[int, ...], ...] | None:
    if "picks_per_gpu" not in row:
        return None
    used = [0] * len(row["free_per_gpu"])
    sets = []
    for counts in row["picks_per_gpu"]:
        members: list[int] = []
        for gpu, count in enumerate(counts):
            members += [gpu * 8 + part for part in range(used[gpu], used[gpu] + count)]
            used[gpu] += count
        sets.append(tuple(members))
    return tuple(sets)
