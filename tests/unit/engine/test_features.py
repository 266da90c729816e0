# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine offers beside completions: each element on, off, and where it cannot be had."""

import dataclasses
import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Features,
    Limits,
    ModelSpec,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known, read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.together import GIB, offload_gib
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    NumaNode,
    Topology,
)

from engine.odd import HYBRID
from support.engines import DEEPSEEK, KIMI, LLAMA, QWEN, QWEN_VL, deployment

NEW = "0.33.0"
GLM = dataclasses.replace(known(QWEN), model_type="glm5_next", details={"mtp_layers": 1})
V4 = dataclasses.replace(GLM, model_type="deepseek_v4")


def made(model=QWEN, version=NEW, architecture=None, gpu="MI325X", name=None, **changes):
    """Return the assessment of a deployment with some features, on eight GPUs unless told."""
    limits = changes.pop("limits", Limits())
    size, experts = changes.pop("size", 8), changes.pop("ep", False)
    requested = deployment(model, version, size, ep=experts)
    requested = dataclasses.replace(
        requested,
        limits=limits,
        model=ModelSpec(name or model, "/models/m"),
        features=Features(**changes),
    )
    assert not check_deployment(requested)
    return assess(architecture or known(model), requested, gpu, 8000)


def flag(assessment, name):
    """Return a flag's value, "" for one without, None where it is not there."""
    argv = assessment.recipe.argv
    if name not in argv:
        return None
    after = argv[argv.index(name) + 1 :][:1]
    return after[0] if after and not after[0].startswith("--") else ""


def said(assessment):
    return {
        finding.message.rpartition("(")[2].rstrip(")") for finding in assessment.recipe.findings
    }


def test_parsers_come_from_upstreams_recipe_and_say_so():
    result = made(DEEPSEEK)
    assert flag(result, "--tool-call-parser") == "deepseek_v32"
    assert flag(result, "--enable-auto-tool-choice") == ""
    assert flag(result, "--reasoning-parser") == "deepseek_v3"
    reasons = {reason.element: reason.reason for reason in result.recipe.reasons}
    assert "recipes/models/deepseek-ai/DeepSeek-V3.2.yaml" in reasons["--tool-call-parser"]


def test_parsers_come_from_the_model_type_where_no_recipe_has_the_name():
    result = made(KIMI, name="local/ours")
    assert flag(result, "--tool-call-parser") == flag(result, "--reasoning-parser") == "kimi_k2"
    assert flag(made(LLAMA, name="local/ours"), "--tool-call-parser") is None


def test_parsers_can_be_switched_off_and_named():
    off = made(DEEPSEEK, tool_calling=False, reasoning=False)
    assert flag(off, "--tool-call-parser") is flag(off, "--enable-auto-tool-choice") is None
    assert flag(off, "--reasoning-parser") is None
    requested = deployment(DEEPSEEK, NEW, args={"tool-call-parser": "hermes"})
    assert (
        flag(assess(known(DEEPSEEK), requested, "MI325X", 8000), "--tool-call-parser") == "hermes"
    )
    dropped = deployment(DEEPSEEK, NEW, args={"tool-call-parser": None})
    result = assess(known(DEEPSEEK), dropped, "MI325X", 8000)
    assert flag(result, "--enable-auto-tool-choice") is None


def test_a_parser_that_the_release_lacks_is_not_proposed():
    result = made(DEEPSEEK, "0.12.0")
    assert flag(result, "--tool-call-parser") is flag(result, "--enable-auto-tool-choice") is None
    assert "VLLM-TOOL-PARSER-LACKING" in said(result)


def test_a_parser_that_is_wanted_and_unknown_is_warned_of():
    result = made(LLAMA, name="local/ours", tool_calling=True, reasoning=True)
    assert {"VLLM-TOOL-PARSER-UNKNOWN", "VLLM-REASONING-PARSER-UNKNOWN"} <= said(result)


def test_a_chat_template_is_named_by_the_operator():
    needed = made(QWEN, name="deepseek-ai/DeepSeek-V3.1")
    assert "VLLM-CHAT-TEMPLATE-NEEDED" in said(needed)
    result = made(QWEN, name="deepseek-ai/DeepSeek-V3.1", chat_template="/srv/t.jinja")
    assert flag(result, "--chat-template") == "/srv/t.jinja"
    assert "VLLM-CHAT-TEMPLATE-NEEDED" not in said(result)


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        (NEW, "--language-model-only", ""),
        ("0.16.0", "--limit-mm-per-prompt", '{"image":0,"video":0}'),
    ],
)
def test_a_vision_model_may_serve_text_alone(version, name, value):
    result = made(QWEN_VL, version, text_only=True)
    assert flag(result, name) == value
    assert flag(result, "--mm-encoder-tp-mode") is None
    assert flag(made(QWEN_VL, version), name) is None
    assert flag(made(QWEN, version, text_only=True), name) is None


