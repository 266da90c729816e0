# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one layout of a model takes up on each GPU, and how many tokens its KV pool holds.

The KV pool is what gpu_memory_utilization leaves after weights and reserve, as in vLLM's own
profiling; the bytes behind it are in knowledge/models/memory.yml.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.model import quantization
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.modules import Module, modules
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import (
    Architecture,
    Memory,
)

GIB = 1024**3
_FACTS = "knowledge/models/memory.yml"
_SIZES = (1, 2, 4, 8)  # tensor-parallel sizes that a refusal proposes


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = knowledge("models/memory.yml")
    return facts


def memory(
    architecture: Architecture, layout: Layout, limits: Limits, vram_bytes: int | None
) -> Memory:
    """Return the bytes per GPU of one engine of ``layout`` and what its KV pool holds.

    ``vram_bytes`` is one GPU's. What is not known is None with the warning FIT-UNKNOWN; a model
    that leaves no room for one sequence of max_model_len tokens is the error FIT-NO-ROOM.
    """
    weights = weights_bytes(architecture, layout)
    kv_bytes = kv_bytes_per_token(architecture, layout, limits.kv_cache_dtype)
    pool = None
    if weights is not None and vram_bytes is not None:
        pool = _pool(weights, limits, vram_bytes)
    length = limits.max_model_len or architecture.max_context
    tokens = sequences = None
    needed = None if length is None else _sequence_bytes(architecture, kv_bytes, length)
    if pool is not None and kv_bytes and needed:
        tokens = max(0, pool) // kv_bytes
        sequences = max(0, pool) / needed
    result = Memory(weights, kv_bytes, pool, tokens, sequences)
    findings = [*_unknown(result, architecture, vram_bytes), *_reserve_note(result)]
    if pool is not None and (pool <= 0 or (needed is not None and pool < needed)):
        findings.append(
            _no_room(architecture, layout, limits, vram_bytes or 0, weights or 0, needed, length)
        )
    return dataclasses.replace(result, findings=tuple(findings))


def _pool(weights: int, limits: Limits, vram_bytes: int) -> int:
    """Return what is left of one GPU for the KV cache; negative when the weights exceed it."""
    reserve: int = _facts()["reserve"]["bytes"]
    return int(limits.gpu_memory_utilization * vram_bytes) - weights - reserve


def weights_bytes(architecture: Architecture, layout: Layout) -> int | None:
    """Return the bytes of weights on each GPU, or None when a dimension or format is unknown."""
    kinds = modules(architecture)
    scheme = (architecture.details or {}).get("quantization")
    quantized = quantization.bytes_per_weight(scheme)
    if kinds is None or quantized is None:
        return None
    plain = quantization.bytes_per_weight(None) or 0
    total = 0.0
    for module in kinds:
        skipped = 1.0
        if scheme is not None and module.names:
            ignored = quantization.ignored_layers(module.names, scheme["ignore"], module.layers)
            skipped = ignored / module.layers
        each = plain * skipped + quantized * (1 - skipped)
        total += module.parameters * _share(module, architecture, layout) * each
        if module.kind == "kv_b":
            # vLLM keeps 16-bit copies of the two absorbed projections made from kv_b.
            total += module.parameters * plain / layout.tensor_parallel_size
    return math.ceil(total)


