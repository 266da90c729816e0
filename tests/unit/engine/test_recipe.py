# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recipes by version, model and layout: what is in them, and what they say."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import NodeRank
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import (
    assess,
    recipe,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
)

from support.compact import compact
from support.engines import (
    DEEPSEEK,
    KIMI,
    LLAMA,
    QWEN,
    STUDIED,
    deployment,
    published,
)
from support.recipes import flags_of, make, recorded, said


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("version", ["0.12.0", "0.14.1", "0.33.0"])
def test_published_recipe(golden, version, size):
    layout = {4: "dp2-tp4-ep4", 8: "dp1-tp8-ep8"}[size]
    golden(
        f"recipes/qwen3-235b-fp8-{layout}-{version}.json", recorded(make(published(version, size)))
    )


@pytest.mark.parametrize("model", STUDIED)
@pytest.mark.parametrize("version", ["0.14.1", "0.33.0"])
def test_studied_recipe(golden, version, model):
    """What each of the study's recipes is in its own version and the newest, or why it is not."""
    asked = STUDIED[model](version)
    assessment = assess(known(asked.model.name), asked, "MI325X", 8000)
    if assessment.refused:
        golden(f"recipes/refused/{model}-{version}.json", compact(dumps(assessment.refused)))
    else:
        golden(f"recipes/{model}-{version}.json", recorded(assessment.recipe))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("version", ["0.20.2", "0.33.0"])
@pytest.mark.parametrize(
    ("model", "tensor", "pipeline"), [(LLAMA, 8, 2), (LLAMA, 16, 1), (DEEPSEEK, 8, 2)]
)
def test_recipe_of_a_replica_over_two_hosts(golden, model, tensor, pipeline, version, rank):
    asked = deployment(model, version, max_model_len=32768)
    layout = Layout(tensor, 1, pipeline_parallel_size=pipeline, nodes=2)
    asked = dataclasses.replace(asked, layout=layout)
    made = recipe(known(model), asked, "MI325X", 8000, NodeRank(rank, "10.0.0.1", 12000))
    assert ("--headless" in made.argv) == (rank == 1)
    name = model.rpartition("/")[2].lower()
    golden(f"recipes/{name}-tp{tensor}-pp{pipeline}-rank{rank}-{version}.json", recorded(made))


def test_tensor_parallelism_over_hosts_is_warned_of():
    def told(layout):
        asked = dataclasses.replace(deployment(LLAMA, max_model_len=32768), layout=layout)
        return {one.code for one in make(asked).findings}

    assert "ENGINE-NODES-TP" in told(Layout(16, nodes=2))
    assert "ENGINE-NODES-TP" not in told(Layout(8, pipeline_parallel_size=2, nodes=2))


