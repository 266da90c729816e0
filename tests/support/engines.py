# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deployments of the studied models, as short as a test needs them."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    Limits,
    ModelSpec,
)

QWEN = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
QWEN_BF16 = "Qwen/Qwen3-235B-A22B-Instruct-2507"
QWEN_VL = "Qwen/Qwen3-VL-235B-A22B-Instruct"
DEEPSEEK = "deepseek-ai/DeepSeek-V3.2"
LLAMA = "meta-llama/Llama-3.1-405B-Instruct"
KIMI = "moonshotai/Kimi-K2.5"
# Qwen3-0.6B's config.json: any GPU holds it.
SMALL = """{
  "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 151936,
  "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 3072, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "max_position_embeddings": 40960
}"""


def deployment(
    name=QWEN,
    version="0.33.0",
    size=4,
    ep=False,
    args=None,
    env=None,
    treat_as=None,
    profile=None,
    force=(),
    **limits,
):
    """Return a deployment that fills 8 GPUs; other keywords are limits.

    One of Kimi has its operator's yes to the checkpoint's code, without which there is no recipe.
    """
    if "Kimi-K2" in name:
        args = {"trust-remote-code": True, **(args or {})}
    return Deployment(
        name="test",
        model=ModelSpec(name, "/srv/models/current"),
        engine=EngineSpec(version, treat_as=treat_as, args=args or {}, env=env or {}),
        layout=Layout(size, max(1, 8 // max(size, 1)), ep),
        limits=Limits(**limits),
        profile=profile,
        force=force,
    )


def published(version, size=4):
    """Return the published Qwen3-235B recipe: DP2/TP4/EP4, or DP1/TP8/EP8."""
    return deployment(
        QWEN,
        version,
        size,
        ep=True,
        max_model_len=32768,
        max_num_batched_tokens=32768,
        gpu_memory_utilization=0.9,
        kv_cache_dtype="fp8",
    )


# The four recipes of the cross-architecture study on 8 MI325X (arXiv:2603.10031, tables 3, 4, 5,
# 9 and 11), as far as a deployment says them; its profile is the balanced one.
STUDIED = {
    "deepseek-v3.2": lambda version: deployment(
        DEEPSEEK,
        version,
        8,
        max_model_len=32768,
        profile="balanced",
        env={"AITER_ENABLE_VSKIP": 0},
    ),
    "llama-3.1-405b": lambda version: deployment(
        LLAMA,
        version,
        8,
        max_model_len=32768,
        profile="balanced",
        args={"quantization": "fp8"},
    ),
    "qwen3-vl-235b": lambda version: deployment(
        QWEN_VL,
        version,
        8,
        max_model_len=32768,
        profile="balanced",
        args={"kv-offloading-backend": "native", "kv-offloading-size": 64},
    ),
    "kimi-k2.5": lambda version: deployment(
        KIMI, version, 4, max_model_len=32768, profile="balanced"
    ),
}
