# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts a rate needs under the limits: arithmetic on measured results, nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import ApiaryError, Finding, error
from .comparison.compare import doubt, unproven
from .comparison.sameness import one_configuration
from .comparison.statistics import functions, interval
from .cost import cost_of
from .ledger import by_size
from .search import edge, searched_by, slo_rates
from .types import Bench, Cost, Interval, SearchResult


@dataclass(frozen=True)
class Line:
    """One line of the arithmetic: what, how it came about, the value and its unit."""

    what: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True)
class Capacity:
    """How many ``hosts`` serve ``target_rate`` (requests/s) at the SLO, with each step to it.

    ``per_host`` is the rate that was counted on, ``busy`` the share of it that is used while every
    host is up. ``cost`` is that of the measured hosts at the SLO.
    """

    hosts: int
    target_rate: float
    per_host: float
    busy: float
    rate: Interval
    lines: tuple[Line, ...]
    assumptions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    cost: Cost | None = None


def capacity(
    benches: Sequence[Bench],
    target_rate: float,
    spare: int = 1,
    batch: int = 0,
    hosts: int | None = None,
) -> Capacity:
    """Return the hosts that serve a rate with ``spare`` failed and ``batch`` in maintenance.

    The benchmarks are of one configuration, each with a finished SLO search. ``hosts`` is how many
    were measured where the results do not say. Raises CAPACITY-TARGET, CAPACITY-MIXED,
    CAPACITY-HOSTS, CAPACITY-NO-SLO or CAPACITY-UNCERTAIN, and BENCH-EXTRA without scipy.
    """
    functions()
    _requested(target_rate, spare, batch)
    try:
        one_configuration(benches)
    except ApiaryError as refusal:
        raise error("CAPACITY-MIXED", "results", refusal.findings[0].message) from refusal
    found = _searched(benches)
    measured = benches[0].target.hosts or hosts
    if not measured:
        raise error(
            "CAPACITY-HOSTS", benches[0].name, "the result does not say how many hosts served it"
        )
    rates = slo_rates(benches, found.by)
    # Of one engine run the search's own, over its repeats at the edge.
    rate = interval(rates) if len(rates) > 1 or not found.request_rate else found.request_rate
    sure = rate.mean if rate.low is None else rate.low
    if sure <= 0:
        raise error(
            "CAPACITY-UNCERTAIN",
            benches[0].name,
            f"{rate.n} values of the rate at the SLO spread so far that its interval reaches zero",
        )
    each = "requests/s"
    repeated = f"{rate.n} repeat{'' if rate.n == 1 else 's'} in one engine run"
    if len(rates) > 1:
        repeated = f"{rate.n} engine runs"
    lines = [Line("rate at the SLO", rate.mean, each, f"mean of {repeated}")]
    if rate.low is not None:
        how = f"t-interval, 95 %, of {repeated}"
        lines.append(Line("lower end of its interval", rate.low, each, how))
    opened = _open_rate(benches, found)
    if opened is not None:
        how = "highest open-loop level"
        lines.append(Line("random arrivals that kept the SLO", opened, each, how))
    counted = sure if opened is None else min(sure, opened)
    per_host = counted / measured
    exact = target_rate / per_host
    needed = max(1, math.ceil(exact - 1e-9))
    total = needed + spare + batch
    lines += (
        Line("counted on", counted, each, "the lowest of these"),
        Line("one host", per_host, each, f"{counted:.4g} / {measured} measured hosts"),
        Line("target", target_rate, each, "requested"),
        Line("hosts for the target", exact, "hosts", f"{target_rate:.4g} / {per_host:.4g}"),
        Line("rounded up", needed, "hosts", f"{exact:.4g} up to whole hosts, at least one"),
        Line("spare for failures", spare, "hosts", "requested"),
        Line("in maintenance at once", batch, "hosts", "requested"),
        Line("hosts", total, "hosts", f"{needed} + {spare} + {batch}"),
    )
    return Capacity(
        hosts=total,
        target_rate=target_rate,
        per_host=per_host,
        busy=target_rate / (total * per_host),
        rate=rate,
        lines=tuple(lines),
        assumptions=(
            "each host adds what the measured ones served: the router shares evenly and is not the "
            "bottleneck",
            "requests are as long as the workload's, and prompts share as little or as much",
        ),
        findings=tuple(_doubts(benches, found, len(rates), opened)),
        cost=cost_of(benches, found.by),
    )


def _requested(target_rate: float, spare: int, batch: int) -> None:
    if not (math.isfinite(target_rate) and target_rate > 0) or spare < 0 or batch < 0:
        raise error(
            "CAPACITY-TARGET",
            "capacity",
            f"a rate of {target_rate:g} requests/s with {spare} failed hosts and {batch} in "
            "maintenance",
        )


def _searched(benches: Sequence[Bench]) -> SearchResult:
    """Return what the first one found by the search that all have, that of streams where so.

    Refuses results that do not say what is served at the limits.
    """
    for bench in benches:
        if not bench.requested.slo:
            raise _no_slo(bench, "it was measured without limits")
        if not bench.searches:
            raise _no_slo(bench, "its SLO search did not end")
    by = next(iter(searched_by(benches)), None)
    if by is None:
        raise _no_slo(benches[-1], "its SLO search raised something else than that of the others")
    searches = [next(item for item in bench.searches if item.by == by) for bench in benches]
    for bench, found in zip(benches, searches, strict=True):
        if found.best is None or found.request_rate is None:
            raise _no_slo(bench, "no load kept the limits")
    return searches[0]


def _no_slo(bench: Bench, problem: str) -> ApiaryError:
    return error(
        "CAPACITY-NO-SLO",
        bench.name,
        f"{problem}, so what a host serves at the limits is not known",
    )


def _open_rate(benches: Sequence[Bench], found: SearchResult) -> float | None:
    """Return the highest rate of random arrivals that kept the limits below any that did not.

    None where none was measured: a search by the rate itself is one of random arrivals.
    """
    if found.by == "request_rate":
        return None
    levels = [level for bench in benches for level in bench.levels]
    workload = benches[0].requested.workload.name
    if not by_size(levels, workload, "request_rate"):
        return None
    kept = edge(levels, workload, "request_rate").best
    if kept is None:
        raise _no_slo(benches[0], "random arrivals kept the limits at no measured rate")
    return kept


def _doubts(
    benches: Sequence[Bench], found: SearchResult, engine_runs: int, opened: float | None
) -> Iterator[Finding]:
    """Yield what a reader must know before he orders hosts by these numbers."""
    name = benches[0].name
    yield from doubt(name, unproven(benches))
    needed = knowledge("bench/protocol.yml")["compare"]["engine_runs"]
    if engine_runs < needed:
        yield Finding(
            "CAPACITY-LIVES",
            name,
            f"{engine_runs} engine run{'' if engine_runs == 1 else 's'} measured, expected "
            f"{needed}: "
            "restarts may differ by more than the interval says",
            needed=needed,
        )
    if found.by == "concurrency" and opened is None:
        yield Finding(
            "CAPACITY-CLOSED-LOOP",
            name,
            "the rate is of a closed loop, whose requests wait for one another; random arrivals "
            "come in bursts and keep the limits at a lower rate",
        )
    if found.fails is None:
        yield Finding(
            "CAPACITY-CEILING",
            name,
            "the search ended at the most that was asked: a host may serve more",
        )
