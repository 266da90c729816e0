# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the NUMA nodes, GPUs and network interfaces of a picture stand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import NumaNode

from apiary.host.pairs import boards, missing
from apiary.host.picture_cards import Card, Chip, Look, card, chip, empty_card, node_text

WIDTH = 900
MARGIN = 24
BOX_WIDTH = 300
PAD = 14
CARD_GAP = 12
BOX_GAP = 18
CHIP_HEIGHT = 22
CHIP_GAP = 6
MANY = 16  # GPUs; more of them stand in a grid without lines between them
SMALL_CARDS_A_ROW = 6


@dataclass(frozen=True)
class Box:
    """A NUMA node around its GPUs, or the frame around what shares a PCIe root port."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str = ""


@dataclass
class Group:
    """A NUMA node with what stands in it."""

    title: str
    node: NumaNode | None
    cards: list[Card] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)

    @property
    def header(self) -> float:
        """Return the height of what is written above the cards."""
        return 50 if self.node else 34 if self.title else PAD


@dataclass
class Layout:
    """All that has its place, and where it ends."""

    boxes: list[Box] = field(default_factory=list)
    frames: list[Box] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)
    bottom: float = 0


def lay_out(look: Look, top: float) -> Layout:
    """Place all of a host, from this height on down.

    Up to 16 GPUs stand in two columns, the NUMA nodes in order left and right, with room for the
    links between; more stand in rows.
    """
    many = len(boards(look.topology)) > MANY
    inner = WIDTH - 2 * MARGIN - 2 * PAD
    width = (inner - (SMALL_CARDS_A_ROW - 1) * CARD_GAP) / SMALL_CARDS_A_ROW if many else 0
    groups = _groups(look, width or BOX_WIDTH - 2 * PAD)
    layout = Layout(bottom=top)
    full = [group for group in groups if group.cards]
    if many:
        for group in full:
            _grid(layout, group)
    elif len(full) == 1:
        _wide(layout, full[0])
    else:
        ends = [top, top]
        left = _left(full)
        for number, group in enumerate(full):
            side = int(number >= left)
            ends[side] = _column(layout, group, side, ends[side]) + BOX_GAP
        layout.bottom = max(ends)
    _bare(layout, [group for group in groups if not group.cards])
    layout.bottom -= BOX_GAP if groups else 0
    return layout


def _left(groups: Sequence[Group]) -> int:
    """Return how many nodes stand left, so that both columns are about as high."""
    heights = [group.header + sum(card.height for card in group.cards) for group in groups]
    half = len(groups) / 2
    return min(
        range(1, len(groups)),
        key=lambda cut: (abs(sum(heights[:cut]) - sum(heights[cut:])), abs(cut - half)),
        default=0,
    )


def _groups(look: Look, width: float) -> list[Group]:
    """Return the NUMA nodes with their cards, in order; what has none comes last."""
    topology = look.topology
    nodes = {node.id: node for node in topology.numa_nodes}
    found: dict[int | None, Group] = {
        number: Group(f"NUMA node {number}", nodes.get(number))
        for number in sorted({*nodes, *_numbers(look)})
    }
    unknown = Group("NUMA node unknown" if found else "", None)
    for board, members in boards(topology).items():
        group = found.get(members[0][1].numa_node, unknown)
        group.cards.append(card(look, board, members, width))
    if unknown.cards:
        found[None] = unknown
    full = [group for group in found.values() if group.cards]
    for model, oam_id in missing(topology):
        fewest = min(full, key=lambda group: len(group.cards))
        notes = [note for note in look.found if note.finding.code == "TOPO-GPU-MISSING"]
        fewest.cards.append(empty_card(model, oam_id, width, notes))
    for nic in topology.nics:
        group = found.get(nic.numa_node) or (full[-1] if full else unknown)
        group.chips.append(chip(nic, (BOX_WIDTH - 2 * PAD - CHIP_GAP) / 2))
    return list(found.values())


def _numbers(look: Look) -> set[int]:
    named = [gpu.numa_node for gpu in look.topology.gpus]
    named += [nic.numa_node for nic in look.topology.nics]
    return {number for number in named if number is not None}


def _column(layout: Layout, group: Group, side: int, top: float) -> float:
    """Place a NUMA node in the left (0) or right (1) column; return where it ends."""
    x = MARGIN + PAD if side == 0 else WIDTH - MARGIN - BOX_WIDTH + PAD
    end = _stack(layout, group.cards, group.chips, x, top + group.header, side == 0)
    layout.boxes.append(_box(group, x - PAD, top, BOX_WIDTH, end - top + PAD))
    return end + PAD


def _wide(layout: Layout, group: Group) -> None:
    """Place the only node with GPUs over both columns."""
    top, half = layout.bottom, (len(group.cards) + 1) // 2
    ends = []
    for side, cards in enumerate((group.cards[:half], group.cards[half:])):
        x = MARGIN + PAD if side == 0 else WIDTH - MARGIN - BOX_WIDTH + PAD
        roots = {one.root for one in cards if one.root}
        rest = {one.root for one in group.cards if one.root} - roots
        # An interface beside its GPU; one with none to stand by goes left.
        chips = [c for c in group.chips if c.root in roots or (side == 0 and c.root not in rest)]
        ends.append(_stack(layout, cards, chips, x, top + group.header, side == 0))
        group.chips = [one for one in group.chips if one not in chips]
    layout.boxes.append(_box(group, MARGIN, top, WIDTH - 2 * MARGIN, max(ends) - top + PAD))
    layout.bottom = max(ends) + PAD + BOX_GAP


def _stack(
    layout: Layout, cards: Sequence[Card], chips: Sequence[Chip], x: float, y: float, left: bool
) -> float:
    """Place cards below each other, each with the interfaces of its root port; return the end."""
    rest = list(chips)
    start = y
    for root, together in itertools.groupby(cards, key=lambda one: one.root):
        members = list(together)
        near = [one for one in rest if root and one.root == root]
        rest = [one for one in rest if one not in near]
        top = y
        for one in members:
            one.x, one.y, one.left = x, y, left
            layout.cards.append(one)
            y += one.height + CARD_GAP
        if near:
            y = _chips(layout, near, x, y - CARD_GAP + CHIP_GAP) + CARD_GAP
        if root and len(members) + len(near) > 1:
            frame = Box(x - 6, top - 6, BOX_WIDTH - 2 * PAD + 12, y - CARD_GAP - top + 12, root)
            layout.frames.append(frame)
            y += 6
    if rest:
        y = _chips(layout, rest, x, y) + CARD_GAP
    return max(y - CARD_GAP, start)


def _chips(layout: Layout, chips: Sequence[Chip], x: float, y: float, a_row: int = 2) -> float:
    """Place interfaces in rows; return where they end."""
    for number, one in enumerate(chips):
        row, column = divmod(number, a_row)
        one.x = x + column * (one.width + CHIP_GAP)
        one.y = y + row * (CHIP_HEIGHT + CHIP_GAP)
        layout.chips.append(one)
    return y + -(-len(chips) // a_row) * (CHIP_HEIGHT + CHIP_GAP) - CHIP_GAP


def _grid(layout: Layout, group: Group) -> None:
    """Place a node of a host with many GPUs: rows over the whole width."""
    top = layout.bottom
    y = top + group.header
    for start in range(0, len(group.cards), SMALL_CARDS_A_ROW):
        row = group.cards[start : start + SMALL_CARDS_A_ROW]
        for column, one in enumerate(row):
            one.x, one.y = MARGIN + PAD + column * (one.width + CARD_GAP), y
            layout.cards.append(one)
        y += max(one.height for one in row) + CARD_GAP
    if group.chips:
        y = _chips(layout, group.chips, MARGIN + PAD, y, a_row=6) + CARD_GAP
    layout.boxes.append(_box(group, MARGIN, top, WIDTH - 2 * MARGIN, y - CARD_GAP - top + PAD))
    layout.bottom = y - CARD_GAP + PAD + BOX_GAP


def _bare(layout: Layout, groups: Sequence[Group]) -> None:
    """Place the nodes without GPUs, two beside each other."""
    for start in range(0, len(groups), 2):
        ends = []
        for side, group in enumerate(groups[start : start + 2]):
            x = MARGIN if side == 0 else WIDTH - MARGIN - BOX_WIDTH
            top = layout.bottom
            y = top + group.header
            if group.chips:
                y = _chips(layout, group.chips, x + PAD, y) + PAD
            title = f"{group.title}, no GPU" if group.title else ""
            layout.boxes.append(_box(group, x, top, BOX_WIDTH, y - top, title))
            ends.append(y)
        layout.bottom = max(ends) + BOX_GAP


def _box(
    group: Group, x: float, y: float, width: float, height: float, title: str | None = None
) -> Box:
    detail = node_text(group.node, width - 2 * PAD)
    return Box(x, y, width, height, group.title if title is None else title, detail)
