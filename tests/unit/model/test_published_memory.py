# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Weights and KV cache of published models against the tensors of vLLM 0.33.0 (tests/engine)."""

import dataclasses
import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.checkpoint import read_checkpoint
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import as_loaded
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.cache import (
    groups,
    kv_bytes_per_token,
    pages,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.weights import (
    by_module,
    weights_bytes,
)

from engine.models import published
from engine.odd import FP8_BLOCKS, SINKS

CONFIGS = published() | {
    entry["name"]: entry["config"]
    for entry in [
        knowledge("models/Qwen--Qwen3-235B-A22B-Instruct-2507-FP8.yml"),
        knowledge("models/Qwen--Qwen3-VL-235B-A22B-Instruct.yml"),
    ]
}
AITER = {"VLLM_ROCM_USE_AITER": "1"}
DATA = {"flag mm_encoder_tp_mode": "data"}
OFF = {"flag disable_hybrid_kv_cache_manager": "true"}
ON = {"flag disable_hybrid_kv_cache_manager": "false"}
KV_EVENTS = {"flag kv_events_config": "{}"}
LMCACHE, NIXL, MORIIO = (
    {"flag kv_transfer_config.kv_connector": name}
    for name in ("LMCacheConnectorV1", "NixlConnector", "MoRIIOConnector")
)
OFFLOAD = {"flag kv_offloading_size": "64"}
GPT_OSS, SCOUT = "openai/gpt-oss-120b", "meta-llama/Llama-4-Scout-17B-16E-Instruct"
NO_TABLES = CONFIGS["deepseek-ai/DeepSeek-V4.1-Flash"]["text_config"] | {"engram_layer_ids": []}


def read(name, **changes):
    config = {**CONFIGS[name], **changes}
    beside = {"quantization_config": config.pop("hf_quant_config", None)}
    return read_config(json.dumps(config), name, beside)


# What the first rank of TP8 holds on an MI325X, by vLLM's own parameters.
@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", 20_644_891_260),
        # Its n-gram tables are in the host's memory.
        ("deepseek-ai/DeepSeek-V4.1-Flash", 50_189_205_440),
        # Experts in NVFP4, and all else in FP8, whatever `ignore` names.
        ("nvidia/DeepSeek-V4-Flash-NVFP4", 21_727_285_884),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", 115_492_786_916),
        ("google/gemma-4-26B-A4B", 7_499_250_272),
        ("Qwen/Qwen3-30B-A3B", 10_096_504_832),
    ],
)
def test_weights_are_those_of_vllms_tensors(name, held):
    loaded = as_loaded(read(name), "0.33.0", "MI325X", AITER)
    assert weights_bytes(loaded, Layout(8, 1, False)) == pytest.approx(held, rel=0.01)


# The same, and a token's KV, where the GPU, --mm-encoder-tp-mode or --moe-backend decides, too.
@pytest.mark.parametrize(
    ("name", "gpu", "flags", "held", "token"),
    [
        ("moonshotai/Kimi-K3", "MI355X", DATA, 201_894_627_824, 27_648),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "MI325X", {}, 12_468_649_984, 25_088),
        ("mistralai/Ministral-3-14B-Instruct-2512", "MI325X", {}, 2_030_084_608, 20_480),
        # Each GPU's 192 of 1,536 columns are padded to 256.
        (
            "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
            "MI325X",
            {"flag moe_backend": "aiter"},
            39_157_279_984,
            48_128,
        ),
    ],
)
def test_what_a_gpu_holds_is_that_of_vllms_tensors(name, gpu, flags, held, token):
    loaded = as_loaded(read(name), "0.33.0", gpu, AITER, flags)
    assert weights_bytes(loaded, Layout(8)) == pytest.approx(held, rel=0.002)
    assert kv_bytes_per_token(loaded, Layout(8), "auto") == token


@pytest.mark.parametrize("left_out", [["visual"], ["model.visual.merger.linear_fc1"]])
def test_a_tower_is_in_fp8_unless_the_checkpoint_leaves_it_out(left_out):
    def held(fp8):
        model = read("Qwen/Qwen3-VL-235B-A22B-Instruct", quantization_config=fp8)
        return weights_bytes(as_loaded(model, "0.33.0", "MI325X", AITER, DATA), Layout(4))

    assert held(FP8_BLOCKS) == pytest.approx(59_718_629_808, rel=0.002)
    whole = 576_388_336  # parameters of the tower, which each GPU has
    more = held(FP8_BLOCKS | {"modules_to_not_convert": left_out}) - held(FP8_BLOCKS)
    assert more == pytest.approx(whole, rel=0.01)


