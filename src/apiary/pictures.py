# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as people draw it: NUMA nodes left and right, GPUs, links by type, replicas coloured."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Topology,
)

from apiary.pairs import Pair, best_pairs, boards
from apiary.picture_cards import (
    COLOURS,
    MARGIN,
    SEVERITIES,
    WIDTH,
    Card,
    numa_groups,
    place_cards,
    short_list,
)
from apiary.tables import topology_table

__all__ = ["topology_svg", "topology_table"]

SHOWN_FINDINGS = 8
WRAP = 128  # characters of 11 px text that fit the width


@dataclass(frozen=True)
class Line:
    """A link, from port to port."""

    path: str
    kind: str
    colour: str | None


def topology_svg(topology: Topology, placement: Placement | None = None) -> str:
    """Return the host as a stand-alone SVG, 900 px wide, the same for the same input.

    With a placement each replica has a colour, in the picture and in the legend.
    """
    replicas = placement.replicas if placement else ()
    owner = {key: number for number, share in enumerate(replicas) for key in share.gpus}
    groups = numa_groups(topology)
    boxes, cards, bottom = place_cards(topology, groups, owner, placement is not None)
    lines = _lines(topology, cards, owner)
    legend = [
        (COLOURS[number % len(COLOURS)], _replica_text(number, share.cpus, share.memory_nodes))
        for number, share in enumerate(replicas)
    ]
    kinds = [kind for kind in ("xgmi", "far", "pcie", "broken") if kind in {x.kind for x in lines}]
    notes, hidden = _notes(topology.findings)
    notes_top = bottom + 22 + 20 * ((len(legend) + 1) // 2) + (20 if kinds else 0)
    note_lines = sum(len(text) for _colour, _code, text in notes)
    height = notes_top + (34 + 16 * (note_lines + bool(hidden)) if notes else 0)
    return (
        _template()
        .render(
            width=WIDTH,
            height=round(height),
            margin=MARGIN,
            host=topology.host,
            summary=_summary(topology),
            boxes=boxes,
            cards=list(cards.values()),
            lines=lines,
            legend=legend,
            kinds=kinds,
            legend_top=bottom + 22,
            notes=notes,
            hidden=hidden,
            notes_top=notes_top,
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
    environment.filters["n"] = _number
    return environment.get_template("topology.svg.j2")


def _number(value: float) -> str:
    """Return a coordinate without noise, so that equal pictures are equal texts."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _summary(topology: Topology) -> str:
    models: dict[str, int] = {}
    for members in boards(topology).values():
        name = members[0][1].model or "AMD GPU"
        models[name] = models.get(name, 0) + 1
    parts = [f"{count} × {name}" for name, count in models.items()] or ["no usable GPU"]
    if len(boards(topology)) < len(topology.gpus):
        parts[-1] += f" as {len(topology.gpus)} partitions"
    modes = {
        f"{gpu.compute_partition}/{gpu.memory_partition}"
        for gpu in topology.gpus
        if gpu.compute_partition and gpu.memory_partition
    }
    parts += sorted(modes) if len(modes) == 1 else []
    if topology.numa_nodes:
        count = len(topology.numa_nodes)
        parts.append(f"{count} NUMA node{'s' if count > 1 else ''}")
    for kind, name in (("xgmi", "xGMI"), ("pcie", "PCIe"), (None, "unknown")):
        count = sum(link.type == kind for link in topology.links)
        if count:
            parts.append(f"{count} {name} link{'s' if count > 1 else ''}")
    return " · ".join(parts)


def _replica_text(number: int, cpus: str | None, memory_nodes: Sequence[int]) -> str:
    shown = f"CPUs {short_list(cpus, 30)}" if cpus else "any CPU"
    text = f"replica {number}: {shown}"
    if memory_nodes:
        plural = "s" if len(memory_nodes) > 1 else ""
        text += f", memory node{plural} {','.join(map(str, memory_nodes))}"
    return text


def _lines(topology: Topology, cards: dict[str, Card], owner: dict[str, int]) -> list[Line]:
    """Return the links between boards; those inside a replica last, so that they lie on top."""
    pairs = best_pairs(topology)
    ends: dict[tuple[int, str], float] = {}
    for board, card in cards.items():
        mine = [(n, pair) for n, pair in enumerate(pairs) if board in (pair.a, pair.b)]
        mine.sort(key=lambda item: _port_order(card, cards[item[1].other(board)]))
        for position, (number, _pair) in enumerate(mine):
            ends[number, board] = card.y + card.height * (position + 1) / (len(mine) + 1)
    lines = []
    for number, pair in enumerate(pairs):
        owners = {owner.get(key) for key in pair.keys}
        inside = owners.pop() if len(owners) == 1 else None
        colour = None if inside is None else COLOURS[inside % len(COLOURS)]
        path = _path(cards[pair.a], cards[pair.b], ends[number, pair.a], ends[number, pair.b])
        lines.append(Line(path, _kind(pair, pairs), colour))
    return sorted(lines, key=lambda line: (line.kind == "broken", line.colour is not None))


def _kind(pair: Pair, pairs: Sequence[Pair]) -> str:
    """Return how to draw a pair: broken is PCIe between two that xGMI connects otherwise."""
    if pair.type == "xgmi":
        direct = min((one.weight for one in pairs if one.type == "xgmi" and one.weight), default=0)
        return "far" if pair.weight and direct and pair.weight > direct else "xgmi"
    return "broken" if pair.detour else "pcie"


def _port_order(card: Card, other: Card) -> tuple[int, float]:
    """Order a card's ports so that lines part without crossing: up, across, down."""
    if other.left != card.left:
        return 1, other.y
    return (0, -other.y) if other.y < card.y else (2, -other.y)


def _path(a: Card, b: Card, y_a: float, y_b: float) -> str:
    x_a = a.x + a.width if a.left else a.x
    x_b = b.x + b.width if b.left else b.x
    if a.left != b.left:
        middle = (x_a + x_b) / 2
        bends = (middle, y_a, middle, y_b)
    else:
        bulge = min(24 + abs(b.y - a.y) * 0.26, 118) * (1 if a.left else -1)
        bends = (x_a + bulge, y_a, x_b + bulge, y_b)
    points = (x_a, y_a, *bends, x_b, y_b)
    return "M{} {} C{} {} {} {} {} {}".format(*map(_number, points))


def _notes(findings: Sequence[Finding]) -> tuple[list[tuple[str, str, list[str]]], int]:
    """Return the findings to print, worst first: colour, code and wrapped text."""
    ranked = sorted(findings, key=lambda item: list(SEVERITIES).index(item.severity))
    shown = [
        (
            SEVERITIES[item.severity],
            item.code,
            textwrap.wrap(f"{item.code}  {item.message}", WRAP) or [item.code],
        )
        for item in ranked[:SHOWN_FINDINGS]
    ]
    return shown, len(ranked) - len(shown)
