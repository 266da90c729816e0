# SPDX-License-Identifier: GPL-3.0-or-later

"""What each rule has found, by its name in bench/thresholds.yml: those to be kept, and notes."""

from __future__ import annotations

from ..measure import spread
from ..parse import behaves
from ..types import Request, Workload
from .inputs import Check, Seen, announced, hit_share, sent_rate, share_failed, unmeasured


def _exit(seen: Seen) -> str | None:
    bad = [
        f"process {number} with {code}" for number, code in enumerate(seen.raw.exit_codes) if code
    ]
    return f"the load generator ended {', '.join(bad)}" if bad else None


def _incomplete(seen: Seen) -> str | None:
    if len(seen.requests) >= seen.load.requests:
        return None
    return f"{len(seen.requests)} of {seen.load.requests} requests are in the result"


def _requests_per_slot(seen: Seen) -> str | None:
    slots = seen.load.concurrency
    reported = f"{slots} concurrent"
    if slots is None:
        # An open loop has no slots: what is in flight decides how much of it is ramp.
        slots = round(seen.measured.achieved_concurrency)
        reported = f"{slots} in flight on average"
    least = seen.limits["requests_per_slot"] * slots
    if len(seen.requests) >= least:
        return None
    return f"{len(seen.requests)} requests at {reported}, expected at least {least:g}"


def _requests_least(seen: Seen) -> str | None:
    least = seen.limits["requests_least"]
    if len(seen.requests) >= least:
        return None
    return f"{len(seen.requests)} requests, expected at least {least:g}"


def _concurrency(seen: Seen) -> str | None:
    requested = seen.load.concurrency
    achieved = seen.measured.achieved_concurrency
    if requested is None or not seen.answered or achieved >= seen.limits["concurrency"] * requested:
        return None
    return (
        f"{achieved:.1f} requests were in flight on average, {achieved / requested:.0%} of the "
        f"{requested} requested; expected at least {seen.limits['concurrency']:.0%}"
    )


def _rate(seen: Seen) -> str | None:
    requested, sent = seen.load.request_rate, sent_rate(seen)
    if requested is None or sent is None:
        return None
    least = seen.limits["rate"] * requested
    if not behaves(seen.raw, "scaled_arrivals"):
        # Arrivals that are not stretched are a Poisson process: its count has its own deviation.
        least *= max(0.0, 1 - 3 / len(seen.requests) ** 0.5)
    if sent >= least:
        return None
    return (
        f"{sent:.3g} requests were sent per second, {sent / requested:.0%} of the "
        f"{requested:.3g} requested; expected at least {least:.3g}"
    )


def _overload(seen: Seen) -> str | None:
    if seen.load.request_rate is None or not seen.answered:
        return None
    share = kept_up(seen.answered, seen.measured.achieved_concurrency)
    if share is None:
        # Without starts: of what was requested, the last latency apart.
        mean = seen.measured.e2el.mean if seen.measured.e2el else 0.0
        sending = max(seen.seconds - mean, 1e-9)
        share = len(seen.answered) / sending / seen.load.request_rate
    if share >= seen.limits["overload"]:
        return None
    return (
        f"answers came at {share:.0%} of the rate that requests were sent at, so their queue grew"
        f" for as long as it was measured; expected at least {seen.limits['overload']:.0%}"
    )