def test_the_published_recipe_on_the_newest_version_is_the_translated_one():
    made = make(published("0.33.0"), port=8001)
    assert made.argv == (
        *("serve", "/srv/models/current", "--served-model-name", QWEN),
        *("--host", "0.0.0.0", "--port", "8001"),
        *("--tensor-parallel-size", "4", "--enable-expert-parallel"),
        *("--attention-backend", "ROCM_AITER_FA", "--kv-cache-dtype", "fp8"),
        *("--max-model-len", "32768", "--max-num-batched-tokens", "32768"),
        *("--gpu-memory-utilization", "0.9"),
        *("--safetensors-load-strategy", "prefetch"),
        *("--disable-access-log-for-endpoints", "/health,/metrics", "--shutdown-timeout", "60"),
        *("--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
    )
    assert made.env == {
        "VLLM_ROCM_USE_AITER": "1",
        "HIP_FORCE_DEV_KERNARG": "1",
        "SAFETENSORS_FAST_GPU": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "HSA_OVERRIDE_CPU_AFFINITY_DEBUG": "0",
        "HF_HUB_OFFLINE": "1",
    }
    assert {finding.severity for finding in made.findings} == {"info"}


@pytest.mark.parametrize(
    ("element", "first"),
    [
        ("--attention-backend", "0.13.0"),
        ("--shutdown-timeout", "0.18.0"),
        ("--safetensors-load-strategy", "0.18.0"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "0.14.1"),
        ("--enable-expert-parallel", "0.9.2"),
    ],
)
def test_an_element_is_there_from_its_version_on(element, first):
    with_it = [
        version
        for version in versions()
        if element in (*(made := make(published(version))).argv, *made.env)
    ]
    assert with_it == list(versions()[versions().index(first) :])


@pytest.mark.parametrize("version", versions())
def test_every_element_has_one_reason(version):
    made = make(published(version))
    elements = [*made.env, *(part for part in made.argv if part.startswith("--"))]
    assert sorted(reason.element for reason in made.reasons) == sorted([*elements, "model"])
    assert all(reason.rule and reason.reason and reason.source for reason in made.reasons)


def test_the_order_is_the_same_each_time():
    asked = published("0.33.0")
    assert make(asked) == make(asked)
    assert list(make(asked).env) == list(make(asked).env)


def test_limits_that_are_not_set_leave_no_flag():
    flags = flags_of(make(deployment(size=4, ep=True)))
    assert not {"--max-model-len", "--max-num-batched-tokens", "--max-num-seqs"} & set(flags)
    assert "--kv-cache-dtype" not in flags


@pytest.mark.parametrize(
    ("gpu", "size", "expected"),
    [
        ("MI300X", 8, "112"),
        ("MI325X", 8, "112"),
        ("MI325X", 4, None),  # RCCL itself presets 24 and 32 for 4 and 2 of them
        ("MI325X", 2, None),
        ("MI325X", 1, None),
        ("MI355X", 8, None),
        (None, 4, None),
    ],
)
def test_channels_are_raised_only_where_amd_says_so(gpu, size, expected):
    assert (
        make(deployment(size=size, ep=size == 8, max_model_len=4096), gpu).env.get(
            "NCCL_MIN_NCHANNELS"
        )
        == expected
    )


@pytest.mark.parametrize(
    ("gpu", "aiter"), [("MI300X", "1"), ("MI355X", "1"), ("MI250X", None), ("MI100", None)]
)
def test_aiter_is_on_where_its_kernels_exist(gpu, aiter):
    made = make(deployment(size=4), gpu)
    assert made.env.get("VLLM_ROCM_USE_AITER") == aiter
    assert ("--attention-backend" in made.argv) == (aiter == "1")


@pytest.mark.parametrize("gpu", [None, "Radeon"])
def test_an_unknown_gpu_is_said(gpu):
    made = make(deployment(size=4), gpu)
    assert "VLLM_ROCM_USE_AITER" not in made.env
    (finding,) = said(made)
    assert (finding.code, finding.subject) == ("ENGINE-RULE-UNCHECKED", "VLLM-AITER")
    assert finding.severity == "warning"


def test_an_unknown_gpu_does_not_matter_once_the_operator_decides():
    made = make(deployment(size=4, env={"VLLM_ROCM_USE_AITER": 0}), None)
    assert said(made) == []


def test_an_unknown_architecture_is_said_and_not_refused():
    asked = deployment("nobody/new", size=4)
    made = recipe(architecture({"model_type": "new"}, "x"), asked, "MI325X", 8000)
    assert [item.subject for item in said(made)] == ["VLLM-TP-HEADS", "VLLM-TP-KV-HEADS"]
    assert made.attention_backend is None
    assert "--attention-backend" not in made.argv


def test_a_version_treated_as_another_gets_its_recipe_and_a_warning():
    made = make(deployment(version="0.40.0", treat_as="0.12.0"))
    assert made.version == "0.40.0"
    assert made.argv == make(deployment(version="0.12.0")).argv
    assert made.rules_of == "0.12.0"
    assert [finding.code for finding in said(made)] == ["ENGINE-TREATED-AS"]


def test_an_unknown_version_gets_the_nearest_known_one_below_and_a_warning():
    made = make(deployment(version="0.20.5"))
    assert (made.version, made.rules_of) == ("0.20.5", "0.20.2")
    assert made.argv == make(deployment(version="0.20.2")).argv
    assert [finding.code for finding in said(made)] == ["ENGINE-NEAREST-VERSION"]


@pytest.mark.parametrize(
    ("name", "version", "size", "block_size"),
    [
        (DEEPSEEK, "0.12.0", 8, "1"),
        (DEEPSEEK, "0.14.1", 8, "1"),
        (DEEPSEEK, "0.17.1", 8, "1"),
        (DEEPSEEK, "0.18.1", 8, None),
        (DEEPSEEK, "0.33.0", 8, None),
        (KIMI, "0.15.1", 4, None),
        (QWEN, "0.14.1", 4, None),
    ],
)
def test_block_size_is_given_only_where_it_must_be(name, version, size, block_size):
    assert flags_of(make(deployment(name, version, size))).get("--block-size") == block_size


@pytest.mark.parametrize(
    ("version", "size", "off"),
    [
        ("0.15.1", 4, False),  # 16 heads a GPU
        ("0.15.1", 8, True),  # 8 heads: Triton takes them
        ("0.17.1", 8, True),
        ("0.18.1", 8, False),
        ("0.18.1", 2, False),
        ("0.33.0", 8, False),
    ],
)
def test_aiter_mla_is_off_where_it_lacks_the_head_count(version, size, off):
    made = make(deployment(KIMI, version, size, max_model_len=4096))
    assert made.env.get("VLLM_ROCM_USE_AITER_MLA") == ("0" if off else None)
    assert made.env["VLLM_ROCM_USE_AITER"] == "1"


@pytest.mark.parametrize(
    ("args", "env"),
    [
        ({"attention-config": {"backend": "TRITON_ATTN"}}, {}),
        ({"attention-config.backend": "TRITON_ATTN"}, {}),
        ({}, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}),
    ],
)
def test_a_backend_that_the_operator_names_elsewhere_is_not_named_again(args, env):
    made = make(deployment(version="0.14.1", args=args, env=env))
    assert "--attention-backend" not in made.argv
    assert made.attention_backend == "TRITON_ATTN"


