# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to numbers: percentiles, rates and goodput of a level's steady state."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..slo import Limit, Metric
from .types import Load, Measured, Request, Spread


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values, linear between the two nearest, as numpy's default."""
    place = (len(values) - 1) * share
    low = math.floor(place)
    if low + 1 >= len(values):
        return values[-1]
    below, above = values[low], values[low + 1]
    # From the nearer end, as numpy does: so it stays between the two, and grows with the share.
    part = place - low
    step = (above - below) * part
    return below + step if part < 0.5 else above - (above - below) * (1 - part)


def spread(values: Sequence[float]) -> Spread | None:
    """Return how values spread; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    mean = math.fsum(ordered) / len(ordered)
    return Spread(
        len(ordered), mean, *(quantile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99))
    )


def measure(
    requests: Sequence[Request],
    load: Load,
    slo: tuple[Limit, ...],
    seconds: float,
    cached_tokens: int | None = None,
) -> Measured:
    """Return the numbers of a level.

    ``seconds`` is what it took, used where no starts are known. ``cached_tokens`` are prompt tokens
    of the whole level that the engine had in its cache. ``completed`` and ``failed`` count every
    request; the rest is of the steady state: without the first and last requests to end, as many
    as were in flight, and without the time before the last of the former and after the last that
    counts (bench.md: trim the first and last C). Rates are of requests that ended in it.
    """
    answered = [request for request in requests if request.latency is not None]
    window = _steady(answered, load)
    steady = window is not None
    begin, end, kept = window or _whole(answered, seconds)
    wall = end - begin
    tokens = sum(request.input_tokens for request in kept)
    output = sum(request.output_tokens for request in kept)
    everything = sum(request.input_tokens for request in answered)
    cached = None
    if cached_tokens is not None:
        # Only shares are known of the kept requests; warm-ups may hit too, so never above all.
        cached = round(tokens * min(1.0, cached_tokens / everything)) if everything else 0
    return Measured(
        completed=len(answered),
        failed=len(requests) - len(answered),
        wall_seconds=wall,
        steady=steady,
        achieved_concurrency=_in_flight(answered, begin, end),
        request_rate=_per(len(kept), wall),
        output_token_rate=_per(output, wall),
        total_token_rate=_per(tokens - (cached or 0) + output, wall),
        input_tokens=tokens,
        output_tokens=output,
        cached_tokens=cached,
        goodput=_per(sum(kept_limits(request, slo) for request in kept), wall) if slo else None,
        ttft=spread([request.ttft for request in kept if request.ttft is not None]),
        tpot=spread([value for value in map(tpot, kept) if value is not None]),
        itl=spread([gap for request in kept for gap in request.gaps]),
        e2el=spread([latency(request) for request in kept]),
    )


def steady_seconds(requests: Sequence[Request], load: Load) -> tuple[float, float] | None:
    """Return when the steady state began and ended, in seconds since the first request; or None."""
    window = _steady([request for request in requests if request.latency is not None], load)
    starts = [request.start for request in requests if request.start is not None]
    return (window[0] - min(starts), window[1] - min(starts)) if window else None


def missed(measured: Measured, slo: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """Return the limits that a level broke; one of a metric that no request has is kept."""
    broken = []
    for limit in slo:
        found: Spread | None = getattr(measured, limit.metric)
        if found is not None and getattr(found, limit.percentile) > limit.seconds:
            broken.append(limit)
    return tuple(broken)


def kept_limits(request: Request, slo: tuple[Limit, ...]) -> bool:
    """Return whether one request met each limit; of its gaps the limit's own percentile counts."""
    for limit in slo:
        value = _of(request, limit.metric, limit.percentile)
        if value is not None and value > limit.seconds:
            return False
    return True


def tpot(request: Request) -> float | None:
    """Return the time per token after the first, None for a request without a second one.

    By tokens, not by gaps: one piece of a stream may hold several.
    """
    if request.ttft is None or request.output_tokens < 2:
        return None
    return (latency(request) - request.ttft) / (request.output_tokens - 1)


def latency(request: Request) -> float:
    """Return the latency of an answered request."""
    if request.latency is None:
        raise ValueError("a failed request has no latency")
    return request.latency


def _of(request: Request, metric: Metric, percentile: str) -> float | None:
    if metric == "ttft":
        return request.ttft
    if metric == "tpot":
        return tpot(request)
    if metric == "e2el":
        return request.latency
    gaps = spread(request.gaps)
    return None if gaps is None else float(getattr(gaps, percentile))


def _per(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


_Window = tuple[float, float, list[Request]]


def _whole(answered: Sequence[Request], seconds: float) -> _Window:
    """Return the time from the first start to the last end, or what the level took, with all."""
    starts = [request.start for request in answered if request.start is not None]
    if not starts or len(starts) < len(answered):
        return 0.0, max(seconds, 0.0), list(answered)
    begin = min(starts)
    return begin, max(_end(request) for request in answered), list(answered)


def _steady(answered: Sequence[Request], load: Load) -> _Window | None:
    """Return the steady part of a level; None if starts are unknown or too little would be left.

    By the order of ends, so that what is counted in the window ended in it. The ends of a wave
    come together, and the window begins and ends after one: no share of a wave is counted.
    """
    if not answered or any(request.start is None for request in answered):
        return None
    ends = sorted(answered, key=_end)
    if load.concurrency is not None:
        edge = load.concurrency
    else:
        begin, end = _whole(answered, 0.0)[:2]
        edge = math.ceil(_in_flight(answered, begin, end))
    edge = max(edge, 1)
    kept = ends[edge : len(ends) - edge]
    if len(kept) < edge or _end(kept[-1]) <= _end(ends[edge - 1]):
        return None
    return _end(ends[edge - 1]), _end(kept[-1]), kept


def _in_flight(answered: Sequence[Request], begin: float, end: float) -> float:
    """Return how many requests were in flight on average: the sum of latencies by the wall time.

    Of each only what lies between the two times; all of it where starts are unknown.
    """
    spent = math.fsum(
        latency(request)
        if request.start is None
        else max(0.0, min(_end(request), end) - max(request.start, begin))
        for request in answered
    )
    return _per(spent, end - begin)


def _end(request: Request) -> float:
    return (request.start or 0.0) + latency(request)
