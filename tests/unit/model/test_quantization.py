# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quantization configs: bytes per weight and what ignore lists mean."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.quantization import (
    bytes_per_weight,
    condense,
    ignored_layers,
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
        ({"quant_method": "compressed-tensors", "config_groups": {"a": INT4, "b": INT4}}, None),
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
    assert bytes_per_weight(read(config, 4)) == expected


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
    assert ignored_layers([name], patterns, 8) == expected
