# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The study's own protocol (arXiv:2603.10031), so that its tables can be compared, and judged.

Counts, cooldowns and status rules are the study's, knowledge/bench/paper.yml has them. Each level
also says which of our rules it breaks; nothing that is invalid becomes valid by being published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..documents import knowledge
from ..findings import Finding, error, has_errors
from .comparison.statistics import quantile
from .ledger import Outcome, Steps
from .rules import rules
from .types import Asked, Level, Load, PaperLevel, Phase, Request, Workload

PREFIX = "paper-"
Label = Literal["OK", "DEGRADED", "SATURATED", "FAILING"]
_PHASES: tuple[Phase, ...] = ("warmup", "baseline", "scaling", "stress", "saturation")


@dataclass(frozen=True)
class Counted:
    """One level as the study's client counts it: all requests, ramp-up and ramp-down included."""

    success: float
    p50: float | None
    p95: float | None
    p99: float | None
    output_token_rate: float
    total_token_rate: float


def asked(multiplier: str = "standard", vision: bool = False, seed: int = 1) -> Asked:
    """Return what a run of the study asks; raise BENCH-PAPER for an unknown multiplier."""
    _multiplier(multiplier)
    rows = _rows("saturation", vision)
    return Asked(workload=_workload(rows[0]), phases=_PHASES, seed=seed, paper=multiplier)


def paper_protocol(asked: Asked) -> Steps[Outcome]:
    """Yield the study's loads in its order, whatever their levels are; nothing is searched."""
    # A generator, for levels are sent back, which no other iterator takes.
    yield from (load for load in loads(asked))
    return Outcome()


def loads(asked: Asked) -> Iterator[Load]:
    """Yield the loads of a run: phases, levels and counts of the study."""
    factor, quick = _multiplier(asked.paper), asked.paper == "quick"
    for phase in _PHASES:
        most = knowledge("bench/paper.yml")["phases"][phase].get("quick_most") if quick else None
        for row in _rows(phase, asked.workload.images > 0):
            requests = row["requests"] * (factor if row.get("scaled", True) else 1)
            for slots in row["concurrency"]:
                if most is None or slots <= most:
                    yield Load(
                        phase=phase,
                        workload=_workload(row),
                        requests=max(1, int(requests)),
                        concurrency=slots,
                        seed=asked.seed,
                    )


def cooldown(before: Load, after: Load) -> float:
    """Return how many seconds the study waits between two levels."""
    if before.phase == after.phase or before.phase == "warmup":
        return 0.0
    return float(knowledge("bench/paper.yml")["cooldown_seconds"])


def count(requests: Sequence[Request], seconds: float) -> Counted:
    """Return a level's figures by the study's definitions; a success is whatever has no error."""
    served = [request for request in requests if not request.error]
    times = [request.latency for request in served if request.latency is not None]
    wall = _wall(served, seconds)
    output = sum(request.output_tokens for request in served)
    total = output + sum(request.input_tokens for request in served)
    p50, p95, p99 = (quantile(times, share) if times else None for share in (0.5, 0.95, 0.99))
    return Counted(
        success=len(served) / len(requests) if requests else 0.0,
        p50=p50,
        p95=p95,
        p99=p99,
        output_token_rate=output / wall if wall else 0.0,
        total_token_rate=total / wall if wall else 0.0,
    )


def table(rows: Sequence[tuple[Level, Counted]]) -> tuple[PaperLevel, ...]:
    """Return the study's rows: its status, and beside it why our rules refuse the level."""
    result: list[PaperLevel] = []
    base = [row for row in rows if row[0].load.phase == "baseline"]
    baseline, baseline_p99 = (base[0][0].load, base[0][1].p99) if base else (None, None)
    before: Counted | None = None
    for level, counted in rows:
        load = level.load
        slots = load.concurrency or 1
        p99 = baseline_p99 if load.phase == "scaling" else None
        result.append(
            PaperLevel(
                load=load,
                status=label(counted, p99, before),
                effective_concurrency=min(slots, load.requests),
                success=counted.success,
                p50=counted.p50,
                p95=counted.p95,
                p99=counted.p99,
                output_token_rate=counted.output_token_rate,
                total_token_rate=counted.total_token_rate,
                invalid=tuple(_why(level, baseline)) if load.phase != "warmup" else (),
            )
        )
        before = counted if load.phase == "saturation" else None
    return tuple(result)


def label(counted: Counted, baseline_p99: float | None, previous: Counted | None) -> Label:
    """Return the study's status: the baseline is given in scaling only, the previous level in
    saturation only."""
    limits = knowledge("bench/paper.yml")["status"]
    if counted.success < limits["failing_below"]:
        return "FAILING"
    if baseline_p99 is not None and (counted.p99 or 0) > limits["degraded_above"] * baseline_p99:
        return "DEGRADED"
    if previous is None:
        return "OK"
    enough = limits["saturated_below"] * previous.total_token_rate
    return "SATURATED" if counted.total_token_rate < enough else "OK"


