# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Known defects as data: each makes sense, holds where it says, and is avoided, told or refused."""

import collections
import dataclasses
import json
import re
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import advisories as engine
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    advisories,
    advisory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    order,
    type_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import pins_of, stack
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import pins, versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import review
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.values import checks
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import explanation
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known, read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from engine.odd import SINKS
from support.each import each
from support.engines import DEEPSEEK, KIMI, QWEN, QWEN_BF16, deployment

ROOT = Path(__file__).parents[3]
# Releases of vLLM whose flags are not known.
RELEASES = {"0.10.1", "0.11.1", "0.11.2", "0.14.0"}
THREAD = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+#\d+")
ENTRY = {
    **{"id": "X-1", "symptom": "start", "says": "s", "do": "d", "proof": "reported"},
    **{"read": "row", "source": "a/b#1"},
}


WINDOWS = read_config(json.dumps(SINKS), "odd/sinks")


def releases():
    return RELEASES | set(versions())


def test_there_are_more_than_a_hundred_and_no_two_have_one_name():
    names = [each.id for each in (*advisories(), *rules(), *checks())]
    assert len(advisories()) > 100
    assert len(names) == len(set(names))
    assert advisory("VLLM-51964").fixed == "vLLM 0.28.0"
    assert advisory("VLLM-1") is None


def test_the_limits_say_how_far_the_threads_were_read():
    read = collections.Counter(item.read for item in advisories())
    limits = (ROOT / "docs/explanation/limits.md").read_text(encoding="utf-8")
    assert read["thread"] == 1
    assert f"Of {len(advisories())} advisories one rests on a thread that was read" in limits
    assert f"| {read['excerpts']} rest on excerpts" in limits
    assert f"{read['row']} on a reviewer's row" in limits


@each(advisories(), name=lambda item: item.id)
def test_an_advisory_names_its_thread_and_releases_that_exist(item):
    assert THREAD.search(item.source)
    assert item.read in ("thread", "excerpts", "row")
    assert item.read != "row" or item.proof == "reported"
    bounds = {item.versions.first, item.versions.last} - {None}
    assert bounds <= releases(), bounds
    assert any(item.versions.covers(release) for release in releases())
    assert explanation(item.effect["code"])["severity"] == item.severity
    assert "{" not in item.says + item.remedy
    assert item.log is None or item.log.strip()


def value(test):
    """A value for which a test holds."""
    (first, *_rest), kind = test.bounds, type_of(test.fact)
    if test.operator == "not":
        return "something-else" if kind in ("text", "element") else not first
    if test.operator == "contains":
        return f"a {first} b"
    return str(first) if kind == "element" else first


def met(condition):
    """Facts for which a condition holds: each test by a value of its own, first alternatives."""
    facts = {}
    for test in condition.tests:
        facts.setdefault(test.fact, value(test))
    for group in condition.alternatives:
        facts |= met(group[0])
    return facts


def missed(test):
    """A value for which a test doesn't hold."""
    (first, *_rest), kind = test.bounds, type_of(test.fact)
    if test.operator == "not":
        return first
    if kind == "bool":
        return not first
    if test.operator in ("min", "max"):
        off = first + (-1 if test.operator == "min" else 1)
        return str(off) if kind == "element" else off
    if kind == "version":
        return "0.0.1" if test.operator in ("is", "from") else "99"
    return -1 if kind == "number" else "something-else"


@each(advisories(), name=lambda item: item.id)
def test_it_holds_where_it_says_and_not_beside_it(item):
    release = next(each for each in sorted(releases()) if item.versions.covers(each))
    facts = {"release": release, **met(item.when)}
    assert item.holds(facts) is True
    for test in item.when.tests:
        assert item.holds({**facts, test.fact: missed(test)}) is False, test
    other = next((each for each in releases() if not item.versions.covers(each)), None)
    assert other is None or item.holds({**facts, "release": other}) is False
    assert item.possible({"release": release}) is not None


