# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Architecture from config.json, by hand-made configs, shipped models and published counts."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    knowledge,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    known,
    known_names,
    read_config,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import memory

from support.shared import SHARED

CONFIGS = SHARED / "data/model-configs"
DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def read(config, **changes):
    merged = {key: value for key, value in {**config, **changes}.items() if value is not None}
    return read_config(json.dumps(merged), "config.json")


def codes(architecture):
    return [finding.code for finding in architecture.findings]


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("", "MODEL-NOT-JSON", "line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "MODEL-NOT-JSON", "line 2, column 6"),
        ("[" * 200_000, "MODEL-NOT-JSON", "deeply"),
        ('{"a": ' + "9" * 5000 + "}", "MODEL-NOT-JSON", "5000 digits"),
        ('{"model_type": "\\ud800"}', "MODEL-NOT-JSON", "not Unicode"),
        ("[]", "MODEL-NO-TYPE", "list"),
        ('"llama"', "MODEL-NO-TYPE", "str"),
        ("{}", "MODEL-NO-TYPE", "model_type"),
        ('{"model_type": 7}', "MODEL-NO-TYPE", "model_type"),
        ('{"architectures": []}', "MODEL-NO-TYPE", "architectures"),
    ],
)
def test_what_is_no_model_config_is_refused(text, code, part):
    with pytest.raises(ApiaryError) as refusal:
        read_config(text, "config.json")
    (finding,) = refusal.value.findings
    assert finding.code == code
    assert finding.subject == "config.json"
    assert part in finding.message


def test_dense_parameters_are_counted_by_hand():
    llama = read(DENSE)
    head = 64 // 8
    layer = 2 * 64 * 64 + 2 * 64 * 2 * head + 3 * 64 * 128 + 2 * 64
    assert llama.total_parameters == 2 * 100 * 64 + 2 * layer + 64
    assert llama.active_parameters == llama.total_parameters - 100 * 64
    assert (llama.family, llama.attention, llama.head_dim) == ("dense", "gqa", 8)
    assert llama.findings == ()


def test_fewer_dimensions_than_heads_are_no_heads_of_size_0():
    llama = read(DENSE, hidden_size=4)
    assert codes(llama) == ["MODEL-BAD-VALUE"]
    assert memory(llama, Layout(1), Limits(), 2**38).kv_bytes_per_token_per_gpu is None


def test_tied_embeddings_are_counted_once():
    assert (
        read(DENSE).total_parameters - read(DENSE, tie_word_embeddings=True).total_parameters
        == 100 * 64
    )


def test_a_moe_layer_is_counted_by_hand():
    moe = read(
        DENSE,
        model_type="qwen3_moe",
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        num_hidden_layers=3,
        mlp_only_layers=[0],
    )
    attention = 2 * 64 * 64 + 2 * 64 * 16 + 2 * 8  # with a norm of queries and of keys
    expert, router, norms = 3 * 64 * 16, 64 * 4, 2 * 64
    shared_by_all = 3 * (attention + norms) + 3 * 64 * 128 + 2 * router + 64
    assert moe.total_parameters == 2 * 100 * 64 + shared_by_all + 2 * 4 * expert
    assert moe.active_parameters == 100 * 64 + shared_by_all + 2 * expert
    assert (moe.details["dense_layers"], moe.details["moe_layers"]) == (1, 2)


def test_more_active_experts_than_there_are_is_no_count():
    moe = read(DENSE, model_type="mixtral", num_local_experts=4, num_experts_per_tok=5)
    assert codes(moe) == ["MODEL-BAD-VALUE"]
    assert moe.active_parameters is None


@pytest.mark.parametrize(
    ("kv_heads", "attention"), [(8, "mha"), (2, "gqa"), (1, "mqa"), (None, "mha")]
)
def test_kv_heads_name_the_attention(kv_heads, attention):
    assert read(DENSE, num_key_value_heads=kv_heads).attention == attention


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size", "intermediate_size"])
def test_a_missing_key_is_named_and_not_guessed(key):
    llama = read(DENSE, **{key: None})
    assert codes(llama) == ["MODEL-MISSING-KEY"]
    assert key in llama.findings[0].message
    assert llama.total_parameters is None
    assert llama.active_parameters is None


