# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody's own command, judged: each finding at its line, with reason and source."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.command import read_command
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import flags_of, review
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import DEEPSEEK, KIMI, LLAMA, QWEN, deployment

# As published for Qwen3-235B-FP8, in the shell's words.
PUBLISHED = """\
#!/bin/bash
MODEL=Qwen/Qwen3-235B-A22B-Instruct-2507-FP8
export VLLM_USE_V1=1 SAFETENSORS_FAST_GPU=1
VLLM_ROCM_USE_AITER=1 VLLM_ROCM_USE_AITER_MOE=1 VLLM_USE_TRITON_FLASH_ATTN=0 \\
vllm serve $MODEL \\
  --tensor-parallel-size 8 --enable-expert-parallel \\
  --kv-cache-dtype fp8 --quantization fp8 --distributed-executor-backend mp \\
  --compilation-config '{"full_cuda_graph":false, "max_capture_size": 32768}' \\
  --trust-remote-code --disable-log-requests --enable-prefix-caching \\
  --max-model-len 32768 --max_num_batched_tokens 32768 --gpu-memory-utilization 0.90
"""


def judge(text, version="0.33.0", name=QWEN, gpu="MI325X"):
    return review(text, known(name), deployment(name, version), gpu, "run.sh")


def said(reviewed, *severities):
    return {
        (item.code, int(item.subject.partition(":")[2] or 0))
        for item in reviewed.findings
        if item.severity in (severities or ("error", "warning", "info"))
    }


def found(reviewed, code):
    return [item for item in reviewed.findings if item.code == code]


def test_the_published_recipe_on_the_newest_version():
    reviewed = judge(PUBLISHED)
    assert said(reviewed, "error") == {
        ("ENGINE-UNKNOWN-KEY", 8),
    }
    assert said(reviewed, "warning") == {("ENGINE-MISSING", 5)}
    assert {
        ("ENGINE-REDUNDANT", 7),
        ("ENGINE-REDUNDANT", 9),
        ("ENGINE-REMOTE-CODE", 9),
        ("ENGINE-OPTIONAL", 5),
    } <= said(reviewed, "info")
    missing = " ".join(item.message for item in found(reviewed, "ENGINE-MISSING"))
    assert "--attention-backend ROCM_AITER_FA" in missing
    assert "VLLM_ENGINE_READY_TIMEOUT_S=3600" in missing
    # Variables that went with the V0 engine: vLLM ignores them.
    (flash,) = (i for i in found(reviewed, "ENGINE-NO-EFFECT") if "TRITON" in i.message)
    assert "known in 0.9.2 to 0.11.0" in flash.message
    assert "or choose with --attention-backend" in flash.message
    # As it is, vLLM would not run what was measured; what Apiary writes does.
    assert reviewed.attention_backend == "ROCM_ATTN"
    assert reviewed.recipe.attention_backend == "ROCM_AITER_FA"
    assert reviewed.recipe.argv[7:9] == ("8000", "--tensor-parallel-size")


def test_the_published_recipe_on_a_version_of_its_time():
    reviewed = judge(PUBLISHED, "0.10.2")
    errors = said(reviewed, "error")
    assert errors == {("ENGINE-UNKNOWN-KEY", 8)} or errors == set()
    assert reviewed.attention_backend == "ROCM_AITER_FA"


def test_every_finding_has_a_line_a_remedy_and_a_source():
    for version in ("0.10.2", "0.14.1", "0.33.0"):
        for item in judge(PUBLISHED, version).findings:
            assert item.subject.startswith("run.sh:")
            assert item.message
            assert item.remedy
            assert item.source


def test_findings_are_sorted_by_line():
    lines = [int(i.subject.partition(":")[2]) for i in judge(PUBLISHED).findings]
    assert lines == sorted(lines)


def test_the_same_number_otherwise_written_is_no_difference():
    assert not found(judge(PUBLISHED), "ENGINE-DIFFERS")