@each([item for item in advisories() if item.avoid], name=lambda item: item.id)
def test_what_avoids_it_is_an_element_that_ends_it(item):
    name, text = item.avoid.get("env") or item.avoid["flag"], item.avoid.get("value", "true")
    fact = f"env {name}" if "env" in item.avoid else f"flag {name.lstrip('-').replace('-', '_')}"
    facts = {"release": item.versions.last or item.versions.first, **met(item.when), fact: text}
    if "attention_backend" in facts:
        facts["attention_backend"] = "ANOTHER"  # what the element is for
    alternatives = [fact in item.facts() for group in item.when.alternatives for item in group]
    assert item.holds(facts) is False or any(alternatives)


def test_every_gpu_that_an_advisory_names_is_one():
    named = {
        bound
        for item in advisories()
        for test in item.when.tests
        if test.fact in ("gpu", "gfx")
        for bound in test.bounds
    }
    assert named <= set(gpu_models()) | {model.gfx for model in gpu_models().values()}


# What people met, by model, release, GPU and layout: problems.md rows 62 to 89, engine.md part 3.
MLA, SPARSE = {"attention": "mla", "family": "moe"}, {"attention": "sparse_mla", "family": "moe"}
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
    asked = deployment("test/model", version, size, **rest)
    asked = dataclasses.replace(asked, engine=dataclasses.replace(asked.engine, **of_engine))
    return assess(model, asked, gpu, 8000)


def told(assessment):
    """The ids of the advisories that a plan tells, refuses for, or avoids."""
    findings = [*assessment.recipe.findings, *(item.finding for item in assessment.refused)]
    text = " ".join(finding.message for finding in findings)
    avoided = [reason.rule for reason in assessment.recipe.reasons]
    return {item.id for item in advisories() if f"({item.id})" in text or item.id in avoided}


@each(PROBLEMS.items(), name=lambda item: str(item)[:60])
def test_what_people_met_is_told_before_it_happens(name, case):
    model, version, gpu, size, more = case
    assert name in told(assessed(model, version, gpu, size, more))


