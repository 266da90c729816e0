# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report makes of results: configurations, points, headlines."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.statistics import (
    interval,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    EngineUse,
    Interval,
    SearchResult,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.data import curves_of, gather
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from support.bench.documents import (
    BLOG,
    DP2,
    TP8,
    Curve,
    bench,
    failed,
    invalid,
    level,
    loads,
)

STEPS = (1, 8, 64, 128)


def small(name="A", curve=DP2, **changes):
    """A benchmark with few levels."""
    return bench(name, curve, **({"steps": STEPS, "stress": ()} | changes))


def closed(report, configuration=0):
    (curve,) = [
        curve
        for curve in report.curves
        if curve.configuration == configuration and curve.by == "concurrency"
    ]
    return curve


def test_restarts_are_what_repeats_and_runs_in_one_engine_run_are_averaged_first():
    made = [level(load) for load in loads("scaling", (8,), engine_runs=3, repeats=4)]
    made = replace(small(), levels=tuple(made), searches=())
    (point,) = closed(make_report([made])).points
    by_engine_run = [
        [one.measured.request_rate for one in made.levels if one.load.engine_run == engine_run]
        for engine_run in range(3)
    ]
    means = [sum(rates) / len(rates) for rates in by_engine_run]
    assert point.runs == 12
    assert point.values["request_rate"].n == 3
    assert point.values["request_rate"].mean == pytest.approx(interval(means).mean)
    assert point.values["request_rate"].high == pytest.approx(interval(means).high)


def test_benchmarks_of_one_name_measured_alike_are_engine_runs_of_one_configuration():
    several = [small(engine_runs=1, seed=seed) for seed in (1, 2, 3)]
    (one,) = gather(several)
    assert [level.load.engine_run for level in one.levels].count(2) == len(several[2].levels)
    (found,) = one.searches
    assert found.request_rate.n == 3
    # Two repeats in each engine run are one value of it, also where every run has its own file.
    repeated = tuple(level(load) for load in loads("scaling", (8,), repeats=2))
    several = [replace(one, levels=repeated) for one in several]
    (point,) = closed(make_report(several)).points
    assert point.runs == 6
    assert point.values["request_rate"].n == 3


def test_one_name_with_other_software_is_another_configuration():
    other = small()
    other = replace(
        other, environment=other.environment | {"engine": {"name": "vllm", "version": "0.31.0"}}
    )
    assert [one.name for one in gather([small(), other])] == ["A", "A (2)"]
    renamed = [replace(one, name="bench") for one in (small("TP8"), small("TP4"), other)]
    assert [one.name for one in gather(renamed)] == ["bench TP8", "bench TP4", "bench A"]


def test_shares_of_each_engine_run_s_own_best_rate_are_one_point():
    rates = (4.0, 4.1, 4.2, 6.4, 6.6)
    made = [replace(level(one), load=one) for one in loads("open", rates, rate=True)]
    searched = [level(one) for one in loads("slo", (4.0, 4.3), rate=True)]
    report = make_report([replace(small(), levels=(*made, *searched))])
    (curve,) = report.curves
    sizes = {round(point.size, 6): point.runs for point in curve.points}
    # What a search tried is never put together with its neighbours.
    assert sizes == {4.0: 1, 4.1: 3, 4.3: 1, 6.5: 2}


def test_an_invalid_level_is_a_point_of_its_own_and_in_no_mean():
    good = small()
    mixed = tuple(
        invalid(one) if one.load.concurrency == 64 and one.load.engine_run == 0 else one
        for one in good.levels
    )
    points = closed(make_report([replace(good, levels=mixed)])).points
    at = {point.status: point for point in points if point.size == 64}
    assert at["OK"].runs == 2
    assert at["INVALID"].runs == 1
    assert at["INVALID"].codes == ("BENCH-CONCURRENCY",)
    assert not at["INVALID"].valid


def test_saturation_marks_a_valid_point_only():
    points = closed(make_report([small(broken=(128,))])).points
    assert [point.status for point in points if point.size == 128] == ["INVALID"]
    assert not any(point.saturated for point in points)
    assert any(point.saturated for point in closed(make_report([small()])).points)


def test_warm_up_and_soak_are_no_points_of_the_curve():
    extra = tuple(level(load) for load in [*loads("warmup", (8,)), *loads("soak", (8,))])
    made = small()
    assert gather([replace(made, levels=extra[:1])])[0].counts == {}
    plain = curves_of(gather([made]))
    assert curves_of(gather([replace(made, levels=made.levels + extra)])) == plain


def test_the_better_one_is_named_with_its_uncertainty_and_against_what():
    report = make_report([small("DP1/TP8/EP8", TP8), small("DP2/TP4/EP4", DP2)])
    headline = report.headline
    assert headline.verdict == "better"
    assert headline.best == 1
    assert headline.text.startswith("DP2/TP4/EP4 is better than DP1/TP8/EP8: 12.8 (12.6 to 12.9)")
    assert "p90 TTFT ≤ 2 s and p90 TPOT ≤ 50 ms" in headline.text
    assert any("3 runs of each engine" in reason for reason in headline.reasons)


def test_equal_ones_are_not_ranked():
    same = Curve(DP2.step * 1.0005)
    report = make_report([small("A", DP2), small("B", same)])
    assert report.headline.verdict == "no difference found"
    assert report.headline.best is None


def test_one_engine_run_of_each_decides_nothing_and_says_why():
    report = make_report([small("A", TP8, engine_runs=1), small("B", DP2, engine_runs=1)])
    assert report.headline.verdict == "not decided"
    assert report.headline.best is None
    assert "one engine run does not decide it against A" in report.headline.text
    assert [finding.code for finding in report.findings] == ["BENCH-LIVES"]


