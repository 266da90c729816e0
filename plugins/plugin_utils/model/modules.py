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

from .types import Architecture

Sharding = Literal["vocabulary", "tensor", "kv_heads", "groups", "experts", "replicated"]


@dataclass(frozen=True)
class Module:
    """One kind of module over all its ``layers``: ``parameters`` in total, and where they go.

    ``names`` are its checkpoint paths with `*` for the layer, as quantization ignore lists write
    them; () for what is never quantized. Sharding: vocabulary, tensor and experts are 1/TP a GPU,
    kv_heads at least one of ``parts`` heads a GPU, groups likewise (Mamba 2), replicated a full
    copy on each. ``active`` is False for what no text token passes through: lookup tables and
    experts that are not for text.
    """

    kind: str
    sharding: Sharding
    parameters: int
    layers: int = 1
    names: tuple[str, ...] = ()
    parts: int | None = None
    active: bool = True


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
    # Without `vision_parameters` the reader did not understand the type or a tower.
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
    if d.optional("attention_in_extra"):
        pass  # families.yml has it in `extra`
    elif d.optional("kv_lora_rank") is not None:
        yield from _latent_attention(d)
    else:
        for kind in ("full", "sliding"):
            yield from _attention(d, kind)
    if d.dense_layers:
        yield from _dense_ffn(d)
    if d.moe_layers:
        yield from _experts(d)
    size = d.hidden_size * (2 if d.optional("norm_bias") else 1)
    norms = d.layers * d.norms_per_layer * size + (size if d.final_norm else 0)
    yield Module("norms", "replicated", norms)
    for entry in d.formula_modules:
        yield Module(**{**entry, "names": tuple(entry["names"])})
    yield Module("vision", "tensor", d.vision_parameters, active=False)


def _padded(vocabulary: int) -> int:
    """vLLM pads the vocabulary to a multiple of 64 before it splits it."""
    return -(-vocabulary // 64) * 64


def _attention(d: _Dimensions, kind: str) -> Iterator[Module]:
    """Grouped-query attention of the layers of one kind, which may have heads of their own."""
    layers = d.attention_layers[kind]
    if not layers:
        return
    own = (d.optional("attention_dimensions") or {}).get(kind, {})
    heads, kv_heads = own.get("heads") or d.heads, own.get("kv_heads") or d.kv_heads
    size = own.get("head_dim") or d.head_dim
    value_size = own.get("v_head_dim") or d.optional("v_head_dim") or size
    shared = (d.optional("kv_shared_layers") or {}).get(kind, 0)
    width, keys = heads * size, kv_heads * size
    value_keys = 0 if own.get("values_are_keys") else kv_heads * value_size
    gate = 2 if d.optional("output_gate") else 1
    prefix = "model.layers.*.self_attn."

    def module(name: str, sharding: Sharding, number: int, size: int, *names: str) -> Module:
        label = name if kind == "full" else f"{name}_{kind}"
        paths = tuple(prefix + one for one in names)
        return Module(label, sharding, number * size, number, paths, kv_heads)

    with_kv = layers - shared
    yield module("q", "tensor", layers, d.hidden_size * width * gate, "q_proj", "qkv_proj")
    kv_size = d.hidden_size * (keys + value_keys)
    yield module("kv", "kv_heads", with_kv, kv_size, "k_proj", "qkv_proj")
    yield module("o", "tensor", layers, heads * value_size * d.hidden_size, "o_proj")
    if d.qkv_bias:
        yield module("q_bias", "tensor", layers, width)
        yield module("kv_bias", "kv_heads", with_kv, keys + value_keys)
    if d.output_bias:
        yield module("o_bias", "replicated", layers, d.hidden_size)
    if d.optional("sinks"):
        yield module("sinks", "tensor", layers, heads)
    norms = {"head": (size, size), "layer": (width, keys)}.get(d.optional("qk_norm") or "", (0, 0))
    yield module("qk_norm", "replicated", 1, layers * norms[0] + with_kv * norms[1])


def _latent_attention(d: _Dimensions) -> Iterator[Module]:
    layers, hidden = d.attention_layers["full"] + d.attention_layers["sliding"], d.hidden_size
    prefix = "model.layers.*.self_attn."
    nope, rope, value = d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim
    sparse = d.optional("index_topk")  # its indexer reads the low-rank queries
    latent, low_rank = d.kv_lora_rank, d.q_lora_rank if sparse else d.optional("q_lora_rank")

    def module(
        kind: str, sharding: Sharding, size: int, *names: str, number: int = layers
    ) -> Module:
        return Module(kind, sharding, number * size, number, tuple(prefix + name for name in names))

    if low_rank:
        yield module("q_a", "replicated", hidden * low_rank, "q_a_proj")
        yield module("q_b", "tensor", low_rank * d.heads * (nope + rope), "q_b_proj")
    else:
        yield module("q", "tensor", hidden * d.heads * (nope + rope), "q_proj")
    yield module("kv_a", "replicated", hidden * (latent + rope), "kv_a_proj_with_mqa")
    yield module("kv_b", "tensor", latent * d.heads * (nope + value), "kv_b_proj")
    yield module("o", "tensor", d.heads * value * hidden, "o_proj")
    yield module("latent_norms", "replicated", latent + (low_rank or 0))
    if d.qkv_bias:
        yield module("latent_bias", "replicated", (low_rank or 0) + latent + rope + hidden)
    if sparse:
        heads, size = d.index_n_heads, d.index_head_dim
        own = d.optional("indexer_layers")
        number = layers if own is None else own
        yield module(
            "indexer_q", "replicated", low_rank * heads * size, "indexer.wq_b", number=number
        )
        yield module("indexer_k", "replicated", hidden * size, "indexer.wk", number=number)
        yield module("indexer_weights", "replicated", hidden * heads + 2 * size, number=number)


def _dense_ffn(d: _Dimensions) -> Iterator[Module]:
    size = d.ffn_matrices * d.hidden_size * d.intermediate_size
    parts = ("gate", "up", "down") if d.ffn_matrices == 3 else ("up", "down")
    names = tuple(f"model.layers.*.mlp.{part}_proj" for part in parts)
    yield Module("ffn", "tensor", d.dense_layers * size, d.dense_layers, names)
    if d.optional("ffn_bias"):
        bias = (d.ffn_matrices - 1) * d.intermediate_size + d.hidden_size
        yield Module("ffn_bias", "tensor", d.dense_layers * bias)


def _experts(d: _Dimensions) -> Iterator[Module]:
    layers, hidden, experts = d.moe_layers, d.hidden_size, d.experts
    width, shared = d.moe_intermediate_size, d.shared_expert_intermediate_size
    matrices = d.ffn_matrices
    prefix = f"model.layers.*.{d.moe_module}."
    parts = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
    names = tuple(f"{prefix}experts.*.{part}" for part in parts)
    within = d.optional("expert_input_size") or hidden  # experts may work in a smaller space
    size = experts * matrices * within * width
    yield Module("experts", "experts", layers * size, layers, names)
    if d.expert_bias:
        bias = experts * ((matrices - 1) * width + hidden)
        yield Module("expert_bias", "experts", layers * bias)
    router = hidden * experts + (experts if d.router_bias else 0)
    yield Module("router", "replicated", layers * router)
    if shared:
        names = tuple(
            f"{prefix}{module}.{part}"
            for module in ("shared_experts", "shared_expert")
            for part in parts[:3]
        )
        shared_size = layers * matrices * hidden * shared
        yield Module("shared_expert", "tensor", shared_size, layers, names)
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
