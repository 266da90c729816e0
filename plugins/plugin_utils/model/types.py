# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model is and what it takes up. The contract `apiary.model/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..findings import Finding


@dataclass(frozen=True)
class ModuleMemory:
    """One kind of module: its parameters, how it is split, bytes on (`host`: for) each GPU."""

    kind: str
    sharding: str
    parameters: int
    bytes_per_gpu: int


@dataclass(frozen=True)
class Memory:
    """Bytes of one layout, per GPU of one engine; ``None`` is unknown.

    ``kv_bytes_per_token_per_gpu`` is what each further token takes: layers with a window or a
    recurrent state do not grow. ``kv_tokens_per_engine`` is how many tokens the KV pool of one
    engine (one replica) holds; ``max_sequences`` how many sequences of ``sequence_length`` tokens
    (max_model_len unless asked otherwise) that is. ``per_host`` counts all replicas.
    ``state_bytes_per_sequence_per_gpu`` is the recurrent state of hybrid models as vLLM keeps it,
    in whole pages. ``weights_source`` is formula, index or index_only.
    """

    weights_bytes_per_gpu: int | None
    kv_bytes_per_token_per_gpu: int | None
    kv_pool_bytes_per_gpu: int | None
    kv_tokens_per_engine: int | None
    max_sequences: float | None
    findings: tuple[Finding, ...] = ()
    reserve_bytes_per_gpu: int | None = None
    sequence_length: int | None = None
    sequence_bytes_per_gpu: int | None = None
    state_bytes_per_sequence_per_gpu: int | None = None
    kv_tokens_per_host: int | None = None
    max_sequences_per_host: float | None = None
    gpus_per_engine: int | None = None
    weights_source: str | None = None
    modules: tuple[ModuleMemory, ...] = ()


@dataclass(frozen=True)
class Architecture:
    """A model as its `config.json` describes it; unknown is ``None``, never a guess.

    ``family`` is dense or moe; ``attention`` is mha, gqa, mqa, mla, sparse_mla, hybrid (some layers
    recur) or linear (all do). ``details`` keeps the dimensions that only some families have
    (moe_intermediate_size, kv_lora_rank, quantization block and ignore list, …), by their
    config.json names.
    """

    SCHEMA: ClassVar[str] = "apiary.model/v1"

    model_type: str
    family: str | None = None
    attention: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    shared_experts: int | None = None
    vocab_size: int | None = None
    max_context: int | None = None
    quantization: str | None = None
    vision: dict[str, Any] | None = None
    total_parameters: int | None = None
    active_parameters: int | None = None
    details: dict[str, Any] | None = None
    memory: Memory | None = None
    findings: tuple[Finding, ...] = ()
