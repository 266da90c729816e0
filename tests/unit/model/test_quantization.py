# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quantization configs: bytes per weight and what ignore lists mean."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.patterns import (
    condense,
    named_layers,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.quantization import (
    module_bytes,
    online,
    read,
)

INT4 = {"weights": {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, 2.0),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384),
        ({"quant_method": "fbgemm_fp8"}, 1.0),
        ({"quant_method": "mxfp4"}, 0.5 + 1 / 32),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": INT4}}, 0.5625),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, None),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": INT4, "b": INT4}}, 0.5625),
        ({"quant_method": "somebodys"}, None),
        ({"bits": 4}, None),
        ({"quant_method": []}, None),
        ({"quant_method": {}}, None),
        *(
            (
                {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"a": {"weights": {"num_bits": bits}}},
                },
                None,
            )
            for bits in (0, -1, 2**70, "4", True)
        ),
    ],
)
def test_bytes_per_weight(config, expected):
    assert module_bytes(read(config, 4), (Q,), 4) == expected


def test_a_list_of_every_layer_becomes_one_pattern():
    names = [f"model.layers.{layer}.mlp.gate" for layer in range(3)]
    assert condense([*names, "lm_head"], 3) == ["model.layers.*.mlp.gate", "lm_head"]


@pytest.mark.parametrize("layers", [4, 2, None])
def test_a_list_with_gaps_stays(layers):
    names = [f"model.layers.{layer}.mlp.gate" for layer in range(3)]
    assert condense(names, layers) == names


Q = "model.layers.*.self_attn.q_proj"


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        (Q, [], 0),
        (Q, ["lm_head"], 0),
        (Q, ["model.layers.*.self_attn"], 8),
        (Q, ["self_attn"], 8),
        (Q, ["attn"], 0),
        (Q, ["model.layers.0.self_attn.q_proj", "model.layers.7.self_attn.q_proj"], 2),
        (Q, ["model.language_model.layers.3.self_attn.q_proj"], 1),
        (Q, ["re:.*self_attn.*"], 8),
        (Q, ["re:.*mlp.*", "re:[", "re:x{99999999999}"], 0),
        (Q, ["model.layers.².self_attn.q_proj", f"model.layers.{'9' * 5000}.self_attn"], 0),
        ("model.layers.*.mlp.experts.*.w1", ["gate"], 0),
        ("model.layers.*.mlp.gate", ["gate"], 8),
        ("model.layers.*.mlp.gate_proj", [r"re:.*mlp\.(gate|up)_proj.*"], 8),
        ("model.layers.*.mlp.experts.*.gate_proj", [r"re:.*mlp\.(gate|up)_proj.*"], 0),
    ],
)
def test_ignored_layers(name, patterns, expected):
    assert named_layers([name], patterns, 8) == expected


EXPERTS = "model.layers.*.mlp.experts.*.gate_proj"
FP8_BLOCK = {"num_bits": 8, "block_structure": [128, 128], "strategy": "block"}
NVFP4 = {"num_bits": 4, "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}
MIXED = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": FP8_BLOCK},
        "group_1": {"targets": ["re:.*experts.*"], "weights": NVFP4},
    },
    "ignore": ["lm_head", "re:model.layers.[01].self_attn.q_proj"],
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((EXPERTS,), 0.5625),
        (("model.layers.*.self_attn.o_proj",), 1 + 4 / 16384),
        # Two of eight layers are left alone, and no scheme is for the dense FFN.
        ((Q,), (2 * 2 + 6 * (1 + 4 / 16384)) / 8),
        (("model.layers.*.mlp.gate_proj",), 2.0),
        ((), 2.0),
    ],
)
def test_each_module_has_the_scheme_that_targets_it(names, expected):
    assert module_bytes(read(MIXED, 8), names, 8) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*self_attn.*": {}}}, Q, 8),
        ({"quant_method": "modelopt", "exclude_modules": ["model.layers.0.self_attn*"]}, Q, 1),
        ({"quant_method": "modelopt", "exclude_modules": ["*self_attn*"]}, Q, 8),
        ({"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["q_proj"]}, Q, 8),
        ({"quant_method": "quark", "exclude": ["re:.*layers\\.7\\..*"]}, Q, 1),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"exclude_modules": ["q_proj"]}},
            Q,
            8,
        ),
    ],
)
def test_every_dialect_of_an_ignore_list(config, name, expected):
    assert named_layers([name], read(config, 8)["ignore"], 8) == expected


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "torchao"},
        {"quant_method": "gguf"},
        {"quant_method": "awq"},
        {"quant_method": "awq", "bits": "4"},
        {"quant_method": "quark"},
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "bfloat"}}},
        {"quant_method": "modelopt", "quant_algo": "OTHER"},
        {"quant_method": "bitsandbytes"},
    ],
)
def test_what_a_format_does_not_say_is_not_guessed(config):
    scheme = read(config, 4)
    assert scheme["method"] == config["quant_method"]
    assert module_bytes(scheme, (Q,), 4) is None


def test_methods_that_quantize_while_loading():
    assert online("fp8")["bits"] == 8
    assert online("fp8_per_block")["block"] == [128, 128]
    assert online("awq") is None
    assert online("nothing") is None