def kept_up(answered: list[Request], in_flight: float) -> float | None:
    """Return how fast requests ended, as a share of how fast they began; None if not known.

    Both without as many at each end as were in flight: a steady queue's ramps cancel out. The
    same number of requests on both sides leaves the ratio of the times that they took.
    """
    starts = sorted(request.start for request in answered if request.start is not None)
    if len(starts) < len(answered) or len(starts) < 3:
        return None
    ends = sorted((request.start or 0.0) + (request.latency or 0.0) for request in answered)
    edge = min(max(1, round(in_flight)), (len(starts) - 1) // 4)
    sending = starts[-1 - edge] - starts[edge]
    ending = ends[-1 - edge] - ends[edge]
    return sending / ending if ending > 0 else None


def _output(seen: Seen) -> str | None:
    pairs = [pair[1] for pair in seen.requested] if seen.requested is not None else None
    if pairs is None:
        lengths = outputs_of(seen.load.workload)
        right = sum(request.output_tokens in lengths for request in seen.answered)
        expected_tokens = " or ".join(str(length) for length in sorted(lengths))
    else:
        right = sum(requested == given for requested, given in pairs)
        expected_tokens = "the requested number of"
    total = len(seen.answered)
    if not total or right >= seen.limits["output"] * total:
        return None
    mean = sum(request.output_tokens for request in seen.answered) / total
    return (
        f"{right} of {total} answers have {expected_tokens} tokens ({mean:.1f} on average),"
        f" expected at least {seen.limits['output']:.0%}"
    )


def outputs_of(workload: Workload) -> set[int]:
    """Return the output lengths that a workload's requests may ask for."""
    return {part.output_tokens for part in workload.parts or (workload,)}


def _input(seen: Seen) -> str | None:
    target, found = _requested_input(seen), _given_input(seen)
    if target is None or found is None:
        return None
    slack = max(seen.limits["input"] * target, seen.limits["input_slack"])
    if abs(found - target) <= slack:
        return None
    return (
        f"prompts have {found:.1f} tokens on average, {found / target - 1:+.1%} of the {target:g}"
        f" requested; expected at most {seen.limits['input']:.0%} off"
    )


def _requested_input(seen: Seen) -> float | None:
    """Return the mean of the prompts requested; None where pictures count by the model's rules."""
    workload = seen.load.workload
    if any(part.images for part in (workload, *workload.parts)):
        return None
    if seen.requested is not None:
        return (
            sum(pair[0][0] for pair in seen.requested) / len(seen.requested)
            if seen.requested
            else None
        )
    return None if workload.turns > 1 else float(workload.input_tokens)


def _given_input(seen: Seen) -> float | None:
    """Return the mean prompt by the server's usage, else its metrics, else the client's count."""
    if not seen.answered:
        return None
    mean = sum(request.input_tokens for request in seen.answered) / len(seen.answered)
    if behaves(seen.raw, "usage_input_lens"):
        return mean
    counted = seen.engine.prompt_tokens
    if not counted or unmeasured(seen) or seen.measured.failed:
        # What else was sent is in the engine's sum too, and its length is not known.
        return mean
    return counted / len(seen.answered)


def _repeats(seen: Seen) -> str | None:
    share = hit_share(seen)
    if share is None:
        return None
    # vLLM's client warms up with the load's first prompt, over and over.
    again = unmeasured(seen)
    if behaves(seen.raw, "preempted_hits"):
        again += seen.engine.preemptions or 0
    allowed = announced(seen.load.workload) + again / (len(seen.requests) + again)
    if share <= allowed + seen.limits["repeats"]:
        return None
    return (
        f"{share:.1%} of the prompt tokens came from the engine's cache, expected at most"
        f" {allowed + seen.limits['repeats']:.1%} of a {seen.load.workload.kind} workload"
    )


def _self_test(seen: Seen) -> str | None:
    if seen.self_test_problem is not None:
        return f"the client's self-test failed: {seen.self_test_problem}"
    wrong, most, why = seen.client.ttft_error_p90, seen.limits["self_test"], ""
    limit = min((limit.seconds for limit in seen.slo if limit.metric == "ttft"), default=None)
    share = seen.limits["self_test_share"]
    if limit is not None and share * limit < most:
        most, why = share * limit, f", {share:.0%} of the SLO's {limit:g} s"
    if wrong is None or wrong <= most:
        return None
    return (
        f"the client saw p90 TTFT {wrong * 1000:.1f} ms later than the mock gave it at this level,"
        f" expected at most {most * 1000:g} ms{why}"
    )


def _client_cpu(seen: Seen) -> str | None:
    used = seen.client.cpu_seconds
    if used is None or seen.seconds <= 0 or not seen.client.processes:
        return None
    processes, limit = seen.client.processes, seen.limits["client_cpu"]
    share = used / (seen.seconds * processes)
    if share <= limit:
        return None
    return (
        f"each of the client's {processes} processes used {share:.0%} of a core while it measured, "
        f"expected at most {limit:.0%}"
    )


def _restarted(seen: Seen) -> str | None:
    if not seen.began_anew:
        return None
    return f"{', '.join(seen.began_anew)} began anew or stopped answering during the level"


def _errors(seen: Seen) -> str | None:
    if share_failed(seen) <= seen.limits["errors"]:
        return None
    first = next(request.error for request in seen.requests if request.error)
    # The end of a traceback says what it is about.
    reported = first.strip().splitlines()[-1][:200]
    return (
        f"{seen.measured.failed} of {len(seen.requests)} requests failed, expected none; the first:"
        f" {reported}"
    )


KEPT: dict[str, Check] = {
    "exit": _exit,
    "incomplete": _incomplete,
    "requests_per_slot": _requests_per_slot,
    "requests_least": _requests_least,
    "concurrency": _concurrency,
    "rate": _rate,
    "overload": _overload,
    "output": _output,
    "input": _input,
    "repeats": _repeats,
    "self_test": _self_test,
    "client_cpu": _client_cpu,
    "restarted": _restarted,
    "errors": _errors,
}
# A warm-up is not measured: it only has to be answered.
OF_WARMUP = ("exit", "incomplete", "restarted", "errors")


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
