# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recipes of published models of 2025 and 2026 by release and GPU, as real vLLM takes them."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    Limits,
    ModelSpec,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import review
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import by_id
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known, read_config

from engine.models import published
from engine.odd import MIXED_FP8, NVFP4_EXPERTS

CONFIGS = published()
GEMMA = "google/gemma-4-26B-A4B"
HYBRID = "Qwen/Qwen3.5-122B-A10B"
KIMI = "moonshotai/Kimi-K2.5"
KIMI_LINEAR = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
M3 = "MiniMaxAI/MiniMax-M3"
MIMO = "XiaomiMiMo/MiMo-V2-Flash"
MIMO_MXFP4 = "XiaomiMiMo/MiMo-V2.6-Flash-RL"
NGRAM = {"speculative-config": {"method": "ngram", "num_speculative_tokens": 4}}
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
OFF = {"VLLM_ROCM_USE_AITER": 0}
TRUSTED = {"trust-remote-code": True}
EAGLE3 = {"speculative-config": {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}}
V32 = "deepseek-ai/DeepSeek-V3.2"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
V41 = "deepseek-ai/DeepSeek-V4.1-Flash"
MINISTRAL = "mistralai/Ministral-3-14B-Instruct-2512"
HF = {"changes": {"config_format": "hf"}}  # by the files beside its config.json


def model(name, **changes):
    if name not in CONFIGS:
        return known(name)
    config = {**CONFIGS[name], **changes}
    beside = {"quantization_config": config.pop("hf_quant_config", None)}
    return read_config(json.dumps(config), name, beside)


def asked(
    name, version, size=8, ep=False, gpu="MI325X", changes=None, env=None, args=None, kv="auto"
):
    deployment = Deployment(
        name="d",
        model=ModelSpec(name, "/srv/model"),
        engine=EngineSpec(version, args=args or {}, env=env or {}),
        layout=Layout(size, 1, ep),
        limits=Limits(kv_cache_dtype=kv),
    )
    return assess(model(name, **(changes or {})), deployment, gpu, 8000)


def rules_of(assessment):
    return {refused.rule for refused in assessment.refused}


def flag(assessment, name):
    argv = assessment.recipe.argv
    return argv[argv.index(name) + 1] if name in argv else None


@pytest.mark.parametrize(
    ("name", "version", "aiter", "experts"),
    [
        (NEMOTRON, "0.24.0", "1", "0"),  # no gate
        (NEMOTRON, "0.33.0", "1", None),
        (GEMMA, "0.28.0", None, None),  # GELU-tanh; as published, without AITER
        (GEMMA, "0.33.0", "1", None),
        (M3, "0.24.0", None, None),
        (M3, "0.28.0", "1", None),
        (MIMO, "0.28.0", "0", None),
        ("google/gemma-4-31B-it", "0.28.0", "1", None),  # dense
    ],
)
def test_aiter_is_on_where_it_serves_the_model(name, version, aiter, experts):
    env = asked(name, version).recipe.env
    assert env.get("VLLM_ROCM_USE_AITER") == aiter
    assert env.get("VLLM_ROCM_USE_AITER_MOE") == experts


def test_who_insists_on_aiters_experts_is_refused_where_vllm_would_stop():
    insisted = {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "1"}
    assert rules_of(asked(NEMOTRON, "0.28.0", env=insisted)) == {"VLLM-AITER-MOE-FORM"}
    assert rules_of(asked(GEMMA, "0.28.0", env=insisted)) == {"VLLM-AITER-MOE-FORM"}
    assert not rules_of(asked(GEMMA, "0.28.0", env={"VLLM_ROCM_USE_AITER": "1"}))


@pytest.mark.parametrize("name", [GEMMA, M3, MIMO])
def test_a_working_command_is_not_told_to_switch_aiter_on(name):
    engine = EngineSpec("0.24.0" if name == M3 else "0.28.0")
    deployment = Deployment("d", ModelSpec(name, "/m"), engine, Layout(4, 1, False))
    found = review("vllm serve /m -tp 4", model(name), deployment, "MI325X").findings
    assert not [item for item in found if "VLLM_ROCM_USE_AITER=1" in item.message]
    assert "ENGINE-AITER-OFF" not in {item.code for item in found}


