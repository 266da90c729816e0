# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which layers attend how and which have experts, by every rule and every way to write it."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.modules import modules

BASE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}


def read(model_type, **changes):
    merged = {"model_type": model_type, **BASE, **changes}
    return architecture({key: value for key, value in merged.items() if value is not None}, "x")


LATENT = {
    "kv_lora_rank": 32,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_shared_experts": 1,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2}
HYBRID = {
    "mamba_num_heads": 4,
    "mamba_head_dim": 32,
    "n_groups": 2,
    "ssm_state_size": 8,
    "conv_kernel": 4,
    "use_conv_bias": True,
}


@pytest.mark.parametrize(
    ("model_type", "changes", "dense", "moe"),
    [
        ("deepseek_v3", {**LATENT, "first_k_dense_replace": 3}, 3, 5),
        ("deepseek_v3", {**LATENT, "first_k_dense_replace": 99}, 8, 0),
        ("deepseek_v3", {**LATENT, "first_k_dense_replace": 3, "moe_layer_freq": 2}, 6, 2),
        (
            "deepseek_v3",
            {**LATENT, "first_k_dense_replace": 3, "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1, 1]},
            1,
            7,
        ),
        ("qwen3_moe", {}, 0, 8),
        ("qwen3_moe", {"decoder_sparse_step": 2}, 4, 4),
        ("qwen3_moe", {"mlp_only_layers": [0, 3]}, 2, 6),
        ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 99]}, 5, 3),
        ("qwen3_moe", {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6}, 2, 6),
        ("mixtral", {}, 0, 8),
        ("llama4_text", {"interleave_moe_layer_step": 2, "attention_chunk_size": 64}, 4, 4),
        ("llama4_text", {"moe_layers": [1, 3, 5], "attention_chunk_size": 64}, 5, 3),
        ("jamba", {**MAMBA, "expert_layer_period": 2, "expert_layer_offset": 1}, 4, 4),
        ("jamba", {**MAMBA, "num_experts": 1, "num_experts_per_tok": 1}, 8, 0),
        (
            "ernie4_5_moe",
            {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1, "moe_layer_interval": 2},
            4,
            4,
        ),
        (
            "ernie4_5_moe",
            {
                "moe_num_experts": 4,
                "moe_k": 2,
                "moe_layer_start_index": 1,
                "moe_layer_end_index": 4,
            },
            4,
            4,
        ),
        ("nemotron_h", {**HYBRID, "hybrid_override_pattern": "M-M*M-E-"}, 3, 1),
        ("nemotron_h", {**HYBRID, "hybrid_override_pattern": "M-M*M-M-", "n_routed_experts": None},
         3, 0),
        ("longcat_flash", {
            **LATENT, "num_layers": 8, "ffn_hidden_size": 32, "expert_ffn_hidden_size": 16,
            "moe_topk": 2,
        }, 16, 8),
    ],
)  # fmt: skip
def test_experts_are_in_the_layers_that_the_config_says(model_type, changes, dense, moe):
    defaults = {"attn_layer_period": 4, "attn_layer_offset": 0, "intermediate_size_mlp": 32}
    model = read(model_type, **{**defaults, **changes})
    assert [item.message for item in model.findings] == []
    assert (model.details["dense_layers"], model.details["moe_layers"]) == (dense, moe)
    assert (model.family == "moe") == bool(model.experts)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"moe_layer_freq": [0, 1]}, "moe_layer_freq"),
        ({"moe_layer_freq": [2] * 8}, "moe_layer_freq"),
        ({"moe_layer_freq": 0}, "moe_layer_freq"),
        ({"mlp_layer_types": ["dense"] * 3}, "mlp_layer_types"),
        ({"mlp_layer_types": ["other"] * 8}, "mlp_layer_types"),
    ],
)
def test_a_list_of_layers_that_cannot_be_read_leaves_the_parameters_unknown(changes, key):
    model = read("deepseek_v3", first_k_dense_replace=1, **LATENT, **changes)
    (finding,) = model.findings
    assert finding.code == "MODEL-BAD-VALUE"
    assert key in finding.message
    assert model.total_parameters is None


