# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts on two configurations whose true difference is known."""

import random
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    by_level,
    compare,
    compare_values,
    regression,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    EngineUse,
    Requested,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic, bench

PHASES = ("baseline", "scaling", "slo")
ASKED = Requested(WORKLOAD, slo=SLO, phases=PHASES, engine_runs=3, search_by="concurrency")
HERE = {"layout": "DP2/TP4", "gpu": "MI325X", "engine": {"version": "0.32.0", "image": "x@1"}}


def measured(name="a", requested=ASKED, base=0.01, environment=HERE, **engine):
    facts = {"base": base, "slope": 0.0002, "noise": 0.005, "luck": 1} | engine
    return bench(Analytic(**facts), requested, name, environment=environment)


def codes(found):
    return [finding.code for finding in found.findings]


def test_a_better_configuration_is_found():
    # 20 % less time for each slot: the edge is 25 % higher.
    verdict = compare([measured()], [measured("b", slope=0.00016, luck=2)])

    assert verdict.verdict == "better"
    assert verdict.what == "request rate at the SLO of 100/50"
    assert verdict.low < 1.25 < verdict.high
    assert 1.03 < verdict.low <= verdict.ratio <= verdict.high
    assert (verdict.a.n, verdict.b.n, verdict.published) == (3, 3, True)
    assert verdict.p < 0.05
    assert codes(verdict) == []


def test_what_both_searched_is_compared_and_a_second_search_is_a_row():
    both = replace(ASKED, search_by="both")
    first, second = measured(requested=both), measured("b", requested=both, slope=0.00016, luck=2)
    assert [found.by for found in first.searches] == ["concurrency", "request_rate"]
    whole = compare([first], [second])
    assert (whole.verdict, whole.what) == ("better", "request rate at the SLO of 100/50")
    row = by_level([first], [second])[0]
    assert row.what == "request rate at the SLO of 100/50, random arrivals"
    assert row.verdict == "better"
    # A result of one search answers the same question; what both have is held together.
    rates = measured("c", requested=replace(ASKED, search_by="request_rate"), slope=0.00016, luck=2)
    assert compare([first], [rates]).what.endswith("random arrivals")
    assert compare([measured()], [second]).what == whole.what


def test_a_worse_configuration_is_found():
    assert compare([measured(slope=0.00016)], [measured("b", luck=2)]).verdict == "worse"


@pytest.mark.parametrize("luck", range(2, 12))
def test_equal_configurations_do_not_differ(luck):
    verdict = compare([measured()], [measured("b", luck=luck)])

    assert verdict.verdict == "no difference found"
    assert verdict.detectable >= 0.03


@pytest.mark.parametrize("luck", range(2, 8))
def test_restarts_that_differ_are_no_difference_of_configurations(luck):
    first = measured(engine_run_noise=0.05)
    second = measured("b", engine_run_noise=0.05, luck=luck)
    verdict = compare([first], [second])

    assert verdict.verdict == "no difference found"
    # Five per cent between restarts hide anything below a fifth or so, and the verdict says it.
    assert verdict.detectable > 0.05


def test_engine_runs_may_come_as_benchmarks_of_their_own():
    one = replace(ASKED, engine_runs=1)
    a = [measured(f"a{luck}", one, luck=luck) for luck in range(3)]
    b = [measured(f"b{luck}", one, luck=luck, slope=0.00016) for luck in range(3, 6)]
    verdict = compare(a, b)

    assert (verdict.verdict, verdict.a.n, verdict.b.n) == ("better", 3, 3)
    assert verdict.a.mean == pytest.approx(
        sum(each.searches[0].request_rate.mean for each in a) / 3
    )


def test_one_engine_run_on_a_side_decides_nothing_and_says_so():
    one = replace(ASKED, engine_runs=1)
    verdict = compare([measured(requested=one)], [measured("b", one, slope=0.00005)])

    assert verdict.verdict == "not decided"
    assert verdict.ratio > 1.5
    assert (verdict.low, verdict.published) == (None, False)
    assert codes(verdict) == ["BENCH-LIVES"]


