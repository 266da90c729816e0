# SPDX-License-Identifier: GPL-3.0-or-later

"""The load generator's own results to requests: `vllm bench serve` of any version, or ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import is_whole, knowledge
from ..engine.conditions import Version, order, parse_version
from ..findings import ApiaryError, error
from .types import Raw, Request

NO_ANSWER = "no answer, and no reason given"


def requests_of(raw: Raw, subject: str) -> tuple[Request, ...]:
    """Return the requests of every shard, in the order they were sent where that is known.

    A failed one has no latency. Of an open loop the time that a request waited in the client
    counts: it was due then (vLLM issue 54101); a closed loop's next request is due when a place
    is free. Raises ApiaryError BENCH-RESULT for what a shard can't have measured.
    """
    if not raw.shards:
        reported = f"; its log ends: {raw.log[-200:].strip()}" if raw.log.strip() else ""
        raise _unreadable(subject, "the load generator left no result" + reported)
    waits = raw.backend not in knowledge("bench/fields.yml")["queue_included"]
    open_loop = waits and raw.load.get("concurrency") is None
    requests = [
        request
        for number, shard in enumerate(raw.shards)
        for request in shard_requests(shard, f"{subject}, shard {number}", open_loop)
    ]
    if not requests:
        raise _unreadable(subject, "the result has no request at all")
    if all(request.start is not None for request in requests):
        requests.sort(key=_order)
    return tuple(requests)


def shard_requests(
    shard: Mapping[str, Any], subject: str, add_queue: bool = False
) -> tuple[Request, ...]:
    """Return the requests of one shard in its own order; raises as requests_of.

    ``add_queue``: the time waited in the client counts, and the numbers don't have it yet.
    """
    facts = knowledge("bench/fields.yml")
    missing = [key for key in facts["required"] if shard.get(key) is None]
    if missing:
        raise _unreadable(
            subject, f"the result has no {', '.join(missing)}: was it saved with --save-detailed?"
        )
    columns = {
        key: shard[key]
        for key, fact in facts["fields"].items()
        if fact.get("each") and shard.get(key) is not None
    }
    lengths = {
        key: len(column) if isinstance(column, (list, tuple)) else -1
        for key, column in columns.items()
    }
    if len(set(lengths.values())) > 1 or -1 in lengths.values():
        counts = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise _unreadable(subject, f"the lists of the result differ in length: {counts}")
    made: list[Request] = []
    place = ""
    try:
        _seconds("duration", shard["duration"])
        for values in zip(*columns.values(), strict=True):
            place = f"request {len(made)}: "
            made.append(_request(dict(zip(columns, values, strict=True)), add_queue))
    except _Wrong as wrong:
        raise _unreadable(subject, f"{place}{wrong}") from None
    answered = sum(not request.error for request in made)
    if shard["completed"] != answered:
        raise _unreadable(
            subject, f"it counts {shard['completed']} completed requests and shows {answered}"
        )
    return tuple(made)


def requested_lengths(raw: Raw) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...] | None:
    """Return ((input asked, given), (output asked, given)) of each answered request, in tokens.

    None where the client doesn't say what it asked: then each asked what the workload says.
    """
    keys = ("asked_input_lens", "input_lens", "asked_output_lens", "output_lens", "errors")
    if any(shard.get(key) is None for shard in raw.shards for key in keys):
        return None
    rows = [row for shard in raw.shards for row in zip(*(shard[key] for key in keys), strict=True)]
    return tuple(((row[0], row[1]), (row[2], row[3])) for row in rows if not row[4])


def behaves(raw: Raw, name: str) -> bool:
    """Return whether the client of a raw result has a behaviour of knowledge/bench/fields.yml."""
    fact = knowledge("bench/fields.yml")["behaviour"][name]
    if raw.backend != "vllm":
        return raw.backend in fact.get("others", ())
    version = parse_version(raw.version or "")
    if version is None:
        return False
    return covers(fact, version)


def covers(fact: Mapping[str, Any], version: Version) -> bool:
    """Return whether a version is in the range of a fact, `from` and `to` included."""
    first, last = fact.get("from"), fact.get("to")
    return (first is None or version >= order(first)) and (last is None or version <= order(last))


class _Wrong(Exception):  # noqa: N818 - it never leaves this module
    """A value that no clock or counter gives."""


def _request(values: Mapping[str, Any], add_queue: bool) -> Request:
    """Return one request from its row of the shard's columns."""
    tokens = _whole("input_lens", values["input_lens"])
    output = _whole("output_lens", values["output_lens"])
    for key in ("asked_input_lens", "asked_output_lens"):
        _whole(key, values.get(key, 0))
    start = _seconds("start_times", values["start_times"]) if "start_times" in values else None
    failure = values["errors"]
    streamed = values["ttfts"] is not None
    ttft = _seconds("ttfts", values["ttfts"]) if streamed else 0.0
    if failure or (streamed and not ttft and not output):
        # Versions differ in what a failed request's times are; none of them was measured.
        return Request(None, None, tokens, 0, (), start or None, str(failure or NO_ANSWER))
    if not isinstance(values["itls"], (list, tuple)):
        raise _Wrong("its itls are no list")
    if not streamed and "latencies" not in values:
        raise _Wrong("it has neither a ttft nor a latency")
    gaps = _gaps(values["itls"])
    latency = ttft + math.fsum(gaps)
    if "latencies" in values:
        # A given latency ends at the same piece as the gaps; rounding apart it can't be shorter.
        latency = max(latency, _seconds("latencies", values["latencies"]))
    if add_queue and "queue_times" in values:
        waited = _seconds("queue_times", values["queue_times"])
        latency, ttft = latency + waited, ttft + waited
        start = None if start is None else start - waited
    return Request(latency, ttft if streamed else None, tokens, output, gaps, start)


def _gaps(row: Sequence[Any]) -> tuple[float, ...]:
    """Return the gaps of one answer, checked as a whole: a level may have millions."""
    if {*map(type, row)} <= {float, int}:
        gaps = tuple(map(float, row))
        if all(map(math.isfinite, gaps)) and min(gaps, default=0.0) >= 0:
            return gaps
    return tuple(_seconds("itls", gap) for gap in row)


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _Wrong(f"{key} has {value!r}, which is no time")
    if value < 0:
        raise _Wrong(f"{key} has {value!r}, which is before it began")
    return float(value)


def _whole(key: str, value: Any) -> int:
    if not is_whole(value) or value < 0:
        raise _Wrong(f"{key} has {value!r}, which is no number of tokens")
    return int(value)


def _order(request: Request) -> tuple[float, ...]:
    """Return what requests are sorted by: by starts, and the same whatever shard comes first."""
    times = (request.start, request.latency, request.ttft)
    lengths = (request.input_tokens, request.output_tokens)
    return (*(-1.0 if time is None else time for time in times), *lengths)


def _unreadable(subject: str, found: str) -> ApiaryError:
    return error("BENCH-RESULT", subject, found, source="vllm/benchmarks/serve.py")
