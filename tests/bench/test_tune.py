# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tuner on simulated layouts finds the true best one, and says so where there is none."""

from __future__ import annotations

import zlib

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.ledger import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores, steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Question,
)

from engine_simulator import Client, benches, truth
from support.engines import published
from support.topology.topologies import mi325x

# The layouts of one host, and the cases whose truth was found by trying every concurrency.
CASES = {
    "DP1/TP8/EP8": "quarter-tp8x1",
    "DP2/TP4/EP4": "quarter-tp4x2",
    "DP4/TP2/EP2": "quarter-tp2x4",
}
CASE = truth.cases()["quarter-tp8x1"]


def question(size, layouts):
    """Ask for the best layout of a host that has TP8 or TP4 now."""
    return Question(
        published("0.33.0", size),
        truth.workload_of(CASE),
        truth.slo_of(CASE),
        layouts=layouts,
        knobs={},
    )


def tuned(size, cases):
    """Return a tuning that was carried out; every trial is an engine run of its own."""
    requested = question(size, tuple(cases))
    state = steps.begin(requested, architecture_of(requested.deployment, "published"), mi325x())
    host = state.hosts[0].name
    while state.choice is None:
        (trial,) = steps.assign(state, [host])
        layout = state.candidate(trial.candidate).layout
        bench = benches.bench(
            truth.parameters_of(truth.cases()[cases[layout]]),
            steps.requested_of(state, trial),
            seed=zlib.crc32(trial.id.encode()),
            client=Client(self_test=False),
            rules=rules(requests_least=100, **steps.rules_of(trial)),
        )
        state = steps.record(state, trial, scores.outcome_of(bench))
    return state


def chosen(state):
    return state.candidate(state.choice.candidate).layout


@pytest.fixture(scope="module")
def from_tp8():
    return tuned(8, CASES)


def test_the_true_best_layout_is_chosen(from_tp8):
    rates = {layout: truth.true_slo_rate(case) for layout, case in CASES.items()}
    best = max(rates.values())
    assert rates[chosen(from_tp8)] >= 0.95 * best
    assert (chosen(from_tp8), from_tp8.choice.verdict) == ("DP2/TP4/EP4", "better")
    assert from_tp8.choice.confirmed
    assert from_tp8.choice.score.mean == pytest.approx(best, rel=0.05)


def test_not_every_layout_is_measured_in_full(from_tp8):
    full = [trial for trial in from_tp8.trials if trial.kind == "final"]
    everything = len(from_tp8.candidates) * from_tp8.requested.budget.engine_runs
    assert len(full) < everything
    assert "DP4/TP2/EP2" not in {from_tp8.candidate(trial.candidate).layout for trial in full}


def test_equal_layouts_leave_the_present_one():
    state = tuned(8, dict.fromkeys(("DP1/TP8/EP8", "DP2/TP4/EP4"), "quarter-tp8x1"))
    assert state.choice.verdict == "no difference found"
    assert chosen(state) == "DP1/TP8/EP8"