@pytest.mark.parametrize(
    ("text", "version", "name", "code", "parts"),
    [
        (
            "vllm serve m --num-scheduler-steps 10",
            "0.14.1",
            QWEN,
            "ENGINE-UNKNOWN-FLAG",
            ["known in 0.9.2", "multi-step"],
        ),
        ("vllm serve m --seed abc", "0.33.0", QWEN, "ENGINE-BAD-VALUE", ["whole number", "'abc'"]),
        ("vllm serve m --seed", "0.33.0", QWEN, "ENGINE-BAD-VALUE", ["missing"]),
        (
            "vllm serve m --enforce-eager=true",
            "0.33.0",
            QWEN,
            "ENGINE-BAD-VALUE",
            ["takes no value"],
        ),
        (
            "vllm serve m --attention-backend AITER_FA",
            "0.33.0",
            QWEN,
            "ENGINE-BAD-CHOICE",
            ["use ROCM_AITER_FA"],
        ),
        (
            "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION=FP8 vllm serve m",
            "0.33.0",
            QWEN,
            "ENGINE-BAD-CHOICE",
            ["FP, INT8"],
        ),
        (
            "vllm serve m -tp 8",
            "0.14.1",
            QWEN,
            "ENGINE-MOE-BLOCK",
            ["1536", "add --enable-expert-parallel", "--tensor-parallel-size"],
        ),
        ("vllm serve m -tp 3", "0.33.0", QWEN, "ENGINE-TP-HEADS", ["64 attention heads"]),
        (
            "vllm serve m -tp 8 --kv-offloading-size 64",
            "0.14.1",
            DEEPSEEK,
            "ENGINE-MLA-OFFLOAD",
            ["remove kv-offloading-size, or use"],
        ),
        (
            "VLLM_ROCM_USE_AITER=0 vllm serve m -tp 4 --block-size 1",
            "0.33.0",
            KIMI,
            "ENGINE-BLOCK-SIZE",
            ["TRITON_MLA", "remove block-size"],
        ),
        (
            "VLLM_ROCM_USE_AITER=0 vllm serve m -tp 4 --block-size 1",
            "0.15.1",
            KIMI,
            "ENGINE-BLOCK-FORCES-BACKEND",
            ["although AITER is switched off"],
        ),
        (
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True vllm serve m -tp 4",
            "0.33.0",
            QWEN,
            "ENGINE-EXPANDABLE-SEGMENTS",
            ["4 GPUs", "remove expandable_segments"],
        ),
        (
            "vllm serve m -tp 8 --enable-expert-parallel -dp 2",
            "0.33.0",
            QWEN,
            "ENGINE-DP-EP",
            ["2 data-parallel ranks"],
        ),
        (
            "NCCL_MIN_NCHANNELS=16 vllm serve m -tp 8",
            "0.33.0",
            LLAMA,
            "ENGINE-DIFFERS",
            ["is 16, where the recipe has NCCL_MIN_NCHANNELS=112"],
        ),
        ("NCCL_MIN_NCHANNELS=112 vllm serve m", "0.33.0", LLAMA, "ENGINE-NCHANNELS", ["remove it"]),
        (
            "vllm serve m -tp 8 --max-num-seqs 2048 --max-num-batched-tokens 1k",
            "0.33.0",
            LLAMA,
            "ENGINE-SEQS-ABOVE-TOKENS",
            ["--max-num-batched-tokens is 1000", "--max-num-seqs of 2048"],
        ),
        (
            "vllm serve m -tp 8 --gpu-memory-utilization 0.92",
            "0.33.0",
            LLAMA,
            "ENGINE-REDUNDANT",
            ["--gpu-memory-utilization 0.92 is the default"],
        ),
        (
            "vllm serve m -tp 8 --disable-cascade-attn",
            "0.32.0",
            LLAMA,
            "ENGINE-DEPRECATED",
            ["--disable-cascade-attn"],
        ),
        (
            'vllm serve m --compilation-config \'{"cudagraph_mode": "SOME"}\'',
            "0.33.0",
            QWEN,
            "ENGINE-BAD-CHOICE",
            ["cudagraph_mode", "FULL_AND_PIECEWISE"],
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_a_command_line(text, version, name, code, parts):
    items = found(judge(text, version, name), code)
    assert items
    told = " ".join(f"{item.message} {item.remedy}" for item in items)
    for part in parts:
        assert part in told
    assert "engine.args" not in told
    assert "limits." not in told


def test_an_unknown_flag_without_a_value_is_unknown_and_lacks_none():
    reviewed = judge("vllm serve m --disable-log-request --max-num-seqs 8")
    assert said(reviewed, "error") == {("ENGINE-UNKNOWN-FLAG", 1)}


def test_an_element_that_is_refused_is_judged_no_further():
    reviewed = judge("vllm serve m -tp 4 --quantization nope")
    assert [item.code for item in reviewed.findings if item.severity == "error"] == [
        "ENGINE-BAD-CHOICE"
    ]


def test_a_variable_without_a_value_is_said_and_not_called_wrong():
    reviewed = judge("vllm serve $MODEL --tensor-parallel-size $TP")
    assert ("ENGINE-RECIPE-UNRESOLVED", 1) in said(reviewed, "warning")
    assert not said(reviewed, "error")
    assert reviewed.recipe is not None


def test_optimization_levels_have_a_form_of_their_own():
    assert not said(judge("vllm serve m -O3", "0.33.0"), "error")
    assert not said(judge("vllm serve m -O3", "0.9.2"), "error")


def test_layout_and_limits_are_the_commands_own():
    reviewed = judge(
        "vllm serve m -tp 8 --enable-expert-parallel --max-model-len 32k"
        " --max-num-batched-tokens 16K --gpu-memory-utilization 0.8 --kv-cache-dtype fp8"
    )
    argv = reviewed.recipe.argv
    for name, value in {
        "--tensor-parallel-size": "8",
        "--max-model-len": "32000",
        "--max-num-batched-tokens": "16384",
        "--gpu-memory-utilization": "0.8",
        "--kv-cache-dtype": "fp8",
    }.items():
        assert argv[argv.index(name) + 1] == value
    assert "--enable-expert-parallel" in argv


@pytest.mark.parametrize(
    ("words", "key", "text"),
    [
        ("", "disable_hybrid_kv_cache_manager", None),
        ("--disable-hybrid-kv-cache-manager", "disable_hybrid_kv_cache_manager", "true"),
        ("--no-disable-hybrid-kv-cache-manager", "disable_hybrid_kv_cache_manager", "false"),
        ("--engram-config.cpu_offload false --port 80", "engram_config.cpu_offload", "false"),
        ("--engram_config='{\"cpu_offload\" : false}'", "engram_config.cpu_offload", "false"),
        ('-sc \'{"method": "eagle3"}\'', "speculative_config.method", "eagle3"),
        ("-q awq -q fp8", "quantization", "fp8"),
    ],
)
def test_a_flag_is_seen_however_it_is_spelled(words, key, text):
    command = read_command(f"vllm serve org/model {words}", "0.33.0")
    assert flags_of(command, "0.33.0").get(f"flag {key}") == text


def test_there_is_no_recipe_for_a_layout_that_is_refused():
    assert judge("vllm serve m -tp 3").recipe is None


def test_an_unknown_version_is_judged_by_the_nearest_below():
    reviewed = judge("vllm serve m", "0.33.7")
    assert reviewed.rules_of == "0.33.0"
    assert reviewed.findings[0].code == "ENGINE-NEAREST-VERSION"


def test_a_text_without_a_command_is_refused():
    with pytest.raises(ApiaryError, match="ENGINE-RECIPE-EMPTY"):
        judge("echo hello")


def test_what_apiary_writes_has_nothing_to_say_against_itself():
    written = judge(PUBLISHED).recipe
    env = " ".join(f"{name}={value}" for name, value in written.env.items())
    reviewed = judge(f"{env} vllm {' '.join(written.argv)}")
    assert not said(reviewed, "error", "warning")
    assert not found(reviewed, "ENGINE-OPTIONAL")
    assert not found(reviewed, "ENGINE-DIFFERS")


@pytest.mark.parametrize(
    ("version", "option", "said"),
    [
        ("0.14.1", "", ("ENGINE-NO-EFFECT", "info")),
        ("0.18.1", "", ("ENGINE-NO-EFFECT", "info")),
        ("0.18.1", "--fail-on-environ-validation", ("ENGINE-UNKNOWN-ENV", "error")),
        ("0.18.1", "--no-fail-on-environ-validation", ("ENGINE-NO-EFFECT", "info")),
    ],
)
def test_a_variable_of_the_past_is_an_error_only_where_vllm_is_to_fail(version, option, said):
    reviewed = judge(f"VLLM_USE_V1=1 vllm serve m -tp 8 {option}", version)
    (finding,) = [item for item in reviewed.findings if "VLLM_USE_V1" in item.message]
    assert (finding.code, finding.severity) == said