def test_two_engine_runs_may_differ_but_not_in_print():
    found = compare_values([10.0, 10.01], [12.0, 12.01])

    assert (found.verdict, found.published) == ("better", False)
    assert codes(found) == ["BENCH-LIVES"]


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        ([102.9, 102.9, 102.9], "no difference found"),
        ([103.1, 103.1, 103.1], "better"),
        ([97.2, 97.2, 97.2], "no difference found"),
        ([96.9, 96.9, 96.9], "worse"),
        ([100.0, 100.0, 140.0], "no difference found"),
    ],
)
def test_a_certain_but_small_difference_is_none(b, verdict):
    assert compare_values([100.0, 100.0, 100.0], b).verdict == verdict


def test_less_is_better_for_times():
    assert compare_values([1.0, 1.01, 1.0], [0.8, 0.81, 0.8], less_is_better=True).verdict == (
        "better"
    )


def test_a_search_cannot_tell_what_its_resolution_hides():
    # Three and four slots are neighbours: nothing lies between them.
    coarse = replace(ASKED, most=8)
    first = measured(requested=coarse, slope=0.0101, noise=0)
    second = measured("b", coarse, slope=0.0099, noise=0)
    assert (first.searches[0].best, second.searches[0].best) == (3, 4)

    assert compare([first], [second]).verdict == "no difference found"


def test_the_detectable_difference_is_detected_as_often_as_the_power_says():
    draw = random.Random(5)
    a = [[draw.gauss(100, 3) for _ in range(5)] for _ in range(80)]
    gain = sum(compare_values(each, each[::-1]).detectable for each in a) / len(a)
    found = [
        compare_values(each, [draw.gauss(100 * (1 + gain), 3 * (1 + gain)) for _ in range(5)])
        for each in a
    ]

    share = sum(verdict.verdict == "better" for verdict in found) / len(found)
    assert 0.65 <= share <= 0.95


def test_a_side_that_never_keeps_the_limits_is_worse():
    verdict = compare([measured(base=0.06)], [measured("b")])

    assert (verdict.verdict, verdict.ratio) == ("better", None)
    assert codes(verdict) == ["BENCH-SLO-NEVER"]


def test_without_a_search_the_highest_common_load_is_compared():
    fixed = Requested(WORKLOAD, phases=("fixed",), concurrency=(8, 32), engine_runs=3)
    verdict = compare([measured(requested=fixed)], [measured("b", fixed, base=0.005)])

    assert verdict.what == "request rate at 32 concurrent"
    assert verdict.verdict == "better"


def test_an_open_loop_is_compared_by_the_time_a_request_takes():
    opened = Requested(WORKLOAD, phases=("fixed",), request_rate=(20.0,), engine_runs=3)
    verdict = compare([measured(requested=opened)], [measured("b", opened, base=0.005)])

    assert (verdict.what, verdict.verdict) == ("e2el p90 at 20 requests/s", "better")
    assert verdict.ratio < 0.7


def test_loads_that_have_nothing_in_common_are_refused():
    a, b = (
        Requested(WORKLOAD, phases=("fixed",), concurrency=(size,), engine_runs=3)
        for size in (8, 9)
    )
    with pytest.raises(ApiaryError, match="BENCH-NOTHING-COMMON"):
        compare([measured(requested=a)], [measured("b", b)])


def test_invalid_levels_are_not_compared():
    fixed = Requested(WORKLOAD, phases=("fixed",), concurrency=(8, 32), engine_runs=3)
    bad = measured("b", fixed, invalid=lambda load: load.concurrency == 32)

    assert compare([measured(requested=fixed)], [bad]).what == "request rate at 8 concurrent"


@pytest.mark.parametrize(
    "requested",
    [replace(ASKED, workload=Workload("500/50", 500, 50)), replace(ASKED, slo=())],
)
def test_different_questions_are_refused(requested):
    with pytest.raises(ApiaryError, match="BENCH-QUESTION"):
        compare([measured()], [measured("b", requested)])


def test_a_side_of_two_configurations_is_refused():
    other = measured("c", environment=HERE | {"layout": "TP8"})
    with pytest.raises(ApiaryError, match="BENCH-MIXED"):
        compare([measured(), other], [measured("b")])
    with pytest.raises(ApiaryError, match="BENCH-MIXED"):
        compare([], [measured("b")])


