# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as people draw it: NUMA nodes, GPUs, links by type, replicas coloured, findings marked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    Placement,
    ReplicaPlacement,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Nic,
    NumaNode,
    Topology,
)

from apiary.app.inert import template
from apiary.host.view import NAMES, Board, Pair, View, gigabits

# Of each replica, in order; distinct with colour blindness (Okabe and Ito, the last two darker).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#5b4b49")
WIDTH, MARGIN, PAD, GAP = 900, 24, 14, 12
COLUMN, WIDE = 300, 417  # px of a column of boxes, with and without links between the two
HEAD = 46  # px of a box above its first card
TEXT, CELL, CHIP = 82, 35, 28  # px of a card's text, a row of partitions, a row of interfaces
LETTER = 6.7  # px of a letter, at most
# How far along a link its mark may stand; the next mark takes the next, so that few meet.
ALONG = (0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8)

Point = tuple[float, float]


@dataclass
class Box:
    """A NUMA node around its GPUs and interfaces, or a half of the only one with GPUs."""

    number: int | None
    node: NumaNode | None
    boards: list[Board] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    left: bool = True
    x: int = 0
    y: int = 0
    height: int = 0


@dataclass(frozen=True)
class Card:
    """A GPU, and where it stands; ``left`` says that its links leave it to the right."""

    board: Board
    left: bool
    x: int
    y: int


@dataclass(frozen=True)
class Line:
    """A link from card to card; ``owner`` is the replica at both ends, ``mark`` where it is marked.

    ``numbers`` are those of the findings about it.
    """

    pair: Pair
    path: str
    width: float
    owner: int | None
    mark: Point | None
    numbers: Sequence[int]