def test_only_a_named_kernel_has_fp8_experts_padded():
    model = read("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    plain = weights_bytes(as_loaded(model, "0.33.0", "MI325X", AITER), Layout(8))
    for version, layout, backend in (
        ("0.33.0", Layout(8), "triton"),
        ("0.33.0", Layout(8, 1, True), "aiter"),
        ("0.30.0", Layout(8), "aiter"),
    ):
        loaded = as_loaded(model, version, "MI325X", AITER, {"flag moe_backend": backend})
        assert weights_bytes(loaded, layout) == plain


# By vLLM's own parameters of these releases.
@pytest.mark.parametrize(
    ("name", "version", "gpu", "held"),
    [
        ("odd/sinks", "0.14.1", "MI325X", 1_096_527_936),
        ("odd/sinks", "0.17.1", "MI355X", 1_337_372_736),
        ("odd/sinks", "0.19.0", "MI325X", 1_337_372_736),
        ("deepseek-ai/DeepSeek-V4-Pro", "0.22.0", "MI325X", 143_699_979_428),
        ("deepseek-ai/DeepSeek-V4-Pro", "0.30.0", "MI355X", 109_447_708_388),
        # Its n-gram tables were on the GPUs.
        ("deepseek-ai/DeepSeek-V4.1-Flash", "0.30.0", "MI325X", 91_860_714_560),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "0.31.0", "MI355X", 50_189_205_440),
        # With an index of each column of the experts up to 0.29.0; by vLLM's tensors.
        ("moonshotai/Kimi-K2-Thinking", "0.14.1", "MI325X", 77_679_095_808),
        ("moonshotai/Kimi-K2-Thinking", "0.30.0", "MI325X", 76_310_473_728),
        ("moonshotai/Kimi-K3", "0.29.0", "MI355X", 205_240_978_808),  # MXFP4: none
        # Its tower in Mistral's format is whole on each GPU up to 0.19.1.
        ("mistralai/Ministral-3-14B-Instruct-2512", "0.12.0", "MI325X", 2_734_727_680),
    ],
)
def test_older_releases_hold_what_their_own_tensors_do(name, version, gpu, held):
    model = read_config(json.dumps(SINKS), name) if name == "odd/sinks" else read(name)
    loaded = as_loaded(model, version, gpu, AITER)
    assert weights_bytes(loaded, Layout(8)) == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize(
    ("version", "switch", "held", "sequence"),
    [
        ("0.28.0", "0", 143_699_967_716, None),
        ("0.33.0", "0", 143_699_967_716, 25_034_666_112),
        ("0.33.0", "1", 109_447_708_388, 22_925_849_472),
    ],
)
def test_deepseek_v4_pads_its_experts_and_keeps_fp8_indices_where_aiter_is_off(
    version, switch, held, sequence
):
    model = read("deepseek-ai/DeepSeek-V4-Pro")
    loaded = as_loaded(model, version, "MI355X", {"VLLM_ROCM_USE_AITER": switch})
    assert weights_bytes(loaded, Layout(8)) == pytest.approx(held, rel=0.01)
    page = pages(loaded, Layout(8), Limits(), model.max_context)
    assert (page.sequence_bytes if page else None) == sequence


