# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a benchmark of one trial comes to; tests/bench tunes simulated engines."""

import dataclasses

import pytest
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
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores

from engine_simulator import Client, benches, parameters


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


@pytest.mark.parametrize(("by", "within"), [("concurrency", 12), ("request_rate", None)])
def test_what_kept_the_slo_at_once_is_of_one_host(by, within):
    found = SearchResult("5/5", by, 24, 32, Interval(1, 9.0))
    outcome = scores.outcome_of(bench_of(level("OK"), searches=(found,), hosts=2))
    assert outcome.within == within
