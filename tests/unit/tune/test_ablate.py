# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An ablation: one flag, as deployed against without it, in turns, with a verdict."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import (
    ablate,
    candidates,
    steps,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome

from support.bench.tuned import ARCHITECTURE, TOPOLOGY, World, carried_out, question, saved


def begun(text, **changes):
    requested = ablate.question(question(**changes), text)
    return steps.begin(requested, ARCHITECTURE, TOPOLOGY)


def after(text, rate, **changes):
    """The ablation of a flag without which the deployment serves ``rate`` of what it does."""
    noise = changes.pop("noise", 0.02)
    events = changes.pop("events", lambda trial: None)
    state = begun(text, **changes)
    world = World(
        lambda name: 10.0 if name == "current" else 10.0 * rate, noise=noise, events=events
    )
    return carried_out(saved(state), world)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("enable-prefix-caching", "engine.args.enable-prefix-caching", None),
        ("--enable-prefix-caching=false", "engine.args.enable-prefix-caching", False),
        ("VLLM_ROCM_USE_AITER=0", "engine.env.VLLM_ROCM_USE_AITER", "0"),
        ("aiter", "engine.env.VLLM_ROCM_USE_AITER", None),
        ("max-num-seqs=64", "limits.max_num_seqs", 64),
        ("kv_cache_dtype=fp8", "limits.kv_cache_dtype", "fp8"),
        ("engine.args.block-size=16", "engine.args.block-size", 16),
    ],
)
def test_a_flag_is_what_an_operator_calls_it(text, path, value):
    assert ablate.read(text) == (path, value)


@pytest.mark.parametrize("text", ["", "=1", "two words", "max_num_seqs=", "block-size=[", "x="])
def test_what_is_no_flag_is_refused(text):
    with pytest.raises(ApiaryError) as refusal:
        ablate.read(text)
    assert refusal.value.findings[0].code == "TRIAL-KNOB"


def test_both_are_measured_in_turns_on_one_host_and_nothing_else_is():
    state = after("max_num_seqs=64", 0.8, hosts=("a",))
    assert {one.kind for one in state.trials} == {"final"}
    names = [one.candidate for one in state.trials]
    assert names == [one.id for one in state.candidates] * 5
    assert {one.host for one in state.trials} == {"a"}
    changed = candidates.deployment_of(state, state.candidates[1].id)
    assert changed.limits.max_num_seqs == 64


@pytest.mark.parametrize(
    ("rate", "says", "chosen"),
    [(0.8, "worse", "current"), (1.0, "no difference found", "current"), (1.25, "better", None)],
)
def test_the_verdict_is_that_of_a_world_that_is_known(rate, says, chosen):
    state = after("max_num_seqs=64", rate)
    first, second = summary(state)[:2]
    assert "max_num_seqs=64 against as deployed" in first
    assert says in first
    assert "5 runs of each engine, in turns on one host: a difference of" in second
    (one,) = state.choice.comparisons
    assert one.low < rate < one.high
    assert 0 < one.detectable < 0.1
    assert state.choice.candidate == (chosen or state.candidates[1].id)
    assert state.choice.repeat is None


def test_engine_runs_may_be_said():
    assert len(after("max_num_seqs=64", 1.0, budget={"engine_runs": 4}).trials) == 8


def test_a_flag_whose_engine_dies_is_told_and_decides_nothing():
    def dies(trial):
        return None if trial.candidate == "current" else Outcome("failed", cause="ValueError: no")

    state = after("max_num_seqs=64", 1.0, events=dies)
    assert state.choice.candidate == "current"
    assert "not decided" in summary(state)[0]
    assert "ValueError: no" in summary(state)[0]


@pytest.mark.parametrize("text", ["block-size", "engine.env.NOT_SET"])
def test_a_flag_that_changes_nothing_is_refused(text):
    with pytest.raises(ApiaryError) as refusal:
        begun(text)
    assert refusal.value.findings[0].code == "TRIAL-NOTHING"
    assert "same commands" in refusal.value.findings[0].message


def test_what_is_to_come_is_told():
    told = "\n".join(summary(begun("max_num_seqs=64")))
    assert "as deployed and with the change in turns, 5 engine runs of each" in told