def test_advice_to_switch_aiter_on_is_whole():
    """Nemotron's experts have no form in AITER: who follows half of it cannot start."""
    engine = EngineSpec("0.28.0")
    deployment = Deployment("d", ModelSpec(NEMOTRON, "/m"), engine, Layout(4, 1, False))
    found = review("vllm serve /m -tp 4", model(NEMOTRON), deployment, "MI325X").findings
    missing = " ".join(item.message for item in found if item.code == "ENGINE-MISSING")
    assert "VLLM_ROCM_USE_AITER=1" in missing
    assert "VLLM_ROCM_USE_AITER_MOE=0" in missing


def test_a_measured_gain_is_said_of_what_was_measured():
    """vllm#56945 measured AITER together with its unified attention, of one model."""
    aiter, off = by_id()["VLLM-AITER"].reason, by_id()["VLLM-AITER-OFF"].reason
    for text in (aiter, off):
        assert "Qwen3.5-122B" in text
        assert "unified attention" in text
        assert "MI325X" in text


@pytest.mark.parametrize(
    ("name", "version", "backend"),
    [
        (GEMMA, "0.33.0", "TRITON_ATTN"),
        (MIMO, "0.33.0", "TRITON_ATTN_DIFFKV"),
        (V4, "0.22.1", "FLASHMLA_SPARSE"),
        (V4, "0.23.0", "ROCM_FLASHMLA_SPARSE_DSV4"),
        (V4, "0.33.0", "ROCM_FLASHMLA_SPARSE_DSV4"),
        (M3, "0.33.0", "MINIMAX_M3_SPARSE, ROCM_AITER_FA"),
        (HYBRID, "0.28.0", "ROCM_AITER_UNIFIED_ATTN"),
        (HYBRID, "0.33.0", "ROCM_AITER_FA"),
        ("moonshotai/Kimi-K3", "0.33.0", "ROCM_AITER_MLA"),
    ],
)
def test_the_backend_is_the_one_that_vllm_chooses(name, version, backend):
    assert asked(name, version).recipe.attention_backend == backend


def test_flags_that_only_some_releases_need():
    mimo = "XiaomiMiMo/MiMo-V2.6-Flash-RL"
    assert flag(asked(mimo, "0.33.0", 4), "--moe-backend") == "aiter_triton_mxfp4_bf16"
    assert flag(asked(mimo, "0.33.0", 4, gpu="MI355X"), "--moe-backend") is None
    named = {
        version: [flag(asked(mimo, version, 8, ep), "--moe-backend") for ep in (False, True)]
        for version in ("0.32.0", "0.33.0")
    }
    name = "aiter_triton_mxfp4_bf16"
    assert named == {"0.32.0": [name, None], "0.33.0": [name, name]}
    fp8 = {"quantization_config": CONFIGS[MIMO]["quantization_config"]}
    assert flag(asked(mimo, "0.33.0", 4, changes=fp8), "--moe-backend") is None
    for name in ("zai-org/GLM-4.5V", "OpenGVLab/InternVL3_5-8B"):
        assert flag(asked(name, "0.33.0"), "--mm-encoder-tp-mode") == "data"
    assert flag(asked(M3, "0.28.0"), "--block-size") == "128"
    assert flag(asked(M3, "0.33.0"), "--block-size") is None
    assert flag(asked(V4, "0.28.0"), "--kv-cache-dtype") == "fp8"
    assert flag(asked(V4, "0.22.0"), "--kv-cache-dtype") == "fp8"
    assert flag(asked(V4, "0.33.0"), "--kv-cache-dtype") is None
    assert "VLLM-V4-KV" in rules_of(asked(V4, "0.28.0", kv="bfloat16"))
    assert "VLLM-V4-KV" in rules_of(asked(V41, "0.33.0", kv="bfloat16"))
    assert "VLLM-V41-KV" in rules_of(asked(V41, "0.33.0", kv="fp8_e4m3"))
    assert "VLLM-V41-KV" not in rules_of(asked(V41, "0.30.0", kv="fp8_e4m3"))
    assert not {"VLLM-V4-KV", "VLLM-V41-KV"} & rules_of(asked(V41, "0.33.0", kv="fp8"))