@pytest.mark.parametrize("value", ["64", 6.4, True, -1, 0, 2**40 + 1, [], {}])
def test_a_value_of_the_wrong_kind_is_unknown(value):
    llama = read(DENSE, hidden_size=value)
    assert "MODEL-BAD-VALUE" in codes(llama)
    assert llama.hidden_size is None
    assert llama.total_parameters is None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("patch_size", 0, "vision_config.patch_size: expected a whole number of at least 1"),
        ("patch_size", 1e308, "vision_config.patch_size"),
        ("depth", 2**70, f"at most {2**40}"),
        ("deepstack_visual_indexes", {}, "vision_config.deepstack_visual_indexes"),
        ("deepstack_visual_indexes", [8, "x"], "expected a list of whole numbers"),
    ],
)
def test_a_wrong_value_of_the_vision_tower_leaves_the_parameters_unknown(key, value, expected):
    config = knowledge("models/Qwen--Qwen3-VL-235B-A22B-Instruct.yml")["config"]
    spoilt = read({**config, "vision_config": {**config["vision_config"], key: value}})
    (finding,) = spoilt.findings
    assert finding.code == "MODEL-BAD-VALUE"
    assert expected in finding.message
    assert spoilt.total_parameters is None


def test_a_missing_key_of_the_vision_tower_is_named_with_its_path():
    config = knowledge("models/moonshotai--Kimi-K2.5.yml")["config"]
    tower = {key: value for key, value in config["vision_config"].items() if key != "patch_size"}
    spoilt = read({**config, "vision_config": tower})
    (finding,) = spoilt.findings
    assert (finding.code, spoilt.total_parameters) == ("MODEL-MISSING-KEY", None)
    assert finding.message.startswith("missing: vision_config.patch_size;")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("q_lora_rank", None),
        ("q_lora_rank", "x"),
        ("kv_lora_rank", "x"),
        ("index_topk", "x"),
        ("quantization_config", "x"),
        ("quantization_config", {"quant_method": []}),
        ("attention_bias", "x"),
        ("vision_config", "x"),
    ],
)
def test_what_cannot_be_read_is_not_taken_as_absent(key, value):
    config = dict(knowledge("models/deepseek-ai--DeepSeek-V3.2.yml")["config"])
    spoilt = read_config(json.dumps({**config, key: value}), "config.json")
    assert set(codes(spoilt)) & {"MODEL-BAD-VALUE", "MODEL-MISSING-KEY"}
    assert memory(spoilt, Layout(8), Limits(), 2**38).weights_bytes_per_gpu is None
    if key in ("kv_lora_rank", "index_topk"):
        assert spoilt.attention is None
        assert memory(spoilt, Layout(8), Limits(), 2**38).kv_bytes_per_token_per_gpu is None


def test_an_unknown_kind_of_layer_is_no_layer_that_attends_fully():
    odd = read(DENSE, layer_types=["full_attention", "other"])
    assert codes(odd) == ["MODEL-BAD-VALUE"]
    assert "attention_layers" not in odd.details


def test_an_unknown_type_says_what_its_keys_say():
    other = read(DENSE, model_type="brand_new", num_local_experts=4)
    assert codes(other) == ["MODEL-UNKNOWN-TYPE"]
    assert (other.layers, other.heads, other.kv_heads, other.experts) == (2, 8, 2, 4)
    assert (other.family, other.attention) == ("moe", "gqa")
    assert other.total_parameters is None
    assert "norms_per_layer" not in other.details
    assert "attention_layers" not in other.details


def test_a_class_name_alone_is_an_unknown_type():
    other = read_config('{"architectures": ["NewForCausalLM"]}', "config.json")
    assert other.model_type == "NewForCausalLM"
    assert "MODEL-UNKNOWN-TYPE" in codes(other)


def test_an_unknown_vision_tower_leaves_the_parameters_unknown():
    llama = read(DENSE, vision_config={"hidden_size": 1})
    assert codes(llama) == ["MODEL-UNKNOWN-VISION"]
    assert llama.total_parameters is None
    assert llama.layers == 2


