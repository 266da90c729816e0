# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The links of a picture: curves from card to card, and the marks on those that findings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from apiary.host.marks import Note
from apiary.host.pairs import NAMES, Pair
from apiary.host.picture_cards import Card, Pill, colour_of, pills_of

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]
# How far along a curve its mark may stand, in order of liking.
_ALONG = (0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8)
_CLEARANCE = 26  # px between two marks


@dataclass(frozen=True)
class Line:
    """A link, from port to port, ``width`` px wide."""

    pair: Pair
    path: str
    colour: str | None
    width: float
    hint: str
    pills: tuple[Pill, ...] = ()
    cross: Point | None = None


def lines_of(
    pairs: Sequence[Pair],
    cards: Mapping[str, Card],
    owner: Mapping[str, int],
    marks: Mapping[tuple[str, str], Sequence[Note]],
) -> list[Line]:
    """Return the links to draw, those inside a replica and the broken ones last, so on top."""
    ends = _ports(pairs, cards)
    thin = min(
        (p.bandwidth_mb_s for p in pairs if p.kind == "xgmi" and p.bandwidth_mb_s), default=0
    )
    taken: list[Point] = []
    lines = []
    for number, pair in enumerate(pairs):
        y_a, y_b = ends[number, pair.a], ends[number, pair.b]
        curve = _curve(cards[pair.a], cards[pair.b], y_a, y_b)
        notes = marks.get((pair.a, pair.b), ())
        cross = _free_point(curve, taken) if notes or pair.kind == "broken" else None
        owners = {owner.get(key) for key in pair.keys}
        inside = owners.pop() if len(owners) == 1 else None
        lines.append(
            Line(
                pair,
                "M{} {} C{} {} {} {} {} {}".format(*(number_text(v) for p in curve for v in p)),
                colour_of(inside) if pair.kind != "broken" else None,
                _width(pair, thin) * (1.35 if inside is not None or cross else 1),
                _hint(pair),
                _at_point(cross, pills_of(notes), pair.kind == "broken") if cross else (),
                cross,
            )
        )
    return sorted(lines, key=lambda line: (line.cross is not None, line.colour is not None))


def number_text(value: float) -> str:
    """Return a coordinate without noise, so that equal pictures are equal texts."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


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


def _ports(pairs: Sequence[Pair], cards: Mapping[str, Card]) -> dict[tuple[int, str], float]:
    """Return the height at which each pair leaves each of its cards."""
    ends: dict[tuple[int, str], float] = {}
    for board, card in cards.items():
        mine = [(n, pair) for n, pair in enumerate(pairs) if board in (pair.a, pair.b)]
        mine.sort(key=lambda item: _port_order(card, cards[item[1].other(board)]))
        for position, (number, _pair) in enumerate(mine):
            ends[number, board] = card.y + card.height * (position + 1) / (len(mine) + 1)
    return ends


def _port_order(card: Card, other: Card) -> tuple[int, float]:
    """Order a card's ports so that lines part without crossing: up, across, down."""
    if other.left != card.left:
        return 1, other.y
    return (0, -other.y) if other.y < card.y else (2, -other.y)


def _curve(a: Card, b: Card, y_a: float, y_b: float) -> Curve:
    x_a = a.x + a.width if a.left else a.x
    x_b = b.x + b.width if b.left else b.x
    if a.left != b.left:
        middle = (x_a + x_b) / 2
        return (x_a, y_a), (middle, y_a), (middle, y_b), (x_b, y_b)
    bulge = min(24 + abs(b.y - a.y) * 0.26, 150) * (1 if a.left else -1)
    return (x_a, y_a), (x_a + bulge, y_a), (x_b + bulge, y_b), (x_b, y_b)


def _free_point(curve: Curve, taken: list[Point]) -> Point:
    """Return a point of a curve that no mark is near, and keep it."""
    points = [_at(curve, along) for along in _ALONG]
    free = [p for p in points if all(_apart(p, other) >= _CLEARANCE for other in taken)]
    taken.append(free[0] if free else points[0])
    return taken[-1]


def _at(curve: Curve, t: float) -> Point:
    shares = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(share * p[i] for share, p in zip(shares, curve, strict=True)) for i in (0, 1))
    return x, y


def _apart(a: Point, b: Point) -> float:
    return float(((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5)


def _at_point(point: Point, pills: Sequence[Pill], crossed: bool) -> tuple[Pill, ...]:
    """Return the pills of a link: on it, or right of its cross."""
    x = point[0] + 11 if crossed else point[0] - sum(pill.width + 3 for pill in pills) / 2
    placed = []
    for pill in pills:
        placed.append(replace(pill, x=x, y=point[1] - 8))
        x += pill.width + 3
    return tuple(placed)
