# SPDX-License-Identifier: GPL-3.0-or-later

"""What is requested of a benchmark, measured and concluded; `apiary.bench/v2` is the whole of one.

Times are seconds, rates are per second, unless a name says otherwise. Unknown is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..findings import Finding, error
from ..slo import Limit

# What prompts are made of; `random` shares nothing between two requests.
Kind = Literal["random", "prefix", "images", "mixed", "sessions", "trace"]
Phase = Literal[
    "warmup", "baseline", "scaling", "slo", "stress", "saturation", "open", "soak", "fixed"
]
# INVALID: a rule of measuring was broken, so the numbers mean nothing. FAILED: requests failed.
Status = Literal["OK", "SLO_MISS", "FAILED", "INVALID"]


@dataclass(frozen=True)
class Workload:
    """What one request has, in tokens of the model's own tokenizer.

    Of ``input_tokens`` the first ``prefix_tokens`` are one of ``prefixes`` texts that requests
    share (kind `prefix`, `sessions`). ``images`` distinct ones of ``image_pixels`` (width, height)
    come beside the text. A session has ``turns`` requests that carry one key and build on each
    other. ``parts`` are what kind `mixed` is drawn from, in equal shares. Of kind `trace` each
    request is in ``trace``: session, seconds from the first, tokens of prompt and answer.
    """

    name: str
    input_tokens: int
    output_tokens: int
    kind: Kind = "random"
    prefixes: int = 0
    prefix_tokens: int = 0
    images: int = 0
    image_pixels: tuple[int, int] | None = None
    turns: int = 1
    parts: tuple[Workload, ...] = ()
    trace: tuple[tuple[int, float, int, int], ...] = ()


@dataclass(frozen=True)
class Load:
    """One level that is requested: how much of what; equal loads make equal prompts.

    A closed loop keeps ``concurrency`` requests in flight; an open one (None) sends
    ``request_rate`` of them a second, with Poisson arrivals. ``warmups`` requests before are not
    measured. ``repeat`` counts within one engine run, ``engine_run`` its restarts. ``attempt``
    counts how often this level was begun before without a result that stands: it makes other
    prompts, for the engine may know the first ones, but no other level, so the key is without it.
    """

    phase: Phase
    workload: Workload
    requests: int
    concurrency: int | None = None
    request_rate: float | None = None
    warmups: int = 0
    seed: int = 0
    repeat: int = 0
    engine_run: int = 0
    attempt: int = 0

    @property
    def key(self) -> str:
        """Return what names this load, and the file of its raw result."""
        size = (
            f"c{self.concurrency}" if self.concurrency is not None else f"r{self.request_rate:.6g}"
        )
        parts = (self.phase, self.workload.name, size, f"n{self.requests}")
        return "-".join((*parts, f"s{self.seed}", f"{self.engine_run}.{self.repeat}")).replace(
            "/", "x"
        )


@dataclass(frozen=True)
class Target:
    """What is measured: every one of ``urls`` gets an even share of the load.

    ``metrics`` are the engines' own /metrics behind them, ``tokenizer`` a path or name on the
    load host; ``gpus`` and ``hosts`` are what serves, for figures per GPU and per host.
    """

    urls: tuple[str, ...]
    model: str
    metrics: tuple[str, ...] = ()
    tokenizer: str | None = None
    gpus: int | None = None
    hosts: int | None = None


@dataclass(frozen=True)
class Request:
    """One request as the client saw it; ``start`` is on a clock that all shards share.

    ``gaps`` are the times between tokens after the first. ``error`` is empty for a success.
    """

    latency: float | None
    ttft: float | None
    input_tokens: int
    output_tokens: int
    gaps: tuple[float, ...] = ()
    start: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Spread:
    """How one metric spreads over the requests of a level."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Measured:
    """The numbers of one level, of its steady state where ``steady``.

    ``achieved_concurrency`` is the sum of latencies by the wall time. ``total_token_rate`` counts
    prompt tokens that the engine computed and the answer's; ``cached_tokens`` came from its cache.
    ``goodput`` counts only requests that met each limit of the SLO by themselves.
    """

    completed: int
    failed: int
    wall_seconds: float
    steady: bool
    achieved_concurrency: float
    request_rate: float
    output_token_rate: float
    total_token_rate: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    goodput: float | None = None
    ttft: Spread | None = None
    tpot: Spread | None = None
    itl: Spread | None = None
    e2el: Spread | None = None


@dataclass(frozen=True)
class EngineUse:
    """What the engines' own metrics say of one level, all engines together.

    ``kv_usage_max`` (a share) and ``waiting_max`` are of samples during it; others are differences.
    ``ttft_mean`` is the engine's, to hold beside the client's; ``started`` when the one that began
    last did so, in seconds since 1970.
    """

    kv_usage_max: float | None = None
    waiting_max: float | None = None
    running_max: float | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cache_hit_share: float | None = None
    queue_seconds_mean: float | None = None
    ttft_mean: float | None = None
    started: float | None = None


