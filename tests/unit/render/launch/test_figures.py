# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine logs of itself, beside what was planned for it."""

import json
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.progress import (
    Figures,
    planned,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import starts_of

from support.patterns import MOST, applied, grows, worst_texts

# Lines as vLLM 0.15.0 to 0.20.2 print them, of two workers and of a vision tower.
TOOK = "INFO 11-22 05:00:00 [gpu_model_runner.py:4880] Model loading took"
LOG = f"""\
(Worker_TP0 pid=8) INFO 11-22 05:00:00 [rocm.py:548] Using ROCM_ATTN backend out of potential \
backends: ['ROCM_ATTN'].
(Worker_TP0 pid=8) INFO 11-22 05:00:00 [rocm.py:592] Using Flash Attention backend for ViT model.
(Worker_TP0 pid=8) {TOOK} 27.5 GiB memory and 12.345678 seconds
(Worker_TP1 pid=9) {TOOK} 27.75 GiB memory and 12.345678 seconds
(EngineCore pid=7) INFO [kv_cache_utils.py:1708] GPU KV cache size: 1,305,808 tokens
(EngineCore pid=7) INFO [kv_cache_utils.py:1708] GPU KV cache size: 1,305,792 tokens
"""


def on_host(context, weights=None, windows=0, **replica):
    """Have the host hold a plan with these figures."""
    one = {"unit": "apiary-d-0.service", "port": 8000, "gpus": ["a"], "recipe": "0123456789abcdef"}
    one |= replica
    plan = {
        "deployment": {"engine": {"version": "0.33.0"}},
        "gpu_model": "MI325X",
        "memory": {
            "weights_bytes_per_gpu": weights,
            "gpus_per_engine": 1,
            "sequence_length": 1000,
            "kv_bytes_per_token_per_gpu": 64,
            "sequence_bytes_per_gpu": 64000 + windows,
        },
        "replicas": [one],
    }
    path = Path(context.root, "etc/apiary/d/plan.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(plan))
    return path


def compared(make_context, tmp_path, log=LOG, page=None, **figures):
    context = make_context({"RUNTIME_DIRECTORY": str(tmp_path)})
    on_host(context, **figures)
    reported = []
    context.report = lambda refusal: reported.extend(refusal.findings)
    measured = Figures(context)
    for line in log.splitlines():
        measured.see(line)
    measured.compare(lambda: page)
    # Of a request's text, later.
    measured.see(f"{TOOK} 99 GiB memory")
    assert measured.actual.get("weights_bytes_per_gpu", 0) < 99 * 2**30
    return reported, json.loads((tmp_path / "figures.json").read_text())


def test_the_worst_worker_counts_and_is_recorded(make_context, tmp_path):
    names = {"kv_tokens": 1_300_000, "attention_backend": "ROCM_ATTN"}
    weights = int(27.7 * 2**30)
    reported, facts = compared(make_context, tmp_path, weights=weights, **names)
    assert reported == []
    assert (facts["engine_version"], facts["gpu_model"]) == ("0.33.0", "MI325X")
    assert facts["planned"] == {"weights_bytes_per_gpu": weights, **names}
    assert facts["actual"] == {
        "weights_bytes_per_gpu": int(27.75 * 2**30),
        "kv_tokens": 1305792,
        "attention_backend": ["ROCM_ATTN"],
    }


def test_what_is_off_is_reported_with_both_figures(make_context, tmp_path):
    off = {"kv_tokens": 2_000_000, "attention_backend": "ROCM_AITER_FA"}
    reported, _facts = compared(make_context, tmp_path, weights=15 * 2**30, **off)
    assert {one.code: one.message for one in reported} == {
        "REPLICA-PREDICTION-BACKEND": "planned ROCM_AITER_FA, and the engine uses ROCM_ATTN",
        "REPLICA-PREDICTION-KV": (
            "planned 2,000,000, measured 1,305,792 tokens of KV cache (-34.7 %)"
        ),
        "REPLICA-PREDICTION-WEIGHTS": (
            "planned 15.00, measured 27.75 GiB of weights on each GPU (+85.0 %)"
        ),
    }


def test_what_was_not_planned_or_not_logged_is_not_compared(make_context, tmp_path):
    assert compared(make_context, tmp_path)[0] == []


def test_without_lines_nothing_is_off(make_context, tmp_path):
    assert compared(make_context, tmp_path, log="", kv_tokens=5)[0] == []


PAGE = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",kv_cache_size_tokens="%s",num_gpu_blocks="100"} 1.0
vllm:num_requests_running{engine="0"} 0.0
"""


@pytest.mark.parametrize(
    ("tokens", "windows", "expected"),
    [("None", 0, 1600), ("None", 9000, None), ("1500", 9000, 1500), ("9" * 400, 9000, None)],
)
def test_metrics_have_the_tokens_that_a_log_has_not(
    make_context, tmp_path, tokens, windows, expected
):
    """Blocks are tokens only where all layers keep all of them."""
    _reported, facts = compared(
        make_context, tmp_path, log="", page=PAGE % tokens, windows=windows, kv_tokens=1600
    )
    assert facts["actual"].get("kv_tokens") == expected


def test_what_the_log_has_counts_before_metrics(make_context, tmp_path):
    _reported, facts = compared(make_context, tmp_path, page=PAGE % "1500")
    assert facts["actual"]["kv_tokens"] == 1305792


def test_the_controller_reads_what_was_recorded(make_context, tmp_path):
    compared(make_context, tmp_path, kv_tokens=1)
    text = (tmp_path / "figures.json").read_text().replace('"gpus": []', '"gpus": ["0000:05:00.0"]')
    path = "/run/apiary/apiary-d-0.service/figures.json"
    (start,) = starts_of({path: text})
    assert (start.unit, start.engine_version, start.kv_tokens) == (
        "apiary-d-0.service",
        "0.33.0",
        1305792,
    )
    assert start.gpus == ("0000:05:00.0",)
    whole = json.loads(text)
    for change in (
        {"at": -1},
        {"at": True},
        {"recipe": "x"},
        {"gpu_model": None},
        {"engine_version": ["0"]},
        {"actual": 5},
        {"gpus": 1},
        {"gpus": [1]},
    ):
        assert starts_of({path: json.dumps(whole | change)}) == ()
    for hostile in ("", "[]", "[" * 100_000, "1" * 5000, "null"):
        assert starts_of({path: hostile}) == ()
    odd = whole | {"actual": {"kv_tokens": 10**30, "weights_bytes_per_gpu": "1"}}
    (start,) = starts_of({path: json.dumps(odd)})
    assert (start.kv_tokens, start.weights_bytes_per_gpu) == (None, None)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Using Rocm Attention backend on V1 engine.", "ROCM_ATTN"),
        ("Using AITER MLA backend.", "ROCM_AITER_MLA"),
        ("Using AttentionBackendEnum.TRITON_MLA backend.", "TRITON_MLA"),
        ("Using TRITON_ATTN backend (selected via --attention-backend).", "TRITON_ATTN"),
        ("Using Flash Attention backend for ViT model.", None),
        ("Using NHD KV cache layout for ROCM_ATTN backend.", None),
    ],
)
def test_backends_have_the_names_of_plans(make_context, tmp_path, line, name):
    _reported, facts = compared(make_context, tmp_path, log=f"INFO 11-22 [rocm.py:1] {line}")
    assert facts["actual"].get("attention_backend") == ([name] if name else None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"replicas": []}', '{"replicas": [1]}'])
def test_a_damaged_plan_has_no_figures(make_context, text):
    context = make_context()
    on_host(context).write_text(text)
    assert planned(context) == {"planned": {}}


def test_patterns_are_linear(life):
    for entry in life["figures"]["entries"].values():
        for maker in worst_texts(entry["pattern"], 0):
            growth = grows(applied(entry["pattern"], 0, "search"), maker)
            assert growth is None or growth < MOST
    for maker in worst_texts(life["figures"]["metrics"], 0):
        growth = grows(applied(life["figures"]["metrics"], 0, "search"), maker)
        assert growth is None or growth < MOST