@pytest.mark.parametrize(
    ("name", "version", "gpu", "rules"),
    [
        ("moonshotai/Kimi-K3", "0.33.0", "MI325X", {"VLLM-K3-MXFP4"}),
        # No release has these configurations: the checkpoint's own code does.
        ("inclusionAI/Ring-1T-FP8", "0.33.0", "MI325X", {"VLLM-CONFIG-CODE"}),
        ("internlm/Intern-S1", "0.33.0", "MI325X", {"VLLM-CONFIG-CODE"}),
        ("OpenGVLab/InternVL3_5-8B", "0.33.0", "MI325X", {"VLLM-CONFIG-CODE"}),
        ("XiaomiMiMo/MiMo-V2.6-Flash-RL", "0.33.0", "MI325X", {"VLLM-CONFIG-CODE"}),
        ("moonshotai/Kimi-K3", "0.33.0", "MI355X", set()),
        ("moonshotai/Kimi-K3", "0.20.2", "MI355X", {"VLLM-MODEL-CLASS", "VLLM-CONFIG-CODE"}),
        (V4, "0.18.1", "MI325X", {"VLLM-MODEL-CLASS"}),
        ("zai-org/GLM-5.2", "0.16.0", "MI325X", {"VLLM-CONFIG-UNKNOWN"}),
        ("zai-org/GLM-5.2", "0.24.0", "MI325X", {"VLLM-47042"}),
        (NEMOTRON, "0.18.1", "MI325X", {"VLLM-CONFIG-CODE"}),
        ("nvidia/DeepSeek-V3.1-NVFP4", "0.16.0", "MI325X", {"VLLM-QUANTIZATION-ROCM"}),
    ],
)
def test_what_a_release_or_gpu_lacks_is_refused(name, version, gpu, rules):
    assert rules_of(asked(name, version, gpu=gpu)) == rules


def test_weights_without_a_kernel_are_refused():
    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    mixed = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
    }
    changes = {"quantization_config": mixed}
    assert rules_of(asked(HYBRID, "0.33.0", changes=changes)) == {"VLLM-NVFP4-W4A16"}


@pytest.mark.parametrize(
    ("version", "rules"),
    [("0.20.2", set()), ("0.21.0", {"VLLM-NVFP4-W4A16"}), ("0.25.1", {"VLLM-NVFP4-W4A16"})],
)
def test_four_bit_weights_are_refused_from_the_release_that_reads_them(version, rules):
    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    changes = {"quantization_config": mixed | {"quantized_layers": layers}}
    assert rules_of(asked(HYBRID, version, changes=changes)) & {"VLLM-NVFP4-W4A16"} == rules


