# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which faults come, where, and for how long: a pure function of a seed.

Kinds are dealt as cards are: a deck has each as often as it counts, so that no run of an hour goes
without one, and in which order they come is the seed's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Part = Literal["replica", "gpu", "router", "monitor", "storage", "fleet"]


@dataclass(frozen=True)
class Kind:
    """One kind of fault: its family, what it befalls, the seconds that it lasts, how often."""

    family: str
    on: Part
    seconds: tuple[float, float] = (0, 0)
    count: int = 1


# What lasts no time is done in a moment; what it broke comes back by itself.
KINDS: dict[str, Kind] = {
    "kill-core": Kind("kill", "replica", count=2),
    "kill-worker": Kind("kill", "replica"),
    "kill-supervisor": Kind("kill", "replica"),
    "kill-router": Kind("kill", "router"),
    "kill-monitor": Kind("kill", "monitor"),
    "power-gpu": Kind("power", "gpu", (2, 15)),
    "power-router": Kind("power", "router", (2, 10)),
    "power-site": Kind("power", "fleet", (5, 20)),
    "hang-core": Kind("hang", "replica"),
    "hang-router": Kind("hang", "router", (1, 6)),
    "hang-monitor": Kind("hang", "monitor", (2, 10)),
    "cut-gpu": Kind("network", "gpu", (4, 30)),
    "cut-router": Kind("network", "router", (3, 15)),
    "cut-monitor": Kind("network", "monitor", (3, 15)),
    "cut-storage": Kind("network", "storage", (5, 25)),
    "full-gpu": Kind("disk", "gpu", (3, 15)),
    "full-router": Kind("disk", "router", (3, 15)),
    "clock-gpu": Kind("clock", "gpu", (3, 12)),
    "clock-router": Kind("clock", "router", (3, 12)),
    "stall-storage": Kind("storage", "storage", (5, 25)),
    "kill-storage": Kind("storage", "storage", (2, 10)),
    "drain": Kind("change", "gpu", (1, 4)),
    "reload": Kind("change", "router"),
    "restart": Kind("change", "replica"),
    "rollout": Kind("rollout", "fleet"),
    "rollout-killed": Kind("rollout", "fleet", (10, 90)),
}


# The names of what can break, by what they are.
Parts = Mapping[Part, tuple[str, ...]]


@dataclass(frozen=True)
class Step:
    """One fault of a run. ``chance`` is what else may differ in it, from 0 to 1."""

    number: int
    kind: str
    part: str
    seconds: float
    chance: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.number} {self.kind} {self.part}{lasts}"


def steps(seed: int, parts: Parts, kinds: tuple[str, ...] = tuple(KINDS)) -> Iterator[Step]:
    """Yield the faults of a seed, without end; another seed yields others."""
    # Not `shuffle` and `choice`: what they draw may differ between versions of Python.
    chance = random.Random(seed).random
    possible = [kind for kind in kinds if parts.get(KINDS[kind].on)]
    number = 0
    while possible:
        deck = [kind for kind in possible for _ in range(KINDS[kind].count)]
        while deck:
            kind = deck.pop(int(chance() * len(deck)))
            names, (least, most) = parts[KINDS[kind].on], KINDS[kind].seconds
            part = names[int(chance() * len(names))]
            number += 1
            yield Step(number, kind, part, round(least + chance() * (most - least), 1), chance())
