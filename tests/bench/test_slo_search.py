# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SLO search on simulated deployments finds the optimum that trying every level found."""

from __future__ import annotations

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.ledger import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Requested, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from engine_simulator import benches, parameters, truth

CLOSED = ("small", "small-ttft", "llama-3.1-405b-tp8", "qwen3-vl-235b-tp8")


def requested_of(case, **more):
    return Requested(
        truth.workload_of(case),
        slo=truth.slo_of(case),
        phases=("slo",),
        most=256,
        **{"search_by": "concurrency", **more},
    )


@pytest.mark.parametrize("name", CLOSED[1:])  # the first is below, with its arrivals
def test_the_search_finds_the_true_best_concurrency_within_5_percent(name):
    case = truth.cases()[name]
    best, rate = truth.true_best_concurrency(name), truth.true_slo_rate(name)
    of = parameters(case["parameters"])
    engine_runs = 3 if of.engine_run_cov > 0.01 else 1  # one engine run's luck may be more than 5 %
    found = benches.bench(of, requested_of(case, engine_runs=engine_runs)).searches[0]
    assert found.best == pytest.approx(best, rel=0.05)
    assert found.request_rate.mean == pytest.approx(rate, rel=0.05)
    assert found.best < found.fails
    assert {limit.metric for limit in found.missed} <= {"ttft", "tpot"}


def test_both_searches_in_one_run_find_both_truths_within_5_percent():
    """The truth of each: every concurrency tried, every rate tried."""
    case = truth.cases()["small"]
    requested = requested_of(case, search_by="both")
    result = benches.bench(parameters("small"), requested, rules=rules(open_seconds=20.0))
    by_streams, by_rate = result.searches

    assert (by_streams.by, by_rate.by) == ("concurrency", "request_rate")
    assert by_streams.best == pytest.approx(truth.true_best_concurrency("small"), rel=0.05)
    assert by_streams.request_rate.mean == pytest.approx(truth.true_slo_rate("small"), rel=0.05)
    assert by_rate.best == pytest.approx(truth.true_open_rate("small"), rel=0.05)
    for found in result.searches:
        assert found.edge.low <= found.edge.mean < found.edge.high
        assert found.request_rate.low < found.request_rate.mean < found.request_rate.high
    # The rates begin at what streams were served, and no load was sent twice.
    first = next(one.load for one in result.levels if one.load.concurrency is None)
    assert first.request_rate == pytest.approx(by_streams.request_rate.mean, rel=0.02)
    assert len({one.load.key for one in result.levels}) == len(result.levels)


def test_a_rate_far_above_the_engines_is_a_miss_and_ends_the_search():
    """So much waits there that few requests are left for a steady state; that is no end."""
    requested = Requested(
        Workload("100/20", 100, 20),
        slo=(Limit("ttft", "p90", 0.5),),
        phases=("slo",),
        search_by="request_rate",
    )
    result = benches.bench(parameters("small"), requested, rules=rules(open_seconds=5.0))
    assert result.searches[0].best < result.searches[0].fails
    assert "BENCH-SLO-UNFINISHED" not in [finding.code for finding in result.findings]


@pytest.mark.parametrize("name", CLOSED)
def test_the_kept_truth_is_still_true(name):
    """Its edge, not all of it: the whole takes `python -m engine_simulator truth` minutes."""
    case = truth.cases()[name]
    workload, slo = truth.workload_of(case), truth.slo_of(case)
    best = truth.true_best_concurrency(name)
    kept, rate, _found = truth.closed(parameters(case["parameters"]), workload, slo, best, runs=1)
    assert kept
    assert rate == pytest.approx(truth.true_slo_rate(name), rel=0.01)
    above, _rate, _found = truth.closed(
        parameters(case["parameters"]), workload, slo, best + max(2, best // 20), runs=1
    )
    assert not above