def test_an_encoder_is_whole_on_each_gpu_where_its_class_can():
    assert flag(made(QWEN_VL), "--mm-encoder-tp-mode") == "data"
    assert flag(made(QWEN_VL, size=1), "--mm-encoder-tp-mode") is None
    assert flag(made(QWEN_VL, encoder_data_parallel=False), "--mm-encoder-tp-mode") is None
    assert flag(made(QWEN, encoder_data_parallel=True), "--mm-encoder-tp-mode") is None
    unable = dataclasses.replace(known(QWEN_VL), model_type="gemma4")
    result = made(QWEN_VL, architecture=unable, encoder_data_parallel=True)
    assert "VLLM-ENCODER-DATA-UNABLE" in said(result)


def test_speculation_is_off_where_no_gain_is_published():
    assert flag(made(DEEPSEEK, limits=Limits(max_num_seqs=4)), "--speculative-config") is None


@pytest.mark.parametrize(
    ("architecture", "gpu", "requests", "on"),
    [
        (GLM, "MI355X", 512, True),
        (GLM, "MI355X", 513, False),
        (GLM, "MI355X", None, False),  # as many as the engine takes
        (GLM, "MI325X", 8, False),  # measured on another GPU
        (V4, "MI355X", 8, True),
        (V4, "MI355X", 32, False),
    ],
)
def test_speculation_is_on_where_a_gain_is_published(architecture, gpu, requests, on):
    limits = Limits(max_num_seqs=requests)
    result = made(architecture=architecture, gpu=gpu, name="local/ours", limits=limits)
    config = flag(result, "--speculative-config")
    assert (config is not None) == on
    off = made(architecture=architecture, gpu=gpu, limits=limits, speculation="none")
    assert flag(off, "--speculative-config") is None


@pytest.mark.parametrize(
    ("gpu", "name", "model_type", "changes", "rule"),
    [
        ("MI325X", "zai-org/GLM-4.5", "glm4_moe", {}, "VLLM-SPECULATION-OFFERED"),
        ("MI325X", "zai-org/GLM-4.5", "glm4_moe", {"speculation": "none"}, None),
        ("MI325X", "zai-org/GLM-4.5", "glm4_moe", {"speculation": "ngram"}, None),
        ("MI250X", "zai-org/GLM-4.5", "glm4_moe", {}, None),  # not verified there
        ("MI325X", "local/ours", "glm4_moe", {}, None),  # no recipe
        ("MI325X", DEEPSEEK, "deepseek_v32", {}, None),  # a recipe without
        ("MI325X", "openai/gpt-oss-120b", "gpt_oss", {}, "VLLM-SPECULATION-DRAFT-OFFERED"),
    ],
)
def test_what_upstream_speculates_with_on_the_gpu_is_offered(gpu, name, model_type, changes, rule):
    architecture = dataclasses.replace(GLM, model_type=model_type)
    result = made(architecture=architecture, gpu=gpu, name=name, **changes)
    assert {one for one in said(result) if one.endswith("-OFFERED") and "SPEC" in one} == (
        {rule} if rule else set()
    )
    for finding in result.recipe.findings:
        if "DRAFT-OFFERED" in finding.message:
            assert "can draft by nvidia/gpt-oss-120b-Eagle3-v3;" in finding.message
            assert finding.severity == "info"


@pytest.mark.parametrize(
    ("name", "version", "gib", "offered"),
    [
        ("MiniMaxAI/MiniMax-M2", NEW, 0, True),
        ("MiniMaxAI/MiniMax-M2", NEW, 64, False),
        ("MiniMaxAI/MiniMax-M2", "0.24.0", 0, False),  # long before the recipes that were read
        (DEEPSEEK, NEW, 0, False),
    ],
)
def test_offload_that_upstream_verifies_is_offered(name, version, gib, offered):
    result = made(name=name, version=version, kv_offload_gib=gib)
    assert ("VLLM-KV-OFFLOAD-OFFERED" in said(result)) is offered


def test_speculation_as_the_operator_wants_it():
    own = json.loads(flag(made(DEEPSEEK, speculation="mtp"), "--speculative-config"))
    assert (own["method"], own["num_speculative_tokens"] > 0) == ("mtp", True)
    assert "VLLM-SPECULATION-IMPOSSIBLE" in said(made(QWEN, speculation="mtp"))
    # Layers of a type that no release speculates with, and of one that this release does not.
    other = dataclasses.replace(GLM, model_type="minimax_m2")
    for architecture, version in ((other, NEW), (GLM, "0.29.0")):
        result = made(version=version, architecture=architecture, speculation="mtp")
        assert "VLLM-SPECULATION-IMPOSSIBLE" in said(result)
    ngram = json.loads(flag(made(QWEN, speculation="ngram"), "--speculative-config"))
    assert ngram["method"] == "ngram"
    draft = made(QWEN, speculation="draft", draft_model="/models/draft")
    assert json.loads(flag(draft, "--speculative-config"))["model"] == "/models/draft"
    assert "VLLM-SPECULATION-NO-DRAFT" in said(made(QWEN, speculation="draft"))


