# SPDX-License-Identifier: GPL-3.0-or-later

"""What one layout of a model takes up on each GPU, and how many sequences its KV pool holds.

The KV pool is what gpu_memory_utilization leaves after weights and reserve, as in vLLM's own
profiling; the bytes behind it are in knowledge/models/memory.yml.
"""

from __future__ import annotations

import dataclasses

from ..deployment import Layout, Limits
from ..findings import Finding
from . import quantization
from .cache import facts, kv_bytes_per_token, pages, step_tokens
from .room import FACTS, GIB, Request, no_room, reserve_bytes
from .types import Architecture, Memory
from .weights import Index, by_module, checkpoint_bytes, not_loaded, split_of

__all__ = ["GIB", "memory", "quantized_online"]


def memory(
    architecture: Architecture,
    layout: Layout,
    limits: Limits,
    vram_bytes: int | None,
    sequence_length: int | None = None,
    index: Index | None = None,
    reserve: int | None = None,
) -> Memory:
    """Return the bytes per GPU of one engine of ``layout`` and what its KV pool holds.

    ``vram_bytes`` is one GPU's. ``sequence_length`` counts sequences shorter than max_model_len;
    ``index`` is the checkpoint's own, whose size is preferred to the formulas'; ``reserve`` is a
    measured one. What is not known is None with the warning FIT-UNKNOWN; a model that leaves no
    room for one sequence of max_model_len tokens is the error FIT-NO-ROOM.
    """
    request = Request(architecture, layout, limits, vram_bytes or 0, index, reserve)
    weights, source, notes = _weights(request)
    reserved = reserve_bytes(architecture, layout, limits) if reserve is None else reserve
    longest = limits.max_model_len or architecture.max_context
    length = sequence_length or longest
    pool = None if weights is None or vram_bytes is None else request.pool(weights, reserved)
    kv_bytes = kv_bytes_per_token(architecture, layout, limits.kv_cache_dtype)
    page = None if length is None else pages(architecture, layout, limits, length)
    sequences = tokens = None
    engines = split_of(layout).data
    if pool is not None and page is not None and kv_bytes is not None and page.sequence_bytes:
        fitting = max(0, pool) // page.block_bytes * engines / page.blocks_per_sequence
        uniform = page.block_bytes == kv_bytes
        sequences = max(0, pool) * engines / page.sequence_bytes if uniform else fitting
        tokens = max(0, pool) // kv_bytes * engines if uniform else int(fitting * (length or 0))
    split = None if source == "index_only" else by_module(architecture, layout)
    result = Memory(
        weights_bytes_per_gpu=weights,
        kv_bytes_per_token_per_gpu=kv_bytes,
        kv_pool_bytes_per_gpu=pool,
        kv_tokens_per_engine=tokens,
        max_sequences=sequences,
        reserve_bytes_per_gpu=None if pool is None else reserved,
        sequence_length=length,
        sequence_bytes_per_gpu=page.sequence_bytes if page else None,
        state_bytes_per_sequence_per_gpu=page.state_bytes if page and page.state_bytes else None,
        kv_tokens_per_host=None if tokens is None else tokens * layout.replicas,
        max_sequences_per_host=None if sequences is None else sequences * layout.replicas,
        gpus_per_engine=split_of(layout).gpus,
        weights_source=source,
        modules=split or (),
    )
    findings = [
        *notes,
        *_unknown(result, architecture, vram_bytes),
        *_reserve_note(result, step_tokens(architecture, limits), reserve is not None),
    ]
    needed = None if longest is None else pages(architecture, layout, limits, longest)
    if pool is not None and (pool <= 0 or (needed and pool < needed.sequence_bytes)):
        findings.append(no_room(request, weights or 0, reserved))
    return dataclasses.replace(result, findings=tuple(findings))


def _weights(request: Request) -> tuple[int | None, str | None, list[Finding]]:
    """Return the bytes of weights on each GPU, where they are from, and what is noted of that."""
    architecture, index = request.architecture, request.index
    weights = request.weights()
    if weights is None or index is None:
        return weights, None if weights is None else "formula", []

    def note(code: str, message: str) -> list[Finding]:
        return [Finding(code, f"model {architecture.model_type}", message, source=FACTS)]

    computed, whole = checkpoint_bytes(architecture), index.total_bytes
    if computed is None:
        message = (
            f"the modules are not known; the index's {whole / GIB:.1f} GiB are taken to split"
            f" evenly over {split_of(request.layout).gpus} GPUs, which is the least that each can"
            " hold"
        )
        return weights, "index_only", note("FIT-INDEX-ONLY", message)
    difference = whole / computed - 1
    sizes = (
        f"the index has {whole / GIB:.1f} GiB of tensors, the config {computed / GIB:.1f} GiB"
        f" ({difference:+.1%})"
    )
    if not request.index_counts():
        message = (
            f"{sizes}; {not_loaded(index, architecture)} of its tensors are for multi-token"
            " prediction and are not loaded, so the config's modules count"
        )
        return weights, "formula", note("FIT-INDEX-MTP", message)
    agree = abs(difference) <= facts()["index_agreement"]["value"]
    message = f"{sizes}; the index counts"
    return weights, "index", [] if agree else note("FIT-INDEX-DIFFERS", message)


def quantized_online(architecture: Architecture, method: str) -> Architecture:
    """Return the model as `--quantization METHOD` loads it: 16-bit weights made smaller.

    A checkpoint that is quantized already stays as it is; an unknown method leaves the bytes
    unknown.
    """
    if architecture.quantization is not None:
        return architecture
    scheme = quantization.online(method) or {**quantization.UNKNOWN, "method": method}
    details = {**(architecture.details or {}), "quantization": scheme}
    return dataclasses.replace(architecture, quantization=method, details=details)


def _unknown(result: Memory, architecture: Architecture, vram_bytes: int | None) -> list[Finding]:
    values = {
        "weights": result.weights_bytes_per_gpu,
        "KV cache bytes per token": result.kv_bytes_per_token_per_gpu,
        "GPU memory": vram_bytes,
        "KV tokens": result.kv_tokens_per_engine,
    }
    names = ", ".join(name for name, value in values.items() if value is None)
    message = f"not known: {names}; whether the model fits was not checked"
    subject = f"model {architecture.model_type}"
    return [Finding("FIT-UNKNOWN", subject, message, source=FACTS)] if names else []


def _reserve_note(result: Memory, tokens: int, measured: bool) -> list[Finding]:
    if result.reserve_bytes_per_gpu is None or measured:
        return []
    message = (
        f"{result.reserve_bytes_per_gpu / GIB:.1f} GiB a GPU are assumed for activations of"
        f" {tokens} tokens, RCCL and graphs"
    )
    source = facts()["reserve"]["source"]
    return [Finding("FIT-RESERVE-ASSUMED", "memory", message, source=source)]
