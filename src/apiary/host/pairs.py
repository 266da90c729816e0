# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs with their partitions and what links them, as pictures and tables show them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    LinkType,
    Topology,
)

# What a pair is drawn as: xGMI, xGMI over other GPUs, PCIe, nobody knows, or not what it should be.
Kind = Literal["xgmi", "far", "pcie", "unknown", "broken"]
KINDS: tuple[Kind, ...] = ("xgmi", "far", "pcie", "unknown", "broken")
NAMES: Mapping[Kind, str] = {
    "xgmi": "xGMI",
    "far": "xGMI over other GPUs",
    "pcie": "PCIe",
    "unknown": "link type unknown",
    "broken": "xGMI link lost or down",
}
Members = Sequence[tuple[str, Gpu]]
# What the finding of a missing GPU says; nobody else counts boards.
_MISSING = re.compile(r"(?P<count>\d+) (?P<model>.+?) are on .*boards carry (?P<carried>\d+)")


@dataclass(frozen=True)
class Pair:
    """Two boards and the worst link among their partitions; ``keys`` are all GPUs at both ends."""

    a: str
    b: str
    kind: Kind
    type: LinkType | None
    weight: int | None
    bandwidth_mb_s: int | None
    keys: tuple[str, ...]

    def other(self, board: str) -> str:
        """Return the other end."""
        return self.b if board == self.a else self.a

    @property
    def letter(self) -> str:
        """Return what stands for the pair in a table: X15 and the like, with ! where broken."""
        letter = {"xgmi": "X", "pcie": "P", None: "?"}[self.type]
        return f"{letter}{self.weight or ''}{'!' if self.kind == 'broken' else ''}"


def boards(topology: Topology) -> dict[str, list[tuple[str, Gpu]]]:
    """Return the partitions of each GPU by its address; an unpartitioned GPU has one."""
    matches: dict[str, list[tuple[str, Gpu]]] = {}
    for key, gpu in topology.by_key.items():
        matches.setdefault(board_of(key), []).append((key, gpu))
    return matches


def board_of(key: str) -> str:
    """Return the address of the GPU that a key is a partition of."""
    return key.split("#")[0]


def best_pairs(topology: Topology, broken: Iterable[tuple[str, str]] = ()) -> list[Pair]:
    """Return every pair of usable boards, in order; none where the host's links are not known.

    ``broken`` are pairs that a finding says are not linked as they should be; one that is PCIe
    within a group that xGMI connects is broken without being named.
    """
    members = boards(topology)
    if not topology.links:
        return []
    between: dict[tuple[str, str], list[Link]] = {}
    for link in topology.links:
        ends = ordered(board_of(link.a), board_of(link.b))
        if ends[0] != ends[1] and ends[0] in members and ends[1] in members:
            between.setdefault(ends, []).append(link)
    worst = {ends: _worst(links) for ends, links in between.items()}
    hive = _connected(members, [ends for ends, kind in worst.items() if kind == "xgmi"])
    named = {ordered(*map(board_of, ends)) for ends in broken}
    usable = [
        name for name, gpus in members.items() if any(g.healthy is not False for _, g in gpus)
    ]
    # A way out of a partition weighs more than one from GPU to GPU, however short it is.
    split = {ends: any(len(members[board]) > 1 for board in ends) for ends in between}
    near: dict[bool, int] = {}
    for ends, links in between.items():
        weight = _weight(links)
        if worst[ends] == "xgmi" and weight:
            near[split[ends]] = min(weight, near.get(split[ends], weight))
    pairs = []
    for ends in sorted({*between, *(ordered(a, b) for a, b in itertools.combinations(usable, 2))}):
        links = between.get(ends, [])
        type_, weight = worst.get(ends), _weight(links)
        kind: Kind = type_ or "unknown"
        if ends in named or (type_ == "pcie" and hive[ends[0]] == hive[ends[1]]):
            kind = "broken"
        elif type_ == "xgmi" and weight and weight > near[split[ends]]:
            kind = "far"
        widths = [link.bandwidth_mb_s[1] for link in links if link.bandwidth_mb_s]
        keys = tuple(key for board in ends for key, _gpu in members[board])
        pairs.append(Pair(*ends, kind, type_, weight, min(widths, default=None), keys))
    return pairs


def hives(topology: Topology) -> dict[str, str]:
    """Return the letter of each board's xGMI group; {} where there are not at least two groups."""
    members = boards(topology)
    result = _connected(members, [(p.a, p.b) for p in best_pairs(topology) if p.type == "xgmi"])
    sizes = [list(result.values()).count(first) for first in dict.fromkeys(result.values())]
    groups = [
        first for first, size in zip(dict.fromkeys(result.values()), sizes, strict=True) if size > 1
    ]
    if len(groups) < 2:
        return {}
    letters = {first: chr(ord("A") + number) for number, first in enumerate(groups[:26])}
    return {board: letters[first] for board, first in result.items() if first in letters}


