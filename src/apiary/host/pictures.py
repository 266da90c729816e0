# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as people draw it: NUMA nodes, GPUs, links by type, replicas coloured, findings marked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.app.inert import template
from apiary.host.cards import MANY, SMALL, Card, Host, Pill, colour_of, cpus_text, fit, pills_of
from apiary.host.layout import MARGIN, WIDTH, lay_out
from apiary.host.marks import Note, broken_pairs, marks, notes
from apiary.host.pairs import KINDS, NAMES, Pair, best_pairs, boards, summary_of
from apiary.host.shares import Share, Shares

INNER = WIDTH - 2 * MARGIN
LINE = 16
COLUMN = INNER / 2  # of the legend
# How far along a link its mark may stand; the next mark takes the next, so that few meet.
_ALONG = (0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8)


@dataclass(frozen=True)
class Line:
    """A link, from card to card, ``width`` px wide; ``mark`` is where its findings stand."""

    pair: Pair
    path: str
    colour: str | None
    width: float
    hint: str
    pills: tuple[Pill, ...]
    mark: tuple[float, float] | None


@dataclass(frozen=True)
class Entry:
    """One thing in the legend: a replica's colour, a kind of link, or a word alone."""

    text: str
    kind: str
    colour: str | None = None


@dataclass(frozen=True)
class Item:
    """One finding below the picture."""

    pill: Pill
    head: str
    lines: tuple[str, ...]
    hint: str
    y: float


def topology_svg(topology: Topology, placement: Shares | None = None) -> str:
    """Return the host as a stand-alone SVG, 900 px wide, the same for the same input.

    With a placement each replica has a colour and a name, in the picture and in the legend.
    """
    replicas = placement.replicas if placement else ()
    owner = {key: number for number, share in enumerate(replicas) for key in share.gpus}
    result = notes(topology, placement.findings if placement else ())
    pairs = best_pairs(topology, broken_pairs(result))
    many = len(boards(topology)) > MANY
    # In a grid of many GPUs lines tell nothing; what is wrong with one is marked at both its ends.
    drawn = [] if many else pairs
    of_board, of_pair = marks(result, drawn)
    host = Host(topology, owner, placement is not None, result, of_board)
    summary = textwrap.wrap(summary_of(topology, pairs), int(INNER / (12 * 0.61)))
    layout = lay_out(host, 60 + 18 * len(summary))
    cards = {card.board: card for card in layout.cards if card.board}
    legend = list(_legend(replicas, pairs, bool(layout.chips), many))
    below = layout.bottom + 24 + 20 * -(-len(legend) // 2)
    items, height = _items(result, below + 14)
    rendered = _template().render(
        width=WIDTH,
        height=round(height),
        margin=MARGIN,
        host=fit(topology.host, INNER, 20, bold=True),
        name=topology.host,
        summary=summary,
        description=_description(topology, pairs, result, replicas),
        layout=layout,
        lines=_lines(drawn, cards, owner, of_pair),
        legend=legend,
        legend_top=layout.bottom + 24,
        column=COLUMN,
        items=items,
        items_top=below + 14,
    )
    return rendered.strip() + "\n"


@cache
def _template() -> jinja2.Template:
    file = Path(__file__).parent / "templates" / "topology.svg.j2"
    return template(file, n=_number)


def _number(value: float) -> str:
    """Return a coordinate without noise, so that equal pictures are equal texts."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _lines(
    pairs: Sequence[Pair],
    cards: Mapping[str, Card],
    owner: Mapping[str, int],
    findings: Mapping[tuple[str, str], Sequence[Note]],
) -> list[Line]:
    """Return the links to draw, those inside a replica and the broken ones last, so on top."""
    widths = [pair.bandwidth_mb_s for pair in pairs if pair.kind == "xgmi" and pair.bandwidth_mb_s]
    marked = 0
    lines = []
    for pair in pairs:
        a, b = _port(pair.a, pair.b, cards), _port(pair.b, pair.a, cards)
        bulge = min(24 + abs(b[1] - a[1]) * 0.26, 150)
        left, right = cards[pair.a].left, cards[pair.b].left
        bends = [x + (bulge if side else -bulge) for x, side in ((a[0], left), (b[0], right))]
        if left != right:
            bends = [(a[0] + b[0]) / 2] * 2
        curve = (a, (bends[0], a[1]), (bends[1], b[1]), b)
        about = findings.get((pair.a, pair.b), ())
        mark: tuple[float, float] | None = None
        pills: tuple[Pill, ...] = ()
        if about or pair.kind == "broken":
            mark = _at(curve, _ALONG[marked % len(_ALONG)])
            marked += 1
            pills = pills_of(about, mark[0] + (11 if pair.kind == "broken" else -9), mark[1] - 8)
        owners = {owner.get(key) for key in pair.keys}
        inside = owners.pop() if len(owners) == 1 else None
        lines.append(
            Line(
                pair,
                "M{} {} C{} {} {} {} {} {}".format(*(_number(v) for p in curve for v in p)),
                colour_of(inside) if pair.kind != "broken" else None,
                _width(pair, min(widths, default=0)) * (1.35 if inside is not None or mark else 1),
                _hint(pair),
                pills,
                mark,
            )
        )
    return sorted(lines, key=lambda line: (line.mark is not None, line.colour is not None))


def _port(board: str, other: str, cards: Mapping[str, Card]) -> tuple[float, float]:
    """Return where a card's line to another leaves it: each has a height of its own."""
    card = cards[board]
    others = [name for name in cards if name != board]
    share = (others.index(other) + 1) / (len(others) + 1)
    return card.x + (card.width if card.left else 0), card.y + card.height * share


def _at(curve: Sequence[tuple[float, float]], t: float) -> tuple[float, float]:
    shares = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(share * p[i] for share, p in zip(shares, curve, strict=True)) for i in (0, 1))
    return x, y