@pytest.mark.parametrize(
    ("name", "version", "changes", "rule"),
    [
        ("JetBrains/Mellum2-12B-A2.5B-Base", "0.19.0", {}, "VLLM-CONFIG-UNKNOWN"),
        ("JetBrains/Mellum2-12B-A2.5B-Base", "0.19.1", {}, None),  # by Transformers' own class
        (MIMO, "0.19.0", {}, "VLLM-CONFIG-UNKNOWN"),
        (MIMO, "0.19.1", {}, None),
        ("tencent/Hy4-preview", "0.28.0", {}, "VLLM-CONFIG-UNKNOWN"),
        ("tencent/Hy4-preview", "0.29.0", {}, "VLLM-MODEL-ROCM"),
        ("tencent/Hy4-preview", "0.30.0", {}, None),
        (KIMI_LINEAR, "0.11.2", {}, None),
        (KIMI_LINEAR, "0.12.0", {}, "VLLM-KIMI-LINEAR"),
        (KIMI_LINEAR, "0.13.0", {}, None),
        (MINISTRAL, "0.11.2", {}, "VLLM-CONFIG-TEXT"),
        (MINISTRAL, "0.12.0", {}, None),
        (MINISTRAL, "0.12.0", HF, "VLLM-CONFIG-TEXT-HF"),
        (MINISTRAL, "0.19.1", HF, "VLLM-CONFIG-TEXT-HF"),
        (MINISTRAL, "0.20.0", HF, None),
        (NEMOTRON, "0.14.1", {"args": TRUSTED}, "VLLM-NO-GATE"),
        (NEMOTRON, "0.16.0", {"args": TRUSTED}, None),
        ("nvidia/Nemotron-H-56B-Base-8K", "0.14.1", {"args": TRUSTED}, None),  # no experts
        (KIMI, "0.17.1", {"args": TRUSTED | EAGLE3}, "VLLM-DRAFT-TARGET-DEEPSEEK"),
        (KIMI, "0.18.0", {"args": TRUSTED | EAGLE3}, None),
        (V32, "0.14.1", {"args": EAGLE3, "size": 4}, "VLLM-DRAFT-TARGET-DEEPSEEK"),
        (KIMI_LINEAR, "0.16.0", {"args": NGRAM}, "VLLM-STATE-SPECULATION"),
        (KIMI_LINEAR, "0.17.0", {"args": NGRAM}, None),
        (KIMI_LINEAR, "0.14.1", {"kv": "fp8"}, "VLLM-MLA-FP8-KV"),
        (MIMO_MXFP4, "0.18.1", {"args": TRUSTED}, "VLLM-MODEL-CLASS"),
        (M3, "0.19.0", {"args": TRUSTED}, "VLLM-MODEL-CLASS"),
        (M3, "0.19.1", {}, "VLLM-GENERIC-CLASS"),
        (M3, "0.23.0", {}, "VLLM-GENERIC-CLASS"),
        (V4, "0.20.2", {}, "VLLM-QUANTIZATION-ROCM"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "0.13.0", {}, "VLLM-NVFP4-PETIT"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "0.14.1", {}, "VLLM-QUANTIZATION-ROCM"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "0.19.1", {}, "VLLM-QUANTIZATION-ROCM"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "0.20.0", {}, None),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "0.20.0", {"kv": "fp8_e5m2"}, "VLLM-KV-E5M2-MODELOPT"),
        (MIMO_MXFP4, "0.24.0", {"args": TRUSTED}, "VLLM-MIMO-MXFP4"),
        (MIMO_MXFP4, "0.26.0", {"args": TRUSTED}, "VLLM-MIMO-MXFP4"),
        (MIMO_MXFP4, "0.27.0", {"args": TRUSTED}, None),
        (MIMO_MXFP4, "0.26.0", {"args": TRUSTED, "gpu": "MI355X"}, None),
        (MIMO_MXFP4, "0.26.0", {"args": TRUSTED, "gpu": "MI355X", "env": OFF}, "VLLM-MIMO-AITER"),
    ],
)
def test_older_releases_refuse_what_their_transformers_or_rocm_lack(name, version, changes, rule):
    assert rules_of(asked(name, version, **changes)) == ({rule} if rule else set())


def test_an_older_release_takes_no_unknown_key_of_speculation():
    args = {"speculative-config": {"method": "mtp", "moe_backend": "triton"}}
    args["speculative-config"]["num_speculative_tokens"] = 1
    refused = asked(HYBRID, "0.18.1", args=args).refused
    assert [(one.rule, one.stage) for one in refused] == [("VLLM-KNOWN-KEY", "config")]
    assert rules_of(asked(HYBRID, "0.19.0", args=args)) == set()


@pytest.mark.parametrize(
    ("name", "version", "changes", "refused"),
    [
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "0.33.0", {}, True),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "0.21.0", {}, True),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "0.20.2", {}, False),  # which takes none on ROCm
        ("nvidia/Kimi-K2.5-NVFP4", "0.33.0", {}, True),
        ("Qwen/Qwen3-32B", "0.33.0", MIXED_FP8, False),
        ("Qwen/Qwen3-32B", "0.33.0", MIXED_FP8 | {"kv_cache_quant_algo": "FP8"}, True),
    ],
)
def test_an_e5m2_cache_is_refused_where_modelopt_has_scales(name, version, changes, refused):
    changes = {"quantization_config": changes} if changes else {}
    found = rules_of(asked(name, version, changes=changes, kv="fp8_e5m2"))
    assert ("VLLM-KV-E5M2-MODELOPT" in found) is refused


