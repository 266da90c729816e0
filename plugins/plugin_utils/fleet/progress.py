# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a rollout is: hosts by phase, and how long the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Phase = Literal["failed", "unreachable", "running", "done", "skipped", "waiting"]
# What a person looks for first stands first.
PHASES: tuple[Phase, ...] = ("failed", "unreachable", "running", "done", "skipped", "waiting")


@dataclass(frozen=True)
class Took:
    """A wave that has ended: how many hosts it had, and how long it took."""

    hosts: int
    seconds: float


def count(phases: Iterable[Phase]) -> dict[Phase, int]:
    """Return how many hosts are in each phase, those with any, in the order of PHASES."""
    numbers = Counter(phases)
    return {phase: numbers[phase] for phase in PHASES if numbers[phase]}


def told(numbers: Mapping[Phase, int]) -> str:
    """Return the phases as one line for a person: "1 failed, 3 running, 8 waiting"."""
    return ", ".join(f"{number} {phase}" for phase, number in numbers.items()) or "no hosts"


def expected_wave(took: Sequence[Took], hosts: int) -> float | None:
    """Return how many seconds a wave will take, None where no wave has ended.

    The hosts of a wave change at the same time, so a wave takes about as long as others of its
    size or smaller did, and no less: the longest is taken.
    """
    del hosts
    return max((one.seconds for one in took), default=None)


def seconds_left(
    took: Sequence[Took], waves: Sequence[int], running_for: float | None = None
) -> float | None:
    """Return how long the rest takes: ``waves`` are the sizes of those not ended, in order.

    ``running_for`` is how long the first of them has been at it, None where it has not begun.
    None where nothing is known yet.
    """
    each = [expected_wave(took, size) for size in waves]
    if not took:
        return None
    whole = sum(one or 0.0 for one in each)
    return max(0.0, whole - min(running_for or 0.0, each[0] or 0.0)) if each else 0.0


def clock(seconds: float | None) -> str:
    """Return a time span as people write it: "3 min", "1 h 20 min", "" for none."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