def missing(topology: Topology) -> list[tuple[str, int | None]]:
    """Return model and OAM id (None: unknown) of each GPU that a finding misses on its board."""
    ids: dict[str, list[int | None]] = {}
    for gpus in boards(topology).values():
        if gpus[0][1].model and not gpus[0][1].virtual_function:
            ids.setdefault(gpus[0][1].model, []).append(gpus[0][1].oam_id)
    empty: list[tuple[str, int | None]] = []
    for finding in topology.findings:
        match = _MISSING.match(finding.message)
        if finding.code != "TOPO-GPU-MISSING" or not match or match["model"] not in ids:
            continue
        here = ids[match["model"]]
        count = -int(match["count"]) % max(int(match["carried"]), 1)
        free = sorted(set(range(len(here) + count)) - set(here))
        # The ids tell the places only where every GPU has one of its own, from 0 on.
        certain = len(free) == count
        empty += [(match["model"], free[number] if certain else None) for number in range(count)]
    return empty


def summary_of(topology: Topology, pairs: Sequence[Pair]) -> str:
    """Return a host in one line: models, modes, NUMA nodes, links between its GPUs."""
    result = boards(topology)
    models = Counter(
        (gpus[0][1].model or "AMD GPU") + " VF" * bool(gpus[0][1].virtual_function)
        for gpus in result.values()
    )
    parts = [f"{count} × {name}" for name, count in models.items()] or ["no usable GPU"]
    if len(result) < len(topology.gpus):
        parts[-1] += f" as {len(topology.gpus)} partitions"
    if empty := missing(topology):
        parts.append(f"{len(empty)} missing")
    sizes = {gpu.vram_bytes for gpu in topology.gpus if gpu.vram_bytes}
    if len(sizes) == 1 and all(gpu.vram_bytes for gpu in topology.gpus):
        parts.append(f"{sizes.pop() / 2**30:.0f} GiB each")
    modes = {
        f"{gpu.compute_partition}/{gpu.memory_partition}"
        for gpu in topology.gpus
        if gpu.compute_partition and gpu.memory_partition
    }
    parts += sorted(modes) if len(modes) == 1 else []
    nodes = len(topology.numa_nodes)
    parts += [f"{nodes} NUMA node{'s' if nodes > 1 else ''}"] if nodes else []
    nics = len(topology.nics)
    parts += [f"{nics} NIC{'s' if nics > 1 else ''}"] if nics else []
    kinds = Counter(pair.kind for pair in pairs)
    shown = {"far": "indirect xGMI", "unknown": "unknown", "broken": "lost xGMI"}
    for kind in KINDS:
        if kinds[kind]:
            name = shown.get(kind, NAMES[kind])
            parts.append(f"{kinds[kind]:,} {name} link{'s' if kinds[kind] > 1 else ''}")
    if not pairs and len(result) > 1:
        parts.append("links not known")
    return " · ".join(parts)


def runs(values: Sequence[int | None], prefix: str = "") -> str | None:
    """Return numbers in their order with runs shortened, "0-3,7", or None where none is known."""
    if all(value is None for value in values):
        return None
    parts: list[list[int | None]] = []
    for value in values:
        last = parts[-1][-1] if parts else None
        if value is not None and last is not None and value == last + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    texts = [
        f"{part[0]}-{part[-1]}" if len(part) > 1 else "?" if part[0] is None else str(part[0])
        for part in parts
    ]
    return prefix + ",".join(texts)


def node_number(name: str | None) -> int | None:
    """Return the number at the end of a device node's name, renderD128 or card1."""
    digits = (name or "").lstrip("abcdefghijklmnopqrstuvwxyzD")
    return int(digits) if digits.isdecimal() else None


def gigabits(mb_s: int | None) -> str | None:
    """Return MB/s as the Gb/s that networks are sold by."""
    return f"{mb_s * 8 / 1000:.3g} Gb/s" if mb_s else None


def ordered(a: str, b: str) -> tuple[str, str]:
    """Return two ends, the lower one first."""
    return (a, b) if a <= b else (b, a)


def _worst(links: list[Link]) -> LinkType | None:
    types = {link.type for link in links}
    return "pcie" if "pcie" in types else "xgmi" if types == {"xgmi"} else None


def _weight(links: list[Link]) -> int | None:
    return max((link.weight for link in links if link.weight), default=None)


def _connected(names: Iterable[str], linked: list[tuple[str, str]]) -> dict[str, str]:
    """Return for each board the first one of those that xGMI connects it with."""
    group = {name: name for name in names}
    for a, b in linked:
        old, new = sorted((group[a], group[b]), reverse=True)
        group = {name: new if first == old else first for name, first in group.items()}
    return group
