# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as pictures and tables show it: GPUs, what links them, whose they are, what is wrong."""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, by_severity
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks.boards import (
    incomplete,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks.links import connected
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.checks.view import addresses
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    LinkType,
    Nic,
    Topology,
)

MANY = 16  # GPUs; the links of more of them are not drawn
# Findings that name pairs whose xGMI link is not what it should be.
BROKEN = ("TOPO-XGMI-ABSENT", "TOPO-XGMI-DOWN", "TOPO-XGMI-INDIRECT")
# What a pair is shown as: xGMI, xGMI over other GPUs, PCIe, unknown, or not what it should be.
Kind = Literal["xgmi", "far", "pcie", "unknown", "broken"]
NAMES: Mapping[Kind, str] = {
    "xgmi": "xGMI",
    "far": "xGMI over other GPUs",
    "pcie": "PCIe",
    "unknown": "link type unknown",
    "broken": "xGMI link lost or down",
}
MISSING = "missing"  # what the place of a missing GPU is called
# One GPU's or its partition's address, or those of the two ends of a link, the lower one first.
Ends = tuple[str, ...]


@dataclass(frozen=True)
class Board:
    """A GPU with its partitions, or the place of one that is missing; ``name`` is its address."""

    name: str
    devices: Mapping[str, Gpu]
    missing: bool = False

    @property
    def gpus(self) -> list[Gpu]:
        return list(self.devices.values())

    @property
    def first(self) -> Gpu:
        return self.gpus[0]

    @property
    def state(self) -> Literal["used", "unusable", "missing"]:
        usable = all(gpu.healthy is not False for gpu in self.gpus)
        return "missing" if self.missing else "used" if usable else "unusable"

    @property
    def model(self) -> str:
        """Return the model, or what else is known of the kind of GPU."""
        model = self.first.model or f"AMD GPU {self.first.device_id or ''}".strip()
        return model + " VF" * bool(self.first.virtual_function)

    @property
    def memory(self) -> str | None:
        vram = self.first.vram_bytes
        return f"{vram / 2**30:.0f} GiB" if vram else None

    @property
    def mode(self) -> str | None:
        modes = (self.first.compute_partition, self.first.memory_partition)
        return "/".join(filter(None, modes)) or None

    @property
    def numbers(self) -> dict[str, str | None]:
        """Return what tools and device files call it; partitions are ranges, in order."""
        gpus = self.gpus
        return {
            "SMI": runs([gpu.smi_index for gpu in gpus]),
            "HIP": runs([gpu.hip_ordinal for gpu in gpus]),
            "KFD": runs([gpu.kfd_node for gpu in gpus]),
            "renderD": runs([_node_number(gpu.render_node) for gpu in gpus]),
            "card": runs([_node_number(gpu.card) for gpu in gpus]),
            "OAM": runs([self.first.oam_id]),
        }


@dataclass(frozen=True)
class Pair:
    """Two boards and the worst link among their partitions."""

    ends: Ends
    links: Sequence[Link]
    broken: bool

    @property
    def kind(self) -> Kind:
        # Between partitions weights are others.
        hop = knowledge("placement.yml")["fabric"]["weight_per_hop"]["value"]
        whole = not any("#" in link.a + link.b for link in self.links)
        if self.broken:
            return "broken"
        if self.type == "xgmi" and whole and (self.weight or 0) > hop:
            return "far"
        return self.type or "unknown"

    @property
    def type(self) -> LinkType | None:
        types = {link.type for link in self.links}
        return "pcie" if "pcie" in types else "xgmi" if types == {"xgmi"} else None

    @property
    def weight(self) -> int | None:
        return max((link.weight for link in self.links if link.weight), default=None)

    @property
    def bandwidth_mb_s(self) -> int | None:
        widths = [link.bandwidth_mb_s[1] for link in self.links if link.bandwidth_mb_s]
        return min(widths, default=None)


