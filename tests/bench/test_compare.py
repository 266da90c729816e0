# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts on simulated deployments whose true difference is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    compare,
    compare_values,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.statistics import (
    welch,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Requested,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.validity.evaluate import (
    evaluate,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from engine_simulator import Client, benches, parameters, simulate

LIVES = 3
TINY = Workload("100/8", 100, 8)
# Restarts of the study differ by 1.6 % (arXiv:2603.10031, Table 26), these by more.
NOISY = replace(parameters("small"), engine_run_cov=0.03)
SLO = (Limit("ttft", "p90", 0.1), Limit("tpot", "p90", 0.014))


def faster(by):
    """Return the same deployment, every cost smaller."""
    engine = NOISY.engine
    costs = {
        name: getattr(engine, name) / by
        for name in ("step", "sequence", "kv_token", "prefill_token", "network")
    }
    return replace(NOISY, name="faster", engine=replace(engine, **costs))


def rates(of, seed, engine_runs=LIVES):
    """Return the request rate of each of a few engine runs."""
    values = []
    for engine_run in range(engine_runs):
        load = Load("fixed", TINY, 20, concurrency=2, engine_run=engine_run)
        raw = simulate(of, load, seed=seed, client=Client(self_test=False, metrics=False))
        values.append(evaluate(raw, ()).measured.request_rate)
    return values


def test_equal_configurations_differ_as_often_as_the_confidence_says():
    pairs = 100
    sides = [rates(NOISY, seed) for seed in range(2 * pairs)]
    both = list(zip(sides[:pairs], sides[pairs:], strict=True))
    by_chance = sum(welch(a, b) < 0.05 for a, b in both)
    # Binomial(100, 0.05): 5 on average, and 1 to 12 of them in 99 % of all cases.
    assert 1 <= by_chance <= 12
    verdicts = [compare_values(a, b).verdict for a, b in both]
    # A gain must be larger than equal systems differ by, too: less often than by chance alone.
    assert verdicts.count("no difference found") >= pairs - by_chance


def test_a_true_difference_of_10_percent_is_found():
    """With the restarts' spread that the study saw, and as many of them: five."""
    spread = {"engine_run_cov": 0.0157}
    slow, fast = replace(NOISY, **spread), replace(faster(1.1), **spread)
    verdicts = {
        compare_values(rates(slow, seed, 5), rates(fast, seed + 1000, 5)).verdict
        for seed in range(12)
    }
    assert verdicts == {"better"}


def bench(of, seed):
    requested = Requested(TINY, SLO, ("slo",), engine_runs=LIVES, most=64, search_by="concurrency")
    return benches.bench(of, requested, seed=seed)


@pytest.mark.parametrize(
    ("of", "verdict"),
    [
        (replace(NOISY, name="twin"), "no difference found"),
        (faster(1.25), "better"),
        (faster(0.8), "worse"),
    ],
    ids=["equal", "faster", "slower"],
)
def test_whole_benchmarks_are_compared_at_the_slo(of, verdict):
    said = compare([bench(NOISY, seed=1)], [bench(of, seed=2)])
    assert said.verdict == verdict
    assert said.published