@pytest.mark.parametrize(
    ("model_type", "changes", "full", "sliding", "linear"),
    [
        ("llama", {}, 8, 0, 0),
        ("mistral", {}, 8, 0, 0),
        ("mistral", {"sliding_window": 64}, 0, 8, 0),
        ("gemma2", {"sliding_window": 64}, 4, 4, 0),
        ("gemma3_text", {"sliding_window": 64}, 1, 7, 0),
        ("gemma3_text", {"sliding_window": 64, "sliding_window_pattern": 4}, 2, 6, 0),
        ("cohere2", {"sliding_window": 64}, 2, 6, 0),
        ("exaone4", {}, 8, 0, 0),
        ("exaone4", {"sliding_window": 64, "sliding_window_pattern": "LLLG"}, 2, 6, 0),
        ("gpt_oss", {"sliding_window": 64}, 4, 4, 0),
        ("gpt_oss", {"sliding_window": 64, "layer_types": ["full_attention"] * 8}, 8, 0, 0),
        ("cwm", {"sliding_window": 64}, 2, 6, 0),
        ("llama4_text", {"attention_chunk_size": 64}, 2, 6, 0),
        ("llama4_text", {"attention_chunk_size": 64, "no_rope_layers": [1, 0] * 4}, 4, 4, 0),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1, 1] * 2, "v_head_dim": 8,
                           "sliding_window": 64}, 2, 6, 0),
        ("qwen3_next", {**LINEAR}, 2, 0, 6),
        ("qwen3_next", {**LINEAR, "full_attention_interval": 2}, 4, 0, 4),
        ("qwen3_next", {**LINEAR, "layer_types": ["linear_attention"] * 7 + ["full_attention"]},
         1, 0, 7),
        ("jamba", {**MAMBA}, 2, 0, 6),
        ("nemotron_h", {**HYBRID, "hybrid_override_pattern": "M-M*M-E-"}, 1, 0, 3),
        ("minimax", {"attn_type_list": [0, 0, 0, 1] * 2}, 2, 0, 6),
    ],
)  # fmt: skip
def test_layers_attend_as_the_config_says(model_type, changes, full, sliding, linear):
    defaults = {
        "attn_layer_period": 4,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 32,
    }
    model = read(model_type, **{**defaults, **changes})
    assert [item.message for item in model.findings] == []
    counts = model.details["attention_layers"]
    assert (counts["full"], counts["sliding"], counts["linear"]) == (full, sliding, linear)
    assert (model.attention == "hybrid") == bool(linear)


def test_a_layer_may_do_both():
    model = read(
        "falcon_h1", mamba_d_ssm=32, mamba_n_heads=4, mamba_n_groups=1, **MAMBA, n_routed_experts=0
    )
    assert model.details["attention_layers"] == {"full": 8, "sliding": 0, "linear": 8}


def test_layers_of_one_kind_may_have_heads_of_their_own():
    model = read(
        "laguna",
        num_attention_heads_per_layer=[8, 12, 12, 12] * 2,
        layer_types=(["full_attention"] + ["sliding_attention"] * 3) * 2,
        sliding_window=16,
        shared_expert_intermediate_size=16,
        attention_bias=False,
    )
    assert model.details["attention_dimensions"]["sliding"] == {"heads": 12}
    queries = 2 * 64 * 8 * 8 + 6 * 64 * 12 * 8
    from_modules = {item["kind"]: item for item in model.details["formula_modules"]}
    assert from_modules["attention_gate"]["parameters"] == 64 * (2 * 8 + 6 * 12)
    counted = {item.kind: item.parameters for item in modules(model)}
    assert counted["q"] + counted["q_sliding"] == queries


def test_heads_that_differ_within_a_kind_are_not_averaged():
    model = read(
        "laguna",
        num_attention_heads_per_layer=[8, 12] * 4,
        shared_expert_intermediate_size=16,
        attention_bias=False,
    )
    assert "MODEL-BAD-VALUE" in [item.code for item in model.findings]
    assert model.total_parameters is None
