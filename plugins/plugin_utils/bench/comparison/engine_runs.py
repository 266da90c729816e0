# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which measured engine runs are runs of their own: one engine that was measured twice has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..types import Bench
from .statistics import mean

# Which benchmark of a side, and which of its engine runs.
Place = tuple[int, int]


def engine_runs_of(benches: Sequence[Bench]) -> Mapping[Place, int]:
    """Return a number for each measured run; equal ones are the same run of the same engines.

    They are where benchmarks are equal, or engines began at the same moment at the same addresses.
    Engines that do not tell when they began are taken by what the benchmark calls an engine run.
    """
    numbers: dict[Place, int] = {}
    known: dict[object, int] = {}
    for index, bench in enumerate(benches):
        same = next((place for place in range(index) if benches[place] == bench), None)
        for engine_run in sorted({level.load.engine_run for level in bench.levels}):
            marks: list[object] = [
                (bench.target.urls, level.engine.started)
                for level in bench.levels
                if level.load.engine_run == engine_run and level.engine and level.engine.started
            ]
            marks.append((index if same is None else same, engine_run, "engine_run"))
            number = min((known[mark] for mark in marks if mark in known), default=len(numbers))
            known |= dict.fromkeys(marks, number)
            numbers[index, engine_run] = number
    return numbers


def pooled(values: Iterable[tuple[Place, float]], engine_runs: Mapping[Place, int]) -> list[float]:
    """Return one value for each engine run: the mean of what was measured in it."""
    groups: dict[int, list[float]] = {}
    for place, value in values:
        groups.setdefault(engine_runs[place], []).append(value)
    return [mean(group) for group in groups.values()]