@dataclass(frozen=True)
class View:
    """One host with the replicas that a placement cuts it into."""

    topology: Topology
    placement: Placement | None = None

    @cached_property
    def boards(self) -> dict[str, Board]:
        """Return the GPUs by address."""
        devices: dict[str, dict[str, Gpu]] = {}
        for key, gpu in self.topology.by_key.items():
            devices.setdefault(board_of(key), {})[key] = gpu
        return {name: Board(name, own) for name, own in devices.items()}

    @cached_property
    def missing(self) -> list[Board]:
        """Return the places of the GPUs that a finding misses on their board."""
        empty: list[Board] = []
        if not self._has("TOPO-GPU-MISSING"):
            return empty
        for model, (count, carried) in incomplete(self.topology.gpus).items():
            lost = -count % carried
            ids = {b.first.oam_id for b in self.boards.values() if b.first.model == model}
            free = sorted(set(range(count + lost)) - ids)
            # The ids tell the places only where every GPU has one of its own, from 0 on.
            places = free if len(free) == lost else [None] * lost
            empty += [
                Board(MISSING, {"": Gpu(None, model=model, oam_id=place)}, missing=True)
                for place in places
            ]
        return empty

    @cached_property
    def owner(self) -> dict[str, int]:
        """Return the replica of each GPU that has one."""
        replicas = self.placement.replicas if self.placement else ()
        return {key: number for number, share in enumerate(replicas) for key in share.gpus}

    @cached_property
    def findings(self) -> list[Finding]:
        """Return what is wrong with the host and its placement, each once, the worst first."""
        more = self.placement.findings if self.placement else ()
        distinct = dict.fromkeys((*self.topology.findings, *more))
        return sorted(distinct, key=by_severity)

    @cached_property
    def hives(self) -> dict[str, str]:
        """Return the letter of each board's xGMI group; {} where there are not at least two."""
        types = {(link.a, link.b): link.type for link in self.topology.links}
        groups = map(addresses, connected(list(self.topology.by_key), types))
        groups_of_several = [group for group in groups if len(group) > 1]
        if len(groups_of_several) < 2:
            return {}
        lettered = zip(string.ascii_uppercase, groups_of_several, strict=False)
        return {board: letter for letter, group in lettered for board in group}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Return every pair of usable boards, in order; none where no link is known."""
        between: dict[Ends, list[Link]] = {}
        for link in self.topology.links:
            between.setdefault(_ends(link.a, link.b), []).append(link)
        usable = sorted(name for name, board in self.boards.items() if board.state == "used")
        every = {*between, *itertools.combinations(usable, 2)} if between else set()
        broken = {
            ends
            for number, parts in self._parts.items()
            if self.findings[number - 1].code in BROKEN
            for ends in parts
        }
        return [
            Pair(ends, between.get(ends, []), ends in broken)
            for ends in sorted(every)
            if len(ends) == 2
        ]

    @cached_property
    def drawn(self) -> list[Pair]:
        """Return the pairs whose link is drawn, none of too many."""
        return self.pairs if len(self.boards) <= MANY else []

    @cached_property
    def marks(self) -> dict[Ends, list[int]]:
        """Return the numbers of the findings about each board and each pair that is drawn.

        Any other pair is marked at both its ends.
        """
        drawn = {pair.ends for pair in self.drawn}
        marks: dict[Ends, list[int]] = {}
        for number, parts in self._parts.items():
            alone = {(name,) for ends in parts if ends not in drawn for name in ends}
            for ends in sorted(alone | (parts & drawn)):
                marks.setdefault(ends, []).append(number)
        return marks

    @cached_property
    def _parts(self) -> dict[int, set[Ends]]:
        """Return the boards and pairs of them by the number of the finding that is about them.

        What is about every board is about the host.
        """
        all_of_host = dict(enumerate(self.topology.findings))
        marks = {all_of_host.get(mark.finding): mark.parts for mark in self.topology.marks}
        result: dict[int, set[Ends]] = {}
        for number, finding in enumerate(self.findings, 1):
            if finding.code == "TOPO-GPU-MISSING":
                result[number] = {(MISSING,)}
                continue
            parts = {_ends(*part) for part in marks.get(finding, ())}
            if len(self.boards) <= 2 or not {(name,) for name in self.boards} <= parts:
                result[number] = parts
        return result

    def partitions(self, board: Board) -> list[tuple[int, str | None]]:
        """Return number and key of a GPU's partitions, without key of one that a finding misses."""
        if len(board.devices) < 2:
            return []
        keys = {gpu.partition: key for key, gpu in board.devices.items()}
        numbers = set(keys)
        if self._has("TOPO-PARTITION-COUNT"):
            numbers |= set(range(max(len(other.devices) for other in self.boards.values())))
        return [(number, keys.get(number)) for number in sorted(numbers)]

    def sole_owner(self, *boards: Board) -> int | None:
        """Return the replica that has all of some GPUs."""
        owners = {self.owner.get(key) for board in boards for key in board.devices}
        return owners.pop() if len(owners) == 1 else None

    def near(self, nic: Nic) -> list[str]:
        """Return the GPUs behind the same PCIe root port as a network interface."""
        root = nic.pci_path[:1]
        return [b.name for b in self.boards.values() if root and b.first.pci_path[:1] == root]

    def _has(self, code: str) -> bool:
        return any(finding.code == code for finding in self.findings)

    @property
    def summary(self) -> str:
        """Return the host in one line: models, modes, NUMA nodes, links between its GPUs."""
        topology, boards = self.topology, self.boards.values()
        models = Counter(board.model for board in boards)
        parts = [f"{count} × {name}" for name, count in models.items()] or ["no usable GPU"]
        if len(boards) < len(topology.gpus):
            parts[-1] += f" as {len(topology.gpus)} partitions"
        if self.missing:
            parts.append(f"{len(self.missing)} missing")
        for values, text in (
            ({board.memory for board in boards}, "{} each"),
            ({board.mode for board in boards if "/" in (board.mode or "")}, "{}"),
        ):
            parts += [text.format(value) for value in values if value and len(values) == 1]
        for count, name in ((len(topology.numa_nodes), "NUMA node"), (len(topology.nics), "NIC")):
            parts += [f"{count} {name}{'s' * (count > 1)}"] if count else []
        kinds = Counter(pair.kind for pair in self.pairs)
        short = {**NAMES, "far": "indirect xGMI", "unknown": "unknown", "broken": "lost xGMI"}
        parts += [
            f"{kinds[kind]:,} {short[kind]} link{'s' * (kinds[kind] > 1)}"
            for kind in NAMES
            if kinds[kind]
        ]
        if not self.pairs and len(boards) > 1:
            parts.append("links not known")
        return " · ".join(parts)


def board_of(key: str) -> str:
    """Return the address of the GPU that a key is a partition of."""
    return key.split("#")[0]


def runs(values: Sequence[int | None]) -> str | None:
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
    return ",".join(texts)


def gigabits(mb_s: int | None) -> str | None:
    """Return MB/s as the Gb/s that networks are sold by."""
    return f"{mb_s * 8 / 1000:.3g} Gb/s" if mb_s else None


def _node_number(name: str | None) -> int | None:
    """Return the number at the end of a device node's name, renderD128 or card1."""
    digits = (name or "").lstrip(string.ascii_letters)
    return int(digits) if digits.isdecimal() else None


def _ends(*keys: str) -> Ends:
    return tuple(sorted({board_of(key) for key in keys}))
