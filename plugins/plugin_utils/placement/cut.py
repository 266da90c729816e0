# SPDX-License-Identifier: GPL-3.0-or-later

"""From prices to the exact search and back: like devices become classes, vectors integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .costs import Cells, Prices, Vector, fragmentation
from .exact import BUDGET, solve
from .sets import Counts, Problem

Members = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Cuts:
    """The best cut and the next one, as positions of the usable devices, and what is proven."""

    best: Members
    runner_up: Members | None
    exact: bool
    runner_up_exact: bool


def cut(
    prices: Prices,
    where: Cells,
    sizes: Sequence[int],
    required: Sequence[Sequence[int]],
    runner_up: bool = True,
    budget: int = BUDGET,
) -> Cuts:
    """Return the best two cuts of the priced devices into sets of these sizes, jointly.

    ``required`` are the positions that each set must have. Least cost wins, then the least
    fragmentation of what stays free, then the first devices. The sizes must fit.
    """
    count = len(prices.pairs)
    shifts = _shifts(prices, sizes, count)
    alone = max(sizes, default=0) <= 1
    cached: dict[Vector, int] = {}

    def packed(vector: Vector) -> int:
        bits = cached.get(vector)
        if bits is None:
            bits = 0
            for value, shift in zip(vector, shifts, strict=False):
                bits += value << shift
            cached[vector] = bits
        return bits

    owner: dict[int, int] = {
        member: replica for replica, members in enumerate(required) for member in members
    }
    if alone:  # no set has a pair
        rows = [[0] * count for _device in range(count)]
    else:
        rows = [[packed(vector) for vector in row] for row in prices.pairs]
    labels = [
        (prices.labels[i], where.hives[i], where.nodes[i], where.gpus[i], owner.get(i))
        for i in range(count)
    ]
    classes = like(rows, labels)
    firsts = [members[0] for members in classes]
    weights = [
        [rows[a][b] if a != b else rows[a][members[1]] if len(members) > 1 else 0 for b in firsts]
        for a, members in zip(firsts, classes, strict=True)
    ]
    owners = [owner.get(first) for first in firsts]
    levels = [_cell_classes([level[first] for first in firsts]) for level in where.levels]
    low = shifts[len(prices.fields) :]

    def leftover(counts: Counts) -> int:
        lost, scattered = fragmentation(
            [[sum(counts[c] for c in cell) for cell in level] for level in levels]
        )
        return (lost << low[0]) + (scattered << low[1])

    def gaps(counts: Counts) -> int:
        if prices.gaps is None:
            return 0
        return packed(prices.gaps([i for c, n in enumerate(counts) if n for i in classes[c][:n]]))

    names = list(dict.fromkeys(prices.labels[first] for first in firsts))

    def spread(marks: int) -> int:
        if prices.spread is None:
            return 0
        return packed(prices.spread([name for bit, name in enumerate(names) if marks >> bit & 1]))

    problem = Problem(
        capacities=tuple(
            0 if whose is not None else len(members)
            for whose, members in zip(owners, classes, strict=True)
        ),
        weights=weights,
        sizes=tuple(sizes),
        fixed=tuple(
            tuple(
                len(members) if whose == replica else 0
                for whose, members in zip(owners, classes, strict=True)
            )
            for replica in range(len(sizes))
        ),
        alike=_alike(weights, prices, where, classes, owners),
        marks=tuple(1 << names.index(prices.labels[first]) for first in firsts),
        spread=spread,
        gaps=gaps if prices.gaps else None,
        leftover=leftover,
    )
    solution = solve(problem, runner_up, budget)
    name = partial(_named, classes=classes, owners=owners, required=required)
    return Cuts(
        best=name(solution.best.sets),
        runner_up=None if solution.runner_up is None else name(solution.runner_up.sets),
        exact=solution.proven,
        runner_up_exact=solution.runner_up_proven,
    )


def _shifts(prices: Prices, sizes: Sequence[int], count: int) -> list[int]:
    """Return where each component begins in a packed cost; no sum of sets reaches the next one."""
    pairs = sum(size * (size - 1) // 2 for size in sizes)
    members = sum(sizes)
    most = [0] * len(prices.fields)
    for row in prices.pairs:
        for vector in set(row):
            most = [max(here, value) for here, value in zip(most, vector, strict=True)]
    limits = prices.span_limit or (0,) * len(most)
    ranges = [pairs * value + members * limit for value, limit in zip(most, limits, strict=True)]
    # Fragmentation: a device counts once a size and a level; scattered pairs once a level.
    ranges += [count * 3 * 7, count * count * 3]
    shifts = [0] * len(ranges)
    shift = 0
    for place in range(len(ranges) - 1, -1, -1):
        shifts[place] = shift
        shift += ranges[place].bit_length()
    return shifts


def like(rows: Sequence[Sequence[int]], labels: Sequence[object]) -> list[list[int]]:
    """Return the classes of devices that could change places: same label, same pair costs."""
    groups: dict[object, list[list[int]]] = {}
    classes: list[list[int]] = []
    for j, row in enumerate(rows):
        # Devices with unequal costs can't be alike; sorted costs tell most of them apart.
        others = [*row[:j], *row[j + 1 :]]
        group = groups.setdefault((labels[j], tuple(sorted(others))), [])
        for members in group:
            i = members[0]
            theirs = rows[i]
            if (
                theirs[:i] == row[:i]
                and theirs[i + 1 : j] == row[i + 1 : j]
                and theirs[j + 1 :] == row[j + 1 :]
            ):
                members.append(j)
                break
        else:
            members = [j]
            group.append(members)
            classes.append(members)
    return classes


def _alike(
    weights: Sequence[Sequence[int]],
    prices: Prices,
    where: Cells,
    classes: Sequence[Sequence[int]],
    owners: Sequence[int | None],
) -> Counts:
    """Return a number a class; classes of one number may change places as a whole.

    That is so where they cost the same to all others and are in the same cells, or are each a
    whole cell. A class that is all of its label may change places with another such class only
    where there are just two labels, and neither costs more than the other.
    """
    firsts = [members[0] for members in classes]
    spans = prices.spread or (lambda _labels: ())
    labels = list(dict.fromkeys(prices.labels))
    equal = len(labels) <= 2 and len({spans([label]) for label in labels}) == 1
    groups = [(prices.labels, equal), *((level, True) for level in where.levels)]
    marks: list[object] = []
    for members, whose in zip(classes, owners, strict=True):
        if whose is not None:
            marks.append(members[0])
            continue
        cells: list[object] = [len(members) > 1]
        for group, may_swap in groups:
            cell = group[members[0]]
            whole = may_swap and list(group).count(cell) == len(members)
            cells.append((True,) if whole and cell != -1 else (False, cell))
        marks.append(tuple(cells))
    numbers: list[int] = []
    for d, mark in enumerate(marks):
        for c in range(d):
            if (
                numbers[c] == c
                and marks[c] == mark
                and weights[c][c] == weights[d][d]
                and all(
                    weights[c][e] == weights[d][e] for e in range(len(firsts)) if e not in (c, d)
                )
            ):
                numbers.append(c)
                break
        else:
            numbers.append(d)
    return tuple(numbers)


def _cell_classes(cell_of: Sequence[int]) -> list[list[int]]:
    cells: dict[int, list[int]] = {}
    for c, cell in enumerate(cell_of):
        if cell >= 0:
            cells.setdefault(cell, []).append(c)
    return list(cells.values())


def _named(
    sets: Sequence[Counts],
    classes: Sequence[Sequence[int]],
    owners: Sequence[int | None],
    required: Sequence[Sequence[int]],
) -> Members:
    """Return the devices of each set: the first ones of each class for the first set."""
    used = [0] * len(classes)
    named = []
    for replica, counts in enumerate(sets):
        members = list(required[replica])
        for c, count in enumerate(counts):
            if owners[c] is None and count:
                members += classes[c][used[c] : used[c] + count]
                used[c] += count
        named.append(tuple(sorted(members)))
    return tuple(named)
