# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An ablation on simulated engines: a flag that costs is found, one that does nothing is not."""

from __future__ import annotations

import dataclasses
import zlib

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import ablate, scores, steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Question

from engine_simulator import Client, benches, truth
from support.engines import published
from support.topology.topologies import mi325x

CASE = truth.cases()["quarter-tp8x1"]
AS_DEPLOYED = truth.parameters_of(CASE)


def slower(share):
    """The engine with each step so much longer."""
    times = ("step", "sequence", "prefill_token", "experts")
    engine = AS_DEPLOYED.engine
    longer = {name: getattr(engine, name) * (1 + share) for name in times}
    return dataclasses.replace(AS_DEPLOYED, engine=dataclasses.replace(engine, **longer))


def ablated(text, changed):
    """Return an ablation that was carried out, A B A B …; every trial is a run of its own."""
    plain = Question(published("0.33.0", 8), truth.workload_of(CASE), concurrency=24)
    requested = ablate.question(plain, text)
    state = steps.begin(requested, architecture_of(requested.deployment, "published"), mi325x())
    while state.choice is None:
        (trial,) = steps.assign(state, [state.hosts[0].name])
        stage = state.candidate(trial.candidate).stage
        bench = benches.bench(
            changed if stage == ablate.STAGE else AS_DEPLOYED,
            steps.requested_of(state, trial),
            seed=zlib.crc32(trial.id.encode()),
            client=Client(self_test=False),
            rules=rules(requests_least=240, **steps.rules_of(trial)),
        )
        state = steps.record(state, trial, scores.outcome_of(bench))
    return state


@pytest.mark.parametrize(
    ("share", "says", "chosen"),
    [
        (0.10, "worse", "current"),
        (0.0, "no difference found", "current"),
        (-0.10, "better", "ablation"),
    ],
)
def test_the_verdict_is_the_truth_of_the_simulated_flag(share, says, chosen):
    state = ablated("VLLM_ROCM_USE_AITER=0", slower(share))
    (found,) = state.choice.comparisons
    assert found.verdict == says
    assert found.low < 1 / (1 + share) < found.high
    assert state.candidate(state.choice.candidate).stage == chosen
    assert len(state.trials) == 10
    first, second = summary(state)[:2]
    assert f"VLLM_ROCM_USE_AITER=0 against as deployed: {says}, " in first
    assert "5 runs of each engine, in turns on one host: a difference of" in second
