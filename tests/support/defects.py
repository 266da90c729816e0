# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people met with vLLM on these GPUs, and what a plan of it says."""

import dataclasses
import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    advisories,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known, read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from engine.odd import SINKS
from support.engines import DEEPSEEK, KIMI, QWEN, QWEN_BF16, deployment

# What people met, by model, release, GPU and layout: problems.md rows 62 to 89, engine.md part 3.
MLA, SPARSE = {"attention": "mla", "family": "moe"}, {"attention": "sparse_mla", "family": "moe"}
WINDOWS = read_config(json.dumps(SINKS), "odd/sinks")
MINIMAX = Architecture("minimax_m2", "moe", "gqa", heads=48, kv_heads=8, quantization="fp8")
M3 = Architecture("minimax_m3_vl", "moe", "gqa", heads=64, kv_heads=4, quantization="mxfp8")
GLM = Architecture("glm_moe_dsa", **SPARSE, heads=64, quantization="fp8", max_context=202752)
GLM_FLASH = Architecture("glm5_next", heads=64, quantization="fp8")
V4 = Architecture("deepseek_v4", heads=64, max_context=1048576)
LATENT = {"family": "moe", "attention": "hybrid", "details": {"kv_lora_rank": 512}}
KIMI_K3 = Architecture("kimi_k3", **LATENT, heads=96, max_context=1048576)
KIMI_LINEAR = Architecture("kimi_linear", **LATENT, heads=32)
MXFP4 = Architecture(
    *("kimi_k25", "moe", "mla"),
    heads=64,
    quantization="quark",
    details={"quantization": {"method": "quark", "bits": 4, "group": 32}},
)
QWEN_397B = Architecture(
    *("qwen3_5_moe", "moe", "hybrid"),
    heads=32,
    kv_heads=2,
    quantization="fp8",
    details={"moe_intermediate_size": 1024},
)
GPT_OSS = Architecture("gpt_oss", "moe", "gqa", heads=64, kv_heads=8, quantization="mxfp4")
MTP_1 = {"method": "mtp", "num_speculative_tokens": 1}
MTP_2 = {"method": "mtp", "num_speculative_tokens": 2}
EAGLE3 = {"method": "eagle3", "num_speculative_tokens": 3}
DEEPSEEK_R1 = Architecture("deepseek_v3", **MLA, heads=128, quantization="fp8")
PROBLEMS = {
    "VLLM-51964": (known(KIMI), "0.27.1", "MI308X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-43605": (MINIMAX, "0.21.0", "MI355X", 8, {"ep": True}),
    "AITER-2187": (known(QWEN), "0.24.0", "MI350X", 8, {"ep": True}),
    "VLLM-35169": (Architecture("step3p5"), "0.16.0", "MI325X", 4, {}),
    "VLLM-48266": (V4, "0.25.1", "MI325X", 4, {"kv_cache_dtype": "fp8"}),
    "VLLM-50347": (KIMI_K3, "0.27.0", "MI355X", 8, {"aiter": "0.1.19"}),
    "VLLM-57227": (
        *(GLM_FLASH, "0.30.0", "MI350X", 8),
        {"max_num_batched_tokens": 16384, "env": {"VLLM_USE_BREAKABLE_CUDAGRAPH": 1}},
    ),
    "AITER-2563": (GLM, "0.19.1", "MI325X", 8, {}),
    "VLLM-42876": (V4, "0.21.0", "MI355X", 8, {"kv_cache_dtype": "fp8"}),
    "AITER-4341": (
        *(KIMI_LINEAR, "0.26.0", "MI355X", 2),
        {"kv_cache_dtype": "fp8", "image": "vllm/vllm-openai-rocm:v0.26.0"},
    ),
    "VLLM-45943": (MXFP4, "0.26.0", "MI355X", 4, {"kv_cache_dtype": "auto"}),
    "AITER-4181": (dataclasses.replace(GLM, quantization="quark"), "0.28.0", "MI355X", 8, {}),
    "AITER-4181-LATER": (dataclasses.replace(GLM, quantization="none"), "0.32.0", "MI355X", 8, {}),
    "AITER-4181-ON": (
        *(dataclasses.replace(GLM, quantization="none"), "0.33.0", "MI355X", 8),
        {"env": {"VLLM_ROCM_USE_AITER_FP4BMM": 1}},
    ),
    "KVCACHED-267-WINDOWS": (WINDOWS, "0.20.2", "MI325X", 4, {"args": {"kv-offloading-size": 64}}),
    "VLLM-46913": (
        *(MINIMAX, "0.26.0", "MI325X", 4),
        {"env": {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "INT4"}},
    ),
    "AITER-3062": (
        *(dataclasses.replace(MINIMAX, head_dim=128), "0.24.0", "MI325X", 4),
        {
            "args": {"attention-backend": "ROCM_AITER_FA"},
            "env": {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": 1},
            "image": "vllm/vllm-openai-rocm:v0.24.0",
        },
    ),
    "AITER-4244": (
        *(dataclasses.replace(GLM, max_context=1048576), "0.24.0", "MI355X", 8),
        {"image": "vllm/vllm-openai-rocm:v0.24.0"},
    ),
    "VLLM-40018": (GLM, "0.20.1", "MI300X", 8, {}),
    "VLLM-50237": (
        *(M3, "0.28.0", "MI325X", 8),
        {
            "args": {"speculative-config": {"method": "eagle3", "num_speculative_tokens": 3}},
            "env": {"VLLM_USE_V2_MODEL_RUNNER": 1},
        },
    ),
    "VLLM-33678": (known(KIMI), "0.15.0", "MI308X", 8, {}),
    "VLLM-41472": (Architecture("lfm2_moe"), "0.20.0", "MI325X", 1, {}),
    "VLLM-46952": (
        *(known(KIMI), "0.24.0", "MI355X", 2),
        {"kv_cache_dtype": "fp8", "aiter": "0.1.16.post2"},
    ),
    "AITER-4363": (GLM, "0.28.0", "MI300X", 1, {"kv_cache_dtype": "fp8", "aiter": "0.1.19"}),
    "VLLM-57642": (
        *(DEEPSEEK_R1, "0.30.0", "MI325X", 8),
        {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 7}}},
    ),
    "VLLM-32895": (Architecture("gpt_oss"), "0.14.0", "MI355X", 1, {}),
    "INFERENCEX-606": (known(QWEN), "0.15.0", "MI355X", 4, {"ep": True}),
    "VLLM-46179": (
        *(Architecture("llama", quantization="compressed-tensors"), "0.23.0", "MI300X", 1),
        {"env": {"VLLM_USE_V2_MODEL_RUNNER": 1}},
    ),
    "VLLM-17939": (known(QWEN), "0.33.0", "MI325X", 4, {"gpu_memory_utilization": 0.99}),
    "INFERENCEX-2522": (V4, "0.28.0", "MI355X", 8, {"gpu_memory_utilization": 0.95}),
    "VLLM-39010": (known(QWEN), "0.19.0", "MI325X", 4, {"ep": True}),
    "INFERENCEX-1360": (MINIMAX, "0.21.0", "MI325X", 4, {"ep": True}),
    "VLLM-52109": (V4, "0.30.0", "MI325X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-50455": (V4, "0.29.0", "MI355X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-52150": (GLM, "0.27.0", "MI325X", 8, {}),
    "AITER-2720": (
        *(known(KIMI), "0.20.0", "MI355X", 4),
        {"args": {"speculative-config": {"method": "eagle3", "num_speculative_tokens": 5}}},
    ),
    "AITER-3632": (
        *(MXFP4, "0.22.1", "MI355X", 4),
        {"image": "vllm/vllm-openai-rocm:v0.22.1"},
    ),
    "VLLM-57132": (V4, "0.30.0", "MI355X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-43781": (GLM, "0.22.1", "MI355X", 8, {}),
    "LMCACHE-4247": (
        *(Architecture("qwen3_5_moe", attention="hybrid"), "0.28.0", "MI325X", 1),
        {
            "args": {
                "kv-transfer-config": {"kv_connector": "LMCacheMPConnector"},
                "attention-backend": "ROCM_AITER_FA",
            },
        },
    ),
    "VLLM-39303": (GLM, "0.20.2", "MI355X", 8, {"aiter": "0.1.12"}),
    "VLLM-39485": (DEEPSEEK_R1, "0.19.1", "MI300X", 8, {"aiter": "0.1.12.post1"}),
    "VLLM-41092": (
        *(dataclasses.replace(MXFP4, model_type="qwen2_moe", attention="gqa"), "0.20.1"),
        *("MI355X", 1, {}),
    ),
    "VLLM-51580": (QWEN_397B, "0.26.0", "MI325X", 8, {"image": "vllm/vllm-openai-rocm:v0.26.0"}),
    "VLLM-48568": (GLM, "0.25.1", "MI300X", 8, {"args": {"speculative-config": MTP_1}}),
    "VLLM-28222": (DEEPSEEK_R1, "0.12.0", "MI300X", 8, {"args": {"speculative-config": MTP_2}}),
    "VLLM-37887": (known(DEEPSEEK), "0.18.1", "MI355X", 8, {"args": {"speculative-config": MTP_2}}),
    "VLLM-46760": (known(KIMI), "0.24.0", "MI355X", 4, {"aiter": "0.1.16.post2"}),
    "VLLM-50563": (known(KIMI), "0.27.1", "MI355X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-38719": (MXFP4, "0.19.1", "MI355X", 4, {"kv_cache_dtype": "fp8"}),
    "VLLM-56314": (GLM_FLASH, "0.33.0", "MI355X", 8, {"kv_cache_dtype": "fp8"}),
    "VLLM-56037": (GLM_FLASH, "0.31.0", "MI325X", 8, {}),
    "VLLM-47158": (M3, "0.25.0", "MI355X", 8, {"ep": True, "env": {"VLLM_ROCM_USE_AITER": 1}}),
    "VLLM-54717": (
        *(MINIMAX, "0.27.1", "MI325X", 4),
        {
            "args": {"attention-backend": "ROCM_AITER_FA"},
            "env": {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": 1},
        },
    ),
    # engine.md part 3
    "AITER-915": (known(QWEN_BF16), "0.14.1", "MI300X", 8, {}),
    "AITER-4633": (V4, "0.24.0", "MI300X", 8, {}),
    "AITER-1143": (DEEPSEEK_R1, "0.11.0", "MI300X", 8, {}),
    "AITER-2821": (GLM, "0.21.0", "MI300X", 8, {}),
    "VLLM-26473": (
        *(Architecture("qwen3_next", attention="hybrid"), "0.13.0", "MI300X", 2),
        {"env": {"VLLM_ATTENTION_BACKEND": "ROCM_ATTN"}},
    ),
    "AITER-3658": (
        *(QWEN_397B, "0.25.1", "MI355X", 8),
        {"env": {"VLLM_ROCM_USE_AITER": 1}, "image": "vllm/vllm-openai-rocm:v0.25.1"},
    ),
    "AITER-4830": (
        *(GLM, "0.31.0", "MI300X", 8),
        {"env": {"VLLM_ROCM_USE_AITER": 1}, "image": "vllm/vllm-openai-rocm:v0.31.0"},
    ),
    "VLLM-44679": (GPT_OSS, "0.22.1", "MI355X", 8, {"env": {"VLLM_ROCM_USE_AITER": 1}}),
    "VLLM-44893": (
        *(GPT_OSS, "0.22.1", "MI355X", 4),
        {"env": {"VLLM_ROCM_USE_AITER": 1}, "aiter": "0.1.14"},
    ),
    "VLLM-47276": (DEEPSEEK_R1, "0.24.0", "MI355X", 1, {"kv_cache_dtype": "fp8"}),
    "VLLM-52312": (known(KIMI), "0.28.0", "MI355X", 4, {"kv_cache_dtype": "auto"}),
    "AITER-5192": (KIMI_K3, "0.27.1", "MI355X", 8, {"env": {"VLLM_ROCM_USE_AITER": 1}}),
    "AITER-4855-FUSED": (
        *(MINIMAX, "0.23.0", "MI325X", 8),
        {"env": {"VLLM_ROCM_USE_AITER": 1}, "image": "vllm/vllm-openai-rocm:v0.23.0"},
    ),
    "AITER-5192-OTHERS": (
        *(GLM, "0.31.0", "MI325X", 8),
        {"env": {"VLLM_ROCM_USE_AITER": 1}, "image": "vllm/vllm-openai-rocm:v0.31.0"},
    ),
    "VLLM-52803": (KIMI_K3, "0.33.0", "MI325X", 8, {}),
    "VLLM-49064": (Architecture("qwen3_5_moe", attention="hybrid"), "0.28.0", "MI300X", 1, {}),
    "AITER-2343": (
        *(Architecture("kimi_k25", **MLA, heads=64, quantization="quark"), "0.17.0"),
        *("MI355X", 4, {"ep": True}),
    ),
    "AITER-3202": (Architecture("hy_v3", quantization="fp8"), "0.24.0", "MI300X", 8, {}),
    "VLLM-56945": (
        *(Architecture("qwen3_5_moe", attention="hybrid"), "0.28.0", "MI325X", 1),
        {"args": {"attention-backend": "ROCM_ATTN"}},
    ),
}


def assessed(model, version, gpu, size, more):
    """Assess a deployment; `image`, `aiter` and `rocm` are of its engine."""
    of_engine = {name: more[name] for name in ("image", "aiter", "rocm") if name in more}
    rest = {name: item for name, item in more.items() if name not in of_engine}
    requested = deployment("test/model", version, size, **rest)
    requested = dataclasses.replace(
        requested, engine=dataclasses.replace(requested.engine, **of_engine)
    )
    return assess(model, requested, gpu, 8000)


def reported(assessment):
    """The ids of the advisories that a plan reports, refuses for, or avoids."""
    findings = [*assessment.recipe.findings, *(item.finding for item in assessment.refused)]
    text = " ".join(finding.message for finding in findings)
    avoided = [reason.rule for reason in assessment.recipe.reasons]
    return {item.id for item in advisories() if f"({item.id})" in text or item.id in avoided}