def test_an_index_of_experts_columns_is_whole_on_each_gpu_but_for_expert_parallelism():
    model = read("moonshotai/Kimi-K2-Thinking")

    def index(version, layout):
        loaded, newer = (as_loaded(model, one, "MI325X", AITER) for one in (version, "0.30.0"))
        return weights_bytes(loaded, layout) - weights_bytes(newer, layout)

    # Two of int32 in 60 layers for 384 experts, of 7,168 columns in and 2,048 out.
    assert index("0.29.0", Layout(8)) == 60 * 384 * (7168 + 2048 // 8) * 8
    assert index("0.29.0", Layout(8, 1, True)) == 60 * 384 // 8 * (7168 + 2048) * 8
    assert index("0.30.0", Layout(8)) == 0


@pytest.mark.parametrize(
    ("changes", "version", "held"),
    [
        ({}, "0.12.0", 57_452_544),  # by vLLM's tensors, of all its layers
        ({}, "0.19.1", 57_452_544),
        ({}, "0.20.0", 114_075_648),
        ({"mamba_ssm_cache_dtype": "float32"}, "0.12.0", 57_452_544),
        ({"mamba_ssm_cache_dtype": "float32"}, "0.13.0", 114_075_648),
    ],
)
def test_a_state_s_format_is_that_of_the_release(changes, version, held):
    name = "nvidia/Nemotron-H-56B-Base-8K"
    model = read_config(json.dumps(published()[name] | changes), name)
    found = groups(as_loaded(model, version, "MI325X", AITER), Layout(8), "auto")
    (linear,) = (group for group in found if group.kind == "linear")
    assert linear.layers * linear.state_bytes == held


# A sequence of the whole context, by vLLM's own groups of layers.
@pytest.mark.parametrize(
    ("version", "size", "held"),
    [("0.33.0", 4, 846_692_352), ("0.33.0", 8, 825_606_144), ("0.31.0", 4, 833_716_224)],
)
def test_a_mamba2_sequence_keeps_a_third_state_from_0_32(version, size, held):
    model = read("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    loaded = as_loaded(model, version, "MI325X", AITER)
    page = pages(loaded, Layout(size), Limits(), loaded.max_context)
    assert page.sequence_bytes == held


# By vLLM's own groups: windows are split to fit a block of the layers that attend to all tokens.
@pytest.mark.parametrize(("context", "held"), [(1_048_576, 2_758_097_664), (65_536, 962_083_584)])
def test_windows_and_states_share_the_blocks_of_unlike_layers(context, held):
    loaded = as_loaded(read("deepseek-ai/DeepSeek-V4.1-Flash"), "0.33.0", "MI325X", AITER)
    assert pages(loaded, Layout(8), Limits(), context).sequence_bytes == held


# Its tables have 25.3 GB for each of eight GPUs, with a scale for each 32 values.
def test_tables_in_host_memory_are_of_the_checkpoint_and_in_no_gpu():
    model = read("deepseek-ai/DeepSeek-V4.1-Flash")
    (tables,) = (one for one in by_module(model, Layout(8)) if one.sharding == "host")
    assert tables.parameters / 8 == pytest.approx(24_576_430_080, rel=0.001)
    assert tables.bytes_per_gpu == pytest.approx(25_344_443_520, rel=0.001)
    assert weights_bytes(model, Layout(8)) < 2 * tables.bytes_per_gpu
    halves = next(one for one in by_module(model, Layout(4, 1, False, 2)) if one.sharding == "host")
    assert halves.bytes_per_gpu == pytest.approx(tables.bytes_per_gpu, rel=0.03)
    on_gpus = {"flag engram_config.cpu_offload": "false"}
    there, here = (as_loaded(model, "0.33.0", "MI325X", AITER, flags) for flags in (on_gpus, {}))
    more = weights_bytes(there, Layout(8)) - weights_bytes(here, Layout(8))
    assert more == pytest.approx(tables.bytes_per_gpu, rel=0.001)
    without = read("deepseek-ai/DeepSeek-V4.1-Flash", text_config=NO_TABLES)
    assert weights_bytes(model, Layout(8)) - weights_bytes(without, Layout(8)) < 1 << 26
    assert model.total_parameters - without.total_parameters > tables.parameters


# 144 of 1,152 columns a GPU have a block of 16 in common with 128, 192 of 1,536 one of 64.
@pytest.mark.parametrize(
    ("width", "version", "held"),
    [
        (1152, "0.33.0", 39_108_008_944),  # by vLLM's own parameters
        (1536, "0.33.0", 29_692_619_264),
        (1152, "0.30.0", 22_594_124_288),
    ],
)
def test_a_named_triton_has_parts_padded_that_share_no_block_of_32(width, version, held):
    model = read("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", moe_intermediate_size=width)
    loaded = as_loaded(model, version, "MI325X", AITER, {"flag moe_backend": "triton"})
    assert weights_bytes(loaded, Layout(8)) == pytest.approx(held, rel=0.002)


NAS = "nvidia/Llama-3_3-Nemotron-Super-49B-v1"


def blocks_of(**of_one):
    """Return 80 blocks with attention and an FFN; the 41st is ``of_one``."""
    usual = {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 1.0}}
    return [*[usual] * 40, usual | of_one, *[usual] * 39]


def test_a_block_that_says_less_keeps_its_place_among_the_others():
    silent = read(NAS, block_configs=blocks_of(attention={"n_heads_in_group": 8}))
    whole = read(NAS, block_configs=blocks_of())
    assert weights_bytes(silent, Layout(8)) == weights_bytes(whole, Layout(8)) > 0
    assert silent.memory == whole.memory


def test_a_block_without_an_ffn_has_no_width():
    whole = weights_bytes(read(NAS, block_configs=blocks_of()), Layout(1))
    without = weights_bytes(read(NAS, block_configs=blocks_of(ffn={"no_op": True})), Layout(1))
    assert whole - without == 3 * 8192 * 5632 * 2  # int(2 * 8192 / 3), up to a multiple of 256


@pytest.mark.parametrize(
    "blocks",
    [
        [{"attention": {"no_op": True}, "ffn": {"ffn_mult": "wide"}}] * 80,
        blocks_of(ffn={"intermediate_size": 4096}),
        blocks_of()[:79],
    ],
)
def test_widths_of_layers_that_cannot_be_read_leave_the_memory_unknown(blocks):
    model = read(NAS, block_configs=blocks)
    assert weights_bytes(model, Layout(8)) is None
    assert "MODEL-BAD-VALUE" in {finding.code for finding in model.findings}


# Towers: what vLLM leaves whole of one that it splits, and all of one whose images it splits.
@pytest.mark.parametrize(
    ("name", "size", "mode", "held"),
    [
        ("deepseek-ai/DeepSeek-OCR", 2, {}, 3_782_279_680),
        ("internlm/Intern-S1", 8, {}, 63_721_502_080),
        ("OpenGVLab/InternVL3_5-8B", 8, DATA, 2_723_389_440),
        ("zai-org/GLM-4.5V", 8, DATA, 30_784_512_512),
        ("meta-models/Muse-Glimmer-30B", 8, {}, 10_116_571_392),
        ("meta-models/Muse-Glimmer-30B", 4, {}, 17_153_638_912),
        ("google/gemma-4-E2B-it", 8, {}, 2_182_040_640),
        ("google/gemma-4-E4B-it", 8, {}, 2_974_296_640),
    ],
)
def test_towers_are_split_as_vllm_splits_them(name, size, mode, held):
    loaded = as_loaded(read(name), "0.33.0", "MI325X", AITER, mode)
    assert weights_bytes(loaded, Layout(size, 1, False)) == pytest.approx(held, rel=0.002)


# By vLLM's own unify_hybrid_kv_cache_specs: bytes of a token in all layers of a GPU.
@pytest.mark.parametrize(
    ("name", "version", "flags", "token"),
    [
        (GPT_OSS, "0.33.0", {}, 4_608),
        (GPT_OSS, "0.33.0", OFF, 9_216),
        (GPT_OSS, "0.20.2", OFF, 9_216),
        (GPT_OSS, "0.21.0", LMCACHE, 9_216),
        (GPT_OSS, "0.33.0", LMCACHE, 9_216),
        (GPT_OSS, "0.33.0", OFFLOAD, 4_608),
        (GPT_OSS, "0.33.0", OFFLOAD | {"flag kv_offloading_backend": "lmcache"}, 9_216),
        (GPT_OSS, "0.22.0", NIXL, 4_608),
        (GPT_OSS, "0.21.0", NIXL, 9_216),
        (GPT_OSS, "0.21.0", NIXL | ON, 4_608),
        (GPT_OSS, "0.12.0", NIXL | ON, 9_216),
        (GPT_OSS, "0.29.0", MORIIO, 9_216),
        (GPT_OSS, "0.30.0", MORIIO, 4_608),
        (GPT_OSS, "0.19.1", KV_EVENTS, 9_216),
        (GPT_OSS, "0.20.0", KV_EVENTS, 4_608),
        (SCOUT, "0.14.1", {}, 6_144),
        (SCOUT, "0.13.0", {}, 24_576),
        (SCOUT, "0.33.0", {"flag speculative_config.method": "eagle3"}, 24_576),
        (SCOUT, "0.33.0", {"flag speculative_config.method": "ngram"}, 6_144),
        (SCOUT, "0.33.0", {"flag speculative_config.model": "org/Scout-Eagle3"}, 24_576),
    ],
)
def test_without_the_hybrid_manager_windows_keep_every_token(name, version, flags, token):
    loaded = as_loaded(read(name), version, "MI325X", AITER, flags)
    assert kv_bytes_per_token(loaded, Layout(8), "auto") == token
    page = pages(loaded, Layout(8), Limits(), 65_536)
    assert (page.sequence_bytes == 65_536 * token) is (token in (9_216, 24_576))


# By vLLM's own tensors: up to 0.29.0 layers that share keys and values have their own projections.
@pytest.mark.parametrize(
    ("name", "version", "held"),
    [
        ("google/gemma-4-E2B-it", "0.28.0", 2_219_801_664),
        ("google/gemma-4-E4B-it", "0.29.0", 3_029_357_632),
        ("google/gemma-4-E4B-it", "0.30.0", 2_974_296_640),
    ],
)
def test_layers_that_share_keys_may_have_projections(name, version, held):
    loaded = as_loaded(read(name), version, "MI325X", AITER)
    assert weights_bytes(loaded, Layout(8)) == pytest.approx(held, rel=0.001)


@pytest.mark.parametrize(
    ("version", "full", "sliding"), [("0.19.1", 6_912, 29_952), ("0.21.0", 5_760, 24_960)]
)
def test_mimo_s_values_are_cached_as_wide_as_keys_up_to_0_20(version, full, sliding):
    loaded = as_loaded(read("XiaomiMiMo/MiMo-V2-Flash"), version, "MI325X", {})
    found = groups(loaded, Layout(8), "auto")
    assert {one.kind: one.all_bytes for one in found} == {"full": full, "sliding": sliding}


def test_a_text_only_engine_has_no_tower():
    model = read("OpenGVLab/InternVL3_5-8B")
    (tower,) = (one for one in by_module(model, Layout(2)) if one.kind == "vision")
    without = as_loaded(model, "0.33.0", "MI325X", AITER, {"flag mm_encoder_tp_mode": "none"})
    assert tower.bytes_per_gpu > 0
    assert (
        weights_bytes(model, Layout(2)) - weights_bytes(without, Layout(2)) == tower.bytes_per_gpu
    )


def test_only_a_model_with_a_tower_is_changed_by_how_towers_are_split():
    model = read("MiniMaxAI/MiniMax-M2.5")
    assert as_loaded(model, "0.33.0", None, {}, DATA) is model


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("MiniMaxAI/MiniMax-M3", 45_312),  # 57 layers keep the keys of their indexer, too
        ("nvidia/Llama-3.1-70B-Instruct-FP8", 20_480),  # hf_quant_config.json brings FP8 scales
        ("nvidia/DeepSeek-V3.1-NVFP4", 35_136),
    ],
)
def test_a_token_takes_what_vllms_pages_have_for_it(name, held):
    assert kv_bytes_per_token(read(name), Layout(8, 1, False), "auto") == held


