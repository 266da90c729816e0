# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads as they are named on a command line, `5600/140`, and those of a router's log."""

from __future__ import annotations

import functools
import heapq
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..documents import from_document, knowledge
from ..files import read_lines
from ..findings import error
from .types import Workload

_LENGTHS = re.compile(r"(?:(?P<kind>[a-z]+):)?(?P<input>\d{1,7})/(?P<output>\d{1,6})")
# Kinds that two lengths tell enough of.
_PLAIN = ("random", "prefix", "sessions", "images")


def names() -> tuple[str, ...]:
    """Return the named workloads, in the order they are documented."""
    return tuple(knowledge("bench/workloads.yml")["workloads"])


def concurrency_of(name: str) -> int | None:
    """Return the concurrency that a named workload was published with, or None."""
    entry = _entries().get(name)
    return None if entry is None else entry[1].get("concurrency")


def workload(text: str) -> Workload:
    """Return the workload that ``text`` names.

    A name or short name of knowledge/bench/workloads.yml, `INPUT/OUTPUT` in tokens, or
    `KIND:INPUT/OUTPUT` for another kind than random, or `trace:FILE`, the log of a router. Raises
    ApiaryError BENCH-WORKLOAD, FILE-UNREADABLE.
    """
    text = text.strip()
    if text.startswith("trace:"):
        return trace(text, read_lines(text.removeprefix("trace:")))
    entry = _entries().get(text)
    if entry is not None:
        return _named(*entry)
    match = _LENGTHS.fullmatch(text)
    kind = match and (match["kind"] or "random")
    if match is None or kind not in _PLAIN:
        raise error(
            "BENCH-WORKLOAD",
            "workload",
            f"{text!r} is no workload; named ones are {', '.join(names())}",
        )
    tokens, output = int(match["input"]), int(match["output"])
    if not tokens or not output:
        raise error("BENCH-WORKLOAD", "workload", f"{text!r} asks for no tokens")
    name = f"{tokens}/{output}"
    if kind == "random":
        return Workload(name, tokens, output)
    facts = dict(knowledge("bench/workloads.yml")["defaults"][kind])
    facts["prefix_tokens"] = int(tokens * facts.pop("prefix_share", 0))
    lengths = {"input_tokens": tokens, "output_tokens": output}
    return _named(f"{kind}-{name}", {**facts, "kind": kind, **lengths})


@functools.cache
def _entries() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return each name and short name with what it stands for."""
    entries: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, facts in knowledge("bench/workloads.yml")["workloads"].items():
        for known in (name, *facts.get("same_as", ())):
            entries[known] = (name, facts)
    return entries


def _named(name: str, facts: Mapping[str, Any]) -> Workload:
    parts = tuple(_named(part, _entries()[part][1]) for part in facts.get("parts", ()))
    if parts:
        # Equal shares, so a request has the mean of the parts; rounded, as tokens are whole.
        tokens = round(sum(part.input_tokens for part in parts) / len(parts))
        output = round(sum(part.output_tokens for part in parts) / len(parts))
        return Workload(name, tokens, output, "mixed", parts=parts)
    beside = ("parts", "concurrency", "same_as", "meaning", "source")
    fields = {key: value for key, value in facts.items() if key not in beside}
    return from_document(Workload, {"name": name, **fields}, "bench/workloads.yml")


def trace(name: str, lines: Iterable[str]) -> Workload:
    """Return the first requests of a router's log that were answered, lengths by their bytes.

    At most as many as a load takes. Raises BENCH-WORKLOAD for a log of several deployments.
    """
    facts = knowledge("bench/workloads.yml")["trace"]
    rows = heapq.nsmallest(facts["most"], filter(None, (_row(line, facts) for line in lines)))
    if len(rows) < 2 or len({row[1] for row in rows}) > 1:
        what = "has requests of several deployments" if len(rows) > 1 else "has not two requests"
        raise error("BENCH-WORKLOAD", name, f"{what} that were answered, by a router's log")
    numbers: dict[str, int] = {}
    requests: list[tuple[int, float, int, int]] = []
    for time, _deployment, session, prompt, answer in rows:
        # One that says no session is one of its own.
        key = session if session != "-" else f"-{len(requests)}"
        number = numbers.setdefault(key, len(numbers))
        requests.append((number, round(time - rows[0][0], 2), prompt, answer))
    prompt, answer = (round(sum(one[at] for one in requests) / len(requests)) for at in (2, 3))
    deployment = re.sub(r"[^a-zA-Z0-9._-]", "", rows[0][1])[:64]
    # More than one turn: requests of a session have its key.
    return Workload(
        f"trace-{deployment}", prompt, answer, kind="trace", turns=2, trace=tuple(requests)
    )


def _row(line: str, facts: dict[str, Any]) -> tuple[float, str, str, int, int] | None:
    """Return when a request came, its deployment, session and lengths; None for another line."""
    try:
        # What comes before is syslog's.
        told = json.loads(line[line.index("{") :])
        time, kind = float(told["time"]), "stream" if told["stream"] == "yes" else "whole"
        if told["path"] not in facts["paths"] or told["status"] != 200 or not 0 < time < 1e11:
            return None
        prompt = _tokens(told["bytes_in"], facts["prompt"], facts["longest"])
        answer = _tokens(told["bytes_out"], facts["answer"][kind], facts["longest"])
        return time, str(told["deployment"]), str(told["session"]), prompt, answer
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _tokens(size: int, facts: dict[str, float], longest: int) -> int:
    return max(1, min(longest, round((size - facts["beside"]) / facts["token"])))
