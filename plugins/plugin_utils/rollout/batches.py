# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts change at once: growing batches, none of which takes out more than is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from ..findings import error
from .types import HostSteps

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%|(\d+)")


def share(text: str, whole: int, subject: str) -> int:
    """Return what a number or a percentage of ``whole`` is, rounded down; raise ROLLOUT-SETTING."""
    found = _SHARE.fullmatch(text.strip())
    if not found or (found[1] and Fraction(found[1]) > 100):
        raise error(
            "ROLLOUT-SETTING",
            subject,
            f"is {text!r}, expected a number like 2 or a percentage like 25%",
        )
    if found[2]:
        return int(found[2])
    return int(Fraction(found[1]) / 100 * whole)


def allowed_out(max_unavailable: str, replicas: int) -> int:
    """Return how many replicas may be out at once: at least one, but never all of them.

    0 means that there is no replica to spare.
    """
    limit = max(1, share(max_unavailable, replicas, "rollout_max_unavailable"))
    return min(limit, replicas - 1) if replicas else 0


def brought_back(hosts: Sequence[HostSteps], failure_budget: int) -> int:
    """Return how many replicas hosts bring back, where as many of them fail as may."""
    gains = sorted(one.back for one in hosts)
    return sum(gains[: max(0, len(gains) - failure_budget)])


def cut_batches(
    hosts: Sequence[HostSteps],
    sizes: Sequence[str],
    canary: int,
    capacity: int,
    failure_budget: int = 0,
) -> tuple[int, ...]:
    """Return the number of hosts of each batch, all of which come one after the other.

    ``sizes`` are as the operator gave them, the last one repeating; ``canary`` is the size of the
    first batch, 0 for the first of ``sizes``. ``capacity`` is how many replicas may go out, below 0
    where more are out than may be; what hosts of earlier batches bring back is added to it.
    A host that takes out more than that is a batch of its own: it has been allowed before.
    """
    wanted = [
        max(1, share(size, len(hosts), f"rollout_batches[{index}]"))
        for index, size in enumerate(sizes)
    ] or [len(hosts)]
    if canary:
        wanted = [canary, *wanted]
    batches: list[int] = []
    place, rest, used, room = 0, 0, 0, 0
    for index, one in enumerate(hosts):
        if rest == 0 or (batches[-1] and used + one.out > max(room, 0)):
            # What does not fit into a batch is the next one, before any larger one.
            if rest == 0:
                rest, place = wanted[min(place, len(wanted) - 1)], place + 1
            batches.append(0)
            used, room = 0, capacity + brought_back(hosts[:index], failure_budget)
        batches[-1] += 1
        rest -= 1
        used += one.out
    return tuple(batches)
