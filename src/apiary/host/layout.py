# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the NUMA nodes, GPUs and network interfaces of a picture stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Nic, NumaNode

from apiary.host.cards import PAD, Card, Chip, Host, card_of, chip_of, empty_card, node_text
from apiary.host.pairs import boards, hives, missing

WIDTH = 900
MARGIN = 24
GAP = 12
BOX_GAP = 18
COLUMN = 300  # px of a box that stands left or right
CHIP = 28  # px from one network interface to the next
A_ROW = 6  # cards of a grid


@dataclass(frozen=True)
class Box:
    """A NUMA node around its GPUs and interfaces."""

    title: str
    detail: str
    x: float
    y: float
    width: float
    height: float


@dataclass
class Layout:
    """All that has its place, and where it ends."""

    boxes: list[Box] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)
    bottom: float = 0


@dataclass
class _Node:
    title: str
    node: NumaNode | None
    cards: list[Card] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)

    @property
    def height(self) -> float:
        return 60 + sum(card.height + GAP for card in self.cards) + CHIP * len(self.nics) / 2


def lay_out(host: Host, top: float) -> Layout:
    """Place all of a host, from this height on down.

    Up to 16 GPUs stand in two columns, the NUMA nodes in order left and right, with room for the
    links between; more stand in rows.
    """
    inner = WIDTH - 2 * MARGIN - 2 * PAD
    width = (inner - (A_ROW - 1) * GAP) / A_ROW if host.many else COLUMN - 2 * PAD
    nodes = _nodes(host, width)
    full = [node for node in nodes if node.cards]
    layout = Layout(bottom=top)
    if host.many or len(full) == 1:
        for node in full:
            layout.bottom = _wide(layout, node, layout.bottom, host) + BOX_GAP
    else:
        _columns(layout, full, host)
    _columns(layout, [node for node in nodes if not node.cards], host)
    layout.bottom -= BOX_GAP if nodes else 0
    return layout


def _nodes(host: Host, width: float) -> list[_Node]:
    """Return the NUMA nodes with their cards, in order; what has none comes last."""
    topology = host.topology
    described = {node.id: node for node in topology.numa_nodes}
    members = [gpu.numa_node for gpu in topology.gpus] + [nic.numa_node for nic in topology.nics]
    numbers = sorted({*described, *(number for number in members if number is not None)})
    matches: dict[int | None, _Node] = {
        number: _Node(f"NUMA node {number}", described.get(number)) for number in numbers
    }
    matches[None] = _Node("NUMA node unknown" if numbers else "", None)
    hive = hives(topology)
    for board, gpus in boards(topology).items():
        number = gpus[0][1].numa_node
        matches[number].cards.append(card_of(host, board, gpus, width, hive.get(board)))
    if not matches[None].cards:
        del matches[None]
    full = [node for node in matches.values() if node.cards]
    lost = [note for note in host.notes if note.finding.code == "TOPO-GPU-MISSING"]
    for model, oam_id in missing(topology):
        fewest = min(full, key=lambda node: len(node.cards))
        fewest.cards.append(empty_card(model, oam_id, width, lost))
    for nic in sorted(topology.nics, key=lambda nic: nic.pci_path or ()):
        node = matches.get(nic.numa_node) or (full[-1] if full else None)
        if node:
            node.nics.append(nic)
    return list(matches.values())


def _columns(layout: Layout, nodes: Sequence[_Node], host: Host) -> None:
    """Place nodes left and right so that both columns are about as high."""
    heights = [node.height for node in nodes]
    cuts = range(1, len(nodes))
    left = min(cuts, key=lambda cut: abs(sum(heights[:cut]) - sum(heights[cut:])), default=1)
    ends = [layout.bottom, layout.bottom]
    for number, node in enumerate(nodes):
        side = int(number >= left)
        x = MARGIN if side == 0 else WIDTH - MARGIN - COLUMN
        top = ends[side]
        y = _stack(layout, node.cards, x + PAD, _below_title(node, top), side == 0)
        end = _chips(layout, node.nics, host, x + PAD, y, 2)
        _box(layout, node, x, top, COLUMN, end)
        ends[side] = end + BOX_GAP
    layout.bottom = max(ends) if nodes else layout.bottom


def _wide(layout: Layout, node: _Node, top: float, host: Host) -> float:
    """Place a node over the whole width: in rows, or in two columns; return where it ends."""
    begin, x = _below_title(node, top), MARGIN + PAD
    if host.many:
        y = begin
        for start in range(0, len(node.cards), A_ROW):
            row = node.cards[start : start + A_ROW]
            for column, card in enumerate(row):
                layout.cards.append(replace(card, x=x + column * (card.width + GAP), y=y))
            y += max(card.height for card in row) + GAP
    else:
        half = (len(node.cards) + 1) // 2
        right = WIDTH - MARGIN - COLUMN + PAD
        y = max(
            _stack(layout, node.cards[:half], x, begin, True),
            _stack(layout, node.cards[half:], right, begin, False),
        )
    end = _chips(layout, node.nics, host, x, y, A_ROW)
    _box(layout, node, MARGIN, top, WIDTH - 2 * MARGIN, end)
    return end


def _below_title(node: _Node, top: float) -> float:
    return top + (50 if node.node else 34 if node.title else PAD)


def _stack(layout: Layout, cards: Sequence[Card], x: float, y: float, left: bool) -> float:
    for card in cards:
        layout.cards.append(replace(card, x=x, y=y, left=left))
        y += card.height + GAP
    return y


def _chips(
    layout: Layout, nics: Sequence[Nic], host: Host, x: float, y: float, a_row: int
) -> float:
    """Place interfaces in rows; return where the box ends."""
    for number, nic in enumerate(nics):
        row, column = divmod(number, a_row)
        layout.chips.append(chip_of(nic, host, x + column * 139, y + row * CHIP))
    return y + -(-len(nics) // a_row) * CHIP + PAD - GAP


def _box(layout: Layout, node: _Node, x: float, y: float, width: float, end: float) -> None:
    title = node.title if node.cards or not node.title else f"{node.title}, no GPU"
    layout.boxes.append(Box(title, node_text(node.node, width - 2 * PAD), x, y, width, end - y))
