# SPDX-License-Identifier: GPL-3.0-or-later

"""A load to the command line of `vllm bench serve` of one version, or of our own client."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from ...module_utils.load.prompts import share
from ..documents import dumps, knowledge, to_document
from ..engine.conditions import Version, order, parse_version
from ..findings import error
from .parse import covers
from .types import Load, Target, Workload

# Whoever runs it fills these in: where the programs lie, and the Python to run them with.
_BUILTIN = ("env", "PYTHONPATH=@PROGRAMS@", "@PYTHON@", "-m", "load.client")


def argv(
    load: Load,
    target: Target,
    shard: int,
    shards: int,
    version: str,
    result_dir: str,
    filename: str,
    command: tuple[str, ...] = ("vllm",),
) -> tuple[str, ...]:
    """Return the command of one shard of a load, without any secret: the client takes the API key
    from OPENAI_API_KEY.

    ``command`` is what stands before `bench serve`. Shard i goes to url i % len(urls) with its even
    share of requests, concurrency, rate and warm-ups, and a seed of its own. Of a mixed workload
    each shard has one part. Raises ApiaryError BENCH-VERSION for a version without this client,
    BENCH-SHARDS for a load that can't be split so, BENCH-WORKLOAD for what ``refusal`` names.
    """
    facts = knowledge("bench/flags.yml")
    parsed = _version(version, facts)
    reason = refusal(load, version)
    if reason is not None:
        raise error(
            "BENCH-WORKLOAD",
            f"workload {load.workload.name}",
            f"vllm bench serve of {version} {reason}",
            source=facts["source"],
        )
    _check_split(load, target, shards)
    workload = _part(load.workload, shard, shards, len(target.urls))
    kind = facts["kinds"][workload.kind]
    values = _values(load, target, workload, shard, shards, facts)
    values |= {"backend": kind["backend"], "endpoint": kind["endpoint"]}
    values |= {"result_dir": result_dir, "filename": filename}
    words = [*command, "bench", "serve"]
    for flag in (*facts["common"], *kind["flags"]):
        if covers(flag, parsed) and ("when" not in flag or values[flag["when"]] is not None):
            words += (
                [flag["flag"]]
                if flag["value"] is None
                else [flag["flag"], _fill(flag["value"], values)]
            )
    return tuple(words)


def builtin_argv(
    load: Load,
    target: Target,
    shard: int,
    shards: int,
    result_dir: str,
    filename: str,
    session_header: str | None = None,
) -> tuple[str, ...]:
    """Return the command of one shard for our own client, without any secret.

    Shard i goes to url i % len(urls); the client itself takes its even share of requests,
    concurrency, rate and warm-ups.
    """
    facts = knowledge("bench/client.yml")
    request: dict[str, Any] = {
        "url": target.urls[shard % len(target.urls)],
        "model": target.model,
        "load": to_document(load),
        "shard": shard,
        "shards": shards,
        "timeout_seconds": facts["timeout_seconds"],
        "session_header": session_header or facts["session_header"],
    }
    return (
        *_BUILTIN,
        json.dumps(request, sort_keys=True, separators=(",", ":")),
        f"{result_dir}/{filename}",
    )


def refusal(load: Load, version: str) -> str | None:
    """Return why the client of a version can't send a load, or None; raises BENCH-VERSION."""
    facts = knowledge("bench/flags.yml")
    parsed = _version(version, facts)
    for workload in load.workload.parts or (load.workload,):
        kind = facts["kinds"].get(workload.kind)
        if kind is None:
            return f"has no data set for the kind {workload.kind}"
        if not covers(kind, parsed):
            return f"has a data set for the kind {workload.kind} from {kind['from']} on only"
    if load.workload.parts and load.concurrency is not None:
        # Each process keeps its own slots full, and the one with the shortest part ends first.
        return "can't keep a mixed workload's slots full: one process sends one part"
    return None


def seed_of(load: Load, shard: int) -> int:
    """Return the seed of one shard's prompts: the first 32 bits of SHA-256 over load and shard.

    Over the whole document of the load, so that no two levels, repeats or runs share a prompt,
    and the same load has the same prompts again.
    """
    bits = knowledge("bench/flags.yml")["seed_bits"]
    digest = hashlib.sha256(f"{dumps(load)}\n{shard}".encode()).digest()
    return int.from_bytes(digest[: bits // 8], "big")


def _version(version: str, facts: Mapping[str, Any]) -> Version:
    parsed = parse_version(version)
    if parsed is None or parsed < order(facts["oldest"]):
        raise error(
            "BENCH-VERSION",
            "client version",
            f"{version!r} is no vLLM that Apiary knows how to drive",
            source=facts["source"],
            oldest=facts["oldest"],
        )
    return parsed


def _check_split(load: Load, target: Target, shards: int) -> None:
    """Refuse processes of which some have nothing to send, or which share unevenly."""
    urls, parts = len(target.urls), len(load.workload.parts) or 1
    least = load.requests if load.concurrency is None else min(load.requests, load.concurrency)
    if not urls or shards < 1 or shards % (urls * parts) or least < shards:
        raise error(
            "BENCH-SHARDS",
            f"load {load.key}",
            f"{shards} processes can't send {least} concurrent requests of {parts} parts of"
            f" {load.workload.name} to {urls} addresses in equal shares, a process one part",
        )


def _part(workload: Workload, shard: int, shards: int, urls: int) -> Workload:
    """Return what one shard sends: of a mixed workload the parts in turn, to each address alike."""
    if not workload.parts:
        return workload
    return workload.parts[shard // urls % len(workload.parts)]


def _values(
    load: Load,
    target: Target,
    workload: Workload,
    shard: int,
    shards: int,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the flags are filled with; None leaves a flag out."""
    requests = share(load.requests, shard, shards)
    prefixes = max(1, min(workload.prefixes, requests))
    if workload.kind in facts["whole_prefixes"]:
        requests = math.ceil(requests / prefixes) * prefixes
    mark = facts["mark_tokens"] if workload.input_tokens > facts["mark_tokens"] else 0
    width, height = workload.image_pixels or (0, 0)
    return {
        "url": target.urls[shard % len(target.urls)].rstrip("/"),
        "model": target.model,
        "tokenizer": target.tokenizer,
        "requests": requests,
        "concurrency": None if load.concurrency is None else share(load.concurrency, shard, shards),
        "rate": None if load.request_rate is None else f"{load.request_rate / shards:.10g}",
        "warmups": share(load.warmups, shard, shards) or None,
        "seed": seed_of(load, shard),
        "own": workload.input_tokens - mark,
        "mark": mark,
        "output": workload.output_tokens,
        "prefix": workload.prefix_tokens,
        "suffix": workload.input_tokens - workload.prefix_tokens,
        "prefixes": prefixes,
        "images": workload.images,
        "width": width,
        "height": height,
    }


def _fill(text: str, values: Mapping[str, Any]) -> str:
    """Return a value with each {name} filled in; other braces are the value's own."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text