def findings(levels: Sequence[PaperLevel]) -> tuple[Finding, ...]:
    """Return what a reader of the study's table must know before he believes it."""
    return (*_artefacts(levels), *_baseline(levels))


def _artefacts(levels: Sequence[PaperLevel]) -> Iterator[Finding]:
    """Name each plateau that the client made: its levels all had the same requests in flight."""
    groups: dict[tuple[str, str, int], list[PaperLevel]] = {}
    for level in levels:
        if (level.load.concurrency or 0) >= level.load.requests > 1:
            key = (level.load.phase, level.load.workload.name, level.load.requests)
            groups.setdefault(key, []).append(level)
    flat = knowledge("bench/paper.yml")["flat"]
    for (phase, name, requests), group in groups.items():
        rates = [level.total_token_rate for level in group]
        if len(group) < 2 or min(rates) <= 0:
            continue
        spread = max(rates) / min(rates) - 1
        shape = f"flat within {spread:.1%}" if spread <= flat else f"{spread:.1%} apart by chance"
        slots = ", ".join(str(level.load.concurrency) for level in group)
        yield Finding(
            "BENCH-PAPER-ARTEFACT",
            "warning",
            f"{phase} {name}",
            f"the levels {slots} sent {requests} requests each, all at once, so all had {requests} "
            f"in flight: one experiment measured {len(group)} times, {shape}. No saturation point "
            "can be seen in it",
            "measure saturation without --paper-compat: 10 requests a slot, concurrency verified",
            _source(),
        )


def _baseline(levels: Sequence[PaperLevel]) -> Iterator[Finding]:
    base = [level.load.workload for level in levels if level.load.phase == "baseline"]
    degraded = [level.load for level in levels if level.status == "DEGRADED"]
    if base and degraded and base[0].output_tokens < degraded[0].workload.output_tokens:
        slots = ", ".join(str(load.concurrency) for load in degraded)
        yield Finding(
            "BENCH-PAPER-BASELINE",
            "warning",
            "scaling",
            f"DEGRADED at {slots} compares answers of {degraded[0].workload.output_tokens} tokens "
            f"with a baseline of {base[0].output_tokens}: an answer twice as long takes twice as "
            "long on an idle engine too",
            "compare with a baseline of the same lengths, as the protocol without --paper-compat",
            _source(),
        )


def _why(level: Level, baseline: Load | None) -> Iterator[str]:
    """Yield why our rules refuse a level of the study."""
    load = level.load
    slots, needed = load.concurrency or 1, rules().requests_per_concurrency
    if load.requests < slots:
        yield (
            f"only {load.requests} requests for {slots} slots: the effective concurrency is "
            f"{load.requests}"
        )
    if load.requests < needed * slots:
        yield f"{load.requests / slots:.3g} requests a slot, expected {needed}: mostly ramp"
    if load.requests > 1 and load.workload.prefix_tokens >= load.workload.input_tokens:
        yield "identical prompts: after the first, prefill is a cache hit"
    if baseline is not None and load.phase == "scaling":
        long, short = load.workload.output_tokens, baseline.workload.output_tokens
        if short < long:
            yield f"its baseline has {short} output tokens, the level {long}"
    told = knowledge("bench/paper.yml")["told"]
    for finding in level.findings:
        if has_errors([finding]) and finding.code not in told:
            yield f"{finding.code}: {finding.message}"


def _wall(served: Sequence[Request], seconds: float) -> float:
    """Return first start to last end where the client tells it, else the whole level's time."""
    spans = [
        (request.start, request.start + request.latency)
        for request in served
        if request.start is not None and request.latency is not None
    ]
    if not spans or len(spans) < len(served):
        return seconds
    return max(end for start, end in spans) - min(start for start, end in spans)


def _workload(row: dict[str, Any]) -> Workload:
    """Return a workload whose prompts, and images, are all one."""
    images = row.get("images", 0)
    name = f"{PREFIX}{row['input']}/{row['output']}" + (f"+{images}img" if images else "")
    return Workload(
        name=name,
        input_tokens=row["input"],
        output_tokens=row["output"],
        kind="prefix",
        prefixes=1,
        prefix_tokens=row["input"],
        images=images,
    )


def _rows(phase: Phase, vision: bool) -> list[dict[str, Any]]:
    rows = knowledge("bench/paper.yml")["phases"][phase]["vision" if vision else "text"]
    return cast(list[dict[str, Any]], rows)


def _multiplier(name: str | None) -> float:
    known = knowledge("bench/paper.yml")["multipliers"]
    if name not in known:
        raise error(
            "BENCH-PAPER",
            "--paper-compat",
            f"{name!r} is no multiplier of the study",
            f"use one of {', '.join(known)}",
        )
    return float(known[name])


def _source() -> str:
    return "arXiv:2603.10031, Section 5; in flight = output tok/s / tokens per request x p99"
