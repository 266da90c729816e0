# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which attention backend vLLM will choose, and why it finds none."""

import itertools

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import attention
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import (
    enum_names,
    versions,
)

from support.each import each

AITER = {"env VLLM_ROCM_USE_AITER": "1"}


def choose(version, kind="gqa", **elements):
    facts = {
        "version": version,
        "attention": kind,
        "gfx": "gfx942",
        "head_dim": 128,
        "sinks": False,
        "model_type": "llama",
        **elements,
    }
    return attention.choose(facts)


@pytest.mark.parametrize(
    ("version", "kind", "elements", "backend"),
    [
        ("0.10.2", "gqa", {}, "TRITON_ATTN"),
        ("0.10.2", "gqa", AITER, "ROCM_AITER_FA"),
        ("0.10.2", "gqa", {**AITER, "env VLLM_ROCM_USE_AITER_MHA": "0"}, "TRITON_ATTN"),
        ("0.10.2", "gqa", {**AITER, "gfx": "gfx908"}, "TRITON_ATTN"),
        ("0.11.2", "gqa", {"env VLLM_ATTENTION_BACKEND": "ROCM_AITER_FA"}, "ROCM_AITER_FA"),
        ("0.10.2", "gqa", {"env VLLM_ATTENTION_BACKEND": "ROCM_ATTN"}, "TRITON_ATTN"),
        ("0.11.0", "gqa", {"env VLLM_V1_USE_PREFILL_DECODE_ATTENTION": "1"}, "ROCM_ATTN"),
        ("0.14.1", "gqa", {"env VLLM_ATTENTION_BACKEND": "ROCM_ATTN"}, "ROCM_ATTN"),
        (
            "0.14.1",
            "gqa",
            {**AITER, "env VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": "1"},
            "ROCM_AITER_UNIFIED_ATTN",
        ),
        ("0.19.1", "gqa", AITER, "ROCM_ATTN"),
        ("0.20.2", "gqa", AITER, "ROCM_ATTN"),
        ("0.20.2", "gqa", {**AITER, "flag attention_backend": "rocm_aiter_fa"}, "ROCM_AITER_FA"),
        ("0.33.0", "hybrid", AITER, "ROCM_ATTN"),
        # Sinks: who can serve them changes.
        ("0.18.1", "gqa", {**AITER, "sinks": True}, "TRITON_ATTN"),
        ("0.22.1", "gqa", {**AITER, "sinks": True}, "ROCM_AITER_UNIFIED_ATTN"),
        ("0.24.0", "gqa", {**AITER, "sinks": True}, "ROCM_AITER_FA"),
        # Head sizes, KV offload, images that attend to themselves.
        ("0.33.0", "gqa", {**AITER, "head_dim": 72}, "ROCM_AITER_UNIFIED_ATTN"),
        ("0.20.2", "gqa", {**AITER, "flag kv_offloading_size": "8"}, "ROCM_ATTN"),
        ("0.24.0", "gqa", {**AITER, "flag kv_offloading_size": "8"}, "ROCM_AITER_FA"),
        ("0.24.0", "gqa", {"flag kv_transfer_config": "{}"}, "TRITON_ATTN"),
        ("0.30.0", "gqa", {"flag kv_transfer_config": "{}"}, "ROCM_AITER_UNIFIED_ATTN"),
        ("0.30.0", "gqa", {"model_type": "gemma3"}, "ROCM_ATTN"),
        ("0.32.0", "gqa", {"model_type": "gemma3"}, "TRITON_ATTN"),
        ("0.14.1", "mla", {}, "TRITON_MLA"),
        ("0.14.1", "mla", AITER, "ROCM_AITER_MLA"),
        ("0.14.1", "mla", {"flag block_size": "1"}, "ROCM_AITER_MLA"),
        ("0.18.1", "mla", {"flag block_size": "1"}, "TRITON_MLA"),
        ("0.33.0", "mla", {**AITER, "env VLLM_ROCM_USE_AITER_MLA": "0"}, "TRITON_MLA"),
        ("0.33.0", "mla", {**AITER, "flag attention_backend": "TRITON_MLA"}, "TRITON_MLA"),
        ("0.14.1", "sparse_mla", {}, "ROCM_AITER_MLA_SPARSE"),
        ("0.20.2", "sparse_mla", AITER, "ROCM_AITER_MLA_SPARSE"),
        (
            "0.33.0",
            "sparse_mla",
            {"flag attention_backend": "TRITON_ATTN"},
            "ROCM_AITER_MLA_SPARSE",
        ),
    ],
)
def test_the_backend_that_vllm_chooses(version, kind, elements, backend):
    choice = choose(version, kind, **elements)
    assert (choice.backend, choice.refuses) == (backend, "none")
    assert choice.because


