# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads as they are named on a command line: `5600/140`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from ..documents import from_document, knowledge
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
    `KIND:INPUT/OUTPUT` for another kind than random. Raises ApiaryError BENCH-WORKLOAD.
    """
    text = text.strip()
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
