# SPDX-License-Identifier: GPL-3.0-or-later

"""The SLO search: the highest load that keeps every limit, by bisection with repeats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from ..slo import Limit
from .comparison.sameness import by_engine_run, merged
from .comparison.statistics import interval, mean
from .ledger import By, Figure, Ledger, Steps, by_size, evidence, mean_rate, rate_of
from .types import Bench, Interval, Level, Requested, SearchResult, Workload


@dataclass(frozen=True)
class Edge:
    """The highest size below the first that failed, and that one, of one engine run."""

    best: float | None
    fails: float | None


def searches(requested: Requested) -> tuple[By, ...]:
    """Return what the SLO searches of a benchmark raise, in their order."""
    return (
        ("concurrency", "request_rate") if requested.search_by == "both" else (requested.search_by,)
    )


def keeps(levels: Sequence[Level]) -> bool:
    """Return whether most of a size's levels kept the limits; a level that failed did not."""
    return 2 * sum(level.status == "OK" for level in levels) > len(levels)


def edge(levels: Iterable[Level], workload: str, by: By) -> Edge:
    """Return where the limits break first: what a higher level shows does not heal a lower one."""
    kept = {size: keeps(group) for size, group in by_size(levels, workload, by).items()}
    fails = min((size for size, kept_it in kept.items() if not kept_it), default=None)
    below = [size for size, kept_it in kept.items() if kept_it and (fails is None or size < fails)]
    return Edge(max(below, default=None), fails)


def margin(level: Level, slo: Sequence[Limit]) -> float | None:
    """Return the worst measured share of a limit: 1 is at it; None where nothing was measured."""
    shares = []
    for limit in slo:
        spread = getattr(level.measured, limit.metric, None)
        if spread is not None:
            shares.append(getattr(spread, limit.percentile) / limit.seconds)
    return max(shares, default=None)


