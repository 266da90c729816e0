# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's weights by kind of module, and how vLLM lays each kind over the GPUs of an engine.

The splits are those of vLLM's own layers (VocabParallelEmbedding, QKVParallelLinear, FusedMoE, …).
Layers for multi-token prediction are not loaded and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

Sharding = Literal["vocabulary", "tensor", "kv_heads", "experts", "replicated"]


@dataclass(frozen=True)
class Module:
    """One kind of module over all its ``layers``: ``parameters`` in total, and where they go.

    ``names`` are its checkpoint paths with `*` for the layer, as quantization ignore lists write
    them; () for what is never quantized. Sharding: vocabulary, tensor and experts are 1/TP a GPU,
    kv_heads at least one head a GPU, replicated a full copy on each.
    """

    kind: str
    sharding: Sharding
    parameters: int
    layers: int = 1
    names: tuple[str, ...] = ()


class _UnknownError(Exception):
    """A dimension that the formulas need is not known."""


class _Dimensions:
    """The architecture's numbers; reading an unknown one raises _UnknownError."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._details = architecture.details or {}

    def __getattr__(self, name: str) -> Any:
        value = self._details.get(name, getattr(self._architecture, name, None))
        if value is None:
            raise _UnknownError(name)
        return value

    def optional(self, name: str) -> Any:
        return self._details.get(name)


def modules(architecture: Architecture) -> tuple[Module, ...] | None:
    """Return the modules, or None when a dimension they need is unknown."""
    # Without `vision_parameters` the reader did not understand the type or the vision tower.
    if "vision_parameters" not in (architecture.details or {}):
        return None
    dimensions = _Dimensions(architecture)
    try:
        return tuple(module for module in _all(dimensions) if module.parameters)
    except _UnknownError:
        return None


def _all(d: _Dimensions) -> Iterator[Module]:
    yield Module("embedding", "vocabulary", _padded(d.vocab_size) * d.hidden_size)
    if not d.tie_word_embeddings:
        yield Module("lm_head", "vocabulary", _padded(d.vocab_size) * d.hidden_size)
    if d.optional("kv_lora_rank") is not None:
        yield from _latent_attention(d)
    else:
        yield from _attention(d)
    if d.attention_layers["linear"]:
        yield from _linear_attention(d)
    if d.dense_layers:
        size = 3 * d.hidden_size * d.intermediate_size
        names = tuple(f"model.layers.*.mlp.{part}_proj" for part in ("gate", "up", "down"))
        yield Module("ffn", "tensor", d.dense_layers * size, d.dense_layers, names)
        if d.optional("ffn_bias"):
            bias = 2 * d.intermediate_size + d.hidden_size
            yield Module("ffn_bias", "tensor", d.dense_layers * bias)
    if d.moe_layers:
        yield from _experts(d)
    norms = d.layers * d.norms_per_layer * d.hidden_size + d.hidden_size
    yield Module("norms", "replicated", norms)
    yield Module("vision", "tensor", d.vision_parameters)


def _padded(vocabulary: int) -> int:
    """vLLM pads the vocabulary to a multiple of 64 before it splits it."""
    return -(-vocabulary // 64) * 64


def _attention(d: _Dimensions) -> Iterator[Module]:
    layers = d.attention_layers["full"] + d.attention_layers["sliding"]
    queries, keys = d.heads * d.head_dim, d.kv_heads * d.head_dim
    gate = 2 if d.optional("output_gate") else 1
    prefix = "model.layers.*.self_attn."
    query_names = (prefix + "q_proj", prefix + "qkv_proj")
    kv_names = (prefix + "k_proj", prefix + "qkv_proj")
    yield Module("q", "tensor", layers * d.hidden_size * queries * gate, layers, query_names)
    yield Module("kv", "kv_heads", layers * 2 * d.hidden_size * keys, layers, kv_names)
    yield Module("o", "tensor", layers * queries * d.hidden_size, layers, (prefix + "o_proj",))
    if d.qkv_bias:
        yield Module("q_bias", "tensor", layers * queries)
        yield Module("kv_bias", "kv_heads", layers * 2 * keys)
    if d.output_bias:
        yield Module("o_bias", "replicated", layers * d.hidden_size)
    if d.optional("sinks"):
        yield Module("sinks", "tensor", layers * d.heads)
    norm = {"head": 2 * d.head_dim, "layer": queries + keys}.get(d.optional("qk_norm") or "", 0)
    yield Module("qk_norm", "replicated", layers * norm)


def _latent_attention(d: _Dimensions) -> Iterator[Module]:
    layers, hidden, prefix = d.layers, d.hidden_size, "model.layers.*.self_attn."
    nope, rope, value = d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim
    sparse = d.optional("index_topk")  # its indexer reads the low-rank queries
    latent, low_rank = d.kv_lora_rank, d.q_lora_rank if sparse else d.optional("q_lora_rank")

    def module(kind: str, sharding: Sharding, size: int, *names: str) -> Module:
        return Module(kind, sharding, layers * size, layers, tuple(prefix + name for name in names))

    if low_rank:
        yield module("q_a", "replicated", hidden * low_rank, "q_a_proj")
        yield module("q_b", "tensor", low_rank * d.heads * (nope + rope), "q_b_proj")
    else:
        yield module("q", "tensor", hidden * d.heads * (nope + rope), "q_proj")
    yield module("kv_a", "replicated", hidden * (latent + rope), "kv_a_proj_with_mqa")
    yield module("kv_b", "tensor", latent * d.heads * (nope + value), "kv_b_proj")
    yield module("o", "tensor", d.heads * value * hidden, "o_proj")
    yield module("latent_norms", "replicated", latent + (low_rank or 0))
    if sparse:
        heads, size = d.index_n_heads, d.index_head_dim
        yield module("indexer_q", "replicated", low_rank * heads * size, "indexer.wq_b")
        yield module("indexer_k", "replicated", hidden * size, "indexer.wk")
        yield module("indexer_weights", "replicated", hidden * heads + 2 * size)


def _linear_attention(d: _Dimensions) -> Iterator[Module]:
    """Gated DeltaNet."""
    layers, hidden, prefix = d.attention_layers["linear"], d.hidden_size, "linear_attn."
    value_heads = d.linear_num_value_heads
    keys = d.linear_num_key_heads * d.linear_key_head_dim
    values = value_heads * d.linear_value_head_dim

    def module(kind: str, size: int, *names: str) -> Module:
        paths = tuple(f"model.layers.*.{prefix}{name}" for name in names)
        return Module(kind, "tensor", layers * size, layers, paths)

    yield module("linear_qkvz", hidden * 2 * (keys + values), "in_proj_qkvz", "in_proj_qkv")
    yield module("linear_ba", hidden * 2 * value_heads, "in_proj_ba", "in_proj_b")
    yield module("linear_conv", d.linear_conv_kernel_dim * (2 * keys + values))
    yield module("linear_o", values * hidden, "out_proj")
    yield module("linear_state", 2 * value_heads + d.linear_value_head_dim)


def _experts(d: _Dimensions) -> Iterator[Module]:
    layers, hidden, experts = d.moe_layers, d.hidden_size, d.experts
    width, shared = d.moe_intermediate_size, d.shared_expert_intermediate_size
    prefix = f"model.layers.*.{d.moe_module}."
    parts = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
    names = tuple(f"{prefix}experts.*.{part}" for part in parts)
    yield Module("experts", "experts", layers * experts * 3 * hidden * width, layers, names)
    if d.expert_bias:
        yield Module("expert_bias", "experts", layers * experts * (2 * width + hidden))
    router = hidden * experts + (experts if d.router_bias else 0)
    yield Module("router", "replicated", layers * router)
    if shared:
        names = tuple(
            f"{prefix}{module}.{part}"
            for module in ("shared_experts", "shared_expert")
            for part in parts[:3]
        )
        yield Module("shared_expert", "tensor", layers * 3 * hidden * shared, layers, names)
    if shared and d.shared_expert_gate:
        yield Module("shared_expert_gate", "replicated", layers * hidden)


def total_parameters(architecture: Architecture) -> int | None:
    """Return the parameters that are loaded, without vocabulary padding; None if unknown."""
    kinds = modules(architecture)
    if kinds is None or architecture.vocab_size is None or architecture.hidden_size is None:
        return None
    padding = (
        _padded(architecture.vocab_size) - architecture.vocab_size
    ) * architecture.hidden_size
    padded = sum(module.sharding == "vocabulary" for module in kinds)
    return sum(module.parameters for module in kinds) - padded * padding


def active_parameters(architecture: Architecture) -> int | None:
    """Return the parameters that one text token passes through: of the experts only the chosen
    ones, and neither the input embedding table nor the vision tower; None if unknown.
    """
    total, kinds = total_parameters(architecture), modules(architecture)
    if total is None or kinds is None:
        return None
    size = {module.kind: module.parameters for module in kinds}
    idle = 0
    if architecture.experts:
        if architecture.experts_per_token is None:
            return None
        waiting = architecture.experts - architecture.experts_per_token
        routed = size.get("experts", 0) + size.get("expert_bias", 0)
        idle = routed * waiting // architecture.experts
    vocabulary, hidden = architecture.vocab_size or 0, architecture.hidden_size or 0
    return total - idle - size.get("vision", 0) - vocabulary * hidden
