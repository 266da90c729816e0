# SPDX-License-Identifier: GPL-3.0-or-later

"""The attention backend that vLLM will choose, by its own platform's lists (attention.yml)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from .conditions import Condition, Fact, Span, as_number, holding, lookup, order, parse, read_span

RULE = "VLLM-BACKEND"
# Where a backend can be named, newest place first.
_NAMED = ("flag attention_backend", "flag attention_config.backend", "env VLLM_ATTENTION_BACKEND")
_CONNECTORS = ("flag kv_offloading_size", "flag kv_transfer_config")


@dataclass(frozen=True)
class Choice:
    """What vLLM chooses: ``backend`` (None: not known, or none), or why it finds none.

    ``refuses`` is backend, head_dim, kv_cache_dtype, block_size, sinks, gpu or connector, `none`
    where one is found, None where that is not known; ``note`` says it in words.
    """

    backend: str | None = None
    refuses: str | None = None
    note: str = ""
    because: str = ""


@dataclass(frozen=True)
class _Selection:
    versions: Span
    attention: tuple[str, ...]
    explicit: str
    allowed: tuple[str, ...]
    check: bool
    order: tuple[tuple[str, Condition], ...]
    because: str


@functools.cache
def _selections() -> tuple[_Selection, ...]:
    return tuple(
        _Selection(
            versions=read_span(entry.get("versions")),
            attention=tuple(entry["attention"]),
            explicit=entry["explicit"],
            allowed=tuple(entry.get("allowed", ())),
            check=entry.get("check", False),
            order=tuple((item["backend"], parse(item.get("when", {}))) for item in entry["order"]),
            because=entry["because"],
        )
        for entry in knowledge("vllm/attention.yml")["selection"]
    )


def choose(facts: Mapping[str, Fact]) -> Choice:
    """Return vLLM's choice for a model on its GPU, given all elements of the command."""
    version, attention = str(facts["version"]), facts.get("attention")
    dense = facts.get("model_type") in knowledge("vllm/attention.yml")["dense"]
    if dense or (attention == "hybrid" and facts.get("latent")):  # its layers that attend at all
        block = {} if dense else {"flag block_size": ""}  # vLLM sets it to hold the state
        attention = "mla"
        facts = {**facts, "attention": attention, **block}
    own = _own(facts, version)
    if own is not None and not own.get("beside"):
        return Choice(own["backend"], "none", because=own["because"])
    choice = _listed(facts, version, attention)
    if own is None or choice.backend is None:
        return choice
    both = ", ".join(sorted({own["backend"], choice.backend}))
    return dataclasses.replace(choice, backend=both, because=own["because"])


def _own(facts: Mapping[str, Fact], version: str) -> Mapping[str, Any] | None:
    """Return the backend that the model's own code takes, where there is one."""
    own = knowledge("vllm/attention.yml")["own"] if facts.get("gfx") is not None else ()
    return next(holding(own, version, facts), None)


def _listed(facts: Mapping[str, Fact], version: str, attention: Fact) -> Choice:
    """Return the choice by the platform's lists."""
    selection = next(
        (
            item
            for item in _selections()
            if attention in item.attention and item.versions.covers(version)
        ),
        None,
    )
    # With VLLM_USE_V1=0 the oldest versions run another engine with backends of its own.
    if selection is None or facts.get("gfx") is None or lookup(facts, "env VLLM_USE_V1") == "0":
        return Choice()
    named = next((str(facts[name]).upper() for name in _NAMED if lookup(facts, name)), None)
    if named is not None and selection.explicit != "ignored":
        return _named(named, selection, facts, version)
    first: tuple[str, str] | None = None
    for backend, condition in selection.order:
        there = condition.holds(facts)
        if there is None:
            return Choice()
        if not there:
            continue
        problem = _problem(backend, facts, version) if selection.check else None
        if problem is None:
            return Choice(backend, "none", because=selection.because)
        first = first or problem
    kind, words = first or ("backend", "none is switched on")
    return Choice(None, kind, words)


def _named(named: str, selection: _Selection, facts: Mapping[str, Fact], version: str) -> Choice:
    because = "the command names it"
    if selection.explicit == "taken":
        if named in selection.allowed:
            return Choice(named, "none", because=because)
        return Choice(None, "backend", f"{named} is not for {facts['attention']} attention on ROCm")
    data = knowledge("vllm/attention.yml")
    if named in data["others"]:
        return Choice()
    if named not in data["capabilities"]:
        return Choice(None, "backend", f"{named} is not for ROCm")
    problem = _problem(named, facts, version)
    if problem is None:
        return Choice(named, "none", because=because)
    return Choice(None, *problem)


def _problem(backend: str, facts: Mapping[str, Fact], version: str) -> tuple[str, str] | None:
    """Return why a backend cannot serve the model, as vLLM's own question; None if it can.

    What is not known is taken to be no obstacle.
    """
    can = _capabilities(backend, version)
    return None if can is None else next(_problems(backend, can, facts, version), None)


@functools.cache
def _capabilities(backend: str, version: str) -> Mapping[str, Any] | None:
    current = None
    for state in knowledge("vllm/attention.yml")["capabilities"].get(backend, ()):
        if order(version) >= order(state["from"]):
            current = state
    return current


def _problems(
    backend: str, can: Mapping[str, Any], facts: Mapping[str, Fact], version: str
) -> Iterator[tuple[str, str]]:
    data = knowledge("vllm/attention.yml")
    latent = facts["attention"] in ("mla", "sparse_mla")
    sparse = facts["attention"] == "sparse_mla"
    if can["mla"] != latent or can.get("sparse", False) != sparse:
        yield "backend", f"{backend} is not for {facts['attention']} attention"
    dim, dims = facts.get("head_dim"), can.get("head_dims")
    if isinstance(dim, int) and not latent and dims is not None and not _takes(dim, dims):
        yield "head_dim", f"{backend} has no kernel for heads of {dim} columns"
    dtype = lookup(facts, "flag kv_cache_dtype")
    if dtype in ("", "auto"):
        dtype = facts.get("checkpoint_kv_dtype") or dtype
    if dtype is not None and (dtype or "auto") not in can["kv"]:
        yield "kv_cache_dtype", f"{backend} does not take the KV cache format {dtype}"
    size = as_number(lookup(facts, "flag block_size"))
    asked = order(version) >= order(data["block_asked_from"])
    if asked and size is not None and all(size % step for step in can["block"]):
        steps = " or ".join(map(str, can["block"]))
        yield "block_size", f"{backend} takes KV blocks in multiples of {steps}, not {size:g}"
    if facts.get("sinks") and not can["sinks"]:
        yield "sinks", f"{backend} has no attention sinks"
    if any(lookup(facts, name) for name in _CONNECTORS) and not can["connector"]:
        yield "connector", f"{backend} does not go with KV offload or transfer"
    if facts.get("model_type") in data["mm_prefix"] and not can["mm_prefix"]:
        yield "backend", f"{backend} does not let image tokens attend to each other"
    if "gfx" in can and facts["gfx"] not in can["gfx"]:
        yield "gpu", f"{backend} has no kernels for {facts['gfx']}"


def _takes(dim: int, dims: Any) -> bool:
    return bool(dim >= dims["min"]) if isinstance(dims, Mapping) else dim in dims
