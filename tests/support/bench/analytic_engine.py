# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A serving engine as a formula: levels whose truth is known, to test what asks for them."""

import random
from dataclasses import dataclass, field

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.protocol import protocol
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    EngineUse,
    Level,
    Load,
    Measured,
    Spread,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

WORKLOAD = Workload("100/50", 100, 50)
SLO = (Limit("tpot", "p90", 0.05),)


def spread(value):
    return Spread(100, value, value, value, value, value)


@dataclass
class Analytic:
    """Time per token is ``base`` + ``slope`` x requests in flight, until ``slots`` are full.

    ``noise`` is the relative standard deviation of each level's times, ``engine_run_noise`` that of
    each run's, and ``luck`` seeds both. ``invalid`` and ``failed`` say by load whether a level is
    so; a load above ``crash`` kills the engine.
    """

    base: float = 0.02
    slope: float = 0.0003
    slots: int = 100_000
    noise: float = 0.0
    engine_run_noise: float = 0.0
    luck: int = 0
    invalid: object = None
    failed: object = None
    crash: float = float("inf")
    slo: tuple = SLO
    kv_usage: object = None
    dead: bool = False
    loads: list = field(default_factory=list)

    def limit(self):
        """The largest concurrency that keeps the limit, as a real number."""
        return (self.slo[0].seconds - self.base) / self.slope

    def step(self, slots):
        return self.base + self.slope * slots

    def closed_rate(self, slots, tokens):
        served = min(slots, self.slots)
        return served / (tokens * self.step(served))

    def in_flight(self, rate, tokens):
        """The concurrency at which a closed loop serves this rate."""
        capacity = self.closed_rate(self.slots, tokens)
        if rate >= capacity:
            return None
        return rate * tokens * self.base / (1 - rate * tokens * self.slope)

    def level(self, load: Load) -> Level:
        self.loads.append(load)
        tokens = load.workload.output_tokens
        size = load.concurrency or load.request_rate
        if size > self.crash:
            self.dead = True
        reason = Finding.from_fields(
            code="BENCH-X",
            severity="error",
            subject=load.key,
            message="it broke",
            remedy="mend it",
            source=None,
        )
        if self.dead or (self.failed and self.failed(load)):
            return Level(load, "FAILED", None, findings=(reason,))
        if load.concurrency is not None:
            slots = load.concurrency
            rate = self.closed_rate(slots, tokens)
        else:
            rate = load.request_rate
            slots = self.in_flight(rate, tokens) or 10 * self.slots
            rate = min(rate, self.closed_rate(self.slots, tokens))
        seen = 1 + random.Random(load.seed + self.luck).gauss(0, self.noise)
        if self.engine_run_noise:
            seen *= 1 + random.Random(1000 * self.luck + load.engine_run).gauss(
                0, self.engine_run_noise
            )
        tpot = self.step(min(slots, self.slots)) * max(seen, 0.1)
        e2el = max(slots / rate, tpot * tokens) if rate else 0.0
        measured = Measured(
            completed=load.requests,
            failed=0,
            wall_seconds=load.requests / rate,
            steady=True,
            achieved_concurrency=slots,
            request_rate=rate / max(seen, 0.1) if load.concurrency else rate,
            output_token_rate=rate * tokens,
            total_token_rate=rate * (tokens + load.workload.input_tokens),
            input_tokens=load.requests * load.workload.input_tokens,
            output_tokens=load.requests * tokens,
            ttft=spread(0.1 + max(0, slots - self.slots) / rate),
            tpot=spread(tpot),
            itl=spread(tpot),
            e2el=spread(e2el),
        )
        engine = EngineUse(kv_usage_max=self.kv_usage(load)) if self.kv_usage else None
        if self.invalid and self.invalid(load):
            code = self.invalid(load)
            bad = Finding.from_fields(
                code=code if isinstance(code, str) else "BENCH-X",
                severity="error",
                subject=load.key,
                message="b",
                remedy="r",
                source=None,
            )
            return Level(load, "INVALID", measured, engine, findings=(bad,))
        missed = tuple(
            limit
            for limit in self.slo
            if getattr(getattr(measured, limit.metric), limit.percentile) > limit.seconds
        )
        return Level(load, "SLO_MISS" if missed else "OK", measured, engine, missed=missed)


def play(steps, engine, levels=None):
    """Run a protocol against an engine; return its outcome."""
    try:
        load = next(steps)
        while True:
            level = engine.level(load)
            if levels is not None:
                levels.append(level)
            load = steps.send(level)
    except StopIteration as end:
        return end.value


def bench(engine, requested, name="a", hosts=1, environment=None):
    """Return the whole benchmark of an engine, as the command would write it."""
    levels = []
    outcome = play(protocol(requested), engine, levels)
    return Bench(
        name=name,
        created="2026-11-22T05:00:00Z",
        target=Target(("http://127.0.0.1:8000",), "tiny", gpus=8, hosts=hosts),
        requested=requested,
        levels=tuple(levels),
        searches=outcome.searches,
        saturation=outcome.saturation,
        environment=environment or {},
        findings=outcome.findings,
    )