def test_a_defect_is_said_of_the_releases_alone_whose_source_has_it():
    for release, told_of in (("0.24.0", False), ("0.25.1", True), ("0.26.0", False)):
        assert advisory("VLLM-47158").versions.covers(release) is told_of
    for release, told_of in (("0.25.1", False), ("0.26.0", True), ("0.29.0", False)):
        assert advisory("VLLM-54717").versions.covers(release) is told_of
    for release, told_of in (("0.17.1", True), ("0.18.0", False)):
        assert advisory("VLLM-35637").versions.covers(release) is told_of
        assert advisory("VLLM-35637-LATER").versions.covers(release) is not told_of
    for release, told_of in (("0.22.1", True), ("0.23.0", False)):
        assert advisory("VLLM-39192").versions.covers(release) is told_of
    for release, told_of in (("0.19.1", False), ("0.20.0", True)):
        assert advisory("AITER-2720").versions.covers(release) is told_of
    for release, told_of in (("0.18.1", False), ("0.19.0", True), ("0.24.0", True)):
        assert advisory("VLLM-47276").versions.covers(release) is told_of
    for release, told_of in (("0.30.0", True), ("0.31.0", False)):
        assert advisory("VLLM-57064").versions.covers(release) is told_of
    for name, first, last in (
        ("AITER-915", None, "0.16.0"),
        ("AITER-2187", "0.17.0", "0.24.0"),
        ("AITER-2343", "0.16.0", "0.19.1"),
        ("AITER-2563", "0.16.0", "0.19.1"),
        ("AITER-3139", "0.17.0", "0.20.2"),
        ("AITER-4633", "0.24.0", "0.27.1"),
        ("AITER-5049", "0.30.0", "0.30.0"),
        ("VLLM-26329", "0.11.0", "0.11.0"),
        ("VLLM-38719", "0.19.0", "0.19.1"),
        ("VLLM-47042", "0.23.0", "0.24.0"),
        ("KVCACHED-267", "0.11.2", "0.20.2"),
        ("VLLM-39303", "0.20.0", "0.20.2"),
        ("VLLM-57227", "0.30.0", None),
    ):
        span = advisory(name).versions
        assert (span.first, span.last) == (first, last), name
    for name, first in (
        ("VLLM-31625", "0.12.0"),
        ("VLLM-38145", "0.12.0"),
        ("VLLM-42893", "0.21.0"),
        ("VLLM-43605", "0.17.0"),
        ("VLLM-45227", "0.14.0"),
        ("VLLM-50455", "0.21.0"),
        ("VLLM-52109", "0.24.0"),
        ("VLLM-54180", "0.24.0"),
        ("VLLM-57642", "0.27.0"),
    ):
        assert advisory(name).versions.first == first
    assert advisory("VLLM-54180").versions.last is None
    assert advisory("VLLM-45562") is None  # 0.24.0 has the model first, with what mends it
    assert advisory("VLLM-36795") is None  # its fix came before any release had the defect
    assert advisory("VLLM-27190") is None  # neither 0.11.0 nor 0.11.1 has it


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("VLLM-52109", "0.31.0"),
        ("VLLM-50455", "0.31.0"),
        ("VLLM-31625", "0.17.0"),
        ("VLLM-43781", "0.23.0"),
        ("VLLM-46952", "0.25.0"),
        ("VLLM-47158", "0.26.0"),
        ("VLLM-46760", "0.25.0"),
        ("VLLM-46913", "0.27.0"),
        ("VLLM-42876", "0.22.0"),
        ("VLLM-44679", "0.23.0"),
        ("VLLM-44893", "0.24.0"),
        ("VLLM-47276", "0.25.0"),
        ("VLLM-52656", "0.31.0"),
        ("VLLM-50563", "0.28.0"),
        ("VLLM-42893", "0.24.0"),
    ],
)
def test_what_a_release_mends_is_not_said_of_it(name, release):
    item = advisory(name)
    assert item.versions.last is not None
    assert not item.versions.covers(release)
    assert item.fixed.startswith(f"vLLM {release} ")


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
    assert name in told(assessed(model, release, gpu, size, more))
    others = dataclasses.replace(model, model_type="qwen3_next", kv_heads=2, details={})
    assert name not in told(assessed(others, release, gpu, size, more))


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
        assert ("AITER-4181" in told(assessed(glm, "0.29.0", gpu, 8, {}))) is concerned


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
            assert (name in told(assessed(model, release, "MI325X", 8, more))) is concerned


def test_fp4_multiplication_of_glm_is_noted_in_the_newest_only_where_it_is_switched_on():
    model = dataclasses.replace(GLM, quantization="none")
    names = told(assessed(model, "0.33.0", "MI355X", 8, {}))
    assert not {"AITER-4181", "AITER-4181-LATER", "AITER-4181-ON"} & set(names)


@pytest.mark.parametrize(
    ("release", "concerned"), [("0.16.0", True), ("0.20.2", True), ("0.21.0", False)]
)
def test_kv_offload_of_old_releases_starts_without_the_hybrid_cache_manager_alone(
    release, concerned
):
    made = assessed(MINIMAX, release, "MI325X", 4, OFFLOAD)
    assert ("--disable-hybrid-kv-cache-manager" in made.recipe.argv) is concerned
    assert ("KVCACHED-267" in told(made)) is concerned
    assert "KVCACHED-267-WINDOWS" not in told(made)
    assert ("KVCACHED-267-WINDOWS" in told(assessed(WINDOWS, release, "MI325X", 4, OFFLOAD))) is (
        concerned
    )
    hybrid = assessed(QWEN_397B, release, "MI325X", 4, OFFLOAD)
    assert "--disable-hybrid-kv-cache-manager" not in hybrid.recipe.argv
    assert ("KVCACHED-267-HYBRID" in told(hybrid)) is concerned


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
    assert told(assessed(KIMI_K3, release, "MI355X", 8, more)) & both == names


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
    assert ("AITER-5192-OTHERS" in told(assessed(model, release, "MI355X", 8, more))) is first
    warm_up = first and release >= "0.30.0"
    more |= {"aiter": "0.1.20"}
    assert ("AITER-4830" in told(assessed(model, release, "MI325X", 8, more))) is warm_up


