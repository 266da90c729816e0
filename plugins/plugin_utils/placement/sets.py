# SPDX-License-Identifier: GPL-3.0-or-later

"""One set of devices at a time: the good ones, quickly, and all that cost less than a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

Counts = tuple[int, ...]
Priced = tuple[int, Counts]


class OutOfBudgetError(Exception):
    """More was looked at than the search may."""


@dataclass(frozen=True)
class Problem:
    """Classes of like devices and the sets wanted of them.

    ``weights[c][d]`` is the cost of a pair of a device of class c and one of class d;
    ``spread(marks)`` is what a set costs for the ``marks`` (bits) of its members' classes, and
    never less for more of them, ``gaps(counts)`` what else it costs beyond its pairs;
    ``leftover(counts)`` what is lost by leaving those devices free: less than one unit of any
    other cost, and 0 where none are free.
    ``sizes`` are the wanted sets, ``fixed`` the members that each must have, by class; fixed
    members are not in ``capacities``. Classes with equal ``alike`` may be exchanged for another.
    """

    capacities: Counts
    weights: Sequence[Sequence[int]]
    sizes: Counts
    fixed: tuple[Counts, ...]
    alike: Counts
    marks: Counts
    spread: Callable[[int], int]
    gaps: Callable[[Counts], int] | None
    leftover: Callable[[Counts], int]


@dataclass
class Sets:
    """Finds the sets of one problem; ``budget`` counts down with the work done."""

    problem: Problem
    budget: int
    _gaps: dict[Counts, int] = field(default_factory=dict)
    _spreads: dict[int, int] = field(default_factory=dict)
    _leftovers: dict[Counts, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.problem
        self.classes = range(len(problem.capacities))
        self._bound_pairs(max(problem.sizes))

    def _bound_pairs(self, largest: int) -> None:
        """Bound from below what the pairs of some further members cost, by their number.

        ``_among`` holds for any members: as many pairs as can be lie inside classes. ``_inner``
        gives, by class of a member, its cheapest pairs; every pair counts for both of its members.
        """
        weights, problem = self.problem.weights, self.problem
        caps = [
            capacity + max(fixed[c] for fixed in problem.fixed)
            for c, capacity in enumerate(problem.capacities)
        ]
        between = [weights[c][d] for c in self.classes for d in range(c)]
        within = [weights[c][c] for c in self.classes if caps[c] > 1]
        self._between = min(between or within, default=0)
        inside = min(within, default=self._between)
        width = max(caps, default=1)
        self._among = []
        for count in range(largest + 1):
            pairs = count * (count - 1) // 2
            full, rest = divmod(count, width)
            dense = full * width * (width - 1) // 2 + rest * (rest - 1) // 2
            if inside >= self._between:
                dense = 0
            self._among.append(dense * inside + (pairs - dense) * self._between)
        # Few classes are searched sooner than bounded well.
        self._inner: list[list[int]] = []
        if len(caps) > 4:
            for c in self.classes:
                row = weights[c]
                near: list[int] = []
                for weight, d in sorted((row[d], d) for d in self.classes):
                    near += [weight] * min(largest, caps[d] - (c == d))
                sums = [0]
                for weight in near[:largest]:
                    sums.append(sums[-1] + weight)
                sums += [sums[-1]] * (largest + 1 - len(sums))
                self._inner.append(sums)

    def spend(self, steps: int) -> None:
        """Count work; raise OutOfBudgetError where there is to be no more."""
        self.budget -= steps
        if self.budget < 0:
            raise OutOfBudgetError

    def gaps(self, counts: Counts) -> int:
        if self.problem.gaps is None:
            return 0
        cached = self._gaps.get(counts)
        if cached is None:
            cached = self._gaps[counts] = self.problem.gaps(counts)
        return cached

    def spread(self, marks: int) -> int:
        cached = self._spreads.get(marks)
        if cached is None:
            cached = self._spreads[marks] = self.problem.spread(marks)
        return cached

    def leftover(self, free: Counts) -> int:
        cached = self._leftovers.get(free)
        if cached is None:
            cached = self._leftovers[free] = self.problem.leftover(free)
        return cached

    def marked(self, counts: Counts) -> int:
        """Return the marks of a set."""
        marked = 0
        for mark, count in zip(self.problem.marks, counts, strict=True):
            if count:
                marked |= mark
        return marked

    def price(self, counts: Counts) -> int:
        """Return the cost of a set."""
        weights, members = self.problem.weights, [(c, n) for c, n in enumerate(counts) if n]
        total, marks = self.gaps(counts), 0
        for index, (c, count) in enumerate(members):
            row = weights[c]
            marks |= self.problem.marks[c]
            total += count * (count - 1) // 2 * row[c]
            for d, other in members[:index]:
                total += count * other * row[d]
        return total + self.spread(marks)

    def grown(self, free: Counts, need: int, fixed: Counts) -> Priced:
        """Return a good set: grown from each class by what adds least, the best for what stays."""
        weights, marks = self.problem.weights, self.problem.marks
        best: tuple[int, int, Counts] | None = None
        seeds: Sequence[int] = [c for c in self.classes if free[c]]
        if any(fixed) or not need:
            seeds = [-1]
        for seed in seeds:
            picked, left = list(fixed), list(free)
            rows = [
                sum(count * weights[d][c] for d, count in enumerate(fixed) if count)
                for c in self.classes
            ]
            marked = self.marked(fixed)
            for step in range(need):
                c = seed
                if step or seed < 0:
                    # Among equals the class that has most left, so that few are opened.
                    c = min(
                        (rows[d] + self.spread(marked | marks[d]), -left[d], d)
                        for d in self.classes
                        if left[d]
                    )[2]
                picked[c] += 1
                left[c] -= 1
                marked |= marks[c]
                rows = [here + there for here, there in zip(rows, weights[c], strict=True)]
            counts = tuple(picked)
            candidate = (self.price(counts), self.leftover(tuple(left)), counts)
            if best is None or candidate[:2] < best[:2]:
                best = candidate
        if best is None:
            raise AssertionError("a wanted set fits the capacities")
        return best[0], best[2]

    def cheapest(self, free: Counts, need: int, fixed: Counts, good: int) -> int:
        """Return what the cheapest set costs, exactly; ``good`` is what one is known to cost."""
        better = self.below(free, need, fixed, None, good, free)
        return better[0][0] if better else good

    def below(
        self,
        free: Counts,
        need: int,
        fixed: Counts,
        lead: int | None,
        limit: int | None,
        state: Counts,
    ) -> list[Priced]:
        """Return the sets that cost less than limit, cheapest first.

        ``need`` members of ``free`` are added to the fixed ones, at least one of class ``lead``.
        Of like classes in the same ``state`` the earlier one gives at least as many: the other
        sets are the same by other names.
        """
        result: list[Priced] = []
        weights, among, between = self.problem.weights, self._among, self._between
        marks, spreads, inner = self.problem.marks, self._spreads, self._inner
        last = len(free) - 1
        width = len(free)  # what a step costs grows with the classes
        rest = [0] * (last + 2)  # what the classes from c on can still give
        for c in range(last, -1, -1):
            rest[c] = rest[c + 1] + free[c]
        twin = self._twins(free, state)
        picked = list(fixed)
        fixed_classes = [c for c in self.classes if fixed[c]]
        cross = [sum(fixed[d] * weights[d][c] for d in fixed_classes) for c in self.classes]
        start = sum(fixed[c] * (cross[c] - weights[c][c]) for c in fixed_classes) // 2

        def extend(c: int, need: int, cost: int, size: int, cross: list[int], marked: int) -> None:
            self.budget -= width
            if self.budget < 0:
                raise OutOfBudgetError
            if need == 0:
                counts = tuple(picked)
                total = cost + spreads[marked] + self.gaps(counts)
                if limit is None or total < limit:
                    result.append((total, counts))
                return
            while not free[c] and c < last:
                c += 1
            if rest[c] < need:
                return
            if limit is not None:
                low = cost + spreads[marked]
                if low + among[need] + need * size * between >= limit:
                    return
                if inner and need > 1:
                    prices = sorted(
                        (2 * cross[d] + inner[d][need - 1], free[d])
                        for d in range(c, last + 1)
                        if free[d]
                    )
                    missing, doubled = need, 0
                    for price, count in prices:
                        take = count if count < missing else missing
                        doubled += take * price
                        missing -= take
                        if not missing:
                            break
                    if low + (doubled + 1) // 2 >= limit:
                        return
            most = min(free[c], need)
            if twin[c] >= 0:
                most = min(most, picked[twin[c]])
            least = max(0, need - rest[c + 1], int(c == lead))
            if most >= max(least, 1):
                row = weights[c]
                grown = marked | marks[c]
                self.spread(grown)
                for take in range(most, max(least, 1) - 1, -1):
                    picked[c] = take
                    extend(
                        c + 1,
                        need - take,
                        cost + take * cross[c] + take * (take - 1) // 2 * row[c],
                        size + take,
                        [here + take * there for here, there in zip(cross, row, strict=True)],
                        grown,
                    )
                picked[c] = 0
            if least == 0:
                extend(c + 1, need, cost, size, cross, marked)

        marked = self.marked(fixed)
        self.spread(marked)
        extend(0, need, start, sum(fixed), cross, marked)
        # They were met with members of the first classes first, and stay so among equals.
        result.sort(key=itemgetter(0))
        return result

    def _twins(self, free: Counts, state: Counts) -> list[int]:
        """Return the like class before each one that is in the same state, or -1."""
        twins = [-1] * len(free)
        seen: dict[tuple[int, int, int], int] = {}
        for c in self.classes:
            if free[c]:
                mark = (self.problem.alike[c], free[c], state[c])
                twins[c] = seen.get(mark, -1)
                seen[mark] = c
        return twins


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