def _width(pair: Pair, thin: int) -> float:
    """Return the width; of direct xGMI, one link is thin, and several are as many times wider."""
    if pair.kind == "broken":
        return 1.6
    if pair.kind != "xgmi":
        return 1.0
    links = pair.bandwidth_mb_s / thin if thin and pair.bandwidth_mb_s else 1
    return 1.3 * min(links, 4)


def _hint(pair: Pair) -> str:
    kind = {"xgmi": "xGMI", "pcie": "PCIe", None: "type unknown"}[pair.type]
    parts = [NAMES[pair.kind] if pair.kind in ("far", "broken") else kind]
    if pair.kind == "broken" and pair.type:
        parts.append(f"now {kind}")
    if pair.weight:
        parts.append(f"weight {pair.weight}")
    if pair.bandwidth_mb_s:
        parts.append(f"up to {pair.bandwidth_mb_s / 1000:g} GB/s")
    return f"{pair.a} – {pair.b}: {', '.join(parts)}"


def _legend(
    replicas: Sequence[Share], pairs: Sequence[Pair], chips: bool, many: bool
) -> Iterator[Entry]:
    for number, share in enumerate(replicas):
        text = fit(_replica_text(number, share), COLUMN - 30)
        yield Entry(text, "replica", colour_of(number))
    for kind in KINDS:
        mine = [pair for pair in pairs if pair.kind == kind]
        if mine:
            weights = sorted({pair.weight for pair in mine if pair.weight})
            text = f"{NAMES[kind]}, {len(mine):,}"
            if weights:
                both = f"{weights[0]}–{weights[-1]}" if len(weights) > 1 else str(weights[0])
                text += f" (weight {both})"
            yield Entry(text + ", not drawn" * many, kind)
    widths = sorted({p.bandwidth_mb_s for p in pairs if p.kind == "xgmi" and p.bandwidth_mb_s})
    if len(widths) > 1 and not many:
        sizes = ", ".join(f"{width / 1000:g}" for width in widths)
        text = f"wider: more links in parallel, up to {sizes} GB/s"
        yield Entry(fit(text, COLUMN - 10), "word")
    if chips:
        yield Entry("network interface", "chip")


def _replica_text(number: int, share: Share) -> str:
    cpus = cpus_text(share.cpus, 200) if share.cpus else "any CPU"
    text = f"replica {number}: {cpus}"
    if share.memory_nodes:
        plural = "s" if len(share.memory_nodes) > 1 else ""
        text += f", memory node{plural} {','.join(map(str, share.memory_nodes))}"
    return text + (f", {' '.join(share.nics)}" if share.nics else "")


def _items(numbered: Sequence[Note], top: float) -> tuple[list[Item], float]:
    """Return the findings to print, and the height of the picture."""
    items = []
    y = top + 34
    for note in numbered:
        finding = note.finding
        head = f"{finding.severity}  {finding.code}"
        wrapped = int((INNER - 40) / (SMALL * 0.61))
        text = textwrap.wrap(f"{head}  {finding.message}", wrapped) or [head]
        (pill,) = pills_of([note], MARGIN, y - 12)
        rest = (text[0][len(head) :], *text[1:])
        items.append(Item(pill, head, rest, f"{finding.subject}; {finding.remedy}", y))
        y += LINE * len(text) + 4
    return items, (y if numbered else top + 8)


def _description(
    topology: Topology, pairs: Sequence[Pair], numbered: Sequence[Note], replicas: Sequence[Share]
) -> str:
    """Return the picture in words, for those who cannot see it."""
    parts = [summary_of(topology, pairs)]
    parts += [f"replica {n}: {' '.join(share.gpus)}" for n, share in enumerate(replicas)]
    parts += [f"{note.finding.code}: {note.finding.message}" for note in numbered]
    return ". ".join(parts)