def test_two_layouts_are_compared_and_what_differs_is_listed():
    verdict = compare([measured()], [measured("b", environment=HERE | {"layout": "TP8"})])

    assert [str(item) for item in verdict.differs] == ["layout: DP2/TP4 against TP8"]


def test_each_common_level_has_its_verdict_at_a_shared_confidence():
    verdicts = by_level([measured()], [measured("b", slope=0.00016, luck=2)])

    found = {verdict.what: verdict for verdict in verdicts}
    assert found["request rate at 64 concurrent"].verdict == "better"
    assert found["tpot p90 at 64 concurrent"].verdict == "better"
    assert found["tpot p90 at 64 concurrent"].ratio < 1
    assert found["request rate at 1 concurrent"].verdict == "no difference found"
    assert {verdict.confidence for verdict in verdicts} == {1 - 0.05 / len(verdicts)}


def test_many_levels_of_equal_configurations_find_no_chance_difference():
    verdicts = by_level(
        [measured(engine_run_noise=0.02)], [measured("b", engine_run_noise=0.02, luck=2)]
    )

    assert len(verdicts) > 15
    says = {verdict.verdict for verdict in verdicts if verdict.low is not None}
    assert says == {"no difference found"}
    # A size that only one run's search passed through has no second run to hold against it.
    assert {verdict.verdict for verdict in verdicts if verdict.low is None} <= {"not decided"}


def test_a_regression_is_found_against_equal_results_only():
    other = measured("old", environment=HERE | {"engine": {"version": "0.31.0", "image": "x@0"}})
    earlier = [measured("before"), other]
    found = regression(earlier, [measured("now", slope=0.00024, luck=2)])

    assert found.verdict == "worse"
    assert found.verdicts[0].verdict == "worse"
    assert "engine.version: 0.31.0 against 0.32.0" in map(str, found.differs)
    assert codes(found) == ["BENCH-DIFFERS"]


def test_nothing_to_compare_with_is_no_verdict():
    other = measured("old", environment=HERE | {"gpu": "MI300X"})
    found = regression([other], [measured("now")])

    assert (found.verdict, found.verdicts) == (None, ())
    assert [str(item) for item in found.differs] == ["gpu: MI300X against MI325X"]


def test_a_regression_of_one_engine_run_is_not_decided():
    one = replace(ASKED, engine_runs=1)
    slow = measured("now", one, slope=0.0004, luck=2)
    assert regression([measured(requested=one)], [slow]).verdict == "not decided"


def begun(bench, at):
    """The same result of engines that tell when they began: one moment a run, or ``at`` all."""
    return replace(
        bench,
        levels=tuple(
            replace(level, engine=EngineUse(started=at or 1.7e9 + level.load.engine_run))
            for level in bench.levels
        ),
    )


def test_one_engine_run_that_is_given_twice_is_one():
    one = replace(ASKED, engine_runs=1)
    a, b = measured(requested=one), measured("b", one, slope=0.00005)
    found = compare([a, a, a], [b, b, b])

    assert (found.verdict, found.a.n, found.b.n) == ("not decided", 1, 1)
    assert {verdict.verdict for verdict in by_level([a, a], [b, b])} == {"not decided"}


def test_two_results_of_an_engine_that_was_never_restarted_are_one_engine_run():
    one = replace(ASKED, engine_runs=1)
    sides = [
        [begun(measured(name, one, slope=slope, luck=luck), at) for luck in (1, 2, 3)]
        for name, slope, at in (("a", 0.0003, 1.7e9), ("b", 0.00005, 1.8e9))
    ]
    assert compare(*sides).verdict == "not decided"
    # A restart command that restarts nothing makes no engine runs either.
    assert compare([begun(measured(), 1.7e9)], [begun(measured("b"), 1.7e9)]).a.n == 1
    assert compare([begun(measured(), 0)], [begun(measured("b"), 0)]).a.n == 3


def test_no_regression():
    assert regression([measured()], [measured("now", luck=2)]).verdict == "no difference found"