def test_compressed_tensors_bring_scales_for_an_fp8_cache():
    scheme = {"num_bits": 8, "type": "float", "symmetric": True}
    quantized = {
        "quant_method": "compressed-tensors",
        "config_groups": {},
        "kv_cache_scheme": scheme,
    }
    plain = kv_bytes_per_token(read("Qwen/Qwen3-30B-A3B"), Layout(8, 1, False), "auto")
    halved = read("Qwen/Qwen3-30B-A3B", quantization_config=quantized)
    assert kv_bytes_per_token(halved, Layout(8, 1, False), "auto") == plain / 2
    assert kv_bytes_per_token(halved, Layout(8, 1, False), "bfloat16") == plain


def test_experts_in_fp4_are_told_by_their_own_key():
    name = "deepseek-ai/DeepSeek-V4-Flash"
    fp8 = weights_bytes(read(name, expert_dtype="fp8"), Layout(8, 1, False))
    assert weights_bytes(read(name), Layout(8, 1, False)) / fp8 == pytest.approx(0.56, abs=0.01)


def test_older_releases_do_not_pad_experts():
    model = read("Qwen/Qwen3-30B-A3B")
    for version, env in (
        ("0.31.0", AITER),
        ("0.33.0", {}),
        ("0.33.0", {**AITER, "VLLM_ROCM_USE_AITER_MOE": "0"}),
    ):
        loaded = as_loaded(model, version, "MI325X", env)
        assert weights_bytes(loaded, Layout(8)) == weights_bytes(model, Layout(8))


