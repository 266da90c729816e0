# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models that nobody publishes, for the rules that no published one meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]

FP8_BLOCKS = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
}
SINKS: Config = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 6,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 12,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    },
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 201088,
}

# Three layers of four recur; its cache at the least share of memory is small.
HYBRID: Config = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000000,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}


NVFP4_EXPERTS = FP8_BLOCKS | {
    "group_size": 16,
    "moe_quant_algo": "NVFP4",
    "producer": {"name": "modelopt"},
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {
        f"layers.{layer}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}
        for layer in range(43)
    },
    "scale_fmt": "ue8m0",
}
COMPRESSED_BLOCKS = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head", "re:.*gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "float",
                "symmetric": True,
                "strategy": "block",
                "block_structure": [128, 128],
                "dynamic": False,
            },
            "input_activations": {
                "num_bits": 8,
                "type": "float",
                "symmetric": True,
                "strategy": "group",
                "group_size": 128,
                "dynamic": True,
            },
        }
    },
}
W4A16 = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {
        f"model.layers.{layer}.mlp.{part}_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        for layer in range(126)
        for part in ("gate", "up", "down")
    },
}
MIXED_FP8 = W4A16 | {
    "quantized_layers": {name: {"quant_algo": "FP8"} for name in W4A16["quantized_layers"]}
}


def odd(known: Mapping[str, Config], published: Mapping[str, Config]) -> dict[str, Config]:
    """Return odd configs by name, most of them a known one with something changed."""
    no_gate = published["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]
    llama = known["meta-llama/Llama-3.1-405B-Instruct"]
    vision = known["Qwen/Qwen3-VL-235B-A22B-Instruct"]
    sparse = known["deepseek-ai/DeepSeek-V3.2"]
    dense_mla = {
        **{key: value for key, value in sparse.items() if not key.startswith("index_")},
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
    }
    many_heads = dense_mla | {"num_attention_heads": 200, "num_key_value_heads": 200}
    # Without its n-gram tables, of which the judge would take the host memory.
    whole = published["deepseek-ai/DeepSeek-V4.1-Flash"]
    no_tables = whole | {"text_config": whole["text_config"] | {"engram_layer_ids": []}}
    fbgemm = {"activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    return {
        "odd/sinks": SINKS,
        "odd/hybrid": HYBRID,
        "odd/dense-mla": dense_mla,
        "odd/200-mla-heads": {
            key: value for key, value in many_heads.items() if key != "quantization_config"
        },
        "odd/200-mla-heads-fp8": many_heads,
        "odd/10-kv-heads": llama | {"num_attention_heads": 40, "num_key_value_heads": 10},
        "odd/odd-ffn": llama | {"intermediate_size": 53250},
        "odd/odd-experts": known["Qwen/Qwen3-235B-A22B-Instruct-2507"]
        | {"moe_intermediate_size": 1540},
        "odd/compressed-blocks": known["Qwen/Qwen3-235B-A22B-Instruct-2507"]
        | {"quantization_config": COMPRESSED_BLOCKS},
        "odd/narrow-experts": known["Qwen/Qwen3-235B-A22B-Instruct-2507"]
        | {"moe_intermediate_size": 1152, "quantization_config": FP8_BLOCKS},
        "odd/fp8-vision": vision | {"quantization_config": FP8_BLOCKS},
        "odd/int8-experts": llama | {"quantization_config": {"quant_method": "experts_int8"}},
        "odd/fbgemm-fp8": llama | {"quantization_config": {"quant_method": "fbgemm_fp8", **fbgemm}},
        "odd/no-gate": no_gate,
        "odd/four-mamba-groups": no_gate | {"n_groups": 4},
        "odd/own-configuration": llama
        | {"architectures": ["MiMoForCausalLM"], "model_type": "mimo"},
        "odd/code-beside": llama
        | {
            "architectures": ["MiMoForCausalLM"],
            "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"},
            "model_type": "mimo",
        },
        "odd/w4a16": llama | {"quantization_config": W4A16},
        "odd/mixed-fp8": llama | {"quantization_config": MIXED_FP8},
        "odd/mixed-fp8-cache": llama
        | {"quantization_config": MIXED_FP8 | {"kv_cache_quant_algo": "FP8"}},
        "odd/nvfp4": published["nvidia/Kimi-K2.5-NVFP4"],
        "odd/mxfp4-situ": published["moonshotai/Kimi-K3"],
        "odd/glm-tower": published["zai-org/Glyph"],
        "odd/later-class": published["meta-models/Muse-Glimmer-30B"],
        "odd/padded-experts": published["moonshotai/Kimi-Linear-48B-A3B-Instruct"],
        "odd/compressed-cache": published["deepseek-ai/DeepSeek-V4-Flash"],
        "odd/no-tables": no_tables,
        # Without params.json, as `config_format` says to the model's reader here.
        "odd/hf-tower": published["mistralai/Ministral-3-14B-Instruct-2512"]
        | {"config_format": "hf"},
        "odd/nvfp4-clamped": published["deepseek-ai/DeepSeek-V4-Flash"]
        | {"quantization_config": NVFP4_EXPERTS},
        "odd/narrow-values": published["XiaomiMiMo/MiMo-V2-Flash"],
        "odd/other-gpus": sparse
        | {"architectures": ["Dots3NoteForCausalLM"], "model_type": "dots3_note"},
        "odd/new-class": llama
        | {"architectures": ["Step3p7ForConditionalGeneration"], "model_type": "step3p7"},
    }
