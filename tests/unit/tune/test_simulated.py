# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tuning simulated engines by whole benchmarks; tests/bench has the search under an SLO."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Interval,
    Level,
    Load,
    Requested,
    SearchResult,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores, steps

from engine_simulator import Client, benches, parameters
from support.bench.tuned import begun

# What each layout of the small host would be like: steps take so many times as long.
SLOWNESS = {"current": 1.6, "dp4-tp1": 2.5, "dp2-tp2": 1.0, "tp2-tp1-tp1": 3.0}


def deployed(name, slowness):
    """A simulated deployment of a candidate."""
    small = parameters("small")
    engine = dataclasses.replace(small.engine, step=small.engine.step * slowness.get(name, 4.0))
    return dataclasses.replace(small, name=name, engine=engine)


def carried_out(slowness):
    """A tuning whose trials are benchmarks of simulated engines, one engine run each."""
    state = begun(
        slo=(),
        concurrency=16,
        layouts=("DP4/TP1", "DP2/TP2", "TP2+TP1+TP1"),
        budget={"engine_runs": 3},
    )
    while state.choice is None:
        (trial,) = steps.assign(state, ("a",))
        bench = benches.bench(
            deployed(trial.candidate, slowness),
            steps.requested_of(state, trial),
            seed=sum(map(ord, trial.id)),  # an engine run of its own
            rules=rules(**steps.rules_of(trial)),
        )
        state = steps.record(state, trial, scores.outcome_of(bench, f"{trial.id}/bench.json"))
    return state


def true_rate(name):
    """Requests a second of a deployment without the luck of one engine run."""
    calm = dataclasses.replace(deployed(name, SLOWNESS), engine_run_cov=0.0, level_cov=0.0)
    requested = Requested(
        Workload("500/100", 500, 100), phases=("fixed",), concurrency=(16,), repeats=3
    )
    return scores.outcome_of(benches.bench(calm, requested)).score.mean


def test_the_true_optimum_is_found_within_five_per_cent():
    state = carried_out(SLOWNESS)
    made = state.choice
    best = max(SLOWNESS, key=true_rate)
    assert best == "dp2-tp2"
    assert (made.candidate, made.verdict, made.confirmed) == (best, "better", True)
    assert made.score.mean == pytest.approx(true_rate(best), rel=0.05)
    short = [one for one in state.trials if one.kind == "short"]
    assert len(state.trials) - len(short) == 12  # of four candidates, two went to the finals


def test_equal_engines_end_without_a_difference():
    made = carried_out(dict.fromkeys(SLOWNESS, 1.0)).choice
    assert (made.candidate, made.verdict) == ("current", "no difference found")


def test_a_client_that_cannot_keep_up_is_not_the_candidates_fault():
    requested = Requested(Workload("500/100", 500, 100), phases=("fixed",), concurrency=(16,))
    slow = Client(chunk=0.01)
    outcome = scores.outcome_of(benches.bench(parameters("small"), requested, client=slow))
    assert (outcome.status, outcome.score) == ("invalid", None)
    assert "BENCH-" in outcome.summary


SLO = (Limit("tpot", "p90", 0.05),)


def bench_of(*levels, requested=None, **more):
    target = Target(("http://a:8000",), "m", hosts=more.pop("hosts", 1))
    requested = requested or Requested(
        Workload("5/5", 5, 5), SLO, ("slo",), search_by="concurrency"
    )
    return Bench("x", "2026-01-01T00:00:00Z", target, requested, levels, **more)


def level(status, phase="slo", finding=None):
    load = Load(phase, Workload("5/5", 5, 5), 200, concurrency=8)
    return Level(load, status, None, findings=(finding,) if finding else ())


def test_requests_that_failed_are_the_engines_fault():
    told = Finding.from_fields(
        code="BENCH-ERRORS",
        severity="error",
        subject="x",
        message="3 of 200 requests failed",
        remedy="",
        source=None,
    )
    outcome = scores.outcome_of(bench_of(level("FAILED", finding=told)))
    assert (outcome.status, outcome.cause) == (
        "failed",
        "BENCH-ERRORS: 3 of 200 requests failed",
    )


def test_a_warm_up_alone_is_no_measurement():
    assert scores.outcome_of(bench_of(level("OK", "warmup"))).status == "invalid"


def test_no_level_that_keeps_the_limits_is_a_score_of_nothing():
    none = SearchResult("5/5", "concurrency", None, 1.0)
    outcome = scores.outcome_of(bench_of(level("SLO_MISS"), searches=(none,)))
    assert (outcome.status, outcome.score) == ("measured", Interval(1, 0.0))


def test_a_search_that_concluded_nothing_is_not_taken_for_one_that_failed():
    told = Finding.from_fields(
        code="BENCH-SLO-UNFINISHED",
        severity="warning",
        subject="5/5",
        message="the level at 8 is invalid",
        remedy="",
        source=None,
    )
    outcome = scores.outcome_of(bench_of(level("OK"), findings=(told,)))
    assert (outcome.status, outcome.score) == ("invalid", None)
    assert "the level at 8 is invalid" in outcome.summary


def test_one_failed_level_among_the_repeats_of_a_fixed_load_fails_the_candidate():
    requested = Requested(Workload("5/5", 5, 5), phases=("fixed",), concurrency=(8,), repeats=2)
    levels = (level("OK", "fixed"), level("FAILED", "fixed"))
    assert scores.outcome_of(bench_of(*levels, requested=requested)).status == "failed"


def test_scores_are_of_one_host():
    found = benches.bench(
        parameters("small"), Requested(Workload("500/100", 500, 100), (), ("fixed",), (16,))
    )
    two = dataclasses.replace(found, target=dataclasses.replace(found.target, hosts=2))
    one, half = (scores.outcome_of(bench).score.mean for bench in (found, two))
    assert half == pytest.approx(one / 2)
