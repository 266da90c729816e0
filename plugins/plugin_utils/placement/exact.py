# SPDX-License-Identifier: GPL-3.0-or-later

"""The best and the second-best way to cut classes of like devices into sets, by branch and bound.

Devices that could change places without anybody noticing form a class, and a set of them is one
count a class: 64 partitions of eight GPUs are eight numbers (docs/explanation/placement.md).
Costs here are plain integers: a lexicographic vector is packed into one (cut.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .sets import Counts, Listed, OutOfBudgetError, Problem, Sets

# Steps, each times the number of classes, before the search ends unproven: about two seconds.
BUDGET = 3_000_000
# Once nothing can cost less, only what stays free can get better: some tens of milliseconds.
TIES_BUDGET = 50_000
# The cut that was not taken explains; it may cost no more than the cut that was.
RUNNER_UP_BUDGET = 100_000
# So many sets are listed once and looked up; beyond, listing costs more than it saves.
_LISTED_UP_TO = 8_000
# So few classes are searched sooner than prepared for.
_SMALL = 8

# Sets by kind: the number of a kind, and the counts a class.
_Found = tuple[int, list[tuple[int, Counts]]]


@dataclass(frozen=True)
class Cut:
    """Counts a class of each wanted set, in the order of `Problem.sizes`, and the total cost."""

    cost: int
    sets: tuple[Counts, ...]


@dataclass(frozen=True)
class Solution:
    """The best cut, the next one that no exchange of like devices makes of it, and the proof.

    ``proven`` says that no cut costs less, whatever stays free; ``runner_up_proven`` that no cut
    lies between the two.
    """

    best: Cut
    runner_up: Cut | None
    proven: bool
    runner_up_proven: bool


def solve(problem: Problem, runner_up: bool = True, budget: int = BUDGET) -> Solution:
    """Return the best two cuts; the sizes must fit the capacities.

    Without ``runner_up`` the second one is whatever was met on the way.
    """
    return _Search(problem, budget).run(runner_up)


class _Search:
    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem = problem
        self.find = Sets(problem, budget)
        self.classes = range(len(problem.capacities))
        # Like sets are one kind, taken in any order; sets with fixed members come first.
        requests = list(zip(problem.sizes, problem.fixed, strict=True))
        self.kinds = sorted(set(requests), key=lambda kind: (not any(kind[1]), -kind[0], kind[1]))
        self.wanted = tuple(requests.count(kind) for kind in self.kinds)
        self.needs = [size - sum(fixed) for size, fixed in self.kinds]
        self.fixed = [fixed for _size, fixed in self.kinds]
        self.least: list[int] = []
        self.listed: Listed | None = None
        self.best: _Found | None = None
        self.second: _Found | None = None
        self.seconds = False  # whether the second-best cut is looked for, or the best
        self.visits: dict[object, list[int]] = {}
        self.chosen: list[tuple[int, Counts]] = []

    def run(self, runner_up: bool) -> Solution:
        # A good cut first: whatever happens, there is an answer, and a limit to prune by.
        good = self.sequential()
        if len(self.classes) > _SMALL:
            self.improve()
        proven = runner_up_proven = False
        try:
            self.least = [
                self.find.cheapest(self.problem.capacities, need, fixed, known)
                for need, fixed, known in zip(self.needs, self.fixed, good, strict=True)
            ]
            proven = self.nothing_costs_less()
            if proven:
                self.find.budget = min(self.find.budget, TIES_BUDGET)
            if not proven:
                self.list_sets()
            self.descend_all()
            proven = True
        except OutOfBudgetError:
            proven = proven or self.nothing_costs_less()
        if proven and runner_up:
            self.seconds, self.find.budget = True, RUNNER_UP_BUDGET
            try:
                self.descend_all()
                runner_up_proven = True
            except OutOfBudgetError:
                pass
        if self.best is None:
            raise AssertionError("the sizes fit the capacities")
        return Solution(
            best=self.cut(self.best),
            runner_up=None if self.second is None else self.cut(self.second),
            proven=proven,
            runner_up_proven=runner_up_proven,
        )

    def nothing_costs_less(self) -> bool:
        """Tell whether each set of the best cut is the cheapest of its kind."""
        if self.best is None or not self.least:
            return False
        cost = sum(self.find.price(counts) for _kind, counts in self.best[1])
        return cost <= sum(n * low for n, low in zip(self.wanted, self.least, strict=True))

    # -- good cuts ----------------------------------------------------------------------------

    def sequential(self) -> list[int]:
        """Take the kinds one after the other, the largest first: a cut, rarely the best one.

        Returns what the cheapest set met of each kind costs.
        """
        free, total = self.problem.capacities, 0
        cheapest = []
        sets: list[tuple[int, Counts]] = []
        for kind, count in enumerate(self.wanted):
            costs = []
            for _set in range(count):
                cost, counts = self.find.grown(free, self.needs[kind], self.fixed[kind])
                free = self.without(free, kind, counts)
                sets.append((kind, counts))
                costs.append(cost)
            cheapest.append(min(costs))
            total += sum(costs)
        self.offer(total + self.find.leftover(free), sets)
        return cheapest

    def without(self, free: Counts, kind: int, counts: Counts) -> Counts:
        """Return what is free once a set is taken; its fixed members never were."""
        fixed = self.fixed[kind]
        return tuple(f - (n - own) for f, n, own in zip(free, counts, fixed, strict=True))

    def improve(self) -> None:
        """Exchange two devices at a time, while that makes the cut cheaper."""
        best: _Found | None = None
        while self.best is not None and self.best != best:
            best = self.best
            self.exchange(best[1])

    def exchange(self, sets: list[tuple[int, Counts]]) -> None:
        """Offer every cut that one exchange of two devices, or of one with a free one, makes."""
        price = self.find.price
        prices = [price(counts) for _kind, counts in sets]
        total = sum(prices)
        free = self.problem.capacities
        for kind, counts in sets:
            free = self.without(free, kind, counts)
        left = self.find.leftover(free)
        tried: set[object] = set()
        for i, (kind, counts) in enumerate(sets):
            mine = [c for c in self.classes if counts[c] > self.fixed[kind][c]]
            partners = [*enumerate(sets[i + 1 :], i + 1), (-1, (-1, free))]
            for j, (other_kind, others) in partners:
                if (kind, counts, other_kind, others) in tried:
                    continue
                tried.add((kind, counts, other_kind, others))
                own = self.fixed[other_kind] if j >= 0 else (0,) * len(free)
                theirs = [c for c in self.classes if others[c] > own[c]]
                for c, d in ((c, d) for c in mine for d in theirs if c != d):
                    first, other = _exchanged(counts, c, d), _exchanged(others, d, c)
                    cost = total - prices[i] + price(first)
                    changed = [*sets]
                    changed[i] = (kind, first)
                    if j >= 0:
                        changed[j] = (other_kind, other)
                        cost += price(other) - prices[j] + left
                    else:
                        cost += self.find.leftover(other)
                    if self.second is None or cost < self.second[0]:
                        self.offer(cost, changed)

    def offer(self, cost: int, sets: Sequence[tuple[int, Counts]]) -> None:
        """Keep a cut if it is one of the two best and not the other one by other names."""
        candidate = (cost, sorted(sets))
        if self.best is None or cost < self.best[0]:
            if self.best is not None and self.shape(sets) != self.shape(self.best[1]):
                self.second = self.best
            self.best = candidate
        elif (self.second is None or cost < self.second[0]) and (
            self.shape(sets) != self.shape(self.best[1])
        ):
            self.second = candidate

    def shape(self, sets: Sequence[tuple[int, Counts]]) -> object:
        """Return what stays of a cut when like classes lose their names: its rows and columns."""
        marks = list(zip(self.problem.alike, self.problem.capacities, strict=True))
        rows = sorted(
            (kind, sorted((mark, n) for mark, n in zip(marks, counts, strict=True) if n))
            for kind, counts in sets
        )
        columns = sorted(
            (marks[c], sorted((kind, counts[c]) for kind, counts in sets if counts[c]))
            for c in self.classes
        )
        return rows, columns

    # -- bounds -------------------------------------------------------------------------------

    @property
    def limit(self) -> int | None:
        """Return the cost from which on a cut is of no interest."""
        held = self.second if self.seconds else self.best
        return None if held is None else held[0]

    def list_sets(self) -> None:
        """List all sets where no two devices are alike and there are few enough."""
        capacities = self.problem.capacities
        if len(capacities) <= _SMALL or max(capacities) > 1 or any(map(any, self.fixed)):
            return
        devices = sum(capacities)
        if sum(math.comb(devices, need) for need in self.needs) <= _LISTED_UP_TO:
            self.listed = Listed(self.find, self.needs)

    def bound(self, free: Counts, left: Counts) -> int | None:
        """Return what the wanted sets that are left cost at least, None where they don't fit."""
        if self.listed is not None:
            return self.listed.bound(free, left)
        return sum(count * least for count, least in zip(left, self.least, strict=True))

    # -- the exact search ---------------------------------------------------------------------

    def descend_all(self) -> None:
        self.visits.clear()
        self.chosen.clear()
        capacities = self.problem.capacities
        self.descend(capacities, (0,) * len(capacities), self.wanted, 0)

    def descend(self, free: Counts, freed: Counts, left: Counts, cost: int) -> None:
        """Decide the first undecided class: a set with a member of it, or it stays free."""
        if not any(left):
            unused = tuple(map(int.__add__, free, freed))
            self.offer(cost + self.find.leftover(unused), self.chosen)
            return
        bound = self.bound(free, left)
        if bound is None or (self.limit is not None and cost + bound >= self.limit):
            return
        if self.visited(free, freed, left, cost):
            return
        held = [kind for kind, count in enumerate(left) if count and any(self.fixed[kind])]
        if held:
            self.branch(free, freed, left, cost, held[0], None)
            return
        lead = next(c for c in self.classes if free[c])
        for kind, count in enumerate(left):
            if count:
                self.branch(free, freed, left, cost, kind, lead)
        # No further set has a member of the lead class, nor of a like one in the same state.
        alike = self.problem.alike
        closed = {
            c
            for c in self.classes
            if (alike[c], free[c], freed[c]) == (alike[lead], free[lead], freed[lead])
        }
        needed = sum(n * need for n, need in zip(left, self.needs, strict=True))
        if sum(free) - sum(free[c] for c in closed) >= needed:
            self.descend(
                tuple(0 if c in closed else n for c, n in enumerate(free)),
                tuple(n + free[c] if c in closed else n for c, n in enumerate(freed)),
                left,
                cost,
            )

    def visited(self, free: Counts, freed: Counts, left: Counts, cost: int) -> bool:
        """Tell whether this state, without the names of like classes, was met as cheaply before.

        For the second-best cut it must have been met twice: two ways to it are two cuts.
        """
        state = left, tuple(sorted(zip(self.problem.alike, free, freed, strict=True)))
        worth = 2 if self.seconds else 1
        visits = self.visits.setdefault(state, [])
        if len(visits) >= worth and visits[worth - 1] <= cost:
            return True
        visits.append(cost)
        visits.sort()
        del visits[worth:]
        return False

    def branch(
        self, free: Counts, freed: Counts, left: Counts, cost: int, kind: int, lead: int | None
    ) -> None:
        """Try the sets of one kind, cheapest first."""
        after = tuple(n - (k == kind) for k, n in enumerate(left))
        rest = sum(n * least for n, least in zip(after, self.least, strict=True))
        limit = None if self.limit is None else self.limit - cost - rest
        if self.listed is not None and lead is not None:
            self.find.spend(20 * len(free))  # looked up: cheap, not free
            sets = self.listed.below(free, kind, lead, limit)
        else:
            sets = self.find.below(free, self.needs[kind], self.fixed[kind], lead, limit, freed)
        for price, counts in sets:
            if self.limit is not None and cost + price + rest >= self.limit:
                break
            self.chosen.append((kind, counts))
            self.descend(self.without(free, kind, counts), freed, after, cost + price)
            self.chosen.pop()

    def cut(self, found: _Found) -> Cut:
        """Return the sets in the order they were wanted."""
        by_kind: dict[int, list[Counts]] = {}
        for kind, counts in found[1]:
            by_kind.setdefault(kind, []).append(counts)
        for sets in by_kind.values():
            sets.sort(reverse=True)  # members of the first classes first
        requests = zip(self.problem.sizes, self.problem.fixed, strict=True)
        return Cut(found[0], tuple(by_kind[self.kinds.index(kind)].pop(0) for kind in requests))


def _exchanged(counts: Counts, less: int, more: int) -> Counts:
    changed = list(counts)
    changed[less] -= 1
    changed[more] += 1
    return tuple(changed)
