# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's weights by kind of module, and how vLLM lays each kind over the GPUs of an engine.

The splits are those of vLLM's own layers (VocabParallelEmbedding, QKVParallelLinear, FusedMoE, …).
Layers for multi-token prediction are not loaded and not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..documents import knowledge
from .formula import UnknownError, Value, evaluate, scoped
from .types import Architecture

Sharding = Literal[
    "vocabulary", "tensor", "kv_heads", "groups", "experts", "expert_inputs", "replicated", "host"
]


@dataclass(frozen=True)
class Module:
    """One kind of module over all its ``layers``: ``parameters`` in total, and where they go.

    ``names`` are its checkpoint paths with `*` for the layer, as quantization ignore lists write
    them; () for what is never quantized. Sharding: vocabulary, tensor and experts are 1/TP a GPU
    (tensor but for ``parts`` parameters, which each GPU has), kv_heads at least one of ``parts``
    heads a GPU, groups likewise (Mamba 2), replicated a full copy on each, host is in no GPU's
    memory. ``active`` is False for what no text token passes through: lookup tables and experts
    that are not for text. No layer before ``first`` has the module.
    """

    kind: str
    sharding: Sharding
    parameters: int
    layers: int = 1
    names: tuple[str, ...] = ()
    parts: int | None = None
    active: bool = True
    first: int = 0


def modules(architecture: Architecture) -> tuple[Module, ...] | None:
    """Return the modules, or None when a dimension they need is unknown."""
    # Without `vision_parameters` the reader did not understand the type or a tower.
    if "vision_parameters" not in (architecture.details or {}):
        return None
    if _COMPUTED not in vars(architecture):
        try:
            found = tuple(item for item in _all(architecture) if item.parameters)
        except UnknownError:
            found = None
        object.__setattr__(architecture, _COMPUTED, found)
    computed: tuple[Module, ...] | None = vars(architecture)[_COMPUTED]
    return computed


# Every layout of a plan asks for the modules of one architecture, which does not change.
_COMPUTED = "_modules"


def _all(architecture: Architecture) -> Iterator[Module]:
    details, whole = architecture.details or {}, _numbers(architecture, None)
    facts = knowledge("models/layers.yml")
    yield from _stated(facts["ends"], whole, details)
    for kind in ("full", "sliding") if evaluate("plain_attention", whole) else ():
        value = _numbers(architecture, kind)
        for item in _stated(facts["attention"], value, details) if value(kind) else ():
            yield item if kind == "full" else replace(item, kind=f"{item.kind}_{kind}")
    yield from _stated(facts["rest"], whole, details)
    for entry in details["formula_modules"]:
        yield Module(**{**entry, "names": tuple(entry["names"])})
    sharding: Sharding = details.get("vision_sharding") or "tensor"
    own, names = details.get("vision_whole"), tuple(details.get("vision_names") or ())
    yield Module("vision", sharding, details["vision_parameters"], 1, names, own, active=False)


def _stated(
    entries: Iterable[Mapping[str, Any]], value: Value, details: Mapping[str, Any]
) -> Iterator[Module]:
    for entry in entries:
        if applies(entry, value):
            item = module(entry, value)
            names = (f"model.layers.*.{name}".format(**details) for name in item.names)
            yield replace(item, names=tuple(names))


def _numbers(architecture: Architecture, kind: str | None) -> Value:
    """Return what formulas of layers.yml may name; ``kind`` is that of the layers they are of."""
    details = architecture.details or {}
    counts = details.get("attention_layers") or {}
    own = (details.get("attention_dimensions") or {}).get(kind, {})
    shared = (details.get("kv_shared_layers") or {}).get(kind, 0)
    number = counts.get(kind)
    with_kv = number if number is None or details.get("unused_kv") else number - shared
    known = {**vars(architecture), **details, **counts, **own, "number": number, "with_kv": with_kv}

    def value(name: str) -> int:
        function, _space, key = name.partition(" ")
        if function == "given":
            return int(known.get(key) not in (None, False))
        if function == "text":
            return int(known.get(key.split()[0]) == key.split()[1])
        number = known.get(name)
        if number is None:
            raise UnknownError(name)
        return int(number)

    return scoped(knowledge("models/layers.yml")["let"], value)


def applies(entry: Mapping[str, Any], value: Value) -> bool:
    """Return whether a module's entry is of this model."""
    return "if" not in entry or bool(evaluate(entry["if"], value))


def module(entry: Mapping[str, Any], value: Value) -> Module:
    """Return the module that an entry of layers.yml, families.yml or mixers.yml states."""
    layers = evaluate(entry.get("per", "layers"), value)
    return Module(
        entry["kind"],
        entry.get("sharding", "replicated"),
        layers * evaluate(entry["formula"], value),
        layers,
        tuple(entry.get("names", ())),
        evaluate(entry["parts"], value) if "parts" in entry else None,
        entry.get("active", True),
        evaluate(entry.get("first", 0), value),
    )


def total_parameters(architecture: Architecture) -> int | None:
    """Return the parameters that are loaded, without vocabulary padding; None if unknown."""
    kinds = modules(architecture)
    if kinds is None or architecture.vocab_size is None or architecture.hidden_size is None:
        return None
    padding = (-architecture.vocab_size % 64) * architecture.hidden_size
    padded = sum(module.sharding == "vocabulary" for module in kinds)
    return sum(module.parameters for module in kinds) - padded * padding


def active_parameters(architecture: Architecture) -> int | None:
    """Return the parameters that one text token passes through: of the experts only the chosen
    ones, and neither the input embedding table nor the towers; None if unknown.
    """
    total, kinds = total_parameters(architecture), modules(architecture)
    if total is None or kinds is None:
        return None
    idle = sum(module.parameters for module in kinds if not module.active)
    if architecture.experts:
        if architecture.experts_per_token is None:
            return None
        waiting = architecture.experts - architecture.experts_per_token
        routed = sum(item.parameters for item in kinds if item.kind in ("experts", "expert_bias"))
        idle += routed * waiting // architecture.experts
    vocabulary, hidden = architecture.vocab_size or 0, architecture.hidden_size or 0
    return total - idle - vocabulary * hidden