def topology_svg(topology: Topology, placement: Placement | None = None) -> str:
    """Return the host as a stand-alone SVG, 900 px wide, the same for the same input.

    With a placement each replica has a colour and a name, in the picture and in the legend.
    """
    view = View(topology, placement)
    rows = max((-(-len(view.partitions(board)) // 8) for board in view.boards.values()), default=0)
    card_height = TEXT + CELL * rows
    summary = textwrap.wrap(view.summary, 115)
    boxes = _boxes(view)
    column = COLUMN if view.drawn else WIDE
    below = _place(boxes, 60 + 18 * len(summary), card_height, column) + 24
    cards = [
        Card(board, box.left, box.x + PAD, box.y + HEAD + place * (card_height + GAP))
        for box in boxes
        for place, board in enumerate(box.boards)
    ]
    replicas = placement.replicas if placement else ()
    legend = list(_legend(view, replicas))
    findings_top = below + 20 * -(-len(legend) // 2) + 14
    findings, height = _findings(view.findings, findings_top)
    rendered = _template().render(
        view=view,
        width=WIDTH,
        height=height,
        column=column,
        card_height=card_height,
        summary=summary,
        replicas=replicas,
        kinds=NAMES,
        boxes=boxes,
        cards=cards,
        lines=_lines(view, {card.board.name: card for card in cards}, card_height),
        legend=legend,
        legend_top=below,
        findings=findings,
        findings_top=findings_top,
    )
    return rendered.strip() + "\n"


@cache
def _template() -> jinja2.Template:
    file = Path(__file__).parent / "templates" / "topology.svg.j2"
    return template(file, n=_number, fit=_fit, colour=_colour, gigabits=gigabits)


def _number(value: float) -> str:
    """Return a coordinate without noise, so that equal pictures are equal texts."""
    return f"{round(value, 1):g}"


def _fit(text: str, room: float) -> str:
    """Return a text that fits into so many px, cut in its middle."""
    count = int(room / LETTER)
    if len(text) <= count:
        return text
    tail = (count - 1) // 3
    return f"{text[: count - 1 - tail]}…{text[len(text) - tail :]}"


def _colour(replica: int | None) -> str | None:
    return None if replica is None else COLOURS[replica % len(COLOURS)]


def _boxes(view: View) -> list[Box]:
    """Return the NUMA nodes with their GPUs and interfaces; what has none is of one unknown."""
    topology, boards = view.topology, view.boards.values()
    nodes: dict[int | None, NumaNode] = {node.id: node for node in topology.numa_nodes}
    members = [board.first.numa_node for board in boards] + [nic.numa_node for nic in topology.nics]
    numbers = sorted({*nodes, *members}, key=lambda number: (number is None, number or 0))
    boxes = {number: Box(number, nodes.get(number)) for number in numbers}
    for board in boards:
        boxes[board.first.numa_node].boards.append(board)
    for nic in sorted(topology.nics, key=lambda nic: nic.pci_path):
        boxes[nic.numa_node].nics.append(nic)
    full = [box for box in boxes.values() if box.boards]
    for place in view.missing:
        min(full, key=lambda box: len(box.boards)).boards.append(place)
    if len(full) != 1:
        return list(boxes.values())
    (whole,) = full
    half = (len(whole.boards) + 1) // 2
    other = Box(whole.number, whole.node, whole.boards[half:])
    whole.boards = whole.boards[:half]
    rest = [box for box in boxes.values() if box is not whole]
    return [whole, *([other] if other.boards else []), *rest]


def _place(boxes: Sequence[Box], top: int, card_height: int, column: int) -> int:
    """Place boxes left and right so that both columns are about as high; return their end."""
    for box in boxes:
        chips = -(-len(box.nics) // 2) * CHIP
        box.height = HEAD + len(box.boards) * (card_height + GAP) + chips + PAD - GAP
    heights = [box.height for box in boxes]
    cuts = range(1, len(boxes))
    cut = min(cuts, key=lambda cut: abs(sum(heights[:cut]) - sum(heights[cut:])), default=1)
    ends = []
    for left, own in ((True, boxes[:cut]), (False, boxes[cut:])):
        y = top
        for box in own:
            box.left, box.y = left, y
            box.x = MARGIN if left else WIDTH - MARGIN - column
            y += box.height + GAP
        ends.append(y - GAP)
    return max(ends)


def _lines(view: View, cards: Mapping[str, Card], height: int) -> list[Line]:
    """Return the links to draw, those inside a replica and the marked ones last, so on top."""
    widths = [pair.bandwidth_mb_s for pair in view.drawn if pair.kind == "xgmi"]
    thin = min(filter(None, widths), default=0)
    marked = 0
    lines = []
    for pair in view.drawn:
        numbers = view.marks.get(pair.ends, ())
        curve = _curve([cards[name] for name in pair.ends], list(cards), height)
        mark = None
        if numbers or pair.kind == "broken":
            mark = _at(curve, ALONG[marked % len(ALONG)])
            marked += 1
        owner = view.sole_owner(*(view.boards[name] for name in pair.ends))
        owner = None if pair.kind == "broken" else owner
        parallel = (pair.bandwidth_mb_s or 0) / thin if thin and pair.kind == "xgmi" else 1
        width = 1.3 * max(1, min(parallel, 4)) * (1.4 if owner is not None or mark else 1)
        path = "M{} {} C{} {} {} {} {} {}".format(*(_number(v) for point in curve for v in point))
        lines.append(Line(pair, path, width, owner, mark, numbers))
    return sorted(lines, key=lambda line: (line.mark is not None, line.owner is not None))


def _curve(ends: Sequence[Card], names: Sequence[str], height: int) -> list[Point]:
    """Return the four points of a curve between two cards, at each of which it has its own port."""
    a, b = ends
    ports = []
    for card, other in ((a, b), (b, a)):
        others = [name for name in names if name != card.board.name]
        share = (others.index(other.board.name) + 1) / (len(others) + 1)
        ports.append((card.x + (COLUMN - 2 * PAD) * card.left, card.y + height * share))
    bulge = min(24 + abs(ports[1][1] - ports[0][1]) * 0.26, 150)
    middle = (ports[0][0] + ports[1][0]) / 2
    bend = middle if a.left != b.left else middle + (bulge if a.left else -bulge)
    return [ports[0], (bend, ports[0][1]), (bend, ports[1][1]), ports[1]]


def _at(curve: Sequence[Point], t: float) -> Point:
    """Return the point of a Bézier curve at this part of its way."""
    shares = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(share * p[i] for share, p in zip(shares, curve, strict=True)) for i in (0, 1))
    return x, y


def _legend(
    view: View, replicas: Sequence[ReplicaPlacement]
) -> Iterator[tuple[str, str, int | None]]:
    """Yield what each thing in the picture means: its kind, its text, its replica."""
    for number, share in enumerate(replicas):
        nodes = ",".join(map(str, share.memory_nodes))
        parts = [f"CPUs {share.cpus}" if share.cpus else "any CPU"]
        parts += [f"memory node{'s' * (',' in nodes)} {nodes}"] if nodes else []
        yield "replica", f"replica {number}: {', '.join([*parts, *share.nics])}", number
    for kind, name in NAMES.items():
        pairs = [pair for pair in view.pairs if pair.kind == kind]
        if pairs:
            weights = sorted({pair.weight for pair in pairs if pair.weight})
            ends = "–".join(map(str, dict.fromkeys((weights[0], weights[-1])))) if weights else ""
            weight = f" (weight {ends})" if weights else ""
            drawn = "" if view.drawn else ", not drawn"
            yield kind, f"{name}, {len(pairs):,}{weight}{drawn}", None
    widths = sorted({p.bandwidth_mb_s for p in view.drawn if p.kind == "xgmi" and p.bandwidth_mb_s})
    if len(widths) > 1:
        sizes = ", ".join(f"{width / 1000:g}" for width in widths)
        yield "word", f"wider: more links in parallel, up to {sizes} GB/s", None
    if view.topology.nics:
        yield "chip", "network interface", None


def _findings(
    findings: Sequence[Finding], top: int
) -> tuple[list[tuple[Finding, list[str], int]], int]:
    """Return each finding with its lines and where the first one stands, and where all end."""
    items = []
    y = top + 34
    for finding in findings:
        head = f"{finding.severity}  {finding.code}"
        lines = textwrap.wrap(f"{head}  {finding.message}", 121) or [head]
        items.append((finding, [lines[0].removeprefix(head), *lines[1:]], y))
        y += 16 * len(lines) + 4
    return items, y if findings else top + 8
