# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The refusal of a layout without room, and what to change so that it fits."""

from __future__ import annotations

import bisect
import dataclasses
import math
from dataclasses import dataclass

from ..deployment import Layout, Limits
from ..findings import Finding
from .cache import facts, pages
from .reserve import reserve_bytes
from .types import Architecture
from .weights import Index, checkpoint_bytes, not_loaded, split_of, weights_bytes

GIB = 1024**3
FACTS = "knowledge/models/memory.yml"
_SIZES = (1, 2, 4, 8)  # tensor-parallel sizes that a refusal proposes


@dataclass(frozen=True)
class Asked:
    """What is asked of a GPU's memory; ``vram_bytes`` is one GPU's."""

    architecture: Architecture
    layout: Layout
    limits: Limits
    vram_bytes: int
    index: Index | None = None
    reserve: int | None = None

    def index_counts(self) -> bool:
        """Say whether the index's size is that of what the engine loads."""
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
        """Say whether weights, reserve and one sequence have room, as far as they are known."""
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

    def of(self, layout: Layout | None = None, **limits: float) -> Asked:
        """Return the same with another layout or other limits."""
        changed = dataclasses.replace(self.limits, **limits)  # type: ignore[arg-type]
        return dataclasses.replace(self, layout=layout or self.layout, limits=changed)


def no_room(asked: Asked, weights: int, reserve: int) -> Finding:
    """Return the refusal, naming what is needed, what is there, and what would fit."""
    layout, limits = asked.layout, asked.limits
    needed, length = asked.needed(), asked.length()
    there = limits.gpu_memory_utilization * asked.vram_bytes
    parts = f"{weights / GIB:.1f} GiB weights + {reserve / GIB:.1f} GiB reserve"
    if needed is not None:
        parts += f" + {needed / GIB:.1f} GiB KV cache for one sequence of {length} tokens"
    wanted = weights + reserve + (needed or 0)
    return Finding(
        "FIT-NO-ROOM",
        f"TP{layout.tensor_parallel_size}{' with EP' if layout.expert_parallel else ''}",
        f"needs {wanted / GIB:.1f} GiB per GPU ({parts}), but {limits.gpu_memory_utilization:g} of"
        f" {asked.vram_bytes / GIB:.1f} GiB is {there / GIB:.1f} GiB",
        source=FACTS,
        changes=remedy(asked),
    )


def remedy(asked: Asked) -> str:
    """Return what to change so that a layout without room fits by memory.

    Each field alone that would do, in this order: gpu_memory_utilization, tensor_parallel_size,
    max_model_len; else the first combination of them that does.
    """
    larger = [asked.of(layout) for layout in _larger(asked)]
    share = _least_share(asked)
    sizes = [str(one.layout.tensor_parallel_size) for one in larger if one.fits()]
    length = _longest(asked)
    single = [
        _raise_share(share) if share else "",
        f"set layout.tensor_parallel_size to {' or '.join(sizes)}" if sizes else "",
        _lower_length(length) if length else "",
    ]
    if any(single):
        return ", or ".join(filter(None, single))
    for one in larger:
        share = _least_share(one)
        if share:
            size = one.layout.tensor_parallel_size
            return f"{_raise_share(share)} and set layout.tensor_parallel_size to {size}"
    highest = max(_highest_share(), asked.limits.gpu_memory_utilization)
    most = [one.of(gpu_memory_utilization=highest) for one in (asked, *larger)]
    for one in (most[0], *larger, *most[1:]):
        length = _longest(one)
        if length:
            changes = [_raise_share(highest)] if one in most else []
            if one.layout != asked.layout:
                changes.append(
                    f"set layout.tensor_parallel_size to {one.layout.tensor_parallel_size}"
                )
            return f"{', '.join(changes)} and {_lower_length(length)}"
    return "use GPUs with more memory"


def _raise_share(share: float) -> str:
    return f"raise limits.gpu_memory_utilization to at least {share:g}"


def _lower_length(length: int) -> str:
    return f"lower limits.max_model_len to {length} or less"


def _highest_share() -> float:
    share: float = facts()["highest_utilization"]["value"]
    return share


def _larger(asked: Asked) -> list[Layout]:
    """Return the layouts of more GPUs a replica that the model's heads allow."""
    heads, kv_heads = asked.architecture.heads, asked.architecture.kv_heads
    return [
        dataclasses.replace(asked.layout, tensor_parallel_size=size)
        for size in _SIZES
        if size > asked.layout.tensor_parallel_size
        and heads
        and heads % size == 0
        and not (kv_heads and kv_heads % size and size % kv_heads)
    ]


def _least_share(asked: Asked) -> float | None:
    """Return the least gpu_memory_utilization that fits, in hundredths; None above the highest."""
    first = math.floor(asked.limits.gpu_memory_utilization * 100) + 1
    shares = [percent / 100 for percent in range(first, round(_highest_share() * 100) + 1)]
    index = bisect.bisect_left(
        shares, True, key=lambda share: asked.of(gpu_memory_utilization=share).fits()
    )
    return shares[index] if index < len(shares) else None


def _longest(asked: Asked) -> int | None:
    """Return the longest sequence that has room; None when not even one token has, or unknown."""
    length = asked.length()
    if length is None or not asked.needed():
        return None
    longest = bisect.bisect_left(
        range(1, length + 1), True, key=lambda tokens: not asked.of(max_model_len=tokens).fits()
    )
    return longest or None
