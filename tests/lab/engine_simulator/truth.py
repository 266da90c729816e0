# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is true of a simulated deployment, found without any cleverness: every level, long runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from engine_simulator.parameters import Client, Parameters, dumped, parameters
from engine_simulator.simulate import simulate

TRUTH = Path(__file__).parent / "truth.yml"
_WAVES, _LEAST, _SEEDS = 20, 600, 3  # a closed level: requests a slot, and at least, and runs
_OPEN_REQUESTS, _OPEN_SEEDS = 4000, 3  # an open level
_HOW = (
    "the last concurrency before the first that breaks a limit; "
    f"every concurrency, max({_LEAST}, {_WAVES} x C) requests, {_SEEDS} runs, rate by Little's law;"
    f" arrivals at every 1 % of the highest rate from 35 %, {_OPEN_REQUESTS} requests,"
    f" {_OPEN_SEEDS} runs; the first and last C requests (open: a tenth) left out; no spread of"
    " engine runs or levels; percentiles over all runs"
)


def average(of: Parameters) -> Parameters:
    """Return the deployment without the luck of one engine run or level, compiled and warm."""
    return replace(of, engine_run_cov=0.0, level_cov=0.0, engine=replace(of.engine, jit=0.0))


def percentiles(
    of: Parameters, load: Load, slo: tuple[Limit, ...], runs: int
) -> tuple[list[float], float]:
    """Return the SLO's percentiles in steady state and the requests a second, over many runs."""
    values: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2el": []}
    rates = []
    for seed in range(runs):
        raw = simulate(average(of), load, seed=seed, client=Client(self_test=False))
        shard = raw.shards[0]
        edge = load.concurrency or load.requests // 10
        starts = np.array(shard["start_times"])
        order = np.argsort(starts, kind="stable")[edge:-edge]
        # Little's law: completions come in bursts, so a count by a window's length is off.
        latency = float(np.mean(np.array(shard["latencies"])[order]))
        rates.append((load.concurrency or 0) / latency)
        for index in order.tolist():
            ttft, gaps = shard["ttfts"][index], shard["itls"][index]
            values["ttft"].append(ttft)
            values["e2el"].append(shard["latencies"][index])
            values["tpot"].append(sum(gaps) / max(1, len(gaps)))
            if any(limit.metric == "itl" for limit in slo):
                values["itl"].extend(gaps)
    found = [
        float(np.percentile(values[limit.metric], float(limit.percentile[1:]))) for limit in slo
    ]
    return found, float(np.mean(rates))


def closed(
    of: Parameters, workload: Workload, slo: tuple[Limit, ...], concurrency: int, runs: int = _SEEDS
) -> tuple[bool, float, list[float]]:
    """Say whether a concurrency keeps the SLO, at which rate, and by which percentiles."""
    requests = max(_LEAST, _WAVES * concurrency)
    load = Load("fixed", workload, requests, concurrency=concurrency)
    found, rate = percentiles(of, load, slo, runs)
    return _keeps(found, slo), rate, found


def opened(
    of: Parameters, workload: Workload, slo: tuple[Limit, ...], rate: float, runs: int = _OPEN_SEEDS
) -> tuple[bool, list[float]]:
    """Say whether an arrival rate keeps the SLO, and by which percentiles."""
    load = Load("fixed", workload, _OPEN_REQUESTS, request_rate=rate)
    found, _rate = percentiles(of, load, slo, runs)
    return _keeps(found, slo), found


def _keeps(found: list[float], slo: tuple[Limit, ...]) -> bool:
    return all(value <= limit.seconds for value, limit in zip(found, slo, strict=True))


def exhaustive(
    of: Parameters, workload: Workload, slo: tuple[Limit, ...], most: int, arrivals: bool
) -> dict[str, Any]:
    """Try every level; return the best concurrency, its rate, and the best rate of ``arrivals``."""
    best, best_rate, saturated, broken = 0, 0.0, 0.0, False
    for concurrency in range(1, most + 1):
        kept, rate, _found = closed(of, workload, slo, concurrency)
        saturated = max(saturated, rate)
        broken = broken or not kept  # a growing load passes through it
        if not broken:
            best, best_rate = concurrency, rate
    found = {
        "concurrency": best,
        "request_rate": round(best_rate, 4),
        "tried_to": most,
        "highest_rate": round(saturated, 4),
    }
    if arrivals:
        rates = [saturated * step / 100 for step in range(35, 101)]
        kept_rates = [rate for rate in rates if opened(of, workload, slo, rate)[0]]
        found["open_rate"] = round(max(kept_rates, default=0.0), 4)
    return found


def cases() -> dict[str, Any]:
    """Return the kept truths: parameters, workload and SLO of each, with what was found."""
    return yaml.safe_load(TRUTH.read_text(encoding="utf-8"))["cases"]


def parameters_of(case: dict[str, Any]) -> Parameters:
    """Return the deployment of a case, where it says so with another token budget a step."""
    of = parameters(case["parameters"])
    budget = case.get("max_num_batched_tokens", of.engine.max_num_batched_tokens)
    return replace(of, engine=replace(of.engine, max_num_batched_tokens=budget))


def workload_of(case: dict[str, Any]) -> Workload:
    """Return the workload of a case, from "input/output"."""
    tokens = case["workload"].split("/")
    return Workload(case["workload"], int(tokens[0]), int(tokens[1]))


def slo_of(case: dict[str, Any]) -> tuple[Limit, ...]:
    """Return the limits of a case, from [[metric, percentile, seconds]]."""
    return tuple(Limit(*row) for row in case["slo"])


def true_best_concurrency(name: str) -> int:
    """Return the highest concurrency that keeps the SLO of a kept case."""
    return int(cases()[name]["truth"]["concurrency"])


def true_slo_rate(name: str) -> float:
    """Return the requests a second at that concurrency."""
    return float(cases()[name]["truth"]["request_rate"])


def true_open_rate(name: str) -> float:
    """Return the highest rate of arrivals that keeps the SLO."""
    return float(cases()[name]["truth"]["open_rate"])


def write(only: tuple[str, ...] = ()) -> None:
    """Find all truths again and keep them; ``only`` these cases."""
    for name in only or tuple(cases()):
        kept = cases()
        case = kept[name]
        of = parameters_of(case)
        case["truth"] = exhaustive(
            of, workload_of(case), slo_of(case), case["most"], case.get("arrivals", False)
        )
        print(name, case["truth"], flush=True)
        _save(kept)


def _save(kept: dict[str, Any]) -> None:
    head = (
        "---\n# Written by `python -m engine_simulator truth`; parameters, workload, slo and most\n"
    )
    head += "# are asked, truth is what was found.\n"
    body = dumped({"how": _HOW, "cases": kept})
    TRUTH.write_text(head + body, encoding="utf-8")
