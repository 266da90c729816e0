# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The double's command line refuses and accepts what the real parser of each version does."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from support.shared import SHARED

DATA = SHARED / "data/vllm"
Document = Callable[[str], dict[str, Any]]

# The recipe as published in 2025 for MI325X, and its form for current versions.
PUBLISHED = [
    *("-tp", "4", "--enable-expert-parallel", "--kv-cache-dtype", "fp8", "--quantization", "fp8"),
    *("--distributed-executor-backend", "mp", "--trust-remote-code", "--disable-log-requests"),
    *("--enable-prefix-caching", "--max-model-len", "32768", "--max_num_batched_tokens", "32768"),
    *("--gpu-memory-utilization", "0.90"),
]
CAPTURE = ["--compilation-config", '{"full_cuda_graph": false, "max_capture_size": 32768}']
MODERN = [
    *("--tensor-parallel-size", "4", "--enable-expert-parallel", "--kv-cache-dtype", "fp8"),
    *("--attention-backend", "ROCM_AITER_FA", "--max-model-len", "32768"),
    *("--max-num-batched-tokens", "32768", "--gpu-memory-utilization", "0.90"),
]


@pytest.fixture
def parse(document: Document) -> Callable[..., dict[str, Any]]:
    from engine_double import arguments

    def run(version: str, *words: str) -> dict[str, Any]:
        settings, _, _ = arguments.parse(["serve", "model", *words], document(version))
        return settings

    return run


@pytest.fixture
def rejected(
    parse: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return the parser's message for a command that must be refused with status 2."""

    def run(version: str, *words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            parse(version, *words)
        assert ended.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize("version", ["0.13.0", "0.18.1", "0.24.0", "0.33.0"])
def test_the_published_recipe_is_refused_by_its_config_keys(rejected, version):
    message = rejected(version, *PUBLISHED, *CAPTURE)
    assert "vllm serve: error: argument --compilation-config" in message
    assert "full_cuda_graph" in message
    assert "Unexpected keyword argument" in message


@pytest.mark.parametrize("version", ["0.10.2", "0.12.0"])
def test_the_published_recipe_is_accepted_by_the_versions_of_its_time(parse, version):
    assert parse(version, *PUBLISHED, *CAPTURE)["tensor_parallel_size"] == 4


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
def test_a_removed_flag_is_named_by_the_root_parser(rejected, version):
    message = rejected(version, *PUBLISHED)
    assert message.endswith("vllm: error: unrecognized arguments: --disable-log-requests\n")


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.20.2", "0.28.0", "0.33.0"])
def test_the_modern_recipe_is_accepted(parse, version):
    settings = parse(version, *MODERN)
    assert settings["enable_expert_parallel"] is True
    assert settings["max_num_batched_tokens"] == 32768


@pytest.mark.parametrize(
    ("words", "dest", "value"),
    [
        (["--max-model-len", "32k"], "max_model_len", 32000),
        (["--max-model-len=32K"], "max_model_len", 32768),
        (["--max_model_len", "auto"], "max_model_len", -1),
        (["--max-num-batched-tokens", "1.5k"], "max_num_batched_tokens", 1500),
        (["--served-model-name", "a", "b"], "served_model_name", ["a", "b"]),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--disable-prefix-caching"], "enable_prefix_caching", False),
        (["--disable-custom-all-reduce"], "disable_custom_all_reduce", True),
        (["--no-disable-custom-all-reduce"], "disable_custom_all_reduce", False),
        (["-ep"], "enable_expert_parallel", True),
        (["-O3"], "optimization_level", 3),
        (["-cc.cudagraph_mode=PIECEWISE"], "compilation_config", {"cudagraph_mode": "PIECEWISE"}),
        (["--cudagraph-capture-sizes", "1", "2"], "cudagraph_capture_sizes", [1, 2]),
        (["--tensor-parallel", "2"], "tensor_parallel_size", 2),
    ],
)
def test_values_are_read_as_the_version_reads_them(parse, words, dest, value):
    assert parse("0.33.0", *words)[dest] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-scheduler-steps", "10"], "unrecognized arguments: --num-scheduler-steps 10"),
        (["--max-model-len", "many"], "invalid human_readable_int_or_auto value: 'many'"),
        (["--max-num-batched-tokens", "1.5K"], "Decimals are not allowed with binary suffixes"),
        (["--tensor-parallel-size", "four"], "invalid int value: 'four'"),
        (["--mm-encoder-tp-mode", "both"], "invalid choice: 'both'"),
        (["--compilation-config", "{full"], "Invalid JSON"),
        (["--enable-prefix-caching=yes"], "ignored explicit argument 'yes'"),
        (["--port"], "expected one argument"),
    ],
)
def test_bad_words_are_refused(rejected, words, message):
    assert message in rejected("0.33.0", *words)


def test_a_deprecated_flag_is_accepted_with_a_warning(document):
    from engine_double import arguments

    command = ["serve", "model", "--no-disable-log-requests"]
    assert arguments.parse(command, document("0.12.0"))[2] == [
        "argument 'disable_log_requests' is deprecated"
    ]


@pytest.mark.parametrize(
    ("option", "dest", "value"),
    [
        ("--enable-x", "enable_x", True),
        ("--no-enable-x", "enable_x", False),
        ("--disable-x", "enable_x", False),
        ("--disable-x", "disable_x", True),
        ("--no-disable-x", "disable_x", False),
        ("--enable-x", "disable_x", False),
        ("--x", "x", True),
        ("--no-x", "x", False),
    ],
)
def test_a_switch_sets_what_its_spelling_says(option, dest, value):
    from engine_double import arguments

    assert arguments.toggle_value(option, dest) is value


@pytest.mark.skipif(not DATA.is_dir(), reason="the judged cases are not part of the repository")
def test_every_judged_case_parses_as_the_real_parser_does(parse):
    judged = json.loads((DATA / "judged-cases.json").read_text())
    order, wrong, count = judged["versions"], [], 0
    for name, case in judged["cases"].items():
        words = case["argv"][case["argv"].index("serve") + 2 :]
        for run in case["runs"]:
            accepted = run["outcome"][0] != "PARSER-REJECT"
            for version in order[order.index(run["from"]) : order.index(run["to"]) + 1]:
                count += 1
                wrong += [(name, version)] * (_accepts(parse, version, words) != accepted)
    print(f"{count} judged cases, {len(wrong)} differ")
    assert wrong == []


@pytest.mark.skipif(not DATA.is_dir(), reason="the probes are not part of the repository")
def test_every_probe_parses_as_the_real_parser_does(parse):
    matrix = json.loads((DATA / "matrix.json").read_text())
    order, wrong, count = matrix["versions"], [], 0
    for name, probe in matrix["probes"].items():
        if name == "--config":  # a file that is not there: no matter of the command line
            continue
        spans = [span.split("..") for span in probe["accepted"]]
        for index, version in enumerate(order):
            accepted = any(order.index(span[0]) <= index <= order.index(span[-1]) for span in spans)
            count += 1
            wrong += [(name, version)] * (_accepts(parse, version, probe["argv"]) != accepted)
    print(f"{count} probes, {len(wrong)} differ")
    assert wrong == []


def _accepts(parse: Callable[..., Any], version: str, words: list[str]) -> bool:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parse(version, *words)
    except SystemExit as ended:
        return ended.code == 0
    return True
