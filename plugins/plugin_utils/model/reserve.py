# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a GPU keeps free of weights and KV cache: activations, communication, captured graphs."""

from __future__ import annotations

from ..deployment import Layout, Limits
from .cache import facts
from .types import Architecture
from .weights import split_of


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
    tokens = limits.max_num_batched_tokens or facts()["batched_tokens"]["value"]
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
