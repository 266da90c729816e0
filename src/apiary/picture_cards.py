# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the NUMA nodes and GPUs of a picture stand, and what is written on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    NumaNode,
    Topology,
)

from apiary.pairs import boards

WIDTH = 900
MARGIN = 24
BOX_WIDTH = 300
PAD = 14
HEADER = 46
CARD_HEIGHT = 58
PARTITION_ROW = 26
PARTITIONS_A_ROW = 8
CARD_GAP = 12
BOX_GAP = 18
TITLE = 76

# Fill and line of each replica; distinct with common colour blindness (after Okabe and Ito).
COLOURS = (
    "#2f6fb7",
    "#d9822b",
    "#2b9a66",
    "#8a5cc2",
    "#c2487e",
    "#17929e",
    "#8c8a1f",
    "#7a5b45",
)
SEVERITIES = {"error": "#c62828", "warning": "#c77700", "info": "#5b6b7f"}


@dataclass(frozen=True)
class Cell:
    """A partition, drawn as a small square on its GPU."""

    x: float
    y: float
    width: float
    label: str
    colour: str | None
    healthy: bool


@dataclass
class Card:
    """A GPU: a rounded box with its names in every numbering."""

    x: float
    y: float
    width: float
    height: float
    left: bool
    title: str
    detail: str
    hint: str
    note: str
    colour: str | None
    healthy: bool
    mark: str | None
    cells: tuple[Cell, ...] = ()
    ports: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Box:
    """A NUMA node around its GPUs."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str


def numa_groups(topology: Topology) -> list[tuple[NumaNode | None, str, list[str]]]:
    """Return the NUMA nodes with their boards, in order; what has none comes last."""
    nodes = {node.id: node for node in topology.numa_nodes}
    members: dict[int | None, list[str]] = {node: [] for node in nodes}
    for board, gpus in boards(topology).items():
        members.setdefault(gpus[0][1].numa_node, []).append(board)
    numbers = sorted(node for node in members if node is not None)
    groups = [(nodes.get(node), f"NUMA node {node}", members[node]) for node in numbers]
    if members.get(None):
        groups.append((None, "NUMA node unknown" if numbers else "", members[None]))
    return [group for group in groups if group[2] or len(groups) <= 2]


def place_cards(
    topology: Topology,
    groups: Sequence[tuple[NumaNode | None, str, list[str]]],
    owner: dict[str, int],
    placed: bool,
) -> tuple[list[Box], dict[str, Card], float]:
    """Return boxes and cards, and where they end: first half of the nodes left, second right."""
    found = boards(topology)
    boxes: list[Box] = []
    cards: dict[str, Card] = {}
    ends = [float(TITLE), float(TITLE)]
    single = len(groups) == 1
    half = (len(groups) + 1) // 2
    for number, (node, title, members) in enumerate(groups):
        columns = [members] if not single else [members[: (len(members) + 1) // 2]]
        columns += [members[(len(members) + 1) // 2 :]] if single else []
        side = 0 if single or number < half else 1
        top, bottom = ends[side], ends[side] + HEADER
        for offset, column in enumerate(columns):
            y = top + HEADER
            for board in column:
                card = _card(topology, board, found[board], owner, placed)
                card.left = (side + offset) == 0
                card.x = MARGIN + PAD if card.left else WIDTH - MARGIN - BOX_WIDTH + PAD
                card.y = y
                cards[board] = _with_cells(card, found[board], owner)
                y += card.height + CARD_GAP
            bottom = max(bottom, y)
        x = MARGIN if side == 0 else WIDTH - MARGIN - BOX_WIDTH
        width = WIDTH - 2 * MARGIN if single else BOX_WIDTH
        boxes.append(Box(x, top, width, bottom - top + PAD - CARD_GAP, title, _node_text(node)))
        ends[side] = bottom + PAD - CARD_GAP + BOX_GAP
    return boxes, cards, max(ends) - BOX_GAP


def _node_text(node: NumaNode | None) -> str:
    if node is None:
        return ""
    parts = [f"CPUs {short_list(node.cpus, 26)}" if node.cpus else "no CPUs"]
    if node.memory_bytes:
        gib = node.memory_bytes / 2**30
        parts.append(f"{gib / 1024:.1f} TiB" if gib >= 1024 else f"{gib:.0f} GiB")
    return " · ".join(parts)


def _card(
    topology: Topology,
    board: str,
    members: Sequence[tuple[str, Gpu]],
    owner: dict[str, int],
    placed: bool,
) -> Card:
    first = members[0][1]
    model = first.model or ("AMD GPU" if first.bdf else "")
    split = len(members) > 1
    numbers = {owner.get(key) for key, _gpu in members}
    number = numbers.pop() if len(numbers) == 1 else None
    healthy = all(gpu.healthy is not False for _key, gpu in members)
    names = [
        f"{label} {value}"
        for label, value in (
            ("SMI", first.smi_index),
            ("HIP", first.hip_ordinal),
            ("KFD", first.kfd_node),
        )
        if value is not None
    ]
    detail = " · ".join([*names, *([first.render_node] if first.render_node else [])])
    if split:
        detail = f"{len(members)} partitions {first.compute_partition or ''}".strip()
    note = "" if not placed else "free" if number is None else f"replica {number}"
    if placed and split and (number is None and {owner.get(k) for k, _g in members} != {None}):
        note = "shared"
    rows = -(-len(members) // PARTITIONS_A_ROW) if split else 0
    return Card(
        x=0,
        y=0,
        width=BOX_WIDTH - 2 * PAD,
        height=CARD_HEIGHT + rows * PARTITION_ROW,
        left=True,
        title=f"{model}  {_short(board, topology)}".strip(),
        detail=detail or "no numbering known",
        hint=_hint(members),
        note=note if healthy else "unusable",
        colour=None if number is None else COLOURS[number % len(COLOURS)],
        healthy=healthy,
        mark=_mark(board, topology.findings),
    )


def _with_cells(card: Card, members: Sequence[tuple[str, Gpu]], owner: dict[str, int]) -> Card:
    """Give a partitioned GPU its squares, once it has its place."""
    if len(members) > 1:
        step = (card.width - 20) / PARTITIONS_A_ROW
        cells = []
        for position, (key, gpu) in enumerate(members):
            number = owner.get(key)
            row, column = divmod(position, PARTITIONS_A_ROW)
            cells.append(
                Cell(
                    card.x + 10 + column * step,
                    card.y + CARD_HEIGHT - 8 + row * PARTITION_ROW,
                    step - 4,
                    str(gpu.partition),
                    None if number is None else COLOURS[number % len(COLOURS)],
                    gpu.healthy is not False,
                )
            )
        card.cells = tuple(cells)
    return card


def _short(board: str, topology: Topology) -> str:
    """Return the address without its domain where the host has only domain 0000."""
    domains = {(gpu.bdf or "0000")[:4] for gpu in topology.gpus}
    return board[5:] if domains == {"0000"} and board[4:5] == ":" else board


def _hint(members: Sequence[tuple[str, Gpu]]) -> str:
    first = members[0][1]
    parts = [members[0][0].split("#")[0]]
    if first.vram_bytes:
        parts.append(f"{first.vram_bytes / 2**30:.0f} GiB")
    if first.unique_id:
        parts.append(f"GPU-{first.unique_id}")
    return ", ".join(parts)


def _mark(board: str, findings: Sequence[Finding]) -> str | None:
    """Return the colour of the worst finding that names the GPU."""
    name = re.compile(rf"(?<![\w:.]){re.escape(board)}(?![\w:])")
    named = {finding.severity for finding in findings if name.search(finding.message)}
    return next((SEVERITIES[s] for s in ("error", "warning") if s in named), None)


def short_list(text: str, width: int) -> str:
    """Return a cpulist that fits, cut at a comma."""
    if len(text) <= width:
        return text
    return text[:width].rpartition(",")[0] + ",…"