# EngineArgs.get_batch_defaults and VllmConfig.max_in_flight_tokens of these releases: blocks of 16
# tokens for a sequence of 100,000, of which 10 of 20 layers, all alike, keep a window of 128.
@pytest.mark.parametrize(
    ("version", "gpu", "pipeline", "step", "in_flight"),
    [
        ("0.25.1", "MI325X", 1, 8192, 1),
        ("0.25.1", "MI325X", 2, 8192, 1),
        ("0.26.0", "MI325X", 1, 8192, 2),
        ("0.27.1", "MI300X", 1, 8192, 2),
        ("0.28.0", "MI300X", 1, 16384, 2),
        ("0.33.0", "MI355X", 2, 16384, 3),
        ("0.33.0", "MI210", 1, 2048, 2),
        ("0.27.1", None, 1, 8192, 2),
        ("0.33.0", None, 1, 16384, 2),
    ],
)
def test_a_window_keeps_the_steps_in_flight(version, gpu, pipeline, step, in_flight):
    model = read("Qwen/Qwen3-30B-A3B", num_hidden_layers=20)
    layers = {"full": 10, "sliding": 10, "linear": 0}
    details = {**model.details, "attention_layers": layers, "sliding_window": 128}
    loaded = as_loaded(dataclasses.replace(model, details=details), version, gpu, {})
    layout = Layout(1, pipeline_parallel_size=pipeline)
    kept = -(-(128 - 1 + in_flight * step) // 16) + 1
    made = pages(loaded, layout, Limits(), 100_000)
    assert made.blocks_per_sequence == 100_000 // 16 + kept
    assert pages(loaded, layout, Limits(None, step), 100_000) == made


def test_a_mixed_quantization_is_read_module_by_module():
    layers = {
        f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj": {
            "quant_algo": "NVFP4",
            "group_size": 16,
        }
        for layer in range(48)
        for expert in range(3)
        for part in ("gate", "up", "down")
    }
    layers["model.layers.0.self_attn.o_proj"] = {"quant_algo": "FP8"}
    mixed = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers},
    }
    model = read_config(
        json.dumps(CONFIGS["Qwen/Qwen3-30B-A3B"]), "mixed", {"quantization_config": mixed}
    )
    scheme = model.details["quantization"]
    assert [len(part["targets"]) for part in scheme["schemes"]] == [3 * 48, 1]
    assert not model.findings
    plain = weights_bytes(read("Qwen/Qwen3-30B-A3B"), Layout(8, 1, False))
    assert weights_bytes(model, Layout(8, 1, False)) / plain == pytest.approx(0.32, abs=0.01)


