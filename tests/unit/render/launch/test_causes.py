# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an engine ended: by logs of real ones, and by what a log may have that is none of them."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.module_utils.engine_causes import (
    Causes,
    cause_ids,
    cause_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from hypothesis import given
from hypothesis import strategies as st

from support.patterns import MOST, applied, grows, worst_texts

FACTS = knowledge("serving/causes.yml")
LOGS = yaml.safe_load(Path(__file__).with_name("engine_logs.yml").read_text())


@pytest.mark.parametrize("case", LOGS, ids=[case["source"].split(",")[0] for case in LOGS])
def test_a_real_log_tells_its_cause(case):
    causes = Causes(FACTS)
    for line in case["log"].splitlines():
        causes.see(line, 1.0)
    found = causes.stands_still(case["still"], 0.0) if "still" in case else causes.ended()
    assert (found.id if found else "unknown") == (case["cause"] or "unknown")
    if "says" in case:
        assert case["says"] in found.text
    if case["cause"]:
        assert found.advice


def test_the_logs_are_enough():
    assert len(LOGS) >= 80
    assert sum(case["cause"] is None for case in LOGS) >= 10
    named = {case["cause"] for case in LOGS}
    # What no thread had a log of that could be cited.
    rare = {"host_memory", "quantization", "collective_peer", "weights_slow", "compile_stall"}
    assert set(cause_ids(FACTS)) - {"unknown"} - rare <= named


def test_every_advisory_that_is_named_is_there():
    known = {
        entry["id"]
        for name in ("attention", "experts", "models", "releases", "settings")
        for entry in knowledge(f"vllm/advisories/{name}.yml")["advisories"]
    }
    advice = (entry["advice"].partition(" Advisories: ") for entry in FACTS["causes"])
    named = [text.rstrip(".").split(", ") for _advice, found, text in advice if found]
    assert len(named) >= 8
    assert {one for ids in named for one in ids} <= known


OUT_OF_MEMORY = "(Worker_TP3 pid=9) torch.OutOfMemoryError: HIP out of memory."
PEER = "(Worker_TP0 pid=6) RuntimeError: NCCL error: remote process exited or there was a network"


def test_the_first_root_error_counts_and_not_what_came_of_it():
    late = "(Worker_TP1 pid=7) ValueError: No available memory for the cache blocks."
    assert cause_of([PEER, OUT_OF_MEMORY, late], FACTS).id == "gpu_memory"
    assert cause_of([PEER], FACTS).id == "collective_peer"


def test_an_error_that_was_handled_before_the_fatal_one_is_not_named():
    handled = "ModuleNotFoundError: No module named 'flash_attn'"
    fatal = "(EngineCore pid=1) ERROR 11-22 05:00:01 [core.py:9] EngineCore failed to start."
    error = "(EngineCore pid=1) ERROR 11-22 05:00:01 [core.py:9] RuntimeError: something else"
    assert cause_of([handled], FACTS).id == "library"
    assert cause_of([handled, fatal, error], FACTS).text == (
        "its first error: RuntimeError: something else"
    )


def test_an_error_of_yesterday_did_not_end_an_engine_that_serves():
    causes = Causes(FACTS)
    causes.see(OUT_OF_MEMORY, 10)
    assert causes.ended(since=200) is None
    causes.see("RuntimeError: No HIP GPUs are available", 500)
    assert causes.ended(since=400).id == "gpu_missing"
    causes.clear()
    assert causes.ended() is None


def test_a_lock_that_was_released_is_no_cause():
    causes = Causes(FACTS)
    causes.see("[aiter] waiting for baton release at /x/lock_a", 10)
    assert causes.ended() is None
    assert causes.stands_still("compile", since=5).id == "aiter_lock"
    assert causes.stands_still("compile", since=20).id == "compile_stall"


@given(st.text())
def test_no_line_upsets_the_reader(line):
    cause_of([line, f"(EngineCore pid=1) ERROR 11-22 05:00:01 [core.py:9] {line}"], FACTS)


def patterns():
    for name in ("trigger", "prefix", "heads", "exception", "fatal", "echoes", "plain"):
        yield FACTS[name], "sub" if name == "heads" else "search"
    for entry in FACTS["causes"]:
        for form in entry["forms"]:
            yield form["pattern"], "search"


@pytest.mark.night
@pytest.mark.parametrize(("pattern", "method"), list(patterns()))
def test_a_pattern_is_linear(pattern, method):
    for maker in worst_texts(pattern, 0):
        growth = grows(applied(pattern, 0, method), maker)
        assert growth is None or growth < MOST
