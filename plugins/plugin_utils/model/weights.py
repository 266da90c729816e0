# SPDX-License-Identifier: GPL-3.0-or-later

"""The weights on each GPU of a layout, by kind of module, from formulas or a safetensors index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..deployment import Layout
from ..documents import is_whole
from ..findings import error
from . import quantization
from .modules import Module, modules
from .types import Architecture, ModuleMemory


@dataclass(frozen=True)
class Split:
    """How one engine spreads a model: ``tensor`` × ``pipeline`` × ``data`` GPUs."""

    tensor: int
    pipeline: int
    data: int
    whole_experts: bool

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


def split_of(layout: Layout) -> Split:
    """Return how an engine is split; by pipeline and data parallelism where a layout has them."""
    return Split(
        layout.tensor_parallel_size,
        int(getattr(layout, "pipeline_parallel_size", None) or 1),
        int(getattr(layout, "data_parallel_size", None) or 1),
        layout.expert_parallel,
    )


@dataclass(frozen=True)
class Index:
    """What a model.safetensors.index.json says: bytes of all tensors, and their names."""

    total_bytes: int
    names: tuple[str, ...]


def read_index(data: Any, subject: str) -> Index:
    """Return a parsed safetensors index; raises ApiaryError MODEL-BAD-INDEX."""
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    weights = data.get("weight_map") if isinstance(data, Mapping) else None
    if not is_whole(size) or size <= 0 or not isinstance(weights, Mapping) or not weights:
        raise error(
            "MODEL-BAD-INDEX", subject, "has no metadata.total_size above 0 with a weight_map"
        )
    return Index(size, tuple(str(name) for name in weights))


def share(module: Module, architecture: Architecture, split: Split) -> float:
    """Return the part of a module that lies on each GPU of its pipeline stage."""
    size = split.tensor
    if module.sharding in ("host", "replicated"):  # replicas by data parallelism share tables
        return 1.0 if module.sharding == "replicated" else 1.0 / (size * split.data)
    if module.sharding == "kv_heads" and module.parts:
        return max(1, module.parts // size) / module.parts
    if module.sharding == "groups" and module.parts:
        # vLLM copies groups so that each GPU has those of its heads.
        groups = module.parts if module.parts % size == 0 else size
        return groups / size / module.parts
    if module.sharding == "tensor" and module.parts:
        return 1.0 / size + module.parts / module.parameters * (1 - 1 / size)
    if module.sharding == "expert_inputs" and not split.whole_experts:
        return 1.0
    if module.sharding in ("experts", "expert_inputs") and architecture.experts:
        ranks = size * split.data
        if split.whole_experts:
            return math.ceil(architecture.experts / ranks) / architecture.experts
        return 1.0 / ranks
    return 1.0 / size


def _padding(architecture: Architecture, split: Split) -> float:
    """Return what experts grow by, because their kernels take columns in whole steps only.

    `expert_steps` is set where the engine is known (engine/facts.py).
    """
    details = architecture.details or {}
    steps, width = details.get("expert_steps"), details.get("moe_intermediate_size")
    hidden = details.get("expert_input_size") or architecture.hidden_size
    if not steps or not width or not hidden:
        return 1.0
    part = width if split.whole_experts else width / split.tensor
    step: int = steps["small"] if part <= steps.get("small_until", 0) else steps["width"]
    if "common" in steps and math.gcd(math.ceil(part), step, hidden) >= steps["common"]:
        return 1.0
    rows: int = math.ceil(hidden / steps.get("hidden", 1)) * steps.get("hidden", 1)
    return float(math.ceil(part / step) * step / part * rows / hidden)


def by_module(architecture: Architecture, layout: Layout) -> tuple[ModuleMemory, ...] | None:
    """Return every kind of module with its bytes on the fullest GPU; None if one is unknown.

    Pipeline stages: layers are dealt out evenly, rounded up; of the embedding on the first stage
    and the output layer on the last, the larger counts.
    """
    kinds, split = modules(architecture), split_of(layout)
    if kinds is None:
        return None
    layers = architecture.layers or 1
    stage = math.ceil(layers / split.pipeline) / layers
    scheme = (architecture.details or {}).get("quantization")
    plain = quantization.plain_bytes()
    ends = _lighter_ends(kinds) if split.pipeline > 1 else frozenset()
    dimensions = (architecture.details or {}).get("attention_dimensions") or {}
    values_are_keys = dimensions.get("full", {}).get("values_are_keys")
    result = []
    for module in kinds:
        each = quantization.module_bytes(scheme, module.names, module.layers, module.first)
        if each is None:
            return None
        size = module.parameters * share(module, architecture, split) * each
        if module.sharding == "experts":
            size *= _padding(architecture, split)
        if module.kind == "kv_b":
            # vLLM keeps 16-bit copies of the two absorbed projections made from kv_b.
            size += module.parameters * plain / split.tensor
        if module.kind == "kv" and values_are_keys:
            size *= 2  # vLLM loads the keys' projection as that of the values, too
        if module.kind in ends:
            size = 0.0
        elif module.kind not in _ENDS:
            size *= stage
        result.append(
            ModuleMemory(module.kind, module.sharding, module.parameters, math.ceil(size))
        )
    return tuple(result)


_ENDS = ("embedding", "vision", "lm_head")


def _lighter_ends(kinds: tuple[Module, ...]) -> frozenset[str]:
    """Return what is not on the fuller of the first and the last pipeline stage."""
    size = {module.kind: module.parameters for module in kinds}
    first = size.get("embedding", 0) + size.get("vision", 0)
    last = size.get("lm_head", size.get("embedding", 0))  # a tied table is on both
    return frozenset(("lm_head",) if first >= last else ("embedding", "vision"))


def weights_bytes(architecture: Architecture, layout: Layout) -> int | None:
    """Return the bytes of weights on each GPU, or None when a dimension or format is unknown."""
    found = by_module(architecture, layout)
    return None if found is None else sum(m.bytes_per_gpu for m in found if m.sharding != "host")


def checkpoint_bytes(architecture: Architecture) -> int | None:
    """Return the bytes of the tensors on disk that the engine loads; None if unknown."""
    kinds = modules(architecture)
    scheme = (architecture.details or {}).get("quantization")
    if kinds is None or architecture.hidden_size is None or architecture.vocab_size is None:
        return None
    total = 0.0
    for module in kinds:
        each = quantization.module_bytes(scheme, module.names, module.layers, module.first)
        if each is None:
            return None
        number = module.parameters
        if module.kind in ("embedding", "lm_head"):  # padded only once it is loaded
            number = architecture.vocab_size * architecture.hidden_size
        total += number * each
    return math.ceil(total)


def not_loaded(index: Index, architecture: Architecture) -> int:
    """Return how many tensors of an index belong to layers for multi-token prediction."""
    layers = architecture.layers or 0

    def later(name: str) -> bool:
        parts = name.split(".")
        numbers = [parts[at + 1] for at, part in enumerate(parts[:-1]) if part == "layers"]
        outer = next((int(number) for number in numbers if number.isdecimal()), -1)
        return outer >= layers > 0 or "mtp" in parts

    return sum(map(later, index.names))
