# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which measured engine runs are runs of their own: one engine that was measured twice has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..types import Bench, Level


def merged(benches: Sequence[Bench]) -> tuple[Level, ...]:
    """Return the levels of several benchmarks as of one, their engine runs numbered over all.

    Two are the same run where benchmarks are equal, or engines began at the same moment at the same
    addresses. Engines that do not say when are taken by what the benchmark calls an engine run.
    """
    levels: list[Level] = []
    numbers: dict[object, int] = {}
    count = 0
    for bench in benches:
        same = benches.index(bench)
        for engine_run, own in by_engine_run(bench.levels).items():
            marks: list[object] = [
                (bench.target.urls, level.engine.started)
                for level in own
                if level.engine and level.engine.started
            ]
            marks.append((same, engine_run, "engine_run"))
            number = min((numbers[mark] for mark in marks if mark in numbers), default=count)
            numbers |= dict.fromkeys(marks, number)
            count += 1
            levels += (replace(one, load=replace(one.load, engine_run=number)) for one in own)
    return tuple(levels)


def by_engine_run(levels: Iterable[Level]) -> dict[int, list[Level]]:
    """Return the levels of each engine run, the first run first."""
    runs: dict[int, list[Level]] = {}
    for level in levels:
        runs.setdefault(level.load.engine_run, []).append(level)
    return dict(sorted(runs.items()))
