# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a load host hands back of one level, uninterpreted: `apiary.bench-raw/v1`, kept as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Scrape:
    """An engine's /metrics as text before and after; ``samples`` of gauges between, by seconds."""

    url: str
    before: str | None
    after: str | None
    samples: tuple[tuple[float, dict[str, float]], ...] = ()


@dataclass(frozen=True)
class GpuSample:
    """Power and clock of one GPU, ``seconds`` after the level began; ``key`` is its BDF."""

    seconds: float
    key: str
    power_w: float | None = None
    clock_mhz: float | None = None


@dataclass(frozen=True)
class SelfTest:
    """The same client at the same level against a mock that keeps to the times it is given."""

    ttft_seconds: float
    itl_seconds: float
    shards: tuple[dict[str, Any], ...]
    exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Raw:
    """One level as measured: ``shards`` are the load generator's own results, one a process.

    Whatever the backend, a shard has the keys of `vllm bench serve --save-detailed`: completed,
    failed, duration (s), input_lens, output_lens, ttfts (s), itls (s, a list a request), errors,
    and where the version has them start_times (s, one clock on a host). ``load`` is the document
    of the Load, ``started`` UTC; ``log`` the end of what the processes said.
    """

    SCHEMA: ClassVar[str] = "apiary.bench-raw/v1"

    load: dict[str, Any]
    backend: str
    version: str | None
    argv: tuple[tuple[str, ...], ...]
    shards: tuple[dict[str, Any], ...]
    started: str
    seconds: float
    exit_codes: tuple[int, ...] = ()
    log: str = ""
    metrics: tuple[Scrape, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    cpu_seconds: float | None = None
    cores: int | None = None
    self_test: SelfTest | None = None
