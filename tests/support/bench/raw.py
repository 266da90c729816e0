# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Raw results of a level that breaks no rule, as `vllm bench serve` 0.32.0 leaves them.

`raw()` is valid; `broken(rule)` breaks exactly one rule of knowledge/bench/thresholds.yml.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    GpuSample,
    Load,
    Raw,
    Scrape,
    SelfTest,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document

WORKLOAD = Workload("100/20", 100, 20)
LOAD = Load("scaling", WORKLOAD, 80, 8)
OPEN = Load("open", WORKLOAD, 120, request_rate=20.0)
TTFT, ITL = 0.1, 0.02


def shard(requests=80, slots=8, ttft=TTFT, itl=ITL, workload=WORKLOAD, begin=1000.0, rate=None):
    """One process's result: ``slots`` requests at once, each after the one before on its slot.

    With ``rate`` requests begin evenly spaced instead, however many are in flight.
    """
    latency = ttft + itl * (workload.output_tokens - 1)
    if rate is None:
        starts = [
            begin + number // slots * latency + number % slots * 1e-4 for number in range(requests)
        ]
    else:
        starts = [begin + number / rate for number in range(requests)]
    return {
        "backend": "openai",
        "completed": requests,
        "failed": 0,
        "duration": starts[-1] + latency - starts[0] if starts else 0.0,
        "input_lens": [workload.input_tokens] * requests,
        "output_lens": [workload.output_tokens] * requests,
        "ttfts": [ttft] * requests,
        "itls": [[itl] * (workload.output_tokens - 1) for _request in range(requests)],
        "latencies": [latency] * requests,
        "start_times": starts,
        "queue_times": [0.0] * requests,
        "errors": [""] * requests,
    }


def metrics_text(prompt=0, cached=0, queries=None, preemptions=0, count=0, ttft=TTFT, queue=0.0):
    """An engine's /metrics of 0.32.0, of the figures that are read."""
    labels = 'model_name="m",engine="0"'
    rows = {
        f"vllm:prompt_tokens_total{{{labels}}}": prompt,
        f"vllm:prompt_tokens_cached_total{{{labels}}}": cached,
        f"vllm:prefix_cache_queries_total{{{labels}}}": prompt if queries is None else queries,
        f"vllm:prefix_cache_hits_total{{{labels}}}": cached,
        f"vllm:generation_tokens_total{{{labels}}}": 20 * count,
        f"vllm:num_preemptions_total{{{labels}}}": preemptions,
        f"vllm:time_to_first_token_seconds_sum{{{labels}}}": ttft * count,
        f"vllm:time_to_first_token_seconds_count{{{labels}}}": count,
        f"vllm:request_queue_time_seconds_sum{{{labels}}}": queue * count,
        f"vllm:request_queue_time_seconds_count{{{labels}}}": count,
        f"vllm:kv_cache_usage_perc{{{labels}}}": 0.0,
        "process_start_time_seconds": 1.7e9,
    }
    text = "".join(f"{name} {float(value)}\n" for name, value in rows.items())
    return "# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n" + text


def scrape(requests=80, kv=0.4, **after):
    """What one engine did: ``requests`` of 100 prompt tokens since an engine run of 10 before."""
    said = {"prompt": 100 * (requests + 10), "count": requests + 10} | after
    sample = {
        "vllm:kv_cache_usage_perc": kv,
        "vllm:num_requests_running": 8.0,
        "vllm:num_requests_waiting": 0.0,
    }
    return Scrape(
        "http://e/metrics",
        metrics_text(1000, count=10, ttft=said.get("ttft", TTFT)),
        metrics_text(**said),
        ((1.0, sample), (2.0, sample)),
    )


def self_test(error=0.001, shards=1):
    """The same client against a mock that gives 0.1 s, seen ``error`` seconds late."""
    return SelfTest(
        TTFT, ITL, tuple(shard(40, 8, TTFT + error) for _shard in range(shards)), (0,) * shards
    )


def raw(load=LOAD, shards=None, **changes):
    """A raw result whose level is OK, with ``changes`` of its fields."""
    if shards is None:
        shards = (
            shard(
                load.requests, load.concurrency or 1, workload=load.workload, rate=load.request_rate
            ),
        )
    fields = {
        "load": to_document(load),
        "backend": "vllm",
        "version": "0.32.0",
        "argv": tuple(("vllm", "bench", "serve") for _shard in shards),
        "shards": tuple(shards),
        "started": "2026-11-22T05:00:00Z",
        "seconds": 12.0,
        "exit_codes": (0,) * len(shards),
        "metrics": (scrape(load.requests),),
        "gpus": tuple(
            GpuSample(second, key, 700.0 + second, 2100.0 - second)
            for second in (0.0, 1.0)
            for key in ("0000:05:00.0", "0000:26:00.0")
        ),
        "cpu_seconds": 1.0,
        "cores": 2,
        "self_test": self_test(shards=len(shards)),
    }
    return Raw(**fields | changes)


def changed(result, number=0, **columns):
    """The same result with columns of one shard replaced."""
    shards = [copy.deepcopy(item) for item in result.shards]
    shards[number] |= columns
    return replace(result, shards=tuple(shards))


def failing(count, load=LOAD):
    """A level of which ``count`` requests failed, spread over it."""
    result = shard(load.requests, load.concurrency)
    for number in range(count):
        place = number * load.requests // count
        result["errors"][place] = (
            "Traceback:\n  aiohttp\nServerDisconnectedError: Server disconnected"
        )
        for key in ("ttfts", "latencies"):
            result[key][place] = 0.0
        result["output_lens"][place], result["itls"][place] = 0, []
    result["completed"], result["failed"] = load.requests - count, count
    return raw(load, (result,))


def _short_answers():
    lens = [20] * 78 + [12, 12]
    return changed(
        raw(), output_lens=lens, itls=[[ITL * 19 / (length - 1)] * (length - 1) for length in lens]
    )


def _overloaded():
    # Each waits 6.5 ms longer than the one before: answers come at 0.885 of the rate.
    result = shard(1000, rate=20.0)
    for number in range(1000):
        result["ttfts"][number] += number * 0.0065
        result["latencies"][number] += number * 0.0065
    load = replace(OPEN, requests=1000)
    return raw(load, (result,), metrics=(scrape(1000, ttft=3.347),))


BREAKS = {
    "exit": lambda: raw(exit_codes=(1,)),
    "incomplete": lambda: raw(replace(LOAD, requests=81), (shard(80),)),
    "requests_per_slot": lambda: raw(replace(LOAD, requests=72), metrics=(scrape(72),)),
    "requests_least": lambda: raw(replace(LOAD, requests=10, concurrency=1), metrics=(scrape(10),)),
    "concurrency": lambda: raw(LOAD, (shard(80, 7),)),
    "rate": lambda: raw(OPEN, (shard(120, rate=18.0),)),
    "overload": _overloaded,
    "output": _short_answers,
    "input": lambda: changed(raw(), input_lens=[97] * 80),
    "repeats": lambda: raw(metrics=(scrape(80, cached=240),)),
    "self_test": lambda: raw(self_test=self_test(0.011)),
    "client_cpu": lambda: raw(cpu_seconds=4.6),
    "restarted": lambda: raw(metrics=(replace(scrape(80), after=metrics_text(900, count=9)),)),
}


def broken(rule):
    """A level that breaks one rule of severity error, and no other."""
    return BREAKS[rule]()