# By vLLM's own parameters of 0.33.0, with --config-format hf.
@pytest.mark.parametrize(
    ("files", "size", "held"),
    [
        (["model.safetensors.index.json"], 8, 1_920_771_920),
        (["model-00001-of-00004.safetensors"], 4, 3_831_015_248),
        (["model.safetensors", "consolidated.safetensors"], 8, 1_920_771_920),
        (["model.safetensors", "params.json"], 8, 1_920_771_920),
        (["model.safetensors", "consolidated.safetensors", "params.json"], 8, 2_030_084_608),
        ([], 8, 2_030_084_608),
    ],
)
def test_files_beside_it_say_whether_a_mistral_3s_tower_is_quantized(tmp_path, files, size, held):
    name = tmp_path / "config.json"
    name.write_text(json.dumps(CONFIGS["mistralai/Ministral-3-14B-Instruct-2512"]))
    for file in files:
        (tmp_path / file).touch()
    loaded = as_loaded(read_checkpoint(str(name)), "0.33.0", "MI325X", AITER)
    assert weights_bytes(loaded, Layout(size)) == pytest.approx(held, rel=0.01)


def test_patterns_of_layers_without_experts_say_nothing_of_experts():
    ignore = ["model.layers.0*", "model.layers.1.*", "model.layers.2.*"]
    nvfp4 = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "exclude_modules": ignore},
    }
    text = json.dumps(CONFIGS["zai-org/GLM-5.2"])
    model = read_config(text, "glm", {"quantization_config": nvfp4})
    nvfp4["quantization"]["exclude_modules"] = []
    all_of_it = read_config(text, "glm", {"quantization_config": nvfp4})
    more = weights_bytes(model, Layout(8, 1, False)) - weights_bytes(all_of_it, Layout(8, 1, False))
    assert 0 < more < 1 << 30


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_published_config_is_read(name):
    assert weights_bytes(read(name), Layout(8, 1, False)) is not None