@dataclass(frozen=True)
class GpuUse:
    """Power and clock of one GPU during a level."""

    key: str
    power_w_mean: float | None = None
    power_w_max: float | None = None
    clock_mhz_mean: float | None = None
    clock_mhz_min: float | None = None


@dataclass(frozen=True)
class ClientUse:
    """What the load generator itself cost, and how wrong it measures.

    ``ttft_error_p90`` is what it saw beyond what a mock at the same level gave; None: not tested.
    """

    backend: str
    version: str | None
    processes: int
    cpu_seconds: float | None = None
    cores: int | None = None
    ttft_error_p90: float | None = None


@dataclass(frozen=True)
class Level:
    """One level with its verdict; ``raw`` names the file with what the tools printed."""

    load: Load
    status: Status
    measured: Measured | None
    engine: EngineUse | None = None
    gpus: tuple[GpuUse, ...] = ()
    client: ClientUse | None = None
    missed: tuple[Limit, ...] = ()
    findings: tuple[Finding, ...] = ()
    raw: str | None = None

    @property
    def valid(self) -> bool:
        """Return whether its numbers mean what they say."""
        return self.status in ("OK", "SLO_MISS")


@dataclass(frozen=True)
class Interval:
    """A mean over repeats with its t-interval and coefficient of variation; None: too few."""

    n: int
    mean: float
    low: float | None = None
    high: float | None = None
    cov: float | None = None


@dataclass(frozen=True)
class Price:
    """What one GPU costs an hour, in a ``currency`` of ISO 4217; raises BENCH-PRICE for none."""

    gpu_hour: float
    currency: str = "USD"

    def __post_init__(self) -> None:
        if not (0 < self.gpu_hour < 1e6 and re.fullmatch("[A-Z]{3}", self.currency)):  # or NaN
            given = f"{self.gpu_hour:g} in {self.currency[:20]!r}"
            raise error("BENCH-PRICE", "a GPU-hour", f"{given} is no price")


@dataclass(frozen=True)
class Amounts:
    """What a million output tokens, a million tokens of total_token_rate, and a request take."""

    million_output_tokens: Interval
    million_tokens: Interval
    request: Interval


@dataclass(frozen=True)
class Cost:
    """What serving on ``gpus`` GPUs takes: ``money`` by their price, ``joules`` by their power.

    ``watts`` are of all of them together. What is not known is None; ``text`` has all in lines,
    and why something is not known.
    """

    gpus: int | None
    price: Price | None = None
    money: Amounts | None = None
    watts: Interval | None = None
    joules: Amounts | None = None
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """What an SLO search found for one workload.

    ``best`` is the highest ``by`` (concurrency or request_rate) that kept every limit, ``fails``
    the lowest above it that did not; the truth lies between. ``request_rate`` is what was served
    there, ``cost`` what that took. ``edge`` is ``best`` with how sure it is: over runs, of one
    engine run where it may lie.
    None: no level kept the limits, or none broke them.
    """

    workload: str
    by: Literal["concurrency", "request_rate"]
    best: float | None
    fails: float | None
    request_rate: Interval | None = None
    levels: int = 0
    missed: tuple[Limit, ...] = ()
    edge: Interval | None = None
    cost: Cost | None = None


@dataclass(frozen=True)
class Saturation:
    """Where more load brought no more; ``verified``: by levels that reached their concurrency."""

    workload: str
    concurrency: int | None
    request_rate: float | None
    verified: bool
    reason: str


@dataclass(frozen=True)
class Requested:
    """What a benchmark shall do; everything that decides which loads there are.

    Without ``concurrency`` levels go 1, 2, 4, … up to ``most``. ``stress`` are workloads of their
    own. Each level is measured ``repeats`` times in each of ``engine_runs``.
    ``search_by`` is what the SLO search raises: streams of a closed loop, random arrivals, or each.
    """

    workload: Workload
    slo: tuple[Limit, ...] = ()
    phases: tuple[Phase, ...] = ("baseline", "scaling", "slo", "saturation")
    concurrency: tuple[int, ...] = ()
    request_rate: tuple[float, ...] = ()
    most: int = 1024
    stress: tuple[Workload, ...] = ()
    repeats: int = 1
    engine_runs: int = 1
    seed: int = 1
    soak_seconds: int = 600
    search_by: Literal["both", "concurrency", "request_rate"] = "both"


@dataclass(frozen=True)
class Bench:
    """One whole benchmark, with everything that is needed to repeat it.

    ``environment`` is plain data: plan hash and layout, engine and Apiary versions, topology,
    host names, kernel, client. ``created`` is UTC, ISO 8601.
    """

    SCHEMA: ClassVar[str] = "apiary.bench/v2"

    name: str
    created: str
    target: Target
    requested: Requested
    levels: tuple[Level, ...]
    searches: tuple[SearchResult, ...] = ()
    saturation: tuple[Saturation, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    price: Price | None = None


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