def test_a_text_config_is_read_below_its_wrapper():
    text = {key: value for key, value in DENSE.items() if key != "model_type"}
    wrapped = read(
        {"model_type": "qwen3_vl", "num_hidden_layers": 9, "text_config": {**text, "head_dim": 8}}
    )
    assert (wrapped.layers, wrapped.head_dim) == (2, 8)
    assert codes(wrapped) == ["MODEL-NO-TOWER"]
    assert wrapped.total_parameters is not None


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda text: {"text_config": text},
        lambda text: {"llm_config": text},
        lambda text: {"language_config": text},
        lambda text: {"thinker_config": {"text_config": text}},
        lambda text: {"thinker_config": {"text_config": text, "hidden_size": 1}, "layers": 1},
    ],
)
def test_every_wrapper_leads_to_the_language_model(wrapper):
    text = {**DENSE, "num_key_value_heads": 1}
    wrapped = read({"model_type": "llava", **wrapper(text)})
    assert (wrapped.hidden_size, wrapped.layers, wrapped.attention) == (64, 2, "mqa")
    assert wrapped.total_parameters == read(text).total_parameters


def test_wrappers_without_end_are_no_endless_loop():
    endless = {"model_type": "llava"}
    for _depth in range(20):
        endless = {"model_type": "llava", "text_config": endless}
    assert "MODEL-MISSING-KEY" in codes(read(endless))


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({}, 512),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 2048),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 1024),
        ({"rope_scaling": {"rope_type": "default"}}, 512),
        ({"rope_scaling": {"rope_type": "mrope", "mrope_section": [1]}}, 512),
        ({"rope_scaling": {"rope_type": "linear", "factor": "x"}}, 512),
        ({"rope_scaling": {"rope_type": "linear", "factor": True}}, 512),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2}}}, 1024),
        # The files of these types have the scaled length already …
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, 512),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 8}}, 512),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 128,
                }
            },
            512,
        ),
        # … but for those that were extended by hand, as Qwen's cards say to.
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 512,
                }
            },
            2048,
        ),
        ({"model_type": "gemma3_text", "sliding_window": 8, "head_dim": 8,
          "rope_scaling": {"rope_type": "linear", "factor": 8}}, 512),
    ],
)  # fmt: skip
def test_the_context_is_the_scaled_one(changes, context):
    model = read(DENSE, **changes)
    assert model.max_context == context
    assert codes(model) == []


def test_what_a_class_fills_in_is_said():
    gemma = read(DENSE, model_type="gemma3_text", vocab_size=None, num_attention_heads=None,
                 sliding_window=16)  # fmt: skip
    assert codes(gemma) == ["MODEL-CLASS-DEFAULT"]
    assert "vocab_size = 262208" in gemma.findings[0].message
    assert (gemma.vocab_size, gemma.heads) == (262208, 8)
    assert gemma.total_parameters is not None


def test_an_unknown_type_names_what_stays_unknown():
    nothing = read({"model_type": "brand_new"})
    (said,) = (item for item in nothing.findings if item.code == "MODEL-UNKNOWN-TYPE")
    for part in ("experts", "layers, heads and sizes", "within a window", "parameters and memory"):
        assert part in said.message
    some = read(DENSE, model_type="brand_new", num_local_experts=4,
                layer_types=["full_attention", "sliding_attention"], sliding_window=8)  # fmt: skip
    (said,) = some.findings
    assert said.message.endswith("not known: parameters and memory stay unknown")
    assert some.details["attention_layers"] == {"full": 1, "sliding": 1, "linear": 0}


