# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Known defects of a kind of model, by what of it runs in a release."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from support.defects import (
    DEEPSEEK_R1,
    EAGLE3,
    GLM,
    KIMI_K3,
    KIMI_LINEAR,
    M3,
    MINIMAX,
    MLA,
    MTP_1,
    QWEN_397B,
    V4,
    WINDOWS,
    assessed,
    reported,
)
from support.engines import DEEPSEEK


def test_latent_attention_counts_where_other_layers_recur():
    for cache, off in (("fp8", "0"), ("auto", None)):
        made = assessed(KIMI_K3, "0.27.1", "MI355X", 8, {"kv_cache_dtype": cache}).recipe
        assert made.env.get("VLLM_ROCM_USE_AITER_MLA") == off


FP8_CACHE = {"kv_cache_dtype": "fp8"}
OFFLOAD = {"args": {"kv-offloading-size": 64}}
TRITON = {"args": {"attention-backend": "ROCM_AITER_TRITON_MLA"}}


@pytest.mark.parametrize(
    ("name", "model", "release", "gpu", "size", "more"),
    [
        ("VLLM-52312", KIMI_K3, "0.28.0", "MI355X", 8, {"aiter": "0.1.19"}),
        ("VLLM-46952", KIMI_LINEAR, "0.24.0", "MI355X", 1, FP8_CACHE | {"aiter": "0.1.16.post2"}),
        ("VLLM-46760", KIMI_LINEAR, "0.24.0", "MI355X", 2, {"aiter": "0.1.16.post2"}),
        ("VLLM-38145", KIMI_LINEAR, "0.13.0", "MI325X", 2, TRITON),
        ("AITER-3139", KIMI_LINEAR, "0.19.1", "MI325X", 2, {"aiter": "0.1.10.post2"}),
    ],
)
def test_a_defect_of_latent_attention_is_of_the_hybrids_that_have_such_layers(
    name, model, release, gpu, size, more
):
    assert name in reported(assessed(model, release, gpu, size, more))
    others = dataclasses.replace(model, model_type="qwen3_next", kv_heads=2, details={})
    assert name not in reported(assessed(others, release, gpu, size, more))


@pytest.mark.parametrize(
    ("size", "version", "rules_of_it"),
    [
        (8, "0.17.1", {"VLLM-MLA-FP8-KV"}),  # 4 heads a GPU, for which AITER has no kernel
        (2, "0.17.1", set()),
        (2, "0.11.0", {"VLLM-AITER-MLA-FP8-KV"}),
        (8, "0.18.1", set()),
    ],
)
def test_an_fp8_cache_of_latent_layers_is_refused_in_hybrids_too(size, version, rules_of_it):
    refused = assessed(KIMI_LINEAR, version, "MI325X", size, FP8_CACHE).refused
    fp8 = {item.rule for item in refused if item.rule.endswith("MLA-FP8-KV")}
    assert fp8 == rules_of_it


def test_garbage_of_fp4_latents_is_of_a_16_bit_attention_on_gfx950():
    for gpu, quantization, concerned in (
        ("MI355X", "quark", True),
        ("MI355X", "fp8", False),
        ("MI325X", "quark", False),
    ):
        glm = dataclasses.replace(GLM, quantization=quantization)
        assert ("AITER-4181" in reported(assessed(glm, "0.29.0", gpu, 8, {}))) is concerned


def test_latent_layers_of_hybrids_multiply_no_fp4_on_gfx942():
    for model, value in ((KIMI_LINEAR, "0"), (QWEN_397B, None)):
        made = assessed(model, "0.16.0", "MI325X", 8, {}).recipe
        assert made.env.get("VLLM_ROCM_USE_AITER_FP4BMM") == value


