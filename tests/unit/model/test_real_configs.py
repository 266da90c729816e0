# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every real config there is, read right: what public model cards and the files themselves say."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
    known_names,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import GIB, memory

from support.model_zoo import real_configs

CONFIGS = real_configs()
# name: billion parameters (stored, active), layers (full, sliding, linear), dense layers, experts,
# for each token, shared, attention, KV heads, head size, context, quantization, MTP layers
EXPECTED = {
    "MiniMaxAI--MiniMax-M2": (
        228.7, 10.4, (62, 0, 0), 0, 256, 8, 0, "gqa", 8, 128, 196608, "fp8", 3,
    ),
    "Qwen--Qwen3-0.6B": (0.596, 0.44, (28, 0, 0), 28, 0, None, 0, "gqa", 8, 128, 40960, None, 0),
    "Qwen--Qwen3-8B": (8.19, 7.57, (36, 0, 0), 36, 0, None, 0, "gqa", 8, 128, 40960, None, 0),
    "Qwen--Qwen3-30B-A3B": (30.5, 3.04, (48, 0, 0), 0, 128, 8, 0, "gqa", 4, 128, 40960, None, 0),
    "Qwen--Qwen3-235B-A22B": (235.1, 21.6, (94, 0, 0), 0, 128, 8, 0, "gqa", 4, 128, 40960, None, 0),
    "Qwen--Qwen3-235B-A22B-FP8": (
        235.1, 21.6, (94, 0, 0), 0, 128, 8, 0, "gqa", 4, 128, 40960, "fp8", 0,
    ),
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": (
        480.2, 34.5, (62, 0, 0), 0, 160, 8, 0, "gqa", 8, 128, 262144, None, 0,
    ),
    "Qwen--Qwen3-Next-80B-A3B-Instruct": (
        79.7, 3.56, (12, 0, 36), 0, 512, 10, 1, "hybrid", 2, 256, 262144, None, 0,
    ),
    "Qwen--Qwen3-VL-235B-A22B-Instruct": (
        235.7, 21.6, (94, 0, 0), 0, 128, 8, 0, "gqa", 4, 128, 262144, None, 0,
    ),
    "Qwen--Qwen3.5-122B-A10B": (
        122.6, 9.0, (12, 0, 36), 0, 256, 8, 1, "hybrid", 2, 256, 262144, "fp8", 1,
    ),
    "TinyLlama--TinyLlama-1.1B-Chat-v1.0": (
        1.10, 1.03, (22, 0, 0), 22, 0, None, 0, "gqa", 4, 64, 2048, None, 0,
    ),
    "deepseek-ai--DeepSeek-V3": (
        671.0, 36.6, (61, 0, 0), 3, 256, 8, 1, "mla", 128, 192, 163840, "fp8", 1,
    ),
    "deepseek-ai--DeepSeek-R1": (
        671.0, 36.6, (61, 0, 0), 3, 256, 8, 1, "mla", 128, 192, 163840, "fp8", 1,
    ),
    "deepseek-ai--DeepSeek-V3.2": (
        671.9, 37.5, (61, 0, 0), 3, 256, 8, 1, "sparse_mla", 128, 192, 163840, "fp8", 1,
    ),
    "google--gemma-3-27b-it": (
        27.4, 25.6, (10, 52, 0), 62, 0, None, 0, "gqa", 16, 128, 163840, None, 0,
    ),
    "meta-llama--Meta-Llama-3.1-405B": (
        405.9, 403.8, (126, 0, 0), 126, 0, None, 0, "gqa", 8, 128, 131072, None, 0,
    ),
    "meta-llama--Meta-Llama-3.1-8B": (
        8.03, 7.5, (32, 0, 0), 32, 0, None, 0, "gqa", 8, 128, 131072, None, 0,
    ),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (
        400.7, 16.2, (12, 36, 0), 24, 128, 1, 1, "gqa", 8, 128, 1048576, None, 0,
    ),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (
        107.8, 16.1, (12, 36, 0), 0, 16, 1, 1, "gqa", 8, 128, 10485760, None, 0,
    ),
    "microsoft--phi-4": (14.7, 14.2, (40, 0, 0), 40, 0, None, 0, "gqa", 10, 128, 16384, None, 0),
    "mistralai--Mistral-Large-Instruct-2411": (  # an excerpt without its context
        122.6, 122.2, (88, 0, 0), 88, 0, None, 0, "gqa", 8, 128, None, None, 0,
    ),
    "mistralai--Mixtral-8x22B-v0.1": (
        140.6, 39.0, (56, 0, 0), 0, 8, 2, 0, "gqa", 8, 128, 65536, None, 0,
    ),
    "moonshotai--Kimi-K2-Instruct": (
        1026.4, 31.7, (61, 0, 0), 1, 384, 8, 1, "mla", 64, 192, 131072, "fp8", 0,
    ),
    "moonshotai--Kimi-K2.5": (
        1026.9, 31.7, (61, 0, 0), 1, 384, 8, 1, "mla", 64, 192, 262144, "compressed-tensors", 0,
    ),
    "openai--gpt-oss-120b": (
        116.8, 5.13, (18, 18, 0), 0, 128, 4, 0, "gqa", 8, 64, 131072, "mxfp4", 0,
    ),
    "openai--gpt-oss-20b": (20.9, 3.6, (12, 12, 0), 0, 32, 4, 0, "gqa", 8, 64, 131072, "mxfp4", 0),
    "zai-org--GLM-4.5": (352.8, 32.9, (92, 0, 0), 3, 160, 8, 1, "gqa", 8, 128, 131072, None, 1),
    "zai-org--GLM-4.6": (352.8, 32.9, (92, 0, 0), 3, 160, 8, 1, "gqa", 8, 128, 202752, None, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_config_is_read_right(name):
    if f"{name}.json" not in CONFIGS:
        pytest.skip("the shared material is not there")
    model = architecture(CONFIGS[f"{name}.json"], name)
    counts = model.details["attention_layers"]
    found = (
        model.total_parameters / 1e9,
        model.active_parameters / 1e9,
        (counts["full"], counts["sliding"], counts["linear"]),
        model.details["dense_layers"],
        model.experts,
        model.experts_per_token,
        model.shared_experts,
        model.attention,
        model.kv_heads,
        model.head_dim,
        model.max_context,
        model.quantization,
        model.details["mtp_layers"],
    )
    expected = EXPECTED[name]
    assert found[2:] == expected[2:]
    assert found[:2] == (pytest.approx(expected[0], rel=4e-3), pytest.approx(expected[1], rel=0.01))
    codes = [item.code for item in model.findings if item.severity != "info"]
    assert codes == ([] if model.max_context else ["MODEL-MISSING-KEY"])


WINDOWS = {
    "google--gemma-3-27b-it": 1024,
    "openai--gpt-oss-120b": 128,
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": 8192,
}


@pytest.mark.parametrize(("name", "window"), WINDOWS.items())
def test_a_real_window_is_read_right(name, window):
    if f"{name}.json" not in CONFIGS:
        pytest.skip("the shared material is not there")
    details = architecture(CONFIGS[f"{name}.json"], name).details
    assert details["sliding_window"] == window


def test_real_vision_towers_are_read_right():
    if not CONFIGS:
        pytest.skip("the shared material is not there")
    towers = {
        "Qwen--Qwen3-VL-235B-A22B-Instruct": (576_388_336, {"depth": 27, "hidden_size": 1152}),
        "moonshotai--Kimi-K2.5": (471_144_000, {"vt_num_hidden_layers": 27}),
        "google--gemma-3-27b-it": (423_056_256, {"num_hidden_layers": 27}),
    }
    for name, (parameters, dimensions) in towers.items():
        model = architecture(CONFIGS[f"{name}.json"], name)
        assert model.details["vision_parameters"] == pytest.approx(parameters, rel=0.02), name
        assert dimensions.items() <= model.vision.items()
        inner = model.vision.get("intermediate_size") or model.vision["vt_intermediate_size"]
        assert inner == 4304  # no multiple of 128: what online FP8 stumbles over


def test_every_real_config_has_its_row():
    alike = ("2507", "V3-0324", "V3.1", "3.1-405B-Instruct", "3.3-70B", "Distill", "Qwen2.5-VL")
    names = {file.removesuffix(".json") for file in CONFIGS}
    assert {
        name for name in names - set(EXPECTED) if not any(one in name for one in alike)
    } == set()


@pytest.mark.parametrize("name", known_names())
def test_a_shipped_model_is_the_real_one(name):
    """What ships under knowledge/models is a copy: read the same, it plans the same."""
    file = f"{name.replace('/', '--')}.json"
    if file not in CONFIGS:
        pytest.skip("the shared material is not there")
    shipped, real = known(name), architecture(CONFIGS[file], name)
    beside = {"findings": (), "vision": None}
    for attribute in shipped.__dataclass_fields__:
        if attribute not in beside and attribute != "details":
            assert getattr(shipped, attribute) == getattr(real, attribute), attribute
    for key in shipped.details.keys() | real.details.keys():
        assert shipped.details.get(key) == real.details.get(key), key
    config = knowledge(f"models/{name.replace('/', '--')}.yml")
    assert config["source"]


def test_the_unquantized_real_models_take_two_bytes_a_parameter():
    for file, config in CONFIGS.items():
        model = architecture(config, file)
        if model.quantization or model.total_parameters is None:
            continue
        made = memory(model, Layout(1), Limits(), 4096 * GIB)
        padding = 2 * 2 * 64 * model.hidden_size
        weights = made.weights_bytes_per_gpu
        copies = sum(2 * item.parameters for item in made.modules if item.kind == "kv_b")
        assert 0 <= weights - copies - 2 * model.total_parameters <= padding, file