def test_quantization_is_found_wherever_it_stands():
    scheme = {"quant_method": "fp8"}
    text = {key: value for key, value in DENSE.items() if key != "model_type"}
    for config in (
        {**DENSE, "quantization_config": scheme},
        {**DENSE, "compression_config": scheme},
        {"model_type": "llava", "text_config": {**text, "quantization_config": scheme}},
        {"model_type": "llava", "text_config": text, "quantization_config": scheme},
    ):
        assert read(config).quantization == "fp8"
    modelopt = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    beside = {"quantization_config": modelopt}
    assert read_config(json.dumps(DENSE), "config.json", beside).quantization == "modelopt"
    own = {**DENSE, "quantization_config": scheme}
    assert read_config(json.dumps(own), "config.json", beside).quantization == "fp8"


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, (4, 0, 0)),
        ({"layer_types": ["sliding_attention", "full_attention"] * 2}, (2, 2, 0)),
        ({"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 9}, (3, 1, 0)),
    ],
)
def test_layers_are_counted_by_how_they_attend(changes, layers):
    qwen = read({**DENSE, "model_type": "qwen3", "head_dim": 8, "num_hidden_layers": 4}, **changes)
    counted = qwen.details["attention_layers"]
    assert (counted["full"], counted["sliding"], counted["linear"]) == layers


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_what_no_json_has_is_read_where_it_does_not_matter(number):
    """NVIDIA's Nemotron files have `time_step_limit: [0.0, Infinity]`."""
    text = json.dumps({**DENSE, "model_type": "qwen3", "head_dim": 8})
    found = read_config(f'{text[:-1]}, "time_step_limit": [0.0, {number}]}}', "x")
    assert found.hidden_size == DENSE["hidden_size"]
    json.dumps(to_document(found), allow_nan=False)
    wrong = read_config(f'{text[:-1]}, "hidden_size": {number}}}', "x")
    assert wrong.hidden_size is None
    assert "MODEL-BAD-VALUE" in [finding.code for finding in wrong.findings]


SHIPPED = {
    # name: parameters, billion active ones, experts, attention, quantization
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": (235_093_634_560, 21.57, 128, "gqa", "fp8"),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": (235_093_634_560, 21.57, 128, "gqa", None),
    "Qwen/Qwen3-VL-235B-A22B-Instruct": (235_670_022_896, 21.57, 128, "gqa", None),
    "deepseek-ai/DeepSeek-V3.2": (671_877_944_064, 37.48, 256, "sparse_mla", "fp8"),
    "meta-llama/Llama-3.1-405B-Instruct": (405_853_388_800, 403.75, 0, "gqa", None),
    "moonshotai/Kimi-K2.5": (1_026_879_376_368, 31.69, 384, "mla", "compressed-tensors"),
}


def test_the_studied_models_are_shipped():
    assert set(known_names()) == set(SHIPPED)


@pytest.mark.parametrize(("name", "expected"), SHIPPED.items())
def test_shipped_models_have_the_published_size(name, expected):
    total, active, experts, attention, quantization = expected
    model = known(name)
    assert model.total_parameters == total
    assert model.active_parameters / 1e9 == pytest.approx(active, abs=0.006)
    assert (model.experts, model.attention) == (experts, attention)
    assert model.quantization == quantization
    assert model.findings == ()


@pytest.mark.parametrize("name", ["nobody/nothing", "../../secrets/x", "", "Qwen", "a/b/c"])
def test_other_names_are_not_known(name):
    assert known(name) is None


def published():
    index = CONFIGS / "index.json"
    return json.loads(index.read_text())["models"] if index.is_file() else []


@pytest.mark.parametrize("entry", published(), ids=lambda entry: entry["model"])
def test_real_configs_agree_with_the_published_counts(entry):
    model = read_config((CONFIGS / entry["file"]).read_text(), entry["file"])
    derived = entry["derived"]
    if not isinstance(derived, dict):  # the file is not whole
        assert "MODEL-CLASS-DEFAULT" in codes(model)
        return
    # The index rounds to 0.01, and its own count of gemma-3 is 0.04 % off.
    assert model.total_parameters / 1e9 == pytest.approx(
        derived["total_params_B"], abs=0.006, rel=5e-4
    )
    assert model.active_parameters / 1e9 == pytest.approx(derived["active_params_B"], abs=0.011)
    assert model.family == derived["family"]
    assert model.layers == derived["layers"]
    assert model.heads == derived["heads"]
    assert model.experts == derived["experts"]
    assert model.quantization == derived["quant"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "ernie4_5_moe_vl", "moe_intermediate_size": [], "moe_num_experts": 8},
        {"model_type": "mimo_v2", "quantization_config": {"store_dtype": []}},
        {"model_type": "deepseek_v4", "expert_dtype": {}},
    ],
)
def test_a_list_or_mapping_where_a_number_or_word_belongs_ends_in_no_traceback(changes):
    """A checkpoint's config.json may have anything anywhere."""
    own = changes.get("quantization_config", {})
    read(DENSE, **{**changes, "quantization_config": {"quant_method": "fp8", **own}})
