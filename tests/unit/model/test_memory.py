# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory of a layout, against published and checked figures."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import GIB, memory

VRAM = 256 * GIB
FP8 = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
BF16 = "Qwen/Qwen3-235B-A22B-Instruct-2507"
LLAMA = "meta-llama/Llama-3.1-405B-Instruct"
KIMI = "moonshotai/Kimi-K2.5"
DEEPSEEK = "deepseek-ai/DeepSeek-V3.2"
VISION = "Qwen/Qwen3-VL-235B-A22B-Instruct"


def of(name, size, dtype="auto", expert_parallel=False, length=32768, vram=VRAM, share=0.9):
    limits = Limits(length, 8192, kv_cache_dtype=dtype, gpu_memory_utilization=share)
    return memory(known(name), Layout(size, 1, expert_parallel), limits, vram)


def codes(result):
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize(
    ("name", "size", "gib"),
    [
        (FP8, 4, 55.12),
        (FP8, 8, 27.65),
        (BF16, 8, 54.91),
        (VISION, 8, 55.04),
        (VISION, 4, 109.81),
        # 0.03 more than the source: the indexer's weights_proj is not quantized in vLLM.
        (DEEPSEEK, 8, 80.35),
        (DEEPSEEK, 4, 158.82),
        (KIMI, 4, 140.33),
        (KIMI, 8, 71.18),
        (LLAMA, 8, 94.50),
    ],
)
def test_weights_per_gpu(name, size, gib):
    assert of(name, size).weights_bytes_per_gpu / GIB == pytest.approx(gib, abs=0.006)


@pytest.mark.parametrize(
    ("name", "size", "dtype", "expected"),
    [
        (FP8, 4, "fp8", 24_064),
        (FP8, 8, "fp8", 24_064),  # 4 KV heads are copied once TP exceeds them
        (FP8, 4, "auto", 48_128),
        (FP8, 2, "fp8", 48_128),
        (LLAMA, 8, "auto", 64_512),
        (LLAMA, 8, "fp8_e5m2", 32_256),
        (KIMI, 4, "bfloat16", 70_272),
        (KIMI, 8, "auto", 70_272),  # the latent lies on every GPU
        (DEEPSEEK, 8, "auto", 78_324),  # with 132 bytes of the indexer in each layer
        (DEEPSEEK, 8, "fp8", 61 * (576 + 132)),
        (DEEPSEEK, 8, "fp8_ds_mla", 48_068),
        (FP8, 4, "fp8_ds_mla", None),
        (FP8, 4, "nvfp4", None),
    ],
)
def test_kv_bytes_per_token(name, size, dtype, expected):
    assert of(name, size, dtype).kv_bytes_per_token_per_gpu == expected


@pytest.mark.parametrize(
    ("name", "size", "dtype", "pool_gib", "million_tokens"),
    [
        (FP8, 8, "fp8", 196.7, 8.78),
        (FP8, 4, "fp8", 169.3, 7.55),
        (DEEPSEEK, 8, "auto", 144.1, 1.98),
        (DEEPSEEK, 4, "auto", 65.6, 0.90),
        (KIMI, 4, "auto", 84.1, 1.28),
        (KIMI, 8, "auto", 153.2, 2.34),
        (VISION, 8, "auto", 169.4, 3.78),
        (VISION, 4, "auto", 114.6, 2.56),
    ],
)
def test_kv_pool_and_tokens(name, size, dtype, pool_gib, million_tokens):
    result = of(name, size, dtype)
    assert result.kv_pool_bytes_per_gpu / GIB == pytest.approx(pool_gib, abs=0.06)
    assert result.kv_tokens_per_engine / 1e6 == pytest.approx(million_tokens, abs=0.006)
    assert result.max_sequences == pytest.approx(result.kv_tokens_per_engine / 32768, rel=1e-6)


def test_expert_parallelism_changes_shapes_and_not_bytes():
    plain, experts = of(FP8, 4), of(FP8, 4, expert_parallel=True)
    assert plain.weights_bytes_per_gpu == experts.weights_bytes_per_gpu


