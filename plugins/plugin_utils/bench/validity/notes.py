# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is only said of a level: warnings and facts, by their names in bench/thresholds.yml."""

from __future__ import annotations

from ..measure import spread
from ..parse import behaves
from .inputs import Check, Seen, announced, hit_share


def _unsteady(seen: Seen) -> str | None:
    if seen.measured.steady or not seen.answered:
        return None
    known = all(request.start is not None for request in seen.answered)
    why = (
        "too few requests are left without it"
        if known
        else "the client doesn't say when they began"
    )
    return f"the numbers have the ramp at both ends in them: {why}"


def _untested(seen: Seen) -> str | None:
    if seen.client.ttft_error_p90 is not None or seen.self_test_problem is not None:
        return None
    return "what the client adds to the latencies is not known, it was not tested at this level"


def _unchecked(seen: Seen) -> str | None:
    if hit_share(seen) is not None:
        return None
    return "no engine says how many prompt tokens came from its cache, so repeats go unnoticed"


def _engine_ttft(seen: Seen) -> str | None:
    own = seen.engine.ttft_mean
    client = spread([request.ttft for request in seen.answered if request.ttft is not None])
    if own is None or client is None:
        return None
    beyond = client.mean - own
    if beyond <= max(seen.limits["engine_ttft"] * own, seen.limits["engine_ttft_slack"]):
        return None
    return (
        f"the client's mean TTFT is {client.mean * 1000:.1f} ms, the engine's own"
        f" {own * 1000:.1f} ms: {beyond * 1000:.1f} ms lie between them"
    )


def _unwarmed(seen: Seen) -> str | None:
    if not seen.load.warmups or behaves(seen.raw, "warmups") or seen.raw.backend != "vllm":
        return None
    return f"vLLM {seen.raw.version} has no --num-warmups, so {seen.load.warmups} were not sent"


def _clumped(seen: Seen) -> str | None:
    gaps = seen.measured.itl
    if gaps is None or gaps.p50 >= seen.limits["clumped"]:
        return None
    return (
        f"half of the gaps are at most {gaps.p50 * 1e6:.0f} us: the pieces of an answer came"
        " together, so tpot and itl are not the engine's"
    )


def _bundled(seen: Seen) -> str | None:
    gaps = sum(len(request.gaps) for request in seen.answered)
    after = sum(max(0, request.output_tokens - 1) for request in seen.answered)
    if not after or not gaps or gaps >= seen.limits["bundled"] * after:
        return None
    return f"{after} tokens came in {gaps} pieces, so itl is the time between pieces"


def _cached(seen: Seen) -> str | None:
    share = hit_share(seen) or 0.0
    if not announced(seen.load.workload) or share <= seen.limits["cached"]:
        return None
    return f"{share:.1%} of the prompt tokens came from the engine's cache, as the workload has it"


def _preempted(seen: Seen) -> str | None:
    count = seen.engine.preemptions or 0
    return f"{count} requests were preempted" if count > seen.limits["preempted"] else None


def _kv_full(seen: Seen) -> str | None:
    share = seen.engine.kv_usage_max or 0.0
    return f"the KV cache was {share:.0%} full" if share > seen.limits["kv_full"] else None


def _queued(seen: Seen) -> str | None:
    queue, latency = seen.engine.queue_seconds_mean or 0.0, seen.measured.e2el
    share = queue / latency.mean if latency is not None and latency.mean else 0.0
    if share <= seen.limits["queued"]:
        return None
    return f"requests waited {queue:.3g} s in the engine's queue, {share:.0%} of their latency"


NOTES: dict[str, Check] = {
    "unsteady": _unsteady,
    "untested": _untested,
    "unchecked": _unchecked,
    "engine_ttft": _engine_ttft,
    "unwarmed": _unwarmed,
    "clumped": _clumped,
    "bundled": _bundled,
    "cached": _cached,
    "preempted": _preempted,
    "kv_full": _kv_full,
    "queued": _queued,
}
