# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules against what real vLLM releases said to 71 commands on a simulated MI325X node."""

import json
import shlex

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
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config

from support.shared import SHARED

DATA = SHARED / "data"
CASES = DATA / "vllm/judged-cases.json"
MODELS = {
    "qwen3-235b-fp8": "Qwen--Qwen3-235B-A22B-Instruct-2507-FP8",
    "qwen3-235b": "Qwen--Qwen3-235B-A22B-Instruct-2507",
    "qwen3vl-235b": "Qwen--Qwen3-VL-235B-A22B-Instruct",
    "dsv32": "deepseek-ai--DeepSeek-V3.2",
    "dsv3": "deepseek-ai--DeepSeek-V3",
    "llama405b": "meta-llama--Llama-3.1-405B-Instruct",
    "kimi-k25": "moonshotai--Kimi-K2.5",
}
LIMITS = {
    "max_model_len": int,
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "gpu_memory_utilization": float,
    "kv_cache_dtype": str,
}
# What parser, config and the choice of backends let pass, and we refuse: it fails later, when
# layers and caches are made, or it is silently ignored, or the plan would be wrong.
STRICTER = {
    "ENGINE-MOE-BLOCK",
    "ENGINE-MLA-OFFLOAD",
    "ENGINE-KV-DTYPE",
    "ENGINE-BLOCK-SIZE",
    "ENGINE-AITER-MLA-HEADS",
    "ENGINE-FP4BMM",
    "ENGINE-OVERRIDE-OWNED",
    "ENGINE-UNKNOWN-ENV",
    "ENGINE-UNKNOWN-KEY",
    "ENGINE-REMOTE-CODE-NEEDED",
}
# What vLLM refuses in the command as given and our recipe puts right by adding an element.
REPAIRED = {"Q_ptpc", "B_ds_nobs", "B_dsv3_aiter", "B_dsv3_aiter_bs1"}
# Wrong answers of DeepSeek-V3.2 in 0.24.0, which a start does not show.
ANSWERS = "(VLLM-47042)"
SEEN = ("parser", "config", "backend")
# Where the simulated node's stand-in for AITER ends, rather than vLLM.
NOT_VLLM = "No module named 'aiter.ops'"


def judged():
    if not CASES.is_file():
        return []
    document = json.loads(CASES.read_text())
    order = document["versions"]
    return [
        pytest.param(
            name,
            case,
            [
                (version, run["outcome"])
                for run in case["runs"]
                for version in order[order.index(run["from"]) : order.index(run["to"]) + 1]
            ],
            id=name,
        )
        for name, case in document["cases"].items()
        if case["argv"][2] in MODELS
    ]


def options(argv):
    """Yield each option with its values."""
    name, values = None, []
    for part in [*argv, "-"]:
        if part.startswith("-"):
            if name is not None:
                yield name, values
            name, _, value = part.partition("=")
            values = [value] if value else []
        else:
            values.append(part)


def asked_for(case, version):
    size, ep, limits, args = 1, False, {}, {}
    for option, values in options(case["argv"][3:]):
        name = option.lstrip("-").replace("-", "_")
        if name in ("tp", "tensor_parallel_size"):
            size = int(values[0])
        elif name == "enable_expert_parallel":
            ep = True
        elif name in LIMITS:
            limits[name] = LIMITS[name](values[0])
        else:
            args[option] = True if not values else values[0] if len(values) == 1 else values
    env = {"VLLM_ROCM_USE_AITER": None, **case["env"]}
    return Deployment(
        "judged",
        ModelSpec("model", "/model"),
        EngineSpec(version, args=args, env=env),
        Layout(size, 1, ep),
        Limits(**limits),
    )


def model_of(case):
    file = f"{MODELS[case['argv'][2]]}.json"
    return read_config((DATA / "model-configs" / file).read_text(), file)


@pytest.mark.parametrize(("name", "case", "outcomes"), judged())
def test_we_say_what_vllm_says(name, case, outcomes):
    model = model_of(case)
    for version, outcome in outcomes:
        refused = assess(model, asked_for(case, version), "MI325X", 8000).refused
        codes = {item.finding.code for item in refused if ANSWERS not in item.finding.message}
        if outcome[0] == "OK":
            assert codes <= STRICTER, version
            assert not [item for item in refused if item.stage in SEEN], version
        elif not codes:
            assert name in REPAIRED, version


@pytest.mark.parametrize(("name", "case", "outcomes"), judged())
def test_a_command_as_it_is_gets_the_verdict_and_the_backend_that_vllm_gives(name, case, outcomes):
    model = model_of(case)
    env = [f"{name}={shlex.quote(value)}" for name, value in case["env"].items()]
    text = " ".join([*env, shlex.join(case["argv"])])
    for version, outcome in outcomes:
        reviewed = review(text, model, asked_for(case, version), "MI325X")
        errors = {
            item.code
            for item in reviewed.findings
            if item.severity == "error" and ANSWERS not in item.message
        }
        if outcome[0] != "OK":
            assert errors or NOT_VLLM in outcome[1], version
            continue
        assert errors <= STRICTER, version
        backend = dict(part.split("=", 1) for part in outcome[1].split())["attn"]
        assert reviewed.attention_backend == backend, version
