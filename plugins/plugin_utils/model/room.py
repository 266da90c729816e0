# SPDX-License-Identifier: GPL-3.0-or-later

"""What a GPU keeps free, the refusal of a layout without room, and what would fit instead."""

from __future__ import annotations

import bisect
import dataclasses
import math
from dataclasses import dataclass

from ..deployment import Layout, Limits
from ..findings import Finding
from .cache import facts, pages, step_tokens
from .types import Architecture
from .weights import Index, checkpoint_bytes, not_loaded, split_of, weights_bytes

GIB = 1024**3
FACTS = "knowledge/models/memory.yml"
_SIZES = (1, 2, 4, 8)  # tensor-parallel sizes that a refusal proposes


def reserve_bytes(architecture: Architecture, layout: Layout, limits: Limits) -> int:
    """Return the reserve of one GPU: the assumed least, or more where the largest step needs it."""
    reserve = facts()["reserve"]
    least: int = reserve["bytes"]
    activations = _activation_bytes(architecture, layout, limits)
    return least if activations is None else max(least, reserve["fixed_bytes"] + activations)


def _activation_bytes(architecture: Architecture, layout: Layout, limits: Limits) -> int | None:
    """Return the tensors that are alive at once in the widest layer of the largest step.

    Hidden states in six copies (residual, norm, attention's and the FFN's input and output), the
    widest FFN of a GPU, of experts one row for each chosen one; and 32-bit logits twice.
    """
    details, size = architecture.details or {}, split_of(layout).tensor
    hidden, vocabulary = architecture.hidden_size, architecture.vocab_size
    if hidden is None or vocabulary is None or architecture.experts is None:
        return None
    tokens = step_tokens(architecture, limits)
    sequences = limits.max_num_seqs or facts()["sequences"]["value"]
    dense = details.get("intermediate_size") or 0
    experts = details.get("moe_intermediate_size") or 0
    width = 3 * dense / size
    if architecture.experts:
        part = experts if layout.expert_parallel else experts / size
        width = max(width, (architecture.experts_per_token or 1) * (max(hidden, 2 * part) + part))
    heads = (architecture.heads or 0) * (architecture.head_dim or 0) / size
    value: int = facts()["unquantized_bytes"]["value"]
    return int(tokens * value * (6 * hidden + heads + width) + sequences * vocabulary * 4 * 2)


@dataclass(frozen=True)
class Request:
    """What is to lie in a GPU's memory; ``vram_bytes`` is one GPU's."""

    architecture: Architecture
    layout: Layout
    limits: Limits
    vram_bytes: int
    index: Index | None = None
    reserve: int | None = None

    def index_counts(self) -> bool:
        """Return whether the index's size is that of what the engine loads."""
        return self.index is not None and not not_loaded(self.index, self.architecture)

    def weights(self) -> int | None:
        """Return the bytes of weights on each GPU, by the index's size where that counts.

        Of a model whose modules are not known, the index's size over all GPUs.
        """
        weights = weights_bytes(self.architecture, self.layout)
        if self.index is None:
            return weights
        computed = checkpoint_bytes(self.architecture)
        if weights is None or computed is None:
            return math.ceil(self.index.total_bytes / split_of(self.layout).gpus)
        if not self.index_counts():
            return weights
        return math.ceil(weights * (self.index.total_bytes / computed))

    def pool(self, weights: int, reserve: int) -> int:
        """Return what is left of one GPU for the KV cache; negative if the weights exceed it."""
        share = self.limits.gpu_memory_utilization
        return int(share * self.vram_bytes) - weights - reserve

    def fits(self) -> bool:
        """Return whether weights, reserve and one sequence have room, as far as they are known."""
        weights = self.weights()
        if weights is None:
            return False
        reserve = self.reserve
        if reserve is None:
            reserve = reserve_bytes(self.architecture, self.layout, self.limits)
        return self.pool(weights, reserve) >= max(1, self.needed() or 0)

    def length(self) -> int | None:
        return self.limits.max_model_len or self.architecture.max_context

    def needed(self) -> int | None:
        """Return the KV bytes of one sequence of max_model_len tokens."""
        length = self.length()
        if length is None:
            return None
        page = pages(self.architecture, self.layout, self.limits, length)
        return None if page is None else page.sequence_bytes

    def of(self, layout: Layout | None = None, **limits: float) -> Request:
        """Return the same with another layout or other limits."""
        changed = dataclasses.replace(self.limits, **limits)  # type: ignore[arg-type]  # by their names
        return dataclasses.replace(self, layout=layout or self.layout, limits=changed)


