# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds of every level, whatever its size and whatever a client wrote."""

from dataclasses import replace
from itertools import pairwise

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.measure import measure, spread
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.parse import requests_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Request,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.validity.evaluate import (
    evaluate,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit
from hypothesis import given
from hypothesis import strategies as st

from support.bench.raw import changed, failing, raw, scrape, shard
from support.examples import examples

seconds = st.floats(0.001, 10.0)


@st.composite
def requests(draw):
    """Any requests of a level; latencies have ttft and gaps in them."""
    made = []
    for _number in range(draw(st.integers(0, 60))):
        ttft = draw(seconds)
        gaps = tuple(draw(st.lists(seconds, max_size=3)))
        start = draw(st.floats(0, 100.0))
        failed = draw(st.integers(0, 9)) == 0
        times = (None, None) if failed else (ttft + sum(gaps), ttft)
        made.append(
            Request(*times, 100, 0 if failed else 1 + len(gaps), () if failed else gaps, start,
                    "boom" if failed else "")
        )  # fmt: skip
    return made


loads = st.builds(
    lambda slots, rate: Load("scaling", Workload("w", 100, 4), 60, slots, None if slots else rate),
    st.one_of(st.none(), st.integers(1, 70)),
    seconds,
)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_in_order_and_among_the_values(values):
    found = spread(values)
    marks = (min(values), found.p50, found.p90, found.p95, found.p99, max(values))
    assert all(low <= high for low, high in pairwise(marks))
    assert min(values) * (1 - 1e-12) <= found.mean <= max(values) * (1 + 1e-12)


@given(requests(), loads, seconds)
@examples(0.5)
def test_a_level_counts_no_request_twice_and_adds_none(made, load, wall):
    slo = (Limit("ttft", "p90", 1.0), Limit("e2el", "p90", 5.0))
    measured = measure(made, load, slo, wall, cached_tokens=1000)
    assert measured.completed + measured.failed == len(made)
    kept = measured.e2el.count if measured.e2el else 0
    assert kept <= measured.completed
    assert measured.steady or kept == measured.completed
    assert 0 <= measured.goodput <= measured.request_rate * (1 + 1e-9)
    assert 0 <= measured.cached_tokens <= measured.input_tokens
    assert 0 <= measured.achieved_concurrency <= max(1, measured.completed) * (1 + 1e-9)


@given(st.integers(1, 12), st.integers(1, 15), seconds, st.floats(0, 0.5))
def test_no_closed_loop_has_more_in_flight_than_slots(slots, waves, latency, idle):
    made = [
        Request(latency, latency / 2, 100, 4, (), number // slots * latency * (1 + idle))
        for number in range(slots * waves)
    ]
    load = Load("scaling", Workload("w", 100, 4), len(made), slots)
    achieved = measure(made, load, (), 1.0).achieved_concurrency
    assert achieved <= slots * (1 + 1e-9)
    assert achieved >= slots / (1 + idle) * (1 - 1e-9)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.data())
@examples(0.4)
def test_it_does_not_matter_which_shard_comes_first(sizes, data):
    begins = [data.draw(st.floats(1000.0, 1001.0)) for _size in sizes]
    shards = [shard(size, 4, begin=begin) for size, begin in zip(sizes, begins, strict=True)]
    if not sum(sizes):
        return
    other = data.draw(st.permutations(shards))
    load = Load("scaling", Workload("100/20", 100, 20), sum(sizes), 4)
    first, second = (requests_of(raw(load, tuple(order)), "level") for order in (shards, other))
    assert first == second
    assert measure(first, load, (), 1.0) == measure(second, load, (), 1.0)


@given(st.integers(1, 40))
@examples(0.2)
def test_a_failed_request_is_never_ok(count):
    load = Load("scaling", Workload("100/20", 100, 20), 400, 8)
    found = evaluate(failing(count, load), ())
    assert found.status == ("FAILED" if count > 2 else "INVALID")


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(sorted(shard(2, 1))), anything, min_size=1, max_size=4),
    st.text(),
)
@examples(0.8)
def test_whatever_a_client_wrote_is_judged_and_never_a_traceback(columns, log):
    found = evaluate(replace(changed(raw(), **columns), log=log), ())
    assert found.status in ("OK", "INVALID", "FAILED")
    if found.measured is None and found.status == "INVALID":
        assert "BENCH-RESULT" in [item.code for item in found.findings]


@given(st.text(alphabet='vllm:prompt_tokens_total{engine="0"} 1.5eNaInf\n#', max_size=200))
@examples(0.5)
def test_whatever_an_engine_said_is_read_and_never_a_traceback(text):
    evaluate(raw(metrics=(replace(scrape(80), before=text, after=text),)), ())