def test_layouts_of_keys_and_values_are_not_those_of_hybrids_with_latent_attention():
    shuffled = {"env": {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": 1}}
    lmcache = {"args": {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}}}
    for name, release, more in (
        ("VLLM-39192", "0.22.1", shuffled),
        ("LMCACHE-4463", "0.28.0", lmcache),
    ):
        for model, concerned in ((QWEN_397B, True), (KIMI_LINEAR, False)):
            assert (name in reported(assessed(model, release, "MI325X", 8, more))) is concerned


def test_fp4_multiplication_of_glm_is_noted_in_the_newest_only_where_it_is_switched_on():
    model = dataclasses.replace(GLM, quantization="none")
    names = reported(assessed(model, "0.33.0", "MI355X", 8, {}))
    assert not {"AITER-4181", "AITER-4181-LATER", "AITER-4181-ON"} & set(names)


@pytest.mark.parametrize(
    ("release", "concerned"), [("0.16.0", True), ("0.20.2", True), ("0.21.0", False)]
)
def test_kv_offload_of_old_releases_starts_without_the_hybrid_cache_manager_alone(
    release, concerned
):
    made = assessed(MINIMAX, release, "MI325X", 4, OFFLOAD)
    assert ("--disable-hybrid-kv-cache-manager" in made.recipe.argv) is concerned
    assert ("KVCACHED-267" in reported(made)) is concerned
    assert "KVCACHED-267-WINDOWS" not in reported(made)
    windows = assessed(WINDOWS, release, "MI325X", 4, OFFLOAD)
    assert ("KVCACHED-267-WINDOWS" in reported(windows)) is concerned
    hybrid = assessed(QWEN_397B, release, "MI325X", 4, OFFLOAD)
    assert "--disable-hybrid-kv-cache-manager" not in hybrid.recipe.argv
    assert ("KVCACHED-267-HYBRID" in reported(hybrid)) is concerned


@pytest.mark.parametrize(
    ("release", "more", "names"),
    [
        ("0.27.1", {}, {"AITER-5192", "VLLM-50347"}),
        ("0.28.0", {}, set()),
        ("0.28.0", {"env": {"VLLM_USE_V2_MODEL_RUNNER": 0}}, {"AITER-5192"}),
        ("0.28.0", {"args": {"speculative-config": MTP_1}}, {"VLLM-50347"}),
        ("0.27.1", {"kv_cache_dtype": "fp8"}, {"AITER-5192"}),
    ],
)
def test_kimi_k3s_defects_are_of_what_its_release_runs(release, more, names):
    both = {"AITER-5192", "VLLM-50347"}
    more = {"aiter": "0.1.19", **more}
    assert reported(assessed(KIMI_K3, release, "MI355X", 8, more)) & both == names


@pytest.mark.parametrize(
    ("model", "release", "env", "first"),
    [
        (MINIMAX, "0.28.0", {}, True),
        (MINIMAX, "0.29.0", {}, False),
        (MINIMAX, "0.33.0", {"VLLM_USE_V2_MODEL_RUNNER": 0}, True),
        (known(DEEPSEEK), "0.31.0", {}, True),
        (GLM, "0.29.0", {}, False),
        (GLM, "0.32.0", {}, False),
        (V4, "0.29.0", {}, True),
        (V4, "0.32.0", {}, False),
    ],
)
def test_aiter_samples_in_the_first_model_runner_alone(model, release, env, first):
    more = {"env": {"VLLM_ROCM_USE_AITER": 1, **env}, "aiter": "0.1.19"}
    assert ("AITER-5192-OTHERS" in reported(assessed(model, release, "MI355X", 8, more))) is first
    warm_up = first and release >= "0.30.0"
    more |= {"aiter": "0.1.20"}
    assert ("AITER-4830" in reported(assessed(model, release, "MI325X", 8, more))) is warm_up


@pytest.mark.parametrize(("env", "refused"), [({}, False), ({"VLLM_USE_V2_MODEL_RUNNER": 1}, True)])
def test_a_defect_of_the_second_model_runner_is_said_where_it_runs(env, refused):
    graphs = {"compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}
    more = {"args": graphs, "env": env, "kv_cache_dtype": "fp8"}
    assert ("VLLM-52644" in reported(assessed(V4, "0.28.0", "MI355X", 8, more))) is refused


@pytest.mark.parametrize(
    ("connector", "role", "refused"),
    [
        ("NixlConnector", "kv_both", True),
        ("MoRIIOConnector", "kv_consumer", True),
        ("MoRIIOConnector", "kv_producer", False),
        ("OffloadingConnector", "kv_both", False),
    ],
)
def test_only_an_engine_that_decodes_what_another_has_read_replays_it_wrongly(
    connector, role, refused
):
    more = {"args": {"kv-transfer-config": {"kv_connector": connector, "kv_role": role}}}
    assert ("VLLM-57064" in reported(assessed(GLM, "0.30.0", "MI325X", 8, more))) is refused


def test_latent_attention_has_no_layout_that_lmcache_reads_wrongly():
    more = {"args": {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}}}
    for model, refused in ((MINIMAX, True), (DEEPSEEK_R1, False)):
        assert ("LMCACHE-4463" in reported(assessed(model, "0.28.0", "MI325X", 8, more))) is refused


@pytest.mark.parametrize(
    ("release", "expected"), [("0.29.0", False), ("0.31.0", True), ("0.32.0", False)]
)
def test_the_first_model_runner_is_named_where_it_is_the_default(release, expected):
    glm = dataclasses.replace(GLM, quantization="quark")
    assert ("VLLM-54924" in reported(assessed(glm, release, "MI355X", 4, {}))) is expected


@pytest.mark.parametrize(
    ("release", "runner", "expected"),
    [("0.23.0", None, False), ("0.24.0", None, True), ("0.24.0", 0, False), ("0.25.0", 1, False)],
)
def test_quantized_llama_runs_on_the_second_runner_where_it_is_its_default(
    release, runner, expected
):
    model = Architecture("llama", "dense", "gqa", quantization="compressed-tensors")
    more = {} if runner is None else {"env": {"VLLM_USE_V2_MODEL_RUNNER": runner}}
    assert ("VLLM-46179" in reported(assessed(model, release, "MI300X", 1, more))) is expected


@pytest.mark.parametrize(
    ("release", "more", "refused"),
    [
        ("0.22.1", {}, False),
        ("0.23.0", {}, True),
        ("0.24.0", {"max_num_batched_tokens": 8192}, True),
        ("0.24.0", {"max_num_batched_tokens": 202752}, False),
        ("0.25.0", {}, False),
    ],
)
def test_a_prompt_is_read_wrongly_in_several_steps_alone(release, more, refused):
    assert ("VLLM-47042" in reported(assessed(GLM, release, "MI300X", 8, more))) is refused


@pytest.mark.parametrize(
    ("gpu", "avoided"), [("MI355X", True), ("MI308X", True), ("MI325X", False)]
)
def test_a_kernel_is_avoided_on_the_gpus_it_has_shapes_for(gpu, avoided):
    reasons = assessed(V4, "0.30.0", gpu, 8, {"kv_cache_dtype": "fp8"}).recipe.reasons
    assert ("VLLM-57132" in [item.rule for item in reasons]) is avoided


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"attention-backend": "ROCM_AITER_FA"}, {"VLLM-54180"}),
        ({"speculative-config": {**EAGLE3, "attention_backend": "ROCM_AITER_FA"}}, {"VLLM-54180"}),
        ({"speculative-config": EAGLE3}, {"VLLM-47854"}),
        ({"speculative-config": EAGLE3, "kv-offloading-size": 64}, set()),
    ],
)
def test_what_minimax_m3_and_its_draft_attend_with_is_named(args, expected):
    found = reported(assessed(M3, "0.28.0", "MI325X", 8, {"args": args}))
    assert found & {"VLLM-54180", "VLLM-47854"} == expected


@pytest.mark.parametrize(
    ("version", "gpu", "rule"),
    [
        ("0.26.0", "MI355X", "VLLM-AITER-MLA-OFF"),  # the constructor's own assertion, on any GPU
        ("0.26.0", "MI325X", "VLLM-AITER-MLA-OFF"),
        ("0.27.1", "MI355X", None),
        ("0.27.1", "MI325X", "VLLM-51964"),  # its decoding kernel is gfx950's
        ("0.28.0", "MI325X", None),
    ],
)
def test_twelve_heads_a_gpu_take_aiters_latent_attention_where_it_has_them(version, gpu, rule):
    model = Architecture("deepseek_v3", **MLA, heads=96)
    made = assessed(model, version, gpu, 8, {}).recipe
    assert made.env.get("VLLM_ROCM_USE_AITER_MLA") == ("0" if rule else None)
    by = [item.rule for item in made.reasons if item.element == "VLLM_ROCM_USE_AITER_MLA"]
    assert by == ([rule] if rule else [])