@pytest.mark.parametrize(("version", "refused"), [("0.23.0", True), ("0.25.1", False)])
def test_mimo_has_no_sinks_before_its_triton_backend(version, refused):
    found = rules_of(asked(MIMO, version, args={"trust-remote-code": True}))
    assert ("VLLM-DIFFKV-SINKS" in found) is refused


@pytest.mark.parametrize(("size", "refused"), [(3, True), (4, False)])
def test_a_vocabulary_that_the_gpus_cannot_split_is_refused(size, refused):
    # 96 heads, and 163,840 words.
    found = rules_of(asked("moonshotai/Kimi-K3", "0.33.0", size, gpu="MI355X"))
    assert found == ({"VLLM-TP-VOCABULARY"} if refused else set())


@pytest.mark.parametrize("off", ["VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"])
def test_without_aiter_no_kernel_has_kimi_k3s_activation(off):
    for gpu, rule in (("MI355X", "VLLM-K3-AITER"), ("MI325X", "VLLM-K3-MXFP4")):
        found = rules_of(asked("moonshotai/Kimi-K3", "0.33.0", gpu=gpu, env={off: 0}))
        assert found == {rule}


@pytest.mark.parametrize(("version", "refused"), [("0.25.1", True), ("0.28.0", False)])
def test_clamped_nvfp4_experts_have_no_kernel_before_0_28(version, refused):
    found = rules_of(asked(V4, version, changes={"quantization_config": NVFP4_EXPERTS}))
    assert ("VLLM-NVFP4-CLAMPED" in found) is refused


def test_mamba_groups_are_split_or_there_is_one():
    assert rules_of(asked(NEMOTRON, "0.33.0", 8)) == set()  # 8 groups
    five = {"n_groups": 6}
    assert "VLLM-MAMBA-GROUPS" in rules_of(asked(NEMOTRON, "0.33.0", 4, changes=five))
    assert "VLLM-MAMBA-GROUPS" not in rules_of(
        asked(NEMOTRON, "0.33.0", 4, changes={"n_groups": 1})
    )


@pytest.mark.parametrize("size", [4, 8])
def test_mimos_projection_is_no_false_alarm(size):
    assert rules_of(asked(MIMO, "0.28.0", size)) <= {"VLLM-MOE-BLOCK"}


@pytest.mark.parametrize(
    ("version", "refused"), [("0.10.2", True), ("0.11.2.post2", True), ("0.12.0", False)]
)
def test_an_fp8_cache_of_latents_runs_on_aiter_from_0_12_on(version, refused):
    yes = {"trust-remote-code": True}
    assert not rules_of(asked(KIMI, "0.16.0", 4, kv="fp8", args=yes))
    old = asked(KIMI, version, 4, kv="fp8", args=yes)  # and too old for the model
    assert ("VLLM-AITER-MLA-FP8-KV" in rules_of(old)) is refused