def no_room(request: Request, weights: int, reserve: int) -> Finding:
    """Return the refusal, naming what is needed, what is there, and what would fit."""
    layout, limits = request.layout, request.limits
    needed, length = request.needed(), request.length()
    usable = limits.gpu_memory_utilization * request.vram_bytes
    parts = f"{weights / GIB:.1f} GiB weights + {reserve / GIB:.1f} GiB reserve"
    if needed is not None:
        parts += f" + {needed / GIB:.1f} GiB KV cache for one sequence of {length} tokens"
    total = weights + reserve + (needed or 0)
    return Finding(
        "FIT-NO-ROOM",
        f"TP{layout.tensor_parallel_size}{' with EP' if layout.expert_parallel else ''}",
        f"needs {total / GIB:.1f} GiB per GPU ({parts}), but {limits.gpu_memory_utilization:g} of"
        f" {request.vram_bytes / GIB:.1f} GiB is {usable / GIB:.1f} GiB",
        source=FACTS,
        changes=remedy(request),
    )


def remedy(request: Request) -> str:
    """Return what to change so that a layout without room fits by memory.

    Each field alone that would do, in this order: gpu_memory_utilization, tensor_parallel_size,
    max_model_len; else the first combination of them that does.
    """
    larger = [request.of(layout) for layout in _larger(request)]
    sizes = [str(other.layout.tensor_parallel_size) for other in larger if other.fits()]
    share, length = _least_share(request), _longest(request)
    single = [
        *([_raise_share(share)] if share else ()),
        *([_set_size(" or ".join(sizes))] if sizes else ()),
        *([_lower_length(length)] if length else ()),
    ]
    if single:
        return ", or ".join(single)
    for other in larger:
        share = _least_share(other)
        if share:
            return f"{_raise_share(share)} and {_set_size(other.layout.tensor_parallel_size)}"
    highest = max(facts()["highest_utilization"]["value"], request.limits.gpu_memory_utilization)
    most, *others = [other.of(gpu_memory_utilization=highest) for other in (request, *larger)]
    for other in (most, *larger, *others):
        length = _longest(other)
        if length:
            raised = [] if other in larger else [_raise_share(highest)]
            grown = [] if other is most else [_set_size(other.layout.tensor_parallel_size)]
            return f"{', '.join(raised + grown)} and {_lower_length(length)}"
    return "use GPUs with more memory"


_set_size = "set layout.tensor_parallel_size to {}".format
_raise_share = "raise limits.gpu_memory_utilization to at least {:g}".format
_lower_length = "lower limits.max_model_len to {} or less".format


def _larger(request: Request) -> list[Layout]:
    """Return the layouts of more GPUs a replica that the model's heads allow."""
    heads, kv_heads = request.architecture.heads, request.architecture.kv_heads
    return [
        dataclasses.replace(request.layout, tensor_parallel_size=size)
        for size in _SIZES
        if size > request.layout.tensor_parallel_size
        and heads
        and heads % size == 0
        and not (kv_heads and kv_heads % size and size % kv_heads)
    ]


def _least_share(request: Request) -> float | None:
    """Return the least gpu_memory_utilization that fits, in hundredths; None above the highest."""
    first = math.floor(request.limits.gpu_memory_utilization * 100) + 1
    last = round(facts()["highest_utilization"]["value"] * 100)
    shares = [percent / 100 for percent in range(first, last + 1)]
    index = bisect.bisect_left(
        shares, True, key=lambda share: request.of(gpu_memory_utilization=share).fits()
    )
    return shares[index] if index < len(shares) else None


def _longest(request: Request) -> int | None:
    """Return the longest sequence that has room; None when not even one token has, or unknown."""
    length = request.length()
    if length is None or not request.needed():
        return None
    longest = bisect.bisect_left(
        range(1, length + 1), True, key=lambda tokens: not request.of(max_model_len=tokens).fits()
    )
    return longest or None