def _share(module: Module, architecture: Architecture, layout: Layout) -> float:
    """Return the part of a module that lies on each GPU."""
    size = layout.tensor_parallel_size
    if module.sharding == "replicated":
        return 1.0
    if module.sharding == "kv_heads" and architecture.kv_heads:
        return max(1, architecture.kv_heads // size) / architecture.kv_heads
    if module.sharding == "experts" and layout.expert_parallel and architecture.experts:
        return math.ceil(architecture.experts / size) / architecture.experts
    return 1.0 / size


def _layer_kv_bytes(architecture: Architecture, size: int, dtype: str) -> int | None:
    """Return the cache bytes of one token in one attention layer on each GPU."""
    details, facts = architecture.details or {}, _facts()
    value = facts["kv_cache"]["bytes"].get(dtype)
    latent = details.get("kv_lora_rank")
    if latent is None:
        if value is None or architecture.kv_heads is None or architecture.head_dim is None:
            return None
        return int(2 * max(1, architecture.kv_heads // size) * architecture.head_dim * value)
    rope, sparse = details.get("qk_rope_head_dim"), details.get("index_topk") is not None
    if sparse and dtype == "fp8_ds_mla":
        entry = facts["sparse_mla"]["fp8_ds_mla_bytes"]
    elif value is None or rope is None:
        return None
    else:
        entry = (latent + rope) * value  # on every GPU: the latent is not split
    if not sparse:
        return int(entry)
    indexer = details.get("index_head_dim")
    if indexer is None:
        return None
    scale: int = facts["sparse_mla"]["indexer_scale_bytes"]
    return int(entry + indexer + scale)


def kv_bytes_per_token(architecture: Architecture, layout: Layout, dtype: str) -> int | None:
    """Return the cache bytes that each further token takes on each GPU, or None if unknown.

    Only layers that attend fully grow with the sequence; windows and linear state do not.
    """
    layer = _layer_kv_bytes(architecture, layout.tensor_parallel_size, dtype)
    layers = (architecture.details or {}).get("attention_layers")
    return None if layer is None or layers is None else int(layer * layers["full"])


def _sequence_bytes(architecture: Architecture, kv_bytes: int | None, length: int) -> int | None:
    """Return the cache bytes of one whole sequence, windows included; None if unknown.

    The state of linear layers is not counted: vLLM pads its pages by rules not known here.
    """
    details = architecture.details or {}
    layers = details.get("attention_layers")
    if kv_bytes is None or layers is None or layers["linear"] or not layers["full"]:
        return None
    window = details.get("sliding_window")
    if not layers["sliding"]:
        return int(kv_bytes * length)
    if window is None:
        return None
    per_layer = kv_bytes // layers["full"]
    return int(kv_bytes * length + per_layer * layers["sliding"] * min(window, length))


def _unknown(result: Memory, architecture: Architecture, vram_bytes: int | None) -> list[Finding]:
    names = {
        "weights": result.weights_bytes_per_gpu,
        "KV cache bytes per token": result.kv_bytes_per_token_per_gpu,
        "GPU memory": vram_bytes,
        "KV tokens": result.kv_tokens_per_engine,
    }
    unknown = [name for name, value in names.items() if value is None]
    if not unknown:
        return []
    return [
        Finding(
            "FIT-UNKNOWN",
            "warning",
            f"model {architecture.model_type}",
            f"not known: {', '.join(unknown)}; whether the model fits was not checked",
            "check the KV cache size that the engine logs at its first start",
            _FACTS,
        )
    ]


def _reserve_note(result: Memory) -> list[Finding]:
    if result.kv_pool_bytes_per_gpu is None:
        return []
    reserve = _facts()["reserve"]
    return [
        Finding(
            "FIT-RESERVE-ASSUMED",
            "info",
            "memory",
            f"{reserve['bytes'] / GIB:.1f} GiB a GPU are assumed for activations, RCCL and graphs",
            "compare the KV pool with the one that the engine logs",
            reserve["source"],
        )
    ]


def _no_room(
    architecture: Architecture,
    layout: Layout,
    limits: Limits,
    vram_bytes: int,
    weights: int,
    needed: int | None,
    length: int | None,
) -> Finding:
    """Return the refusal, naming what is needed, what is there, and what would fit."""
    there = limits.gpu_memory_utilization * vram_bytes
    reserve = _facts()["reserve"]["bytes"]
    parts = f"{weights / GIB:.1f} GiB weights + {reserve / GIB:.1f} GiB reserve"
    if needed is not None:
        parts += f" + {needed / GIB:.1f} GiB KV cache for one sequence of {length} tokens"
    wanted = weights + reserve + (needed or 0)
    return Finding(
        "FIT-NO-ROOM",
        "error",
        f"TP{layout.tensor_parallel_size}{' with EP' if layout.expert_parallel else ''}",
        f"needs {wanted / GIB:.1f} GiB per GPU ({parts}), but {limits.gpu_memory_utilization:g} of"
        f" {vram_bytes / GIB:.1f} GiB is {there / GIB:.1f} GiB",
        remedy(architecture, layout, limits, vram_bytes),
        _FACTS,
    )


def remedy(architecture: Architecture, layout: Layout, limits: Limits, vram_bytes: int) -> str:
    """Return what to change so that a layout without room fits by memory.

    Each field alone that would do, in this order: gpu_memory_utilization, tensor_parallel_size,
    max_model_len; else the first combination of them that does.
    """
    larger = _larger(architecture, layout)
    share = _least_share(architecture, layout, limits, vram_bytes)
    sizes = [
        str(one.tensor_parallel_size)
        for one in larger
        if _fits(architecture, one, limits, vram_bytes)
    ]
    length = _longest(architecture, layout, limits, vram_bytes)
    single = [
        _raise_share(share) if share else "",
        f"set layout.tensor_parallel_size to {' or '.join(sizes)}" if sizes else "",
        _lower_length(length) if length else "",
    ]
    if any(single):
        return ", or ".join(filter(None, single))
    for one in larger:
        share = _least_share(architecture, one, limits, vram_bytes)
        if share:
            size = one.tensor_parallel_size
            return f"{_raise_share(share)} and set layout.tensor_parallel_size to {size}"
    highest = max(_highest_share(), limits.gpu_memory_utilization)
    most = dataclasses.replace(limits, gpu_memory_utilization=highest)
    pairs = [(layout, most), *((one, limits) for one in larger), *((one, most) for one in larger)]
    for one, share_limits in pairs:
        length = _longest(architecture, one, share_limits, vram_bytes)
        if length:
            changes = [_raise_share(highest)] if share_limits is most else []
            if one is not layout:
                changes.append(f"set layout.tensor_parallel_size to {one.tensor_parallel_size}")
            return f"{', '.join(changes)} and {_lower_length(length)}"
    return "use GPUs with more memory"


def _raise_share(share: float) -> str:
    return f"raise limits.gpu_memory_utilization to at least {share:g}"


def _lower_length(length: int) -> str:
    return f"lower limits.max_model_len to {length} or less"


def _highest_share() -> float:
    share: float = _facts()["highest_utilization"]["value"]
    return share


def _larger(architecture: Architecture, layout: Layout) -> list[Layout]:
    """Return the layouts of more GPUs a replica that the model's heads allow."""
    heads, kv_heads = architecture.heads, architecture.kv_heads
    return [
        dataclasses.replace(layout, tensor_parallel_size=size)
        for size in _SIZES
        if size > layout.tensor_parallel_size
        and heads
        and heads % size == 0
        and not (kv_heads and kv_heads % size and size % kv_heads)
    ]


def _fits(architecture: Architecture, layout: Layout, limits: Limits, vram_bytes: int) -> bool:
    """Say whether weights, reserve and one sequence have room, as far as they are known."""
    weights = weights_bytes(architecture, layout)
    if weights is None:
        return False
    per_token = kv_bytes_per_token(architecture, layout, limits.kv_cache_dtype)
    length = limits.max_model_len or architecture.max_context
    needed = None if length is None else _sequence_bytes(architecture, per_token, length)
    return _pool(weights, limits, vram_bytes) >= max(1, needed or 0)


def _least_share(
    architecture: Architecture, layout: Layout, limits: Limits, vram_bytes: int
) -> float | None:
    """Return the least gpu_memory_utilization that fits, in hundredths; None above the highest."""
    first = math.floor(limits.gpu_memory_utilization * 100) + 1
    shares = [percent / 100 for percent in range(first, round(_highest_share() * 100) + 1)]
    index = bisect.bisect_left(
        shares,
        True,
        key=lambda share: _fits(
            architecture,
            layout,
            dataclasses.replace(limits, gpu_memory_utilization=share),
            vram_bytes,
        ),
    )
    return shares[index] if index < len(shares) else None


def _longest(
    architecture: Architecture, layout: Layout, limits: Limits, vram_bytes: int
) -> int | None:
    """Return the longest sequence that has room; None when not even one token has, or unknown."""
    length = limits.max_model_len or architecture.max_context
    per_token = kv_bytes_per_token(architecture, layout, limits.kv_cache_dtype)
    if length is None or not _sequence_bytes(architecture, per_token, length):
        return None
    longest = bisect.bisect_left(
        range(1, length + 1),
        True,
        key=lambda tokens: (
            not _fits(
                architecture, layout, dataclasses.replace(limits, max_model_len=tokens), vram_bytes
            )
        ),
    )
    return longest or None
