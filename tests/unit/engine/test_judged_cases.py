# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules against what real vLLM releases said to 71 commands on a simulated MI325X node."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    Limits,
    ModelSpec,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
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
# What parser and config let pass, and we refuse: it fails later, when layers and caches are
# made, or it is silently ignored, or the plan would be wrong.
STRICTER = {
    "ENGINE-MOE-BLOCK",
    "ENGINE-MLA-OFFLOAD",
    "ENGINE-KV-DTYPE",
    "ENGINE-BLOCK-SIZE",
    "ENGINE-OVERRIDE-OWNED",
    "ENGINE-UNKNOWN-ENV",
    "ENGINE-UNKNOWN-KEY",
}
# What vLLM refuses in the command as given and our recipe puts right by adding an element.
REPAIRED = {"Q_ptpc", "B_ds_nobs", "B_dsv3_aiter", "B_dsv3_aiter_bs1"}


def judged():
    if not CASES.is_file():
        return []
    document = json.loads(CASES.read_text())
    order = document["versions"]
    return [
        pytest.param(case, version, run["outcome"][0] == "OK", id=f"{name}-{version}")
        for name, case in document["cases"].items()
        if case["argv"][2] in MODELS
        for run in case["runs"]
        for version in order[order.index(run["from"]) : order.index(run["to"]) + 1]
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


@pytest.mark.parametrize(("case", "version", "accepted"), judged())
def test_we_say_what_vllm_says(request, case, version, accepted):
    file = f"{MODELS[case['argv'][2]]}.json"
    model = read_config((DATA / "model-configs" / file).read_text(), file)
    try:
        recipe(model, asked_for(case, version), "MI325X", 8000)
        codes = set()
    except ApiaryError as refusal:
        codes = {finding.code for finding in refusal.findings}
    if accepted:
        assert codes <= STRICTER
    elif not codes:
        name = request.node.callspec.id.rpartition("-")[0]
        assert name in REPAIRED
