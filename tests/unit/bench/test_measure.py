# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The numbers of a level, against numpy and against levels whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.measure import (
    kept_limits,
    measure,
    missed,
    quantile,
    spread,
    tpot,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.parse import shard_requests
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Request,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from support.bench.raw import LOAD, OPEN, shard

W = Workload("100/20", 100, 20)


def closed(count, slots, latency=0.48):
    """Requests that fill their slots without a gap."""
    return [
        Request(latency, 0.1, 100, 20, (0.02,) * 19, number // slots * latency)
        for number in range(count)
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 10, 101])
def test_quantiles_are_numpy_s(size):
    values = sorted(np.random.default_rng(size).exponential(size=size).tolist())
    for share in (0.0, 0.5, 0.9, 0.95, 0.99, 1.0):
        assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-12)


def test_a_spread_has_numpy_s_mean_and_percentiles():
    values = np.random.default_rng(1).lognormal(size=997).tolist()
    found = spread(values)
    assert found.count == 997
    assert found.mean == pytest.approx(np.mean(values))
    expected = np.percentile(values, [50, 90, 95, 99])
    assert [found.p50, found.p90, found.p95, found.p99] == pytest.approx(expected.tolist())
    assert spread([]) is None


def test_waves_are_counted_without_a_share_of_one():
    measured = measure(closed(80, 8), LOAD, (), 99.0)
    assert measured.steady
    assert measured.achieved_concurrency == pytest.approx(8)
    assert measured.request_rate == pytest.approx(8 / 0.48)
    assert measured.output_token_rate == pytest.approx(20 * 8 / 0.48)
    assert measured.total_token_rate == pytest.approx(120 * 8 / 0.48)
    assert (measured.completed, measured.failed, measured.e2el.count) == (80, 0, 64)
    assert measured.wall_seconds == pytest.approx(8 * 0.48)


def test_the_ramp_at_both_ends_is_not_in_the_numbers():
    requests = closed(80, 8)
    slow = [replace(item, latency=0.4799, ttft=0.4) for item in requests[:8]]
    measured = measure([*slow, *requests[8:]], LOAD, (), 99.0)
    assert measured.ttft.p99 == pytest.approx(0.1)


def test_a_client_that_is_slow_between_requests_does_not_fill_its_slots():
    # 0.12 s idle after each of 0.48 s.
    requests = [replace(item, start=item.start * 1.25) for item in closed(80, 8)]
    measured = measure(requests, LOAD, (), 99.0)
    assert measured.achieved_concurrency == pytest.approx(8 * 0.8)


def test_too_few_requests_have_no_steady_state():
    measured = measure(closed(20, 8), replace(LOAD, requests=20), (), 99.0)
    assert not measured.steady
    assert measured.e2el.count == 20
    # Three waves, of which the last has 4: 20 of 24 places.
    assert measured.achieved_concurrency == pytest.approx(8 * 20 / 24)


def test_without_starts_the_whole_level_counts_by_its_seconds():
    requests = [replace(item, start=None) for item in closed(80, 8)]
    measured = measure(requests, LOAD, (), 4.8)
    assert (measured.steady, measured.wall_seconds) == (False, 4.8)
    assert measured.achieved_concurrency == pytest.approx(8)
    assert measured.request_rate == pytest.approx(80 / 4.8)


def test_an_open_loop_is_cut_by_what_was_in_flight():
    requests = shard_requests(shard(120, rate=20.0), "level")
    measured = measure(requests, OPEN, (), 99.0)
    assert measured.steady
    assert measured.achieved_concurrency == pytest.approx(9.6)
    assert measured.request_rate == pytest.approx(20)
    # 120 x 0.48 s in 6.43 s, ramps and all: 9 at each end.
    assert measured.e2el.count == 120 - 2 * 9


def test_an_open_loop_above_capacity_has_the_engine_s_rate():
    requests = [Request(0.5 + 0.05 * n, 0.1, 100, 20, (), n / 20) for n in range(400)]
    measured = measure(requests, replace(OPEN, requests=400), (), 99.0)
    assert measured.request_rate == pytest.approx(10, rel=0.01)


def test_failed_requests_are_counted_and_nothing_else_of_them():
    requests = closed(80, 8)
    requests[30] = Request(None, None, 100, 0, (), requests[30].start, "boom")
    measured = measure(requests, LOAD, (), 99.0)
    assert (measured.completed, measured.failed) == (79, 1)
    nothing = measure([replace(requests[30])] * 3, LOAD, (), 2.0)
    assert (nothing.completed, nothing.failed, nothing.request_rate, nothing.ttft) == (
        0,
        3,
        0.0,
        None,
    )


def test_cached_prompt_tokens_are_apart():
    measured = measure(closed(80, 8), LOAD, (), 99.0, cached_tokens=2000)
    assert measured.cached_tokens == 1600  # a quarter of the kept 6,400
    assert measured.total_token_rate == pytest.approx((75 + 20) * 8 / 0.48)
    assert measure(closed(80, 8), LOAD, (), 99.0, cached_tokens=10**9).cached_tokens == 6400


def test_tpot_is_by_tokens_though_pieces_hold_several():
    bundled = Request(1.0, 0.1, 100, 10, (0.3, 0.3, 0.3))
    assert tpot(bundled) == pytest.approx(0.1)
    assert tpot(replace(bundled, output_tokens=1)) is None


def test_goodput_counts_requests_that_met_every_limit_by_themselves():
    requests = closed(80, 8)
    requests[20:24] = [replace(item, ttft=0.2) for item in requests[20:24]]
    slo = (Limit("ttft", "p90", 0.15), Limit("e2el", "p99", 0.5))
    measured = measure(requests, LOAD, slo, 99.0)
    assert measured.goodput == pytest.approx(60 / (8 * 0.48))
    assert missed(measured, slo) == ()
    assert measure(requests, LOAD, (), 99.0).goodput is None


def test_one_request_s_gaps_are_held_to_the_limit_s_own_percentile():
    request = Request(1.0, 0.1, 100, 11, (0.01,) * 9 + (0.5,))
    assert kept_limits(request, (Limit("itl", "p50", 0.05),))
    assert not kept_limits(request, (Limit("itl", "p99", 0.05),))
    assert kept_limits(replace(request, gaps=()), (Limit("itl", "p99", 0.05),))


def test_a_limit_of_a_metric_that_nothing_has_is_kept():
    requests = [replace(item, output_tokens=1, gaps=()) for item in closed(80, 8)]
    slo = (Limit("tpot", "p90", 0.001),)
    measured = measure(requests, LOAD, slo, 99.0)
    assert measured.tpot is None
    assert missed(measured, slo) == ()
    assert measured.goodput == pytest.approx(measured.request_rate)


def test_a_closed_loop_of_one_has_a_steady_state():
    load = Load("baseline", W, 20, 1)
    measured = measure(closed(20, 1), load, (), 9.6)
    assert (measured.steady, measured.e2el.count) == (True, 18)
    assert measured.achieved_concurrency == pytest.approx(1)