class Search:
    """One search in one run; ``hint`` is the edge of an earlier run, from which it starts."""

    def __init__(self, ledger: Ledger, workload: Workload, by: By, hint: Edge | None) -> None:
        self.ledger, self.workload, self.by = ledger, workload, by
        self.rules, self.requested = ledger.rules, ledger.requested
        self.hint = hint if hint is not None and hint.best is not None else None
        self.made = 0
        self.start = self._start()
        self.ceiling, self.floor = self._bounds()

    def run(self) -> Steps[bool]:
        """Measure until the edge is known to the resolution and confirmed; False: it is not."""
        while True:
            size = self._next()
            if size is None:
                self._tell()
                return True
            if self.made >= self.rules.search_levels:
                self._unfinished(f"{self.made} levels did not settle it")
                return False
            level = yield from self.ledger.measure("slo", self.workload, self.by, size)
            self.made += 1
            if not evidence(level):
                self._unfinished(f"the level at {size:g} is invalid")
                return False

    def _next(self) -> float | None:
        """Return the size to measure next; None when the edge is confirmed."""
        known = self.ledger.known(self.workload, self.by)
        at = self._edge()
        for size in (at.fails, at.best):
            if size is not None and not self._decided(known[size]):
                return size
        wanted = self._outward(at) if at.best is None or at.fails is None else None
        if at.best is not None and at.fails is not None:
            wanted = self._middle(at.best, at.fails)
        if wanted is not None:
            return wanted
        repeats = self.rules.edge_repeats
        for size, count in ((at.best, repeats), (at.fails, min(2, repeats))):
            if size is not None and len(known[size]) < count:
                return size
        return None

    def _edge(self) -> Edge:
        return edge(self.ledger.of_run(), self.workload.name, self.by)

    def _decided(self, levels: Sequence[Level]) -> bool:
        """Return whether more repeats cannot change the verdict, or one is far from every limit."""
        repeats = self.rules.edge_repeats
        kept = sum(level.status == "OK" for level in levels)
        if len(levels) >= repeats or 2 * max(kept, len(levels) - kept) > repeats:
            return True
        share = margin(levels[0], self.requested.slo)
        clear = share is None or abs(share - 1) > self.rules.band
        return len(levels) == 1 and clear

    def _outward(self, at: Edge) -> float | None:
        """Return the next size up or down while one side of the edge is missing."""
        if at.best is None and at.fails is None:
            return self.start
        grow = self.rules.hinted_grow if self.hint else self.rules.grow
        if at.fails is None:
            size = at.best or self.start
            if size >= self.ceiling:
                return None
            hinted = self.hint.fails if self.hint else None
            up = hinted if hinted and hinted > size else self._round(size * grow, up=True)
            return min(up, self.ceiling)
        if at.fails <= self.floor:
            return None
        return max(self._round(at.fails / grow, up=False), self.floor)

    def _middle(self, best: float, fails: float) -> float | None:
        """Return the size between two, or None where they are as near as the resolution."""
        hinted = (self.hint.best, self.hint.fails) if self.hint else ()
        for size in hinted:
            if size is not None and best < size < fails:
                return size
        if self.by == "concurrency":
            if fails - best <= max(1.0, self.rules.resolution * best):
                return None
            return float((int(best) + int(fails)) // 2)
        if fails - best <= self.rules.resolution * best:
            return None
        # Four digits name a rate in a file; the resolution is coarser by far.
        return float(f"{(best + fails) / 2:.4g}")

    def _round(self, size: float, up: bool) -> float:
        if self.by == "concurrency":
            return float(math.ceil(size) if up else math.floor(size))
        return float(f"{size:.4g}")

    def _start(self) -> float:
        """Return where to begin: the earlier edge, the first asked size, or what levels suggest."""
        if self.hint is not None and self.hint.best is not None:
            return self.hint.best
        if self.by == "concurrency":
            return float(min(self.requested.concurrency, default=1))
        if self.requested.request_rate:
            return min(self.requested.request_rate)
        closed = self.ledger.known(self.workload, "concurrency")
        rates = [mean_rate(levels) for levels in closed.values() if keeps(levels)]
        return self._round(
            max((rate for rate in rates if rate), default=self.rules.first_rate), True
        )

    def _bounds(self) -> tuple[float, float]:
        if self.by == "concurrency":
            return float(max(self.requested.concurrency, default=self.requested.most)), 1.0
        far = 2.0**self.rules.ladder
        return self._round(self.start * far, True), self._round(self.start / far, False)

    def _tell(self) -> None:
        """Keep what a reader must know of the result: no edge, or more than one."""
        at = self._edge()
        name, by = self.workload.name, self.by.replace("_", " ")
        if at.best is None:
            self.ledger.find(
                "BENCH-SLO-NONE",
                name,
                f"even a {by} of {at.fails:g} misses {_limits(self._missed())}",
            )
        elif at.fails is None:
            self.ledger.find(
                "BENCH-SLO-CEILING",
                name,
                f"a {by} of {at.best:g} keeps every limit, and no more was asked",
                more=self._more(),
            )
        kept = self.ledger.known(self.workload, self.by)
        above = [size for size in kept if at.fails and size > at.fails and keeps(kept[size])]
        if above:
            self.ledger.find(
                "BENCH-SLO-ORDER",
                name,
                f"a {by} of {at.fails:g} misses the limits though {max(above):g} keeps them; the "
                "lower one counts, for a growing load passes through it",
            )

    def _more(self) -> str:
        if self.by == "concurrency" and self.requested.concurrency:
            return "add a higher level to --concurrency"
        return "raise --most" if self.by == "concurrency" else "begin at a higher --request-rate"

    def _missed(self) -> tuple[Limit, ...]:
        known = self.ledger.known(self.workload, self.by)
        return _missed_at(known.get(self._edge().fails or 0.0, ()))

    def _unfinished(self, why: str) -> None:
        at = self._edge()
        self.ledger.find(
            "BENCH-SLO-UNFINISHED",
            self.workload.name,
            f"the search ended between {at.best or 0:g} and {at.fails or math.inf:g}: {why}",
        )


def conclude(levels: Sequence[Level], workload: str, by: By) -> SearchResult:
    """Return what the levels of all engine runs say; ``best`` is the median of the engine runs."""
    edges, best = _edges(levels, workload, by)
    above = [at.fails for at in edges if at.fails is not None and at.fails > best]
    fails = min(above, default=None)
    groups = by_size(levels, workload, by)
    return SearchResult(
        workload=workload,
        by=by,
        best=best or None,
        fails=fails,
        request_rate=at_edge(levels, workload, by),
        levels=sum(map(len, groups.values())),
        missed=_missed_at(groups.get(fails, ())) if fails is not None else (),
        edge=_sure_edge(edges, groups, best) if best else None,
    )


def at_edge(
    levels: Sequence[Level], workload: str, by: By, figure: Figure = rate_of
) -> Interval | None:
    """Return a figure, the request rate or another, at the highest load that kept the limits.

    Its interval is over the runs' means at their own edges where there are several runs. Of one
    run it is over the repeats at the edge, and wide enough for where the edge may be: from the last
    size that kept the limits every time to the first above that never did.
    """
    edges, best = _edges(levels, workload, by)
    rows = _at_edges(levels, workload, by, figure)
    if not rows or not best:
        return None
    if len(edges) > 1:
        return interval([mean(row) for row in rows])
    return _widened(interval(rows[0]), by_size(levels, workload, by), best, figure)


def _edges(levels: Sequence[Level], workload: str, by: By) -> tuple[list[Edge], float]:
    """Return the edge of each engine run, and the median of them; 0 where most kept no limit."""
    edges = [edge(own, workload, by) for own in by_engine_run(levels).values()]
    return edges, median_low([at.best or 0.0 for at in edges]) if edges else 0.0


def _at_edges(levels: Sequence[Level], workload: str, by: By, figure: Figure) -> list[list[float]]:
    """Return the figures of each engine run at the edge that it has by itself."""
    rows = []
    for own in by_engine_run(levels).values():
        best = edge(own, workload, by).best
        at_best = by_size(own, workload, by)[best] if best is not None else ()
        rows.append([value for value in map(figure, at_best) if value is not None])
    return [row for row in rows if row]


def _widened(
    found: Interval, groups: Mapping[float, Sequence[Level]], best: float, figure: Figure
) -> Interval:
    """Return the interval with the figures of the sizes between which the edge may lie."""
    if found.low is None or found.high is None:
        return found
    served = {size: one for size, one in groups.items() if mean_rate(one, figure) is not None}
    ends = [mean_rate(served[size], figure) for size in _ends(served, best) if size is not None]
    values = [found.low, found.high, *(end for end in ends if end is not None)]
    return replace(found, low=min(values), high=max(values))


def _ends(
    groups: Mapping[float, Sequence[Level]], best: float
) -> tuple[float | None, float | None]:
    """Return the last size that kept the limits every time, and the first above that never did."""
    kept = {size: [level.status == "OK" for level in levels] for size, levels in groups.items()}
    sure = max((size for size, each in kept.items() if size <= best and all(each)), default=None)
    lost = min((size for size, each in kept.items() if size > best and not any(each)), default=None)
    return sure, lost


def _sure_edge(
    edges: Sequence[Edge], groups: Mapping[float, Sequence[Level]], best: float
) -> Interval:
    """Return the edge with its uncertainty: over runs a t-interval, as wide as one search is."""
    sizes = [at.best or 0.0 for at in edges]
    if len(sizes) == 1:
        sure, lost = _ends(groups, best)
        # Without both ends it is not known how far off it may be.
        return Interval(1, best) if None in (sure, lost) else Interval(1, best, sure, lost)
    found = interval(sizes)
    tops = [at.fails for at in edges if at.fails is not None]
    if found.low is None or found.high is None or len(tops) < len(edges):
        return replace(found, low=None, high=None)
    between = sum(tops) / len(tops)
    return replace(found, low=max(0.0, found.low), high=max(found.high, between))


def searched_by(benches: Sequence[Bench]) -> tuple[By, ...]:
    """Return by what each of the benchmarks was searched for its limit, streams first."""
    known = [{one.by for one in bench.searches} for bench in benches]
    kinds: tuple[By, ...] = ("concurrency", "request_rate")
    return tuple(by for by in kinds if known and all(by in each for each in known))


def slo_rates(benches: Sequence[Bench], by: By, figure: Figure = rate_of) -> tuple[float, ...]:
    """Return each run's request rate, or another figure, at the edge that it has by itself."""
    rows = _at_edges(merged(benches), benches[0].requested.workload.name, by, figure)
    return tuple(map(mean, rows))


def _missed_at(levels: Iterable[Level]) -> tuple[Limit, ...]:
    return tuple(dict.fromkeys(limit for level in levels for limit in level.missed))


def _limits(limits: Iterable[Limit]) -> str:
    texts = [f"{limit.metric} {limit.percentile} <= {limit.seconds:g} s" for limit in limits]
    return ", ".join(texts) or "the limits: its requests failed"