@pytest.mark.parametrize(
    ("name", "version", "model_type", "method", "backend"),
    [
        ("MiniMaxAI/MiniMax-M3", NEW, "minimax_m3_vl", "eagle3", "TRITON_ATTN"),  # AMD's
        ("google/gemma-4-31B-it", "0.33.0", "gemma4", None, None),
        ("google/gemma-4-31B-it", "0.20.2", "gemma4", "dflash", None),  # no gemma4_mtp there
        ("google/gemma-4-31B-it", "0.19.1", "gemma4", "eagle3", None),
        ("zai-org/GLM-5.2", "0.25.0", "glm_moe_dsa", "dspark", None),
        ("zai-org/GLM-5.2", "0.24.0", "glm_moe_dsa", "", None),
    ],
)
def test_a_draft_is_one_that_the_release_and_the_gpu_take(
    name, version, model_type, method, backend
):
    plain = dataclasses.replace(known(QWEN), model_type=model_type)
    wanted = {"speculation": "draft", "draft_model": "/models/draft"}
    result = made(version=version, architecture=plain, name=name, **wanted)
    if method == "":
        assert flag(result, "--speculative-config") is None
        assert "VLLM-SPECULATION-NO-DRAFT" in said(result)
        return
    config = json.loads(flag(result, "--speculative-config"))
    assert config["model"] == "/models/draft"
    assert (config.get("method"), config.get("attention_backend")) == (method, backend)


def test_experts_move_between_gpus_only_where_they_are_whole():
    assert flag(made(QWEN, ep=True, eplb=True), "--enable-eplb") == ""
    assert flag(made(QWEN, ep=True), "--enable-eplb") is None
    mxfp4 = dataclasses.replace(known(QWEN), quantization="mxfp4")
    result = made(architecture=mxfp4, ep=True, eplb=True)
    assert flag(result, "--enable-eplb") is None
    assert "VLLM-EPLB-FORMAT" in said(result)
    assert flag(made(QWEN, size=1, ep=True, eplb=True), "--enable-eplb") is None
    result = made(QWEN, size=4, eplb=True)
    assert flag(result, "--enable-eplb") is None
    assert "VLLM-EPLB-NO-EXPERTS" in said(result)


def test_kv_blocks_go_to_host_memory_of_a_stated_size():
    assert flag(made(kv_offload_gib=64), "--kv-offloading-size") == "64"
    assert flag(made(), "--kv-offloading-size") is None
    unknown = made(kv_offload_gib="auto")
    assert flag(unknown, "--kv-offloading-size") is None
    assert "NUMA nodes" in " ".join(finding.message for finding in unknown.recipe.findings)


def host(sizes, gpus):
    nodes = tuple(NumaNode(index, "0-7", size) for index, size in enumerate(sizes))
    return Topology(
        "h", tuple(Gpu(f"0000:0{i}:00.0", numa_node=n) for i, n in enumerate(gpus)), (), nodes
    )


def test_offload_is_bounded_by_the_fullest_node():
    assert offload_gib(host((1024 * GIB, 512 * GIB), (0, 0, 0, 0, 1, 1, 1, 1))) == 64
    assert offload_gib(host((1024 * GIB, 512 * GIB), (0, 0, 0, 0))) == 128
    assert offload_gib(host((1024 * GIB, None), (0, 1))) is None
    assert offload_gib(host((1024 * GIB,), (0, None))) is None
    assert offload_gib(host((), ())) is None


@pytest.mark.parametrize(
    "features",
    [
        {"chat_template": "t.jinja"},
        {"draft_model": "/a b"},
        {"kv_offload_gib": -1},
        {"kv_offload_gib": 1 << 40},
    ],
)
def test_what_cannot_be_meant_is_refused(features):
    requested = dataclasses.replace(deployment(QWEN, NEW), features=Features(**features))
    (finding,) = check_deployment(requested)
    assert (finding.code, finding.subject) == ("DEPLOY-VALUE", f"features.{next(iter(features))}")


@pytest.mark.parametrize(("share", "few"), [(0.9, False), (0.65, True)])
def test_sequences_are_no_more_than_blocks_of_state(share, few):
    hybrid = read_config(json.dumps(HYBRID), "hybrid")
    assert hybrid.attention == "hybrid"

    def tried(**limits):
        limits = Limits(gpu_memory_utilization=share, **limits)
        return made(architecture=hybrid, size=1, name="local/ours", limits=limits)

    opened = flag(tried(), "--max-num-seqs")
    assert (opened is not None) == few
    if few:
        assert 0 < int(opened) < 1024
        (refused,) = tried(max_num_seqs=int(opened) + 1).refused
        assert refused.rule == "VLLM-STATE-BLOCKS"
        assert f"limits.max_num_seqs to {opened}" in refused.finding.remedy
        assert not tried(max_num_seqs=int(opened)).refused
    assert flag(made(size=1), "--max-num-seqs") is None