@pytest.mark.parametrize(
    ("changes", "verdict", "text"),
    [
        ({}, "measured", "A holds 12.8 (12.6 to 12.9) requests/s under the SLO"),
        ({"slo": ()}, "measured", "No SLO was requested"),
        (
            {"searches": ()},
            "unfinished",
            "No search for the SLO's limit ended. The most that is known",
        ),
        (
            {"searches": (), "slo": (Limit("tpot", "p90", 0.001),)},
            "SLO missed",
            "No level kept the SLO. The most that was measured: ",
        ),
    ],
)
def test_one_configuration(changes, verdict, text):
    headline = make_report([small(**changes)]).headline
    assert headline.verdict == verdict
    assert headline.text.startswith(text)


def test_nothing_valid_is_no_result():
    made = small(searches=(), saturation=())
    made = replace(made, levels=tuple(failed(one) for one in made.levels))
    report = make_report([made])
    assert report.headline.verdict == "no result"
    assert "REPORT-NOTHING-VALID" in [finding.code for finding in report.findings]


def test_what_was_requested_otherwise_is_said_and_not_compared():
    report = make_report(
        [small("A"), small("B", slo=(replace(small().requested.slo[0], seconds=9.0),))]
    )
    assert report.headline.verdict == "not compared"
    assert report.headline.text.startswith("A holds 12.8")
    assert "B: its request differs, so it is not ranked" in report.headline.reasons
    assert {"REPORT-DIFFERENT", "BENCH-QUESTION"} <= {one.code for one in report.findings}


def test_one_that_never_keeps_the_slo_is_not_ranked():
    lost = replace(small("B").searches[0], best=None, request_rate=None)
    report = make_report([small("A"), small("B", searches=(lost,))])
    assert report.headline.best == 0
    assert "B: no level kept the SLO, so it is not ranked" in report.headline.reasons


def test_what_was_not_searched_is_no_missed_slo():
    made = small(searches=())
    made = replace(made, requested=replace(made.requested, phases=("scaling",)))
    headline = make_report([made]).headline
    assert headline.verdict == "unfinished"
    assert headline.text.startswith("The SLO's limit was not searched for. The most that is known")
    report = make_report([small("B"), replace(made, name="A")])
    reason = "A: the SLO's limit was not searched for, so it is not ranked"
    assert reason in report.headline.reasons


def test_points_count_one_engine_run_once():
    def begun(made, at):
        use = EngineUse(started=at)
        return replace(made, levels=tuple(replace(one, engine=use) for one in made.levels))

    several = [small(engine_runs=1, seed=seed) for seed in (1, 2, 3)]
    for starts, engine_runs in (((5.0, 5.0, 6.0), 2), ((5.0, 6.0, 7.0), 3)):
        files = [begun(made, at) for made, at in zip(several, starts, strict=True)]
        (one,) = gather(files)
        assert len({level.load.engine_run for level in one.levels}) == engine_runs
        point = closed(make_report(files)).points[0]
        assert (point.values["request_rate"].n, point.runs) == (engine_runs, 3)


def test_a_search_that_did_not_end_is_no_missed_slo():
    report = make_report([small("A"), small("B", searches=())])
    assert "B: no search for the SLO's limit ended, so it is not ranked" in report.headline.reasons


def test_repeats_in_one_engine_run_are_not_told_as_runs():
    def sure(engine_runs):
        made = small(engine_runs=engine_runs)
        repeats = tuple(
            replace(one, load=replace(one.load, repeat=repeat))
            for one in made.levels
            for repeat in range(2)
        )
        found = replace(made.searches[0], request_rate=Interval(3, 12.8, 12.6, 12.9, 0.01))
        return make_report([replace(made, levels=repeats, searches=(found,))]).headline.reasons[-1]

    assert "3 repeats in one engine run" in sure(1)
    assert "3 engine runs" in sure(3)


def test_levels_without_numbers_are_listed_all_the_same():
    empty = replace(invalid(level(next(loads("scaling", (8,))))), measured=None, engine=None)
    report = make_report([replace(small(), levels=(empty,), searches=())])
    sensors = {"power_w", "power_w_max", "clock_mhz", "clock_mhz_min", "client_ttft_error"}
    assert closed(report).points[0].values.keys() <= sensors
    assert report.headline.verdict == "no result"


def test_the_workload_that_was_requested_for_comes_first():
    report = make_report([bench("A", steps=STEPS)])
    assert [work.name for work in report.workloads] == [BLOG.name, "long-context"]
    assert to_document(report)["schema"] == "apiary.report/v1"


def test_two_searches_are_both_told():
    """The streams' rate ranks, as in a comparison; that of random arrivals stands beside it."""
    one = bench("DP2/TP4/EP4", DP2)
    rate = Interval(3, 9.5, 9.2, 9.8)
    arrivals = SearchResult(
        BLOG.name, "request_rate", 9.6, 9.8, rate, 9, edge=Interval(3, 9.6, 9.4, 9.9)
    )
    both = replace(
        one, requested=replace(one.requested, search_by="both"), searches=(*one.searches, arrivals)
    )
    told = make_report([both]).headline
    assert "of random arrivals" in told.text
    assert "9.50 (9.20 to 9.80) requests/s" in told.text
    none = replace(one.searches[0], best=None, request_rate=None, edge=None)
    rest = make_report([replace(both, searches=(none, arrivals))]).headline
    assert (rest.verdict, rest.best) == ("measured", 0)
    assert "holds 9.50 (9.20 to 9.80) requests/s under the SLO of random arrivals" in rest.text
    (row,) = [reason for reason in told.reasons if reason.startswith("DP2")]
    assert (
        "9.60 requests/s (9.40 to 9.90, 3 engine runs) of random arrivals; 9.80 requests/s" in row
    )
