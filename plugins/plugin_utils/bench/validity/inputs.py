# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of one level when it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...documents import is_whole
from ...slo import Limit
from ..parse import behaves
from ..types import ClientUse, EngineUse, Load, Measured, Raw, Request, Workload


@dataclass(frozen=True)
class Seen:
    """All that is known of one level when it is evaluated; times in seconds.

    ``requested`` are requested and actual tokens of each request, input and output, where known.
    ``limits`` are the thresholds by rule. ``began_anew`` names engines.
    """

    raw: Raw
    load: Load
    slo: tuple[Limit, ...]
    requests: tuple[Request, ...]
    measured: Measured
    engine: EngineUse
    client: ClientUse
    limits: Mapping[str, float]
    seconds: float
    requested: tuple[tuple[tuple[int, int], tuple[int, int]], ...] | None = None
    self_test_problem: str | None = None
    began_anew: tuple[str, ...] = ()

    @property
    def answered(self) -> list[Request]:
        """Return the requests that were answered."""
        return [request for request in self.requests if request.latency is not None]


def share_failed(seen: Seen) -> float:
    """Return the share of requests that failed, 0 to 1."""
    return seen.measured.failed / len(seen.requests) if seen.requests else 0.0


def sent_rate(seen: Seen) -> float | None:
    """Return requests sent per second, over the whole level; None if that is not known."""
    starts = [request.start for request in seen.requests if request.start is not None]
    if len(starts) < 2:
        return None
    between = max(starts) - min(starts)
    return (len(starts) - 1) / between if between > 0 else None


def unmeasured(seen: Seen) -> int:
    """Return how many requests the client sent beside those it measured."""
    warmups = seen.load.warmups if behaves(seen.raw, "warmups") else 0
    return warmups + (1 if behaves(seen.raw, "first_prompt_probe") else 0)


def hit_share(seen: Seen) -> float | None:
    """Return the share of prompt tokens from the cache; None if nobody says.

    By the engines' metrics, else by what the answers' own usage says (prompt_tokens_details).
    """
    engine = seen.engine
    if engine.cache_hit_share is not None:
        return engine.cache_hit_share
    if engine.cached_tokens is not None and engine.prompt_tokens:
        return engine.cached_tokens / engine.prompt_tokens
    cached = usage_cached(seen.raw)
    return cached[0] / cached[1] if cached and cached[1] else None


def usage_cached(raw: Raw) -> tuple[int, int] | None:
    """Return the prompt tokens from the cache, and all, by the answers' own usage.

    None where an answer has none: vLLM tells it with --enable-prompt-tokens-details.
    """
    rows: list[tuple[Any, int]] = []
    for shard in raw.shards:
        counts = shard.get("cached_tokens")
        if not isinstance(counts, (list, tuple)) or len(counts) != len(shard["input_lens"]):
            return None
        answers = zip(counts, shard["input_lens"], shard["errors"], strict=True)
        rows += [(cached, length) for cached, length, failure in answers if not failure]
    if not all(is_whole(cached) and cached >= 0 for cached, _length in rows):
        return None
    return sum(cached for cached, _length in rows), sum(length for _cached, length in rows)


def announced(workload: Workload) -> float:
    """Return the share of prompt tokens that a workload's requests share by what it is."""
    if workload.kind in ("sessions", "trace"):
        return 1.0  # each turn repeats all of the one before
    if workload.kind == "prefix":
        return workload.prefix_tokens / workload.input_tokens
    if not workload.parts:
        return 0.0
    tokens = sum(part.input_tokens for part in workload.parts)
    return sum(announced(part) * part.input_tokens for part in workload.parts) / tokens


# What a rule found, or None where it is kept.
Check = Callable[[Seen], str | None]
