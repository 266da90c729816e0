# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Known defects are avoided, reported or refused."""

import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    advisory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import review
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from support.defects import GLM, PROBLEMS, assessed, reported
from support.each import each
from support.engines import DEEPSEEK, QWEN, deployment


@each(PROBLEMS.items(), name=lambda item: str(item)[:60])
def test_what_people_met_is_reported_before_it_happens(name, case):
    model, version, gpu, size, more = case
    assert name in reported(assessed(model, version, gpu, size, more))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("VLLM-26473", {}),  # TRITON_ATTN, which is the default of 0.13.0, knows the block
        ("VLLM-52312", {"env": {"AITER_DISABLE_FMHA_OPUS": 1}}),
        (
            "AITER-4855-FUSED",
            {
                **PROBLEMS["AITER-4855-FUSED"][4],
                "env": {"VLLM_ROCM_USE_AITER": 1, "VLLM_ROCM_USE_AITER_CUSTOM_AR": 0},
            },
        ),
        ("AITER-5192", {"env": {"VLLM_ROCM_USE_AITER": 0}}),
        ("VLLM-57227", {"max_num_batched_tokens": 16384}),
        ("AITER-2563", {"env": {"VLLM_ROCM_USE_AITER": 0}}),
        ("AITER-3062", {"aiter": "0.1.13.post1"}),  # in another layout of the cache
        ("AITER-3062", PROBLEMS["AITER-3062"][4] | {"aiter": "0.1.17"}),
        ("AITER-4244", {"max_model_len": 524287, "aiter": "0.1.13.post1"}),
        ("AITER-4244", {"aiter": "0.1.18"}),
        ("VLLM-46913", {}),
        ("AITER-4341", {"aiter": "0.1.16.post3"}),  # the cache is in 16 bits
        ("AITER-4341", {"kv_cache_dtype": "fp8", "aiter": "0.1.19.post1"}),
        ("VLLM-45943", {"kv_cache_dtype": "fp8"}),
        ("AITER-4181-LATER", {"env": {"VLLM_ROCM_USE_AITER_FP4BMM": 0}}),
        (
            "LMCACHE-4247",
            {
                "args": {
                    "kv-transfer-config": {"kv_connector": "LMCacheMPConnector"},
                    "attention-backend": "ROCM_AITER_UNIFIED_ATTN",
                },
            },
        ),
        ("VLLM-46913", {"env": {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "NONE"}}),
        ("AITER-5192", {"args": {"logprobs-mode": "processed_logprobs"}}),
    ],
)
def test_a_defect_is_not_said_where_its_code_does_not_run(name, more):
    model, version, gpu, size, _ = PROBLEMS[name]
    assert name not in reported(assessed(model, version, gpu, size, more))


def test_a_gpu_that_is_to_be_filled_to_its_end_is_advised_against():
    """ROCm/vllm#397: Llama-2-70B in FP8 on one MI300X."""
    model = Architecture("llama", "dense", "gqa", heads=64, kv_heads=8, quantization="quark")
    limits = {"max_num_batched_tokens": 65536, "kv_cache_dtype": "fp8"}
    for share, advised in ((0.99, True), (0.9, False)):
        more = {**limits, "gpu_memory_utilization": share}
        assert ("VLLM-17939" in reported(assessed(model, "0.33.0", "MI300X", 1, more))) is advised
    assert "ROCm/vllm#397" in advisory("VLLM-17939").source


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("VLLM-51964", ("VLLM_ROCM_USE_AITER_MLA", "0")),
        ("VLLM-43605", ("VLLM_ROCM_USE_AITER_MOE", "0")),
        ("AITER-915", ("VLLM_ROCM_USE_AITER_MOE", "0")),
        ("AITER-2187", ("VLLM_ROCM_USE_AITER_MOE", "0")),
        ("AITER-1143", ("AITER_ENABLE_VSKIP", "0")),
        ("VLLM-51580", ("VLLM_ROCM_USE_AITER_MOE", "0")),
        ("VLLM-50563", ("VLLM_ROCM_USE_AITER_MLA", "0")),
        ("AITER-4181", ("VLLM_ROCM_USE_AITER_FP4BMM", "0")),
    ],
)
def test_what_an_element_avoids_is_avoided_and_no_longer_said(name, element):
    assessment = assessed(*PROBLEMS[name])
    (reason,) = (item for item in assessment.recipe.reasons if item.rule == name)
    assert assessment.recipe.env[element[0]] == element[1]
    assert reason.reason.startswith(f"avoids {name}: ")
    assert reason.source == advisory(name).source
    assert all(name not in finding.message for finding in assessment.recipe.findings)


