# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The aiperf backend: its command line, and its records as a shard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import aiperf as bench_aiperf
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import aiperf
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

RANDOM = Workload("random", 200, 20)
TARGET = Target(("http://a:8000", "http://b:8000"), "m", tokenizer="/models/m")


def flags(words: tuple[str, ...]) -> dict[str, str | None]:
    """Return the flags after `aiperf profile`; of one that comes twice, the last."""
    found: dict[str, str | None] = {}
    name = ""
    for word in words[words.index("profile") + 1 :]:
        if word.startswith("--"):
            name = word
            found[name] = None
        else:
            found[name] = word
    return found


def test_a_closed_loop_of_two_shards() -> None:
    load = Load("fixed", RANDOM, requests=41, concurrency=9, warmups=5)
    words = aiperf.argv(load, TARGET, 1, 2, "/r", "shard-1.json", ("/opt/aiperf",))
    assert words[:4] == ("env", "PYTHONPATH=@DIR@", "@PYTHON@", "-m")
    assert words[5:11] == ("/r/shard-1", "/r/shard-1.json", "200", "20", "/opt/aiperf", "profile")
    found = flags(words)
    assert found["--url"] == "http://b:8000"
    assert (found["--request-count"], found["--concurrency"]) == ("20", "4")
    assert (found["--warmup-request-count"], found["--num-dataset-entries"]) == ("2", "22")
    assert found["--tokenizer"] == "/models/m"
    assert "--request-rate" not in found
    other = flags(aiperf.argv(load, TARGET, 0, 2, "/r", "shard-0.json"))
    assert other["--random-seed"] != found["--random-seed"]


def test_an_open_loop_a_prefix_and_images() -> None:
    prefix = Workload("p", 200, 20, "prefix", prefixes=3, prefix_tokens=150)
    found = flags(
        aiperf.argv(Load("open", prefix, 40, request_rate=5.0), TARGET, 0, 2, "/r", "s.json")
    )
    assert (found["--request-rate"], found["--arrival-pattern"]) == ("2.5", "poisson")
    assert not {"--concurrency", "--warmup-request-count"} & set(found)
    assert (found["--isl"], found["--prefix-prompt-length"]) == ("50", "150")
    images = Workload("i", 100, 10, "images", images=2, image_pixels=(640, 480))
    found = flags(aiperf.argv(Load("fixed", images, 4, 1), TARGET, 0, 1, "/r", "s.json"))
    assert (found["--endpoint-type"], found["--image-batch-size"]) == ("chat", "2")
    assert (found["--image-width-mean"], found["--image-height-mean"]) == ("640", "480")


def test_what_aiperf_is_not_asked_for() -> None:
    sessions = Workload("s", 100, 10, "sessions", turns=3)
    with pytest.raises(ApiaryError, match="kind sessions"):
        aiperf.argv(Load("fixed", sessions, 4, 1), TARGET, 0, 1, "/r", "s.json")


def record(start: int, phase: str = "profiling", **values: Any) -> str:
    """Return a record as aiperf 0.13.0 wrote it against our mock, its fields that we read."""
    metadata = {
        **{"benchmark_phase": phase, "was_cancelled": False, "session_num": 0},
        **{"request_start_ns": start, "request_end_ns": start + 500_000_000},
    }
    metrics = {
        "time_to_first_token": {"value": 117.0, "unit": "ms"},
        "request_latency": {"value": 157.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [16.5, 23.5], "unit": "ms"},
        "usage_prompt_tokens": {"value": 200, "unit": "tokens"},
        "usage_completion_tokens": {"value": 3, "unit": "tokens"},
    }
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": None, **values})


def test_records_become_a_shard_in_order_of_their_start() -> None:
    error = {"code": 503, "type": "HTTPError", "message": "busy"}
    lines = [
        record(3_000_000_000),
        record(1_000_000_000, "warmup"),
        record(2_000_000_000, metrics={}, error=error),
    ]
    shard = bench_aiperf.shard_of(lines, 200, 3)
    assert shard["errors"] == ["HTTPError: busy", ""]
    assert (shard["completed"], shard["failed"], shard["duration"]) == (1, 1, 1.5)
    assert shard["start_times"] == [2.0, 3.0]
    assert shard["ttfts"] == [0.0, 0.117]
    assert shard["latencies"] == [0.0, 0.157]
    assert shard["itls"] == [[], [0.0165, 0.0235]]
    assert (shard["input_lens"], shard["output_lens"]) == ([200, 200], [0, 3])


def test_partial_and_empty_output_are_errors() -> None:
    short = bench_aiperf.shard_of([record(1)], 200, 20)
    assert short["errors"] == ["partial output: 3 of 20 tokens"]
    empty = bench_aiperf.shard_of([record(1, metrics={})], 200, 20)
    assert empty["errors"] == ["empty output: no token came"]
    assert bench_aiperf.shard_of([], 200, 20)["completed"] == 0


def test_the_key_is_named_by_its_variable_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    stand_in = tmp_path / "aiperf.py"
    stand_in.write_text(
        "import pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'argv')!r}).write_text(' '.join(sys.argv))\n"
        f"pathlib.Path({str(tmp_path / 'd' / bench_aiperf.RECORDS)!r}).write_text({record(1)!r})\n"
    )
    command = [sys.executable, str(stand_in), "profile", "--model", "m", "--url", "http://a"]
    where = [str(tmp_path / "d"), str(tmp_path / "r.json"), "200", "3"]
    assert bench_aiperf.main([*where, *command]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["completed"] == 1
    config = (tmp_path / "d" / "key.yml").read_text()
    assert json.loads(config)["benchmark"]["endpoint"]["api_key"] == "${OPENAI_API_KEY}"
    assert "--config" in (tmp_path / "argv").read_text()
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or "secret-1" not in file.read_text()


def test_aiperf_that_fails_or_is_not_there_ends_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [str(tmp_path / "d"), str(tmp_path / "r.json"), "200", "3"]
    assert bench_aiperf.main([*where, "false"]) == 1
    assert bench_aiperf.main([*where, str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()