@pytest.mark.parametrize(
    ("version", "kind", "elements", "refuses", "part"),
    [
        ("0.20.2", "mla", {"flag block_size": "1"}, "block_size", "multiples of 16, not 1"),
        ("0.33.0", "gqa", {"flag block_size": "8"}, "block_size", "multiples of 16"),
        ("0.20.2", "gqa", {"head_dim": 16}, "head_dim", "16 columns"),
        ("0.33.0", "gqa", {"flag kv_cache_dtype": "fp8_ds_mla"}, "kv_cache_dtype", "fp8_ds_mla"),
        ("0.20.2", "sparse_mla", {"flag kv_cache_dtype": "fp8"}, "kv_cache_dtype", "SPARSE"),
        (
            "0.22.1",
            "gqa",
            {"sinks": True, "flag attention_backend": "ROCM_AITER_FA"},
            "sinks",
            "no attention sinks",
        ),
        (
            "0.24.0",
            "gqa",
            {"flag kv_offloading_size": "8", "flag attention_backend": "ROCM_ATTN"},
            "connector",
            "KV offload",
        ),
        (
            "0.33.0",
            "gqa",
            {"gfx": "gfx90a", "flag attention_backend": "ROCM_AITER_FA"},
            "gpu",
            "gfx90a",
        ),
        ("0.33.0", "gqa", {"flag attention_backend": "TRITON_MLA"}, "backend", "not for gqa"),
        ("0.33.0", "gqa", {"flag attention_backend": "FLASHINFER"}, "backend", "not for ROCm"),
        ("0.14.1", "gqa", {"flag attention_backend": "FLASHINFER"}, "backend", "on ROCm"),
        ("0.14.1", "mla", {"flag attention_backend": "ROCM_ATTN"}, "backend", "not for mla"),
    ],
)
def test_why_vllm_finds_none(version, kind, elements, refuses, part):
    choice = choose(version, kind, **elements)
    assert (choice.backend, choice.refuses) == (None, refuses)
    assert part in choice.note


@pytest.mark.parametrize(
    ("version", "kind", "elements"),
    [
        ("0.33.0", "gqa", {"gfx": None}),
        ("0.33.0", None, {}),
        ("0.33.0", "linear", {}),
        ("0.11.0", "sparse_mla", {}),
        ("0.9.2", "gqa", {"env VLLM_USE_V1": "0"}),  # another engine
        ("0.33.0", "gqa", {"flag attention_backend": "FLEX_ATTENTION"}),
    ],
)
def test_what_is_not_known_is_not_guessed(version, kind, elements):
    assert choose(version, kind, **elements) == attention.Choice()


@pytest.mark.parametrize(
    ("version", "switch", "backend"),
    [
        ("0.16.0", "1", "ROCM_AITER_MLA"),
        ("0.16.0", "0", "TRITON_MLA"),  # a block of one token would make it AITER's elsewhere
        ("0.20.2", "0", "TRITON_MLA"),  # which takes no such block elsewhere
    ],
)
def test_blocks_hold_the_state_of_a_hybrid_with_latent_attention(version, switch, backend):
    elements = {"env VLLM_ROCM_USE_AITER": switch, "flag block_size": "1", "latent": True}
    assert choose(version, "hybrid", **elements).backend == backend


def test_an_unknown_fact_is_no_obstacle():
    assert choose("0.33.0", head_dim=None, sinks=None).backend == "ROCM_ATTN"


def test_every_backend_that_is_named_is_one_of_vllms():
    data = knowledge("vllm/attention.yml")
    named = {item["backend"] for entry in data["selection"] for item in entry["order"]}
    named |= {*data["capabilities"], *data["others"]}
    named |= {name for entry in data["selection"] for name in entry.get("allowed", ())}
    there = {name for version in versions() for name in enum_names(version, "AttentionBackendEnum")}
    assert named <= there


@each(itertools.product(versions(), ["gqa", "mha", "mqa", "mla", "hybrid"]))
def test_every_version_has_a_choice_for_every_kind_of_attention(version, kind):
    assert choose(version, kind, **AITER, **{"flag block_size": ""}).backend