def test_a_backend_that_answers_wrongly_is_replaced():
    made = assessed(*PROBLEMS["VLLM-41472"]).recipe
    assert made.argv[made.argv.index("--attention-backend") + 1] == "TRITON_ATTN"


def test_an_operator_who_insists_on_what_is_avoided_gets_a_finding():
    model, version, gpu, size, more = PROBLEMS["VLLM-43605"]
    made = assessed(model, version, gpu, size, {**more, "env": {"VLLM_ROCM_USE_AITER_MOE": 1}})
    assert made.recipe.env["VLLM_ROCM_USE_AITER_MOE"] == "1"
    (finding,) = (item for item in made.recipe.findings if "(VLLM-43605)" in item.message)
    assert finding.code == "ENGINE-ADVISORY-START"
    assert "VLLM_ROCM_USE_AITER_MOE: 0" in finding.remedy
    assert "ROCm/aiter#3540" in finding.source


def test_proven_wrong_answers_are_refused_unless_the_deployment_names_the_advisory():
    model, version, gpu, size, more = PROBLEMS["VLLM-40018"]
    (refused,) = (
        item for item in assessed(model, version, gpu, size, more).refused if "40018" in item.rule
    )
    assert (refused.finding.code, refused.stage) == ("ENGINE-ADVISORY-WRONG", None)
    forced = assessed(model, version, gpu, size, {**more, "force": ("VLLM-40018",)})
    assert "VLLM-40018" not in [item.rule for item in forced.refused]
    assert "ENGINE-FORCED" in [item.code for item in forced.recipe.findings]
    # On gfx942 prompts of any length are answered wrongly, on gfx950 long ones.
    short = {**more, "max_model_len": 16384}
    assert "VLLM-40018" in reported(assessed(model, version, gpu, size, short))
    assert "VLLM-40018" in reported(assessed(model, version, "MI355X", size, more))
    assert "VLLM-40018" not in reported(assessed(model, version, "MI355X", size, short))


def test_wrong_answers_that_one_party_reports_are_a_warning():
    assessment = assessed(known(DEEPSEEK), "0.20.2", "MI325X", 8, {})
    assert assessment.refused == ()
    assert "ENGINE-ADVISORY-DOUBT" in [item.code for item in assessment.recipe.findings]


@pytest.mark.parametrize(
    ("more", "code", "avoided"),
    [
        ({}, "ENGINE-ADVISORY-IF", False),
        ({"image": "vllm/vllm-openai-rocm:nightly"}, "ENGINE-ADVISORY-IF", False),
        ({"image": "vllm/vllm-openai-rocm:v0.28.0"}, None, True),
        ({"image": f"a.example:5000/vllm/vllm-openai-rocm@sha256:{'0' * 64}"}, None, True),
        ({"aiter": "0.1.19"}, None, True),
        ({"aiter": "0.1.21"}, None, False),
    ],
)
def test_what_hangs_on_aiter_is_said_with_an_if_where_its_version_is_not_known(more, code, avoided):
    made = assessed(GLM, "0.28.0", "MI325X", 8, more).recipe
    about = [item for item in made.findings if "(AITER-4855)" in item.message]
    assert [item.code for item in about] == ([code] if code else [])
    assert (made.env.get("VLLM_ROCM_USE_AITER_CUSTOM_AR") == "0") is avoided
    for finding in about:
        assert finding.message.startswith("if AITER is from 0.1.17 and AITER is up to 0.1.19: ")
        assert "engine.aiter" in finding.remedy


OLD = """\
NCCL_P2P_DISABLE=1 AITER_JIT_DIR=/data/jit VLLM_ROCM_USE_AITER=1 \\
vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 4 \\
  --disable-custom-all-reduce --enforce-eager --gpu-memory-utilization 1.0
"""


def test_left_over_workarounds_of_an_old_command_are_named_at_their_lines():
    reviewed = review(OLD, known(QWEN), deployment(version="0.33.0"), "MI325X", "run.sh")
    lines = {
        match[1]: finding.subject
        for finding in reviewed.findings
        if (match := re.search(r"\(((?:[A-Z]+-)+[A-Z0-9]*(?:-[A-Z]+)*)\)", finding.message))
    }
    assert lines["ROCM-VLLM-390"] == lines["AITER-3635"] == "run.sh:1"
    assert lines["LEFT-CUSTOM-ALL-REDUCE"] == lines["VLLM-17939"] == "run.sh:3"
    assert lines["VLLM-GRAPH-OFF"] == "run.sh:3"  # --enforce-eager has a rule of its own