@pytest.mark.parametrize(
    ("asked", "gpu", "code"),
    [
        (
            deployment(max_model_len=300_000, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": 1}),
            "MI325X",
            "ENGINE-CONTEXT-ALLOWED",
        ),
        (deployment(env={"VLLM_ROCM_USE_AITER": 0}), "MI325X", "ENGINE-AITER-OFF"),
        (deployment(args={"enforce-eager": True}), "MI325X", "ENGINE-GRAPH-OFF"),
        (
            deployment(args={"max-cudagraph-capture-size": 32768}),
            "MI325X",
            "ENGINE-GRAPH-CAPTURE",
        ),
        (
            deployment(size=1, version="0.32.0", env={"NCCL_MIN_NCHANNELS": 112}),
            "MI325X",
            "ENGINE-NCHANNELS",
        ),
        (deployment(env={"NCCL_MIN_NCHANNELS": 112}), "MI355X", "ENGINE-NCHANNELS"),
    ],
)
def test_what_one_should_know_is_a_warning(asked, gpu, code):
    made = make(asked, gpu)
    assert [(item.code, item.severity) for item in said(made)] == [(code, "warning")]


@pytest.mark.parametrize(("gpu", "said"), [("MI325X", True), ("MI355X", False)])
def test_mxfp4_is_emulated_before_gfx950(gpu, said):
    oss = architecture({"model_type": "x", "quantization_config": {"quant_method": "mxfp4"}}, "x")
    made = recipe(oss, deployment("x/y", size=1), gpu, 8000)
    assert ("ENGINE-MXFP4-EMULATED" in [item.code for item in made.findings]) is said


def test_the_recipe_says_which_attention_backend_vllm_will_choose_and_why():
    made = make(published("0.33.0"))
    assert made.attention_backend == "ROCM_AITER_FA"
    assert made.attention_reason.reason == "the command names it"
    assert "get_attn_backend_cls" in made.attention_reason.source
    made = make(deployment(DEEPSEEK, "0.33.0", 8))
    assert made.attention_backend == "ROCM_AITER_MLA_SPARSE"


@pytest.mark.parametrize(
    ("name", "version", "size", "elements"),
    [
        ("openai/gpt-oss", "0.12.0", 1, {"VLLM_ROCM_USE_AITER_MHA": "0"}),
        ("openai/gpt-oss", "0.14.1", 1, {"--attention-backend": "ROCM_AITER_UNIFIED_ATTN"}),
        ("openai/gpt-oss", "0.33.0", 1, {"--attention-backend": "ROCM_AITER_UNIFIED_ATTN"}),
        (KIMI, "0.15.1", 4, {"VLLM_ROCM_USE_AITER_FP4BMM": "0", "--trust-remote-code": None}),
        (KIMI, "0.16.0", 4, {"VLLM_ROCM_USE_AITER_FP4BMM": "0"}),
    ],
)
def test_what_a_model_needs_in_a_version_is_there(name, version, size, elements):
    asked = deployment(name, version, size)
    gpt_oss = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "head_dim": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 2,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "intermediate_size": 2880,
        "vocab_size": 64,
        "max_position_embeddings": 4096,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    model = known(name) or architecture(gpt_oss, "x")
    made = recipe(model, asked, "MI325X", 8000)
    assert elements.items() <= (made.env | flags_of(made)).items()


@pytest.mark.parametrize("version", ["0.14.1", "0.17.1"])
def test_fp4_multiplications_are_not_switched_off_where_they_are_not_on(version):
    made = assess(known(KIMI), deployment(KIMI, version, 4), "MI325X", 8000).recipe
    assert "VLLM_ROCM_USE_AITER_FP4BMM" not in made.env
    made = assess(known(KIMI), deployment(KIMI, "0.16.0", 4), "MI355X", 8000).recipe
    assert "VLLM_ROCM_USE_AITER_FP4BMM" not in made.env
