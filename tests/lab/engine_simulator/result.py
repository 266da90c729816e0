# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated level as a load host would hand it back: shards, /metrics texts, GPU samples."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    GpuSample,
    Load,
    Raw,
    Scrape,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document

from engine_simulator import mock, traffic
from engine_simulator.metrics import Gauges, exposition
from engine_simulator.traffic import Sent

if TYPE_CHECKING:
    from engine_simulator.replica import Counters, Replica
    from engine_simulator.simulate import Level

_CLOCK = 5000.0  # where the load host's monotonic clock stands
_SAMPLES = 53  # of the gauges; no multiple of the waves that equal requests make
_CHUNK_SECONDS = 25e-6  # measured of `vllm bench serve`, for a client whose cost is not modelled
# The first release of vLLM whose client saves it (vllm/benchmarks/serve.py, save_detailed).
_SINCE = {"failed": (0, 11, 2), "start_times": (0, 15, 1), "latencies": (0, 30, 0)}
# MI325X: idle and board power, clocks; amd-smi's figures of a host at rest and under load.
_POWER_IDLE, _POWER_BUSY = 140.0, 900.0
_CLOCK_IDLE, _CLOCK_BUSY = 132.0, 2100.0


def raw(level: Level, load: Load, before: list[Counters], sent: list[Sent]) -> Raw:
    """Return the level's Raw; ``before`` are the engines' counters when measuring began."""
    client, end = level.client, max(item.end for item in sent)
    seconds = end - level.measured_from
    chunks = sum(len(item.times) for item in sent)
    cost = (client.chunk or _CHUNK_SECONDS) * chunks + client.request * len(sent)
    cost += client.idle * client.processes * seconds
    processes = min(client.processes, len(sent))
    parts = [
        [item for item in sent if _process(level, load, item) == process]
        for process in range(processes)
    ]
    if client.lost:
        parts[0] = parts[0][: -client.lost]
    shards = tuple(_shard(level, part) for part in parts)
    test = mock.self_test(client, load) if client.self_test else None
    return Raw(
        load=to_document(load),
        backend=traffic.backend_of(load),
        version=level.parameters.version,
        argv=tuple(("engine-simulator", str(process)) for process in range(len(shards))),
        shards=shards,
        started="2026-01-01T00:00:00Z",
        seconds=seconds,
        exit_codes=(client.exit_code, *(0,) * (processes - 1)),
        metrics=tuple(
            _scrape(level, replica, start)
            for replica, start in zip(level.replicas, before, strict=True)
            if client.metrics
        ),
        gpus=_gpus(level, seconds),
        cpu_seconds=cost,
        cores=client.cores,
        self_test=test,
    )


def _process(level: Level, load: Load, sent: Sent) -> int:
    share = sent.slot if load.request_rate is None else sent.number
    return share % level.client.processes


def _shard(level: Level, sent: list[Sent]) -> dict[str, Any]:
    """Return one process's results with the keys of `vllm bench serve --save-detailed`."""
    good = [item for item in sent if not item.error]
    began = level.measured_from
    duration = max((item.end for item in sent), default=began) - began
    outputs = [len(item.times) if not item.error else 0 for item in sent]
    inputs = sum(item.prompt for item in good)
    interval = level.parameters.engine.stream_interval
    requested: dict[str, Any] = {}
    if traffic.backend_of(level.load) == "builtin":
        requested["asked_input_lens"] = [item.requested_input for item in sent]
        requested["asked_output_lens"] = [item.requested_output for item in sent]
    shard = {
        **requested,
        "backend": "openai",
        "model_id": level.parameters.model,
        "num_prompts": len(sent),
        "max_concurrency": level.load.concurrency,
        "request_rate": level.load.request_rate or "inf",
        "completed": len(good),
        "failed": len(sent) - len(good),
        "duration": duration,
        "total_input_tokens": inputs,
        "total_output_tokens": sum(outputs),
        "request_throughput": len(good) / duration if duration else 0.0,
        "output_throughput": sum(outputs) / duration if duration else 0.0,
        "input_lens": [item.prompt for item in sent],
        "output_lens": outputs,
        "ttfts": [_ttft(item) for item in sent],
        "itls": [_gaps(item, interval) for item in sent],
        "latencies": [item.end - item.start if not item.error else 0.0 for item in sent],
        "start_times": [_CLOCK + item.start - began for item in sent],
        "errors": [item.error for item in sent],
    }
    if traffic.backend_of(level.load) == "vllm":
        version = traffic.release(level.parameters.version)
        for key, first in _SINCE.items():
            if version < first:
                del shard[key]
    return shard


def _ttft(sent: Sent) -> float:
    return 0.0 if sent.error else sent.times[0] - sent.start


def _gaps(sent: Sent, interval: int) -> list[float]:
    """Return the times between pieces: the first has one token, the others ``interval``."""
    times = sent.times
    if sent.error:
        return []
    if interval > 1:
        times = (*times[:-1:interval], times[-1])
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _scrape(level: Level, replica: Replica, before: Counters) -> Scrape:
    index = level.replicas.index(replica)
    model, engine_run = level.parameters.model, int(level.faults.restarted and index == 0)
    return Scrape(
        url=f"http://replica-{index}:8000/metrics",
        before=exposition([(before, Gauges())], model, level.started),
        after=None
        if level.crashed
        else exposition([(replica.counters, Gauges())], model, level.started + 600 * engine_run),
        samples=_samples(level, replica),
    )


def _samples(level: Level, replica: Replica) -> tuple[tuple[float, dict[str, float]], ...]:
    """Return the gauges once a second, and more often in a short level."""
    began, seconds = level.measured_from, level.now - level.measured_from
    gauges = np.array(replica.gauges or [(began, 0, 0, 0)], dtype=float)
    count = max(_SAMPLES, int(seconds))
    times = seconds * (np.arange(count) + 0.5) / count
    places = np.maximum(np.searchsorted(gauges[:, 0], began + times, side="right") - 1, 0)
    # The cache fills from step to step, the counts stay as they are while these last.
    used = np.interp(began + times, gauges[:, 0], gauges[:, 3]) / level.parameters.engine.kv_tokens
    return tuple(
        (
            float(time),
            {
                "vllm:num_requests_running": float(gauges[place, 1]),
                "vllm:num_requests_waiting": float(gauges[place, 2]),
                "vllm:kv_cache_usage_perc": float(share),
            },
        )
        for time, place, share in zip(times, places, used, strict=True)
    )


def _gpus(level: Level, seconds: float) -> tuple[GpuSample, ...]:
    count = level.parameters.replicas * level.parameters.gpus_per_replica
    samples = []
    for index in range(count):
        key = f"0000:{5 + 16 * index:02x}:00.0"
        samples.append(GpuSample(0.0, key, _POWER_IDLE, _CLOCK_IDLE))
        for share in (0.25, 0.5, 0.75):
            power = _POWER_BUSY - 3.0 * (index % 4)
            samples.append(GpuSample(seconds * share, key, power, _CLOCK_BUSY))
    return tuple(samples)
