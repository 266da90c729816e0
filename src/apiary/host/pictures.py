# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as people draw it: NUMA nodes, GPUs, links by type, replicas coloured, findings marked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Topology,
)

from apiary.host.marks import Note, broken_pairs, marks, notes
from apiary.host.pairs import KINDS, NAMES, Pair, best_pairs, boards, hives, summary_of
from apiary.host.picture_cards import (
    SMALL,
    Card,
    Look,
    Pill,
    colour_of,
    cpus_text,
    fit,
    pills_of,
    text_width,
)
from apiary.host.picture_layout import CHIP_HEIGHT, MANY, MARGIN, WIDTH, Layout, lay_out
from apiary.host.picture_lines import lines_of, number_text
from apiary.host.shares import Share, Shares

INNER = WIDTH - 2 * MARGIN
LINE = 16.0
# Notes are indented by their number and as wide as the sheet.
WRAP = int((INNER - 40) / (SMALL * 0.61))


@dataclass(frozen=True)
class Entry:
    """One thing in the legend: a replica's colour, a kind of link, or a word alone."""

    text: str
    kind: str
    colour: str | None = None
    x: float = 0
    y: float = 0

    @property
    def icon(self) -> float:
        """Return the width of what stands before the text."""
        return {"word": 0, "replica": 22, "frame": 22, "chip": 22}.get(self.kind, 42)


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
    found = notes(topology, placement.findings if placement else ())
    pairs = best_pairs(topology, broken_pairs(found))
    many = len(boards(topology)) > MANY
    # In a grid of many GPUs lines tell nothing; what is wrong with one is marked at both its ends.
    of_board, of_pair = marks(found, [] if many else pairs)
    look = Look(topology, hives(topology), owner, placement is not None, found, of_board)
    summary = textwrap.wrap(summary_of(topology, pairs), int(INNER / (12 * 0.61)))
    layout = lay_out(look, 60 + 18 * len(summary))
    cards = {card.board: card for card in layout.cards if card.board}
    lines = lines_of([] if many else pairs, cards, owner, of_pair)
    legend, bottom = _flow(_legend(replicas, pairs, layout, many), layout.bottom + 24)
    items, height = _items(found, bottom + 14)
    return (
        _template()
        .render(
            width=WIDTH,
            height=round(height),
            margin=MARGIN,
            host=fit(topology.host, INNER, 20, bold=True),
            name=topology.host,
            summary=summary,
            description=_description(topology, pairs, found, replicas),
            layout=layout,
            chip_height=CHIP_HEIGHT,
            lines=lines,
            legend=legend,
            items=items,
            items_top=bottom + 14,
        )
        .strip()
        + "\n"
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters["n"] = number_text
    environment.globals.update(at_bottom=_at_bottom)
    return environment.get_template("topology.svg.j2")


def _at_bottom(card: Card) -> tuple[Pill, ...]:
    """Return a card's pills, right in the last of its rows."""
    x = card.x + card.width - 12
    placed = []
    for pill in reversed(card.pills):
        x -= pill.width
        placed.append(replace(pill, x=x, y=card.y + 30 + 18 * (len(card.rows) - 1) - 2))
        x -= 4
    return tuple(reversed(placed))


def _legend(
    replicas: Sequence[Share], pairs: Sequence[Pair], layout: Layout, many: bool
) -> Iterable[Entry]:
    for number, share in enumerate(replicas):
        yield Entry(_replica_text(number, share), "replica", colour_of(number))
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
        yield Entry(f"wider: more links in parallel, up to {sizes} GB/s", "word")
    if layout.frames:
        yield Entry("behind one PCIe root port", "frame")
    if layout.chips:
        yield Entry("network interface", "chip")


def _flow(entries: Iterable[Entry], top: float) -> tuple[list[Entry], float]:
    """Place the legend in rows; return it and where it ends."""
    column = INNER / 6  # equal columns read better than a running text
    x, y = float(MARGIN), top
    placed = []
    fitted = [replace(entry, text=fit(entry.text, INNER - entry.icon)) for entry in entries]
    widest = max((text_width(one.text) for one in fitted if one.kind == "replica"), default=0)
    for entry in fitted:
        words = widest if entry.kind == "replica" else text_width(entry.text)
        needed = ceil((entry.icon + words + 8) / column) * column
        if x > MARGIN and x + needed > WIDTH - MARGIN + 1:
            x, y = float(MARGIN), y + 20
        placed.append(replace(entry, x=x, y=y))
        x += needed
    return placed, (y + 8 if placed else top - 12)


def _replica_text(number: int, share: Share) -> str:
    cpus = cpus_text(share.cpus, 200) if share.cpus else "any CPU"
    text = f"replica {number}: {cpus}"
    if share.memory_nodes:
        plural = "s" if len(share.memory_nodes) > 1 else ""
        text += f", memory node{plural} {','.join(map(str, share.memory_nodes))}"
    if share.nics:
        text += f", {' '.join(share.nics)}"
    return text


def _items(found: Sequence[Note], top: float) -> tuple[list[Item], float]:
    """Return the findings to print, and the height of the picture."""
    items = []
    y = top + 34
    for note in found:
        finding = note.finding
        head = f"{finding.severity}  {finding.code}"
        text = textwrap.wrap(f"{head}  {finding.message}", WRAP) or [head]
        (pill,) = pills_of([note])
        pill = replace(pill, x=MARGIN, y=y - 12)
        rest = (text[0][len(head) :], *text[1:])
        items.append(Item(pill, head, rest, f"{finding.subject}; {finding.remedy}", y))
        y += LINE * len(text) + 4
    return items, (y if found else top + 8)


def _description(
    topology: Topology,
    pairs: Sequence[Pair],
    found: Sequence[Note],
    replicas: Sequence[Share],
) -> str:
    """Return the picture in words, for those who cannot see it."""
    parts = [summary_of(topology, pairs)]
    parts += [f"replica {n}: {' '.join(share.gpus)}" for n, share in enumerate(replicas)]
    parts += [f"{note.finding.code}: {note.finding.message}" for note in found]
    return ". ".join(parts)
