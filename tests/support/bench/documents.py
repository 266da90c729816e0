# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Benchmarks as `apiary bench` writes them, drawn from curves instead of an engine."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    ClientUse,
    EngineUse,
    GpuUse,
    Interval,
    Level,
    Load,
    Measured,
    Requested,
    Saturation,
    SearchResult,
    Spread,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

BLOG = Workload("5600/140", 5600, 140)
LONG = Workload("long-context", 8192, 256)
SLO = (Limit("ttft", "p90", 2.0), Limit("tpot", "p90", 0.05))
STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIZES = {"p50": 0.92, "p90": 1.25, "p95": 1.4, "p99": 1.8}


@dataclass(frozen=True)
class Curve:
    """How an engine slows down: a step takes ``step`` and ``share`` more for each request."""

    step: float = 0.0125
    share: float = 0.00033
    prefill: float = 0.055
    slots: int = 160

    def times(self, concurrency: float) -> tuple[float, float]:
        """Return TTFT and TPOT in seconds."""
        running = min(concurrency, self.slots)
        tpot = self.step + self.share * running
        ttft = self.prefill * (1 + 0.18 * running)
        queued = max(0.0, concurrency - self.slots)
        return ttft + queued / self.slots * (ttft + 140 * tpot), tpot


DP2 = Curve()
TP8 = Curve(0.009, 0.00062, 0.048, 128)


def spread(value: float, count: int, noise: float) -> Spread:
    return Spread(count, value * noise, *(value * size * noise for size in SIZES.values()))


