# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/metrics of a simulated engine, with the names of vLLM 0.32.0 (vllm/v1/metrics/loggers.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_simulator.replica import Counters

# vllm/v1/metrics/buckets.py of 0.32.0, time to first token.
_TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip


@dataclass(frozen=True)
class Gauges:
    """What an engine does right now."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


def exposition(engines: Iterable[tuple[Counters, Gauges]], model: str, started: float) -> str:
    """Return the metrics of engines behind one address as Prometheus text."""
    lines: list[str] = []
    for index, (counters, gauges) in enumerate(engines):
        lines += _engine(counters, gauges, f'engine="{index}",model_name="{model}"', not index)
    lines.append("# TYPE process_start_time_seconds gauge")
    lines.append(f"process_start_time_seconds {started!r}")
    return "\n".join(lines) + "\n"


def _engine(counters: Counters, gauges: Gauges, labels: str, first: bool) -> list[str]:
    lines: list[str] = []

    def metric(name: str, kind: str, *rows: tuple[str, str, float]) -> None:
        if first:
            lines.append(f"# HELP vllm:{name} see vLLM")
            lines.append(f"# TYPE vllm:{name} {kind}")
        for suffix, more, value in rows:
            lines.append(f"vllm:{name}{suffix}{{{labels}{more}}} {float(value)!r}")

    metric("num_requests_running", "gauge", ("", "", gauges.running))
    metric("num_requests_waiting", "gauge", ("", "", gauges.waiting))
    metric("kv_cache_usage_perc", "gauge", ("", "", gauges.kv_usage))
    metric("prefix_cache_queries", "counter", ("_total", "", counters.queries))
    metric("prefix_cache_hits", "counter", ("_total", "", counters.cached))
    metric("num_preemptions", "counter", ("_total", "", counters.preempted))
    metric("prompt_tokens", "counter", ("_total", "", counters.prompt))
    metric(
        "prompt_tokens_by_source",
        "counter",
        ("_total", ',source="local_compute"', counters.prompt - counters.cached),
        ("_total", ',source="local_cache_hit"', counters.cached),
    )
    metric("prompt_tokens_cached", "counter", ("_total", "", counters.cached))
    metric("generation_tokens", "counter", ("_total", "", counters.generated))
    metric(
        "request_success",
        "counter",
        ("_total", ',finished_reason="length"', counters.succeeded),
        ("_total", ',finished_reason="stop"', 0),
    )
    below = sorted(counters.ttft)
    buckets = [
        ("_bucket", f',le="{limit}"', float(sum(1 for value in below if value <= limit)))
        for limit in _TTFT_BUCKETS
    ]
    metric(
        "time_to_first_token_seconds",
        "histogram",
        *buckets,
        ("_bucket", ',le="+Inf"', len(below)),
        ("_sum", "", sum(below)),
        ("_count", "", len(below)),
    )
    metric(
        "request_queue_time_seconds",
        "histogram",
        ("_bucket", ',le="+Inf"', counters.scheduled),
        ("_sum", "", counters.queue_seconds),
        ("_count", "", counters.scheduled),
    )
    return lines