@pytest.mark.parametrize(("env", "refused"), [({}, False), ({"VLLM_USE_V2_MODEL_RUNNER": 1}, True)])
def test_a_defect_of_the_second_model_runner_is_said_where_it_runs(env, refused):
    graphs = {"compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}
    more = {"args": graphs, "env": env, "kv_cache_dtype": "fp8"}
    assert ("VLLM-52644" in told(assessed(V4, "0.28.0", "MI355X", 8, more))) is refused


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
    assert name not in told(assessed(model, version, gpu, size, more))


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
    assert ("VLLM-57064" in told(assessed(GLM, "0.30.0", "MI325X", 8, more))) is refused


def test_latent_attention_has_no_layout_that_lmcache_reads_wrongly():
    more = {"args": {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1"}}}
    for model, refused in ((MINIMAX, True), (DEEPSEEK_R1, False)):
        assert ("LMCACHE-4463" in told(assessed(model, "0.28.0", "MI325X", 8, more))) is refused


@pytest.mark.parametrize(
    ("release", "told_of"), [("0.29.0", False), ("0.31.0", True), ("0.32.0", False)]
)
def test_the_first_model_runner_is_named_where_it_is_the_default(release, told_of):
    glm = dataclasses.replace(GLM, quantization="quark")
    assert ("VLLM-54924" in told(assessed(glm, release, "MI355X", 4, {}))) is told_of


@pytest.mark.parametrize(
    ("release", "runner", "told_of"),
    [("0.23.0", None, False), ("0.24.0", None, True), ("0.24.0", 0, False), ("0.25.0", 1, False)],
)
def test_quantized_llama_runs_on_the_second_runner_where_it_is_its_default(
    release, runner, told_of
):
    model = Architecture("llama", "dense", "gqa", quantization="compressed-tensors")
    more = {} if runner is None else {"env": {"VLLM_USE_V2_MODEL_RUNNER": runner}}
    assert ("VLLM-46179" in told(assessed(model, release, "MI300X", 1, more))) is told_of


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
    assert ("VLLM-47042" in told(assessed(GLM, release, "MI300X", 8, more))) is refused


@pytest.mark.parametrize(
    ("gpu", "avoided"), [("MI355X", True), ("MI308X", True), ("MI325X", False)]
)
def test_a_kernel_is_avoided_on_the_gpus_it_has_shapes_for(gpu, avoided):
    reasons = assessed(V4, "0.30.0", gpu, 8, {"kv_cache_dtype": "fp8"}).recipe.reasons
    assert ("VLLM-57132" in [item.rule for item in reasons]) is avoided


@pytest.mark.parametrize(
    ("args", "told_of"),
    [
        ({"attention-backend": "ROCM_AITER_FA"}, {"VLLM-54180"}),
        ({"speculative-config": {**EAGLE3, "attention_backend": "ROCM_AITER_FA"}}, {"VLLM-54180"}),
        ({"speculative-config": EAGLE3}, {"VLLM-47854"}),
        ({"speculative-config": EAGLE3, "kv-offloading-size": 64}, set()),
    ],
)
def test_what_minimax_m3_and_its_draft_attend_with_is_named(args, told_of):
    found = told(assessed(M3, "0.28.0", "MI325X", 8, {"args": args}))
    assert found & {"VLLM-54180", "VLLM-47854"} == told_of


def test_a_gpu_that_is_to_be_filled_to_its_end_is_advised_against():
    """ROCm/vllm#397: Llama-2-70B in FP8 on one MI300X."""
    model = Architecture("llama", "dense", "gqa", heads=64, kv_heads=8, quantization="quark")
    limits = {"max_num_batched_tokens": 65536, "kv_cache_dtype": "fp8"}
    for share, advised in ((0.99, True), (0.9, False)):
        more = {**limits, "gpu_memory_utilization": share}
        assert ("VLLM-17939" in told(assessed(model, "0.33.0", "MI300X", 1, more))) is advised
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


def test_a_backend_that_answers_wrongly_is_replaced():
    made = assessed(*PROBLEMS["VLLM-41472"]).recipe
    assert made.argv[made.argv.index("--attention-backend") + 1] == "TRITON_ATTN"


def test_an_operator_who_insists_on_what_is_avoided_is_told():
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
    assert "VLLM-40018" in told(assessed(model, version, gpu, size, short))
    assert "VLLM-40018" in told(assessed(model, version, "MI355X", size, more))
    assert "VLLM-40018" not in told(assessed(model, version, "MI355X", size, short))


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


@pytest.mark.parametrize(
    ("release", "aiter", "rocm"),
    [
        ("0.14.1", "0.1.7.post4", "7.0"),
        ("0.18.0", "0.1.10.post2", "7.0"),
        ("0.19.0", "0.1.10.post2", "7.2.1"),
        ("0.22.1", "0.1.13", "7.2.2"),
        ("0.33.0", "0.1.26", "10.0.0"),
    ],
)
def test_the_image_of_a_release_has_the_aiter_and_rocm_that_it_was_built_with(release, aiter, rocm):
    assert pins_of(release) == {"aiter": aiter, "rocm": rocm}
    engine_spec = deployment(version=release).engine
    assert stack(engine_spec) == {"aiter": None, "rocm": None}
    named = dataclasses.replace(engine_spec, image=f"vllm/vllm-openai-rocm:v{release}", rocm="6.4")
    assert stack(named) == {"aiter": aiter, "rocm": "6.4"}


def test_an_unknown_pairing_is_unknown(monkeypatch):
    assert pins_of("0.15.1") == {}
    assert pins_of("0.13.0") == {}  # has pins, and no image
    assert pins_of("99.0") == {}
    monkeypatch.setitem(knowledge("vllm/images.yml"), "commits", {})
    assert pins_of("0.16.0") == {"rocm": "7.0"}  # a commit of AITER's that nobody has looked up


def test_every_release_with_pins_and_an_image_has_aiter_and_rocm():
    first, pinned = (
        order(knowledge("vllm/images.yml")["from"]),
        knowledge("vllm/pins.yml")["versions"],
    )
    imaged = [version for version in pinned if order(version) >= first and pins(version)]
    assert len(imaged) >= 27
    for version in imaged:
        assert set(pins_of(version)) == {"aiter", "rocm"}, version


OLD = """\
NCCL_P2P_DISABLE=1 AITER_JIT_DIR=/data/jit VLLM_ROCM_USE_AITER=1 \\
vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 4 \\
  --disable-custom-all-reduce --enforce-eager --gpu-memory-utilization 1.0
"""


def test_an_old_command_is_told_its_left_over_workarounds_at_their_lines():
    reviewed = review(OLD, known(QWEN), deployment(version="0.33.0"), "MI325X", "run.sh")
    lines = {
        match[1]: finding.subject
        for finding in reviewed.findings
        if (match := re.search(r"\(((?:[A-Z]+-)+[A-Z0-9]*(?:-[A-Z]+)*)\)", finding.message))
    }
    assert lines["ROCM-VLLM-390"] == lines["AITER-3635"] == "run.sh:1"
    assert lines["LEFT-CUSTOM-ALL-REDUCE"] == lines["VLLM-17939"] == "run.sh:3"
    assert lines["VLLM-GRAPH-OFF"] == "run.sh:3"  # --enforce-eager has a rule of its own


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"symptom": "odd"}, "odd"),
        ({"proof": "believed"}, "believed"),
        ({"when": {"colour": "red"}}, "there is no fact colour"),
        ({"when": {"aiter": {"from": "newest"}}}, "aiter is version: from cannot take 'newest'"),
        ({"when": {"aiter": {"contains": "0.1"}}}, "no operator contains"),
        ({"says": None}, "says"),
    ],
)
def test_an_advisory_that_makes_no_sense_is_refused_when_it_is_read(change, part):
    entry = {key: item for key, item in (ENTRY | change).items() if item is not None}
    with pytest.raises(ValueError, match=f"advisory X-1: .*{part}"):
        engine._advisory(entry, knowledge("vllm/advisories.yml"))