@pytest.mark.parametrize(
    ("gpu", "ep", "experts"),
    [("MI355X", True, "0"), ("MI355X", False, None), ("MI325X", True, None)],
)
def test_whole_experts_of_minimax_m2_avoid_aiter_on_gfx950(gpu, ep, experts):
    """vllm#43605: a memory fault at start."""
    config = CONFIGS["Qwen/Qwen3-30B-A3B"]
    keys = ("hidden_size", "head_dim", "num_attention_heads", "num_key_value_heads", "vocab_size")
    m2 = {key: config[key] for key in (*keys, "num_hidden_layers", "max_position_embeddings")}
    m2 |= {"model_type": "minimax_m2", "num_local_experts": 256, "num_experts_per_tok": 8}
    m2 |= {"intermediate_size": 1536, "architectures": ["MiniMaxM2ForCausalLM"]}
    m2 |= {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    deployment = Deployment(
        name="d",
        model=ModelSpec("m2", "/srv/model"),
        engine=EngineSpec("0.22.1"),
        layout=Layout(8, 1, ep),
    )
    made = assess(read_config(json.dumps(m2), "m2"), deployment, gpu, 8000)
    assert made.recipe.env.get("VLLM_ROCM_USE_AITER_MOE") == experts


@pytest.mark.parametrize(
    ("version", "gpu", "kv", "switch"),
    [
        ("0.27.1", "MI325X", "fp8", "0"),
        ("0.27.1", "MI325X", "auto", "0"),
        ("0.27.1", "MI355X", "fp8", "0"),  # vllm#50563: no FP8 query
        ("0.27.1", "MI355X", "auto", None),
        ("0.28.0", "MI325X", "fp8", None),
        ("0.28.0", "MI355X", "fp8", None),
    ],
)
def test_our_own_recipe_for_kimi_avoids_what_the_gluon_kernel_cannot_take(version, gpu, kv, switch):
    """vllm#51964: mla_gluon requires gfx950."""
    yes = {"trust-remote-code": True}
    made = asked(KIMI, version, 8, gpu=gpu, kv=kv, args=yes)
    assert made.recipe.env.get("VLLM_ROCM_USE_AITER_MLA") == switch


NVFP4 = "nvidia/Qwen3-235B-A22B-NVFP4"


@pytest.mark.parametrize(
    ("name", "version", "gpu", "said"),
    [
        (NVFP4, "0.33.0", "MI325X", True),
        (NVFP4, "0.33.0", "MI355X", True),
        (NVFP4, "0.21.0", "MI325X", True),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "0.33.0", "MI355X", True),  # its experts
        (V4, "0.33.0", "MI355X", False),  # MXFP4: a kernel of its own
        (KIMI, "0.33.0", "MI325X", False),  # INT4
        (HYBRID, "0.33.0", "MI325X", False),
    ],
)
def test_nvfp4_is_emulated_on_every_gpu_of_amd(name, version, gpu, said):
    made = asked(name, version, 8, gpu=gpu, args={"trust-remote-code": True})
    found = [item for item in made.recipe.findings if item.code == "ENGINE-NVFP4-EMULATED"]
    assert [item.severity for item in found] == (["warning"] if said else [])
    assert all(gpu in item.message for item in found)


@pytest.mark.parametrize(("gpu", "switch"), [("MI325X", "0"), ("MI210", "0"), ("MI100", None)])
@pytest.mark.parametrize(
    ("config", "version"),
    [
        ({"model_type": "gpt_oss", "num_attention_heads": 64, "head_dim": 64}, "0.12.0"),  # sinks
        ({"model_type": "llama", "num_attention_heads": 32, "head_dim": 96}, "0.17.1"),
    ],
)
def test_flash_attention_is_switched_off_only_where_aiter_has_it(config, version, gpu, switch):
    deployment = Deployment(
        name="d",
        model=ModelSpec("m", "/srv/model"),
        engine=EngineSpec(version, env={"VLLM_ROCM_USE_AITER": 1}),
        layout=Layout(1, 1),
    )
    made = assess(read_config(json.dumps(config), "m"), deployment, gpu, 8000)
    assert made.recipe.env.get("VLLM_ROCM_USE_AITER_MHA") == switch


@pytest.mark.parametrize(
    ("version", "size", "refused"),
    [("0.26.0", 8, False), ("0.27.0", 8, True), ("0.27.0", 4, False)],
)
def test_padded_experts_of_kimi_linear_are_refused_from_the_release_that_pads_them(
    version, size, refused
):
    made = asked(KIMI_LINEAR, version, size)
    assert ("VLLM-KIMI-LINEAR-PADDED" in rules_of(made)) is refused


@pytest.mark.parametrize(("version", "noted"), [("0.30.0", False), ("0.31.0", True)])
def test_tables_in_host_memory_are_noted_where_the_plan_does_not_count_them(version, noted):
    made = asked(V41, version, args=TRUSTED)
    assert ("ENGINE-OFFLOAD-MEMORY" in {one.code for one in made.recipe.findings}) is noted
