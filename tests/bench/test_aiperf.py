# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real aiperf through `apiary bench`, against the simulator over HTTP; about a minute.

It is not among the project's dependencies: put it on the PATH, or name it in APIARY_AIPERF.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apiary.app.cli import main

LAB = Path(__file__).resolve().parents[1] / "lab"
AIPERF = os.environ.get("APIARY_AIPERF") or shutil.which("aiperf")
# What a loaded machine may break; everything else is ours.
TIMING = {"BENCH-CONCURRENCY", "BENCH-CLIENT-CPU", "BENCH-ENGINE-TTFT", "BENCH-STEADY"}
pytestmark = pytest.mark.skipif(not AIPERF, reason="no aiperf: pip install aiperf==0.13.0")


@pytest.fixture
def server():
    """The address of a simulated engine."""
    argv = [sys.executable, "-m", "engine_simulator", "serve", "--model", "lab"]
    with subprocess.Popen(argv, cwd=LAB, stdout=subprocess.PIPE, text=True) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.fixture
def words(tmp_path):
    """A tokenizer whose tokens are words, as the simulator counts them, of aiperf's own corpus."""
    (corpus,) = Path(AIPERF).resolve().parents[1].glob("lib/*/site-packages/aiperf/**/shakes*.txt")
    known = ["[UNK]", "[EOS]", *sorted(set(corpus.read_text(encoding="utf-8").split()))]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special = [{"id": n, "content": known[n], "special": True, **plain} for n in (0, 1)]
    model = {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(known)},
        "unk_token": "[UNK]",
    }
    tokenizer = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "added_tokens": special,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": model,
    }
    place = tmp_path / "words"
    place.mkdir()
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (place / "tokenizer_config.json").write_text(json.dumps({**named, "eos_token": "[EOS]"}))
    return place


def test_aiperf_measures_a_level(server, words, tmp_path):
    out = tmp_path / "out"
    asked = ["bench", server, "--backend", "aiperf", "--command", AIPERF, "--workload", "64/100"]
    asked += ["--tokenizer", str(words), "--phases", "scaling", "--concurrency", "4"]
    asked += ["--no-self-test", "--rule", "requests_least=40", "--rule", "warmup_most=1"]
    main([*asked, "--out", str(out)])

    document = json.loads((out / "bench.json").read_text())
    (level,) = [one for one in document["levels"] if one["load"]["phase"] == "scaling"]
    wrong = {one["code"] for one in level["findings"] if one["severity"] == "error"}
    assert wrong <= TIMING
    measured = level["measured"]
    assert (measured["completed"], measured["failed"]) == (40, 0)
    assert measured["input_tokens"] == 64 * measured["output_tokens"] / 100
    # The simulator's truth: 13 ms to the first of 100 tokens, 10 ms to each other one.
    assert 0.010 <= measured["tpot"]["p50"] <= 0.02
    assert measured["output_token_rate"] > 200
    assert level["client"]["backend"] == "aiperf"
    assert level["client"]["version"].startswith("0.")
