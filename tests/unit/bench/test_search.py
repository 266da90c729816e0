# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SLO search against engines whose edge is known."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.ledger import (
    by_size,
    mean_rate,
    rules,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.protocol import protocol
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.search import (
    Edge,
    conclude,
    edge,
    keeps,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Requested
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.words import found_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic, play

PHASES = ("baseline", "scaling", "slo")


def search(engine, **more):
    """Return what a search of an engine found, and the codes that came with it."""
    more.setdefault("search_by", "concurrency")
    requested = Requested(WORKLOAD, slo=engine.slo, phases=more.pop("phases", PHASES), **more)
    outcome = play(protocol(requested), engine)
    (found,) = outcome.searches or (None,)
    return found, [finding.code for finding in outcome.findings]


@pytest.mark.parametrize("slope", [0.0001, 0.0002999, 0.00077, 0.0031, 0.011])
def test_the_edge_is_found_to_the_resolution(slope):
    engine = Analytic(slope=slope)
    found, codes = search(engine)

    assert found.best <= engine.limit() < found.fails
    assert found.fails - found.best <= max(1, 0.02 * found.best)
    assert found.missed == SLO
    assert codes == []


def test_the_edge_carries_the_rate_with_its_interval():
    engine = Analytic(slope=0.0002, noise=0.005)
    found, _ = search(engine)

    rate = found.request_rate
    assert rate.n >= 3
    assert rate.low < rate.mean < rate.high
    assert rate.mean == pytest.approx(engine.closed_rate(150, 50), rel=0.05)


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_interval_of_one_engine_run_holds_the_true_rate(seed):
    # Noise of the edge, not of the rate: repeats at one size are far closer than its place.
    engine = Analytic(base=0.01, slope=0.0002, noise=0.01)
    found, _ = search(engine, seed=seed)

    truth = engine.closed_rate(engine.limit(), 50)
    assert found.request_rate.low <= truth <= found.request_rate.high
    assert found.request_rate.high <= 1.1 * found.request_rate.low


@pytest.mark.parametrize("seed", range(1, 21))
def test_noise_moves_the_edge_by_less_than_five_per_cent(seed):
    # Times of 1 % deviation, as equal runs have: a step costs 0.2 % a slot at the edge.
    engine = Analytic(base=0.01, slope=0.0002, noise=0.01)
    found, codes = search(engine, seed=seed)

    assert found.best == pytest.approx(engine.limit(), rel=0.05)
    assert "BENCH-SLO-UNFINISHED" not in codes


def test_a_level_far_from_the_limit_is_measured_once():
    engine = Analytic(slope=0.0003)
    search(engine)

    far = [load for load in engine.loads if load.concurrency in (1, 2, 4, 16, 32)]
    assert len(far) == 5


def test_one_bad_measurement_near_the_edge_does_not_decide():
    class Hiccup(Analytic):
        def level(self, load):
            self.base = 0.03 if load.concurrency == 96 and load.repeat == 0 else 0.02
            return super().level(load)

    engine = Hiccup(slope=0.0003)
    found, _ = search(engine)

    assert found.best in (99, 100)
    assert max(load.repeat for load in engine.loads if load.concurrency == 96) >= 1


def test_nothing_meets_the_limits():
    engine = Analytic(base=0.06)
    found, codes = search(engine)

    assert (found.best, found.fails, found.request_rate) == (None, 1, None)
    assert found.missed == SLO
    assert codes == ["BENCH-SLO-NONE"]


def test_everything_meets_the_limits_up_to_the_most_that_was_requested():
    engine = Analytic(slope=0)
    found, codes = search(engine, most=64)

    assert (found.best, found.fails) == (64, None)
    assert found.request_rate.n == 3
    assert codes == ["BENCH-SLO-CEILING"]


def test_the_remedy_names_the_option_that_was_the_ceiling():
    for more, option in (({}, "--most"), ({"concurrency": (1, 8)}, "--concurrency")):
        question = Requested(
            WORKLOAD, slo=SLO, phases=PHASES, most=8, search_by="concurrency", **more
        )
        outcome = play(protocol(question), Analytic(slope=0))
        (told,) = [one for one in outcome.findings if one.code == "BENCH-SLO-CEILING"]
        assert option in told.remedy


def test_listed_levels_that_all_miss_are_searched_below():
    engine = Analytic(slope=0.01)
    found, _ = search(engine, concurrency=(50, 100), phases=("scaling", "slo"))

    assert (found.best, found.fails) == (3, 4)


def test_a_quick_search_measures_each_size_once():
    engine = Analytic(slope=0.0003)
    requested = Requested(WORKLOAD, slo=SLO, phases=("slo",), search_by="concurrency")
    (found,) = play(protocol(requested, rules(resolution=0.1, edge_repeats=1)), engine).searches

    assert found.best <= engine.limit() < found.fails <= 1.1 * found.best + 1
    assert {load.repeat for load in engine.loads if load.phase == "slo"} == {0}


def test_the_search_goes_alone():
    engine = Analytic(slope=0.0003)
    found, codes = search(engine, phases=("slo",))

    assert found.best in (99, 100)
    assert codes == []


def test_a_lower_level_that_misses_counts_although_a_higher_one_keeps():
    class Dip(Analytic):
        def step(self, slots):
            return 0.06 if 30 <= slots <= 40 else super().step(slots)

    engine = Dip(slope=0.0003)
    found, codes = search(engine)

    assert (found.best, found.fails) == (29, 30)
    assert codes == ["BENCH-SLO-ORDER"]


def test_an_invalid_level_ends_the_search_and_nothing_is_found():
    engine = Analytic(slope=0.0003, invalid=lambda load: load.concurrency == 96)
    found, codes = search(engine)

    assert found is None
    assert codes == ["BENCH-SLO-UNFINISHED"]


def test_noise_that_never_settles_ends():
    engine = Analytic(base=0.03, slope=0.00001, noise=0.5)
    search(engine, seed=3)

    assert len([load for load in engine.loads if load.phase == "slo"]) <= 60


@pytest.mark.parametrize("known", [PHASES, ("slo",)])
@pytest.mark.parametrize("slope", [0.0002, 0.0003, 0.001])
def test_an_open_loop_is_searched_by_its_rate(known, slope):
    engine = Analytic(slope=slope, slots=1000)
    truth = engine.closed_rate(engine.limit(), 50)
    found, codes = search(engine, search_by="request_rate", phases=known)

    assert found.by == "request_rate"
    assert found.best <= truth < found.fails
    assert found.fails - found.best <= 0.02 * found.best + 1e-9
    assert codes == []


def test_an_open_loop_whose_least_rate_misses():
    found, codes = search(Analytic(base=0.06), search_by="request_rate", phases=("slo",))

    assert found.best is None
    assert codes == ["BENCH-SLO-NONE"]


def test_of_several_limits_the_first_to_break_counts():
    slo = (Limit("tpot", "p90", 0.05), Limit("ttft", "p90", 0.5))
    engine = Analytic(slope=0.0003, slots=48, slo=slo)
    found, _ = search(engine)

    # Above 48 slots requests wait, and the wait soon exceeds the limit of ttft.
    wait = 0.4 * engine.closed_rate(48, 50)
    assert found.best == pytest.approx(48 + wait, abs=1)
    assert found.missed == (slo[1],)


def test_engine_runs_each_find_their_own_edge():
    engine = Analytic(base=0.01, slope=0.0002, noise=0.01)
    requested = Requested(WORKLOAD, slo=SLO, phases=PHASES, engine_runs=3, search_by="concurrency")
    levels = []
    steps, load = protocol(requested), None
    try:
        load = next(steps)
        while True:
            levels.append(engine.level(load))
            load = steps.send(levels[-1])
    except StopIteration as end:
        found = end.value.searches[0]

    own = [
        [level for level in levels if level.load.engine_run == engine_run]
        for engine_run in range(3)
    ]
    bests = [edge(each, WORKLOAD.name, "concurrency").best for each in own]
    rates = [
        mean_rate(by_size(each, WORKLOAD.name, "concurrency")[best])
        for each, best in zip(own, bests, strict=True)
    ]
    assert found.request_rate.n == 3
    assert found.request_rate.mean == pytest.approx(sum(rates) / 3)
    assert found.best == sorted(bests)[1]
    assert found == conclude(levels, WORKLOAD.name, "concurrency")


def test_a_rate_that_cannot_be_sustained_misses_and_the_search_goes_on():
    # Above 40 in flight the queue only grows: invalid as a measurement, but certainly no OK.
    engine = Analytic(slope=0.0003)
    most = engine.closed_rate(40, 50)
    engine.invalid = lambda load: (load.request_rate or 0) > most and "BENCH-OVERLOAD"
    found, codes = search(engine, search_by="request_rate", phases=("slo",))

    assert found.best <= most < found.fails <= found.best * 1.021
    assert codes == []


def test_an_invalid_level_is_evidence_of_nothing():
    engine = Analytic()
    good = engine.level(Load("slo", WORKLOAD, 200, concurrency=8))
    bad = replace(good, status="INVALID")

    assert by_size([good, bad], WORKLOAD.name, "concurrency") == {8: (good,)}
    assert edge([bad], WORKLOAD.name, "concurrency") == Edge(None, None)


def test_a_level_that_a_longer_one_healed_is_counted_once():
    engine = Analytic(
        slope=0.0003,
        invalid=lambda load: (
            load.concurrency == 96 and load.requests == 960 and "BENCH-CONCURRENCY"
        ),
    )
    found, codes = search(engine)

    assert found.best in (99, 100)
    assert codes == []


@pytest.mark.parametrize(
    ("statuses", "kept"),
    [
        (["OK", "OK", "SLO_MISS"], True),
        (["SLO_MISS", "SLO_MISS", "OK"], False),
        (["SLO_MISS", "OK"], False),
        (["OK", "OK", "FAILED"], True),
        (["FAILED"], False),
    ],
)
def test_most_repeats_decide_and_a_tie_is_a_miss(statuses, kept):
    good = Analytic().level(Load("slo", WORKLOAD, 200, concurrency=8))

    assert keeps([replace(good, status=status) for status in statuses]) is kept


def test_a_level_near_the_limit_is_not_decided_by_one_measurement():
    engine = Analytic(slope=0.0003)
    search(engine)

    # 96 of 100 slots take 98 % of the limit: no edge in the end, but measured again.
    assert len([load for load in engine.loads if load.concurrency == 96]) == 2


def test_of_several_engine_runs_the_middle_edge_counts():
    levels = []
    for engine_run, slope in enumerate((0.006, 0.0018, 0.003)):
        engine = Analytic(slope=slope)
        for slots in (2, 4, 5, 8, 10, 11, 16, 17):
            levels.append(
                engine.level(Load("slo", WORKLOAD, 200, concurrency=slots, engine_run=engine_run))
            )
    found = conclude(levels, WORKLOAD.name, "concurrency")

    # The engine runs keep up to 5, 16 and 10.
    assert (found.best, found.fails) == (10, 11)
    assert found.request_rate.n == 3


def test_both_limits_are_searched_and_told():
    """The streams first; rates begin where they ended, and a level that serves both is one."""
    engine = Analytic(slope=0.0003, slots=1000)
    requested = Requested(WORKLOAD, slo=SLO, phases=("scaling", "slo", "open"), engine_runs=2)
    outcome = play(protocol(requested), engine)
    streams, arrivals = outcome.searches

    assert (streams.by, arrivals.by) == ("concurrency", "request_rate")
    assert streams.best <= engine.limit() < streams.fails
    assert arrivals.best <= engine.closed_rate(engine.limit(), 50) < arrivals.fails
    assert outcome.findings == ()
    for found in outcome.searches:
        assert found.edge.n == 2
        assert found.edge.low <= found.best <= found.edge.high
        assert " (" in found_text(found)
    # The second engine run starts from both edges of the first.
    first, second = (
        sum(one.engine_run == engine_run for one in engine.loads) for engine_run in (0, 1)
    )
    assert second < first
    assert len({load.key for load in engine.loads}) == len(engine.loads)
    # The open loop's shares are of what random arrivals were served.
    shares = [load.request_rate for load in engine.loads if load.phase == "open"]
    assert max(shares) < arrivals.best


def test_of_one_engine_run_the_edge_lies_between_what_surely_kept_and_what_surely_broke():
    found, _ = search(Analytic(slope=0.0003))
    assert (found.edge.n, found.edge.mean) == (1, found.best)
    assert found.edge.low <= found.best < found.edge.high == found.fails


def test_no_edge_is_told_as_such():
    found, _ = search(Analytic(base=0.06))
    assert found.edge is None
    assert found_text(found).endswith("no level kept the SLO")
