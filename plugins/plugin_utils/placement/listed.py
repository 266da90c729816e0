# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All sets of hosts on which no two devices are alike: listed once, then looked up by bit mask."""

from __future__ import annotations

from collections.abc import Sequence

from .sets import Counts, Priced, Sets

# What shares of a set's cost are counted in, so that sizes to 8 divide them.
SHARE = 840


class Listed:
    """The sets of each kind, cheapest first, each with the bit mask of its members."""

    def __init__(self, find: Sets, needs: Sequence[int]) -> None:
        capacities = find.problem.capacities
        nothing = (0,) * len(capacities)
        self.needs = needs
        self.bits = [1 << c for c in find.classes]
        self.kinds: list[list[tuple[int, int, Counts]]] = [
            [
                (cost, self.mask(counts), counts)
                for cost, counts in find.below(capacities, need, nothing, None, None, capacities)
            ]
            for need in needs
        ]

    def mask(self, counts: Counts) -> int:
        """Return the bit mask of the classes that have members."""
        return sum(bit for bit, count in zip(self.bits, counts, strict=True) if count)

    def below(self, free: Counts, kind: int, lead: int, limit: int | None) -> list[Priced]:
        """Return the sets of a kind among the free devices, with the lead, that cost less."""
        gone, bits = ~self.mask(free), self.bits[lead]
        sets = []
        for cost, members, counts in self.kinds[kind]:
            if limit is not None and cost >= limit:
                break
            if members & bits and not members & gone:
                sets.append((cost, counts))
        return sets

    def bound(self, free: Counts, left: Counts) -> int | None:
        """Return what the wanted sets that are left cost at least, None where they don't fit.

        Each device pays its share of the cheapest set that it could be in now.
        """
        here = self.mask(free)
        gone = ~here
        shares: dict[int, int] = {}
        least = need = 0
        for kind, count in enumerate(left):
            if not count:
                continue
            need += count * self.needs[kind]
            missing, size = here, self.needs[kind]
            cheapest: int | None = None
            for cost, members, _counts in self.kinds[kind]:
                if members & gone:
                    continue
                if cheapest is None:
                    cheapest = cost
                new = members & missing
                if new:
                    share = cost * SHARE // size
                    missing &= ~new
                    while new:
                        bit = new & -new
                        if share < shares.get(bit, share + 1):
                            shares[bit] = share
                        new ^= bit
                    if not missing:
                        break
            if cheapest is None:
                return None
            least += count * cheapest
        if len(shares) < need:
            return None
        return max(least, -(-sum(sorted(shares.values())[:need]) // SHARE))