def test_two_engines_of_tp4_hold_more_tokens_than_one_of_tp8():
    two = 2 * of(FP8, 4, "fp8").kv_tokens_per_engine
    assert two / of(FP8, 8, "fp8").kv_tokens_per_engine == pytest.approx(1.72, abs=0.005)


def test_the_assumed_reserve_is_said():
    (note,) = of(FP8, 4).findings
    assert (note.code, note.severity) == ("FIT-RESERVE-ASSUMED", "info")
    assert "6.0 GiB" in note.message


@pytest.mark.parametrize("unknown", ["vram", "type", "dtype"])
def test_what_is_unknown_is_none_and_said(unknown):
    model = architecture({"model_type": "new"}, "x") if unknown == "type" else known(FP8)
    limits = Limits(32768, kv_cache_dtype="nvfp4" if unknown == "dtype" else "auto")
    result = memory(model, Layout(4), limits, None if unknown == "vram" else VRAM)
    assert result.kv_tokens_per_engine is None
    assert result.max_sequences is None
    assert "FIT-UNKNOWN" in codes(result)
    assert not has_errors(result.findings)


@pytest.mark.parametrize(
    ("size", "vram", "length", "parts"),
    [
        (1, VRAM, 32768, ["_size to 2 or 4 or 8", "max_model_len to 23", "220.2 GiB weights"]),
        (4, 64 * GIB, 32768, ["_size to 8", "55.1 GiB weights", "of 64.0 GiB is 57.6 GiB"]),
        (8, 32 * GIB, 32768, ["GPUs with more memory"]),
        (4, VRAM, 9_000_000, ["max_model_len to 3776"]),
    ],
)
def test_no_room_says_what_is_needed_and_what_would_fit(size, vram, length, parts):
    result = of(FP8, size, length=length, vram=vram)
    (finding,) = (item for item in result.findings if item.severity == "error")
    assert finding.code == "FIT-NO-ROOM"
    for part in parts:
        assert part in finding.message + finding.remedy


UTILIZATION, SIZE, LENGTH = (
    "raise limits.gpu_memory_utilization to at least ",
    "set layout.tensor_parallel_size to ",
    "lower limits.max_model_len to ",
)


@pytest.mark.parametrize(
    ("name", "size", "share", "length", "expected"),
    [
        (FP8, 4, 0.1, 32768, f"{UTILIZATION}0.25"),
        (FP8, 4, 0.2, 32768, f"{UTILIZATION}0.25, or {SIZE}8"),
        (FP8, 4, 0.24, 32768, f"{UTILIZATION}0.25, or {SIZE}8, or {LENGTH}7101 or less"),
        (FP8, 1, 0.1, 32768, f"{UTILIZATION}0.91"),
        (KIMI, 1, 0.1, 32768, f"{UTILIZATION}0.58 and {SIZE}4"),
        (FP8, 8, 0.1, 9_000_000, f"{UTILIZATION}0.95 and {LENGTH}4675011 or less"),
        (LLAMA, 1, 0.9, 40_000_000, f"{SIZE}4 and {LENGTH}293381 or less"),
    ],
)
def test_no_room_names_the_field_that_is_responsible(name, size, share, length, expected):
    result = of(name, size, share=share, length=length)
    (finding,) = (item for item in result.findings if item.severity == "error")
    assert finding.remedy == f"{expected}."


@pytest.mark.parametrize(("spare", "refused"), [(0, False), (-1, True)])
def test_one_sequence_that_just_fits_is_accepted(spare, refused):
    wanted = of(FP8, 4, "fp8").weights_bytes_per_gpu + 6 * GIB + 1000 * 24_064
    made = of(FP8, 4, "fp8", length=1000, vram=wanted + spare, share=1.0)
    assert has_errors(made.findings) is refused


def test_the_vocabulary_is_padded_to_64():
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 65,
        "max_position_embeddings": 64,
    }
    odd, even = (
        memory(architecture({**config, "vocab_size": size}, "x"), Layout(1), Limits(), VRAM)
        for size in (65, 128)
    )
    assert odd.weights_bytes_per_gpu == even.weights_bytes_per_gpu