def level(load: Load, curve: Curve = DP2, slo=SLO, gpus: int = 8, jitter: float = 0.012) -> Level:
    """Return one level as the evaluate would, a little different each repeat."""
    chance = random.Random(f"{load.key} {curve}")
    noise = 1 + chance.uniform(-jitter, jitter)
    work = load.workload
    best = capacity(curve, work)
    if load.concurrency is not None:
        concurrency = float(load.concurrency)
    else:
        concurrency = inside(curve, work, min(load.request_rate, best))
    ttft, tpot = curve.times(concurrency)
    ttft *= work.input_tokens / 5600
    latency = ttft + (work.output_tokens - 1) * tpot
    rate = concurrency / latency / noise
    got = {"ttft": ttft * noise, "tpot": tpot * noise, "itl": tpot * noise, "e2el": latency * noise}
    spreads = {name: spread(value, load.requests, 1.0) for name, value in got.items()}
    missed = tuple(
        limit for limit in slo if getattr(spreads[limit.metric], limit.percentile) > limit.seconds
    )
    share = min(1.0, 1.0 if not missed else 1.0 / (1.0 + 0.9 * len(missed) * concurrency / 64))
    wall = load.requests / rate
    measured = Measured(
        completed=load.requests,
        failed=0,
        wall_seconds=wall,
        steady=True,
        achieved_concurrency=concurrency * 0.985,
        request_rate=rate,
        output_token_rate=rate * work.output_tokens,
        total_token_rate=rate * (work.input_tokens + work.output_tokens),
        input_tokens=load.requests * work.input_tokens,
        output_tokens=load.requests * work.output_tokens,
        cached_tokens=0,
        goodput=rate * share if slo else None,
        **spreads,
    )
    busy = min(1.0, concurrency / curve.slots)
    return Level(
        load=load,
        status="SLO_MISS" if missed else "OK",
        measured=measured,
        engine=EngineUse(
            kv_usage_max=min(0.99, 0.04 + 0.95 * busy),
            waiting_max=max(0.0, concurrency - curve.slots),
            running_max=min(concurrency, curve.slots),
            preemptions=max(0, round((concurrency - curve.slots) / 8)),
            prompt_tokens=load.requests * work.input_tokens,
            cached_tokens=0,
            cache_hit_share=0.0,
            queue_seconds_mean=max(0.0, concurrency - curve.slots) / 50,
            ttft_mean=ttft,
        ),
        gpus=tuple(
            GpuUse(f"0000:{number:02x}:00.0", 310 + 600 * busy, 340 + 640 * busy, 2080.0, 1720.0)
            for number in range(5, 5 + gpus)
        ),
        client=ClientUse("vllm", "0.32.0", max(1, int(concurrency // 100)), 14.2, 8, 0.0021),
        missed=missed,
        raw=f"raw/{load.key}.json",
    )


def missed_by(curve: Curve, work: Workload, slo, concurrency: int):
    """Return the limits that an engine on its curve misses."""
    ttft, tpot = curve.times(concurrency)
    got = {"ttft": ttft * work.input_tokens / 5600, "tpot": tpot}
    return [one for one in slo if got[one.metric] * SIZES[one.percentile] > one.seconds]


def capacity(curve: Curve, work: Workload) -> float:
    """Return the highest request rate of a curve."""
    return max(each / latency_of(curve, work, each) for each in range(1, 400))


def latency_of(curve: Curve, work: Workload, concurrency: float) -> float:
    ttft, tpot = curve.times(concurrency)
    return ttft * work.input_tokens / 5600 + (work.output_tokens - 1) * tpot


def inside(curve: Curve, work: Workload, rate: float) -> float:
    """Return how many requests are in flight at a request rate."""
    return next((n for n in range(1, 400) if n / latency_of(curve, work, n) >= rate), 400)


def invalid(given: Level) -> Level:
    """Return a level whose client did not keep its concurrency."""
    broken = Finding.from_fields(
        code="BENCH-CONCURRENCY",
        severity="error",
        subject=given.load.key,
        message=f"the client kept {given.load.concurrency * 0.62:.0f} requests in flight, of "
        f"{given.load.concurrency} requested",
        remedy="use more client processes, or a host with free cores",
        source=None,
    )
    measured = replace(
        given.measured, achieved_concurrency=given.measured.achieved_concurrency * 0.62
    )
    return replace(given, status="INVALID", measured=measured, findings=(broken,), missed=())


def failed(given: Level) -> Level:
    """Return a level with errors."""
    broken = Finding.from_fields(
        code="BENCH-ERRORS",
        severity="error",
        subject=given.load.key,
        message="3 requests failed: timeout",
        remedy="see the engine",
        source=None,
    )
    measured = replace(given.measured, failed=3, completed=given.measured.completed - 3)
    return replace(given, status="FAILED", measured=measured, findings=(broken,), missed=())


def loads(phase, steps, engine_runs=1, repeats=1, work=BLOG, rate=False):
    """Return the loads of one phase, each engine run and repeat of them."""
    for engine_run in range(engine_runs):
        for repeat in range(repeats):
            for step in steps:
                size = {"request_rate": step} if rate else {"concurrency": step}
                requests = 200 if rate else max(200, 10 * step)
                yield Load(
                    phase,
                    work,
                    requests,
                    warmups=10,
                    seed=1,
                    repeat=repeat,
                    engine_run=engine_run,
                    **size,
                )


def bench(
    name: str = "DP2/TP4/EP4",
    curve: Curve = DP2,
    *,
    slo=SLO,
    steps=STEPS,
    engine_runs: int = 3,
    work: Workload = BLOG,
    model: str = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
    broken=(),
    gpus: int | None = 8,
    open_loop: bool = True,
    stress: tuple[Workload, ...] = (LONG,),
    seed: int = 1,
    **changes,
) -> Bench:
    """Return a whole benchmark; ``broken`` are the concurrencies whose levels are invalid."""
    found, levels = [], []
    for load in loads("scaling", steps, engine_runs, work=work):
        made = level(load, curve, slo)
        levels.append(invalid(made) if load.concurrency in broken else made)
    # With room for the difference between repeats: each of them keeps the SLO there.
    tight = [replace(limit, seconds=limit.seconds * 0.985) for limit in slo]
    kept = [n for n in range(1, 300) if not missed_by(curve, work, tight, n)]
    if slo and kept:
        levels += [
            level(one, curve, slo)
            for one in loads("slo", (kept[-1], kept[-1] + 6), engine_runs, work=work)
        ]
        rates = [one.measured.request_rate for one in levels if one.load.concurrency == kept[-1]]
        middle = sum(rates) / len(rates)
        half = (max(rates) - min(rates)) * 0.8
        rate = Interval(len(rates), middle, middle - half, middle + half, 0.006)
        if len(rates) < 2:
            rate = Interval(1, middle)
        found.append(
            SearchResult(
                work.name, "concurrency", float(kept[-1]), float(kept[-1] + 6), rate, 9, (slo[-1],)
            )
        )
    if open_loop:
        top = capacity(curve, work)
        rates = [round(share * top, 2) for share in (0.5, 0.8, 0.95)]
        levels += [level(one, curve, slo) for one in loads("open", rates, work=work, rate=True)]
    for other in stress:
        levels.append(level(Load("stress", other, 250, 25, seed=seed), curve, slo))
    knee = min((step for step in steps if step >= curve.slots * 0.8), default=steps[-1])
    fields = {
        "name": name,
        "created": "2026-11-22T05:00:00Z",
        "target": Target(
            ("http://gpu-001:8000",), model, ("http://gpu-001:8001/metrics",), model, gpus, 1
        ),
        "requested": Requested(
            work, slo, engine_runs=engine_runs, seed=seed, stress=stress, search_by="concurrency"
        ),
        "levels": tuple(levels),
        "searches": tuple(found),
        "saturation": (
            Saturation(
                work.name, knee, capacity(curve, work), True, "twice less than 5 % more, reached"
            ),
        ),
        "environment": {
            "layout": name,
            "plan_hash": "9f2c1e5a77b0",
            "model": model,
            "engine": {"name": "vllm", "version": "0.32.0", "image": "sha256:4be1…"},
            "apiary": "0.1.0",
            "hosts": ["gpu-001"],
            "gpu": "8 × MI325X",
            "kernel": "6.8.0-60-generic",
            "client": {"host": "load-001", "backend": "vllm", "cores": 8},
            "command": ["apiary", "bench", "http://gpu-001:8000", "--workload", work.name],
        },
        "findings": (),
    }
    return Bench(**(fields | changes))