# What the publisher, a checkpoint's index or upstream's recipe says of the whole, in billions of
# parameters.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", 29.4),
        ("google/gemma-4-E2B-it", 5.1),
        ("google/gemma-4-E4B-it", 8.0),
        ("inclusionAI/Ring-1T-FP8", 999.7),
        ("internlm/Intern-S1", 241),
        ("meta-models/Muse-Glimmer-30B", 29.6),
        ("mistralai/Ministral-3-14B-Instruct-2512", 13.9),
        ("OpenGVLab/InternVL3_5-8B", 8.5),
        ("poolside/Laguna-S-2.1", 118),
        ("tencent/Hunyuan-A13B-Instruct", 80.4),
        ("tencent/Hy4-preview", 770),
        ("zai-org/GLM-4.5V", 107.5),
    ],
)
def test_a_model_has_the_parameters_that_its_publisher_names(name, parameters):
    assert read(name).total_parameters / 1e9 == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("name", "size"),
    [("deepseek-ai/DeepSeek-OCR", 6.67221248), ("moonshotai/Kimi-K2-Thinking", 594.2)],
)
def test_a_checkpoint_is_as_large_as_its_index_says(name, size):
    held = weights_bytes(read(name), Layout(1, 1, False)) / 1e9
    assert held == pytest.approx(size, rel=1e-9 if size < 100 else 0.01)


# vLLM's own groups of TP8 with 16,384 tokens a step: of a window's 128 and two steps 64 tokens a
# block, of the compressors' states 4 and 8, of all tokens 256.
@pytest.mark.parametrize(
    ("name", "block"),
    [("deepseek-ai/DeepSeek-V4-Flash", 1_002_240), ("deepseek-ai/DeepSeek-V4-Pro", 1_435_968)],
)
def test_compressed_caches_lie_in_one_block(name, block):
    windows = 515 + 515 + 8195 + 4113
    loaded = as_loaded(read(name), "0.33.0", "MI325X", AITER)
    made = pages(loaded, Layout(8), Limits(), 2**20)
    assert (made.block_bytes, made.blocks_per_sequence) == (block, windows + 4096)
    assert kv_bytes_per_token(loaded, Layout(8), "fp8") == block // 256
    halved = as_loaded(read(name), "0.33.0", "MI355X", AITER)
    sparse = {1_002_240: 21, 1_435_968: 30}[block]
    assert pages(halved, Layout(8), Limits(), 2**20).block_bytes == block - sparse * 4032
    older = as_loaded(read(name), "0.27.1", "MI325X", AITER)
    assert pages(older, Layout(8), Limits(), 2**20) is None
    assert kv_bytes_per_token(older, Layout(8), "fp8") is None


def test_compressed_caches_without_an_indexer_stay_unknown():
    model = read("deepseek-ai/DeepSeek-V4-Flash", compress_ratios=[0, 128] * 22)
    assert pages(model, Layout(8), Limits(), 2**20) is None


def test_an_older_release_has_the_way_out_of_the_experts_whole():
    model = read("moonshotai/Kimi-K3")
    older, newer = (as_loaded(model, release, "MI355X", AITER) for release in ("0.31.0", "0.32.0"))
    assert weights_bytes(older, Layout(8)) == pytest.approx(206_030_735_856, rel=0.01)
    more = 92 * 7168 * 3584 * 2 * 7 / 8
    assert weights_bytes(older, Layout(8)) - weights_bytes(newer, Layout(8)) == more
