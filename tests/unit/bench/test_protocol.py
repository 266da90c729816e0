# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which levels a benchmark measures, and what it concludes from them."""

from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.ledger import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.protocol import protocol
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    EngineUse,
    Requested,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.workloads import (
    concurrency_of,
    workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic, play

EVERY = ("baseline", "scaling", "slo", "stress", "saturation", "open", "soak")


def requested(*phases, **more):
    more.setdefault("search_by", "concurrency")
    return Requested(WORKLOAD, slo=SLO, phases=phases, **more)


def sizes(engine, phase):
    return [load.concurrency for load in engine.loads if load.phase == phase]


def codes(outcome):
    return [finding.code for finding in outcome.findings]


def test_a_whole_run_measures_every_phase_in_order_and_nothing_twice():
    engine = Analytic(slots=200)
    outcome = play(protocol(requested(*EVERY, stress=(Workload("4000/100", 4000, 100),))), engine)

    assert list(dict.fromkeys(load.phase for load in engine.loads)) == ["warmup", *EVERY]
    assert len({load.key for load in engine.loads}) == len(engine.loads)
    assert len({load.seed for load in engine.loads}) == len(engine.loads)
    # The edge is repeated; no other closed load is.
    found = outcome.searches[0]
    measured = Counter(
        (load.workload.name, load.concurrency)
        for load in engine.loads
        if load.concurrency and load.phase not in ("warmup", "soak")
    )
    repeated = {slots for (name, slots), times in measured.items() if times > 1}
    assert {found.best, found.fails} <= repeated
    assert all(abs(slots - found.best) <= 0.3 * found.best for slots in repeated)


def test_every_closed_level_has_ten_requests_a_slot_and_its_own_warm_up():
    engine = Analytic(slots=200)
    play(protocol(requested(*EVERY)), engine)

    closed = [load for load in engine.loads if load.concurrency]
    assert all(load.requests >= 10 * load.concurrency for load in closed)
    assert all(load.warmups == load.concurrency for load in closed)
    at_least = [load for load in closed if load.phase not in ("warmup", "baseline")]
    assert min(load.requests for load in at_least) == 200
    opened = [load for load in engine.loads if load.request_rate]
    assert all(load.requests >= max(200, 60 * load.request_rate - 1) for load in opened)
    assert all(load.warmups >= 1 for load in opened)


def test_the_baseline_is_of_the_same_lengths_and_serves_as_the_first_level():
    engine = Analytic(slots=64)
    play(protocol(requested("baseline", "scaling", "saturation")), engine)

    (baseline,) = [load for load in engine.loads if load.phase == "baseline"]
    assert (baseline.workload, baseline.concurrency, baseline.requests) == (WORKLOAD, 1, 200)
    assert sizes(engine, "scaling") == [2, 4, 8, 16, 32, 64, 128, 256]


def test_warm_up_repeats_until_medians_agree():
    class Cold(Analytic):
        def level(self, load):
            cold = 3 - len(self.loads) if len(self.loads) < 3 else 0
            level = super().level(load)
            warm = level.measured.e2el
            slow = replace(warm, p50=warm.p50 * (1 + cold))
            return replace(level, measured=replace(level.measured, e2el=slow))

    engine = Cold()
    outcome = play(protocol(requested("baseline")), engine)

    warmups = [load for load in engine.loads if load.phase == "warmup"]
    assert [load.repeat for load in warmups] == [0, 1, 2, 3, 4]
    assert all(load.requests == 10 * load.concurrency for load in warmups)
    assert codes(outcome) == []


def test_an_engine_that_never_gets_warm_is_measured_with_a_warning():
    class Drifting(Analytic):
        def level(self, load):
            level = super().level(load)
            slow = replace(level.measured.e2el, p50=2.0 ** len(self.loads))
            return replace(level, measured=replace(level.measured, e2el=slow))

    engine = Drifting()
    outcome = play(protocol(requested("baseline")), engine)

    assert sizes(engine, "warmup") == [8] * 6
    assert sizes(engine, "baseline") == [1]
    assert codes(outcome) == ["BENCH-WARMUP"]


def test_scaling_measures_what_is_listed():
    engine = Analytic()
    play(protocol(requested("scaling", concurrency=(5, 10, 400))), engine)

    assert sizes(engine, "scaling") == [5, 10, 400]


def test_scaling_ends_when_the_limits_are_left_behind():
    engine = Analytic()
    play(protocol(requested("scaling")), engine)

    assert engine.limit() == pytest.approx(100)
    assert sizes(engine, "scaling") == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_scaling_ends_at_the_most_that_was_requested():
    engine = Analytic(slope=0)
    play(protocol(requested("scaling", most=100)), engine)

    assert sizes(engine, "scaling")[-2:] == [64, 100]


def test_saturation_is_where_two_steps_gain_nothing():
    engine = Analytic(slope=0.00001, slots=64)
    outcome = play(protocol(requested("baseline", "scaling", "saturation")), engine)

    (saturation,) = outcome.saturation
    assert (saturation.concurrency, saturation.verified) == (64, True)
    assert saturation.request_rate == pytest.approx(engine.closed_rate(64, 50))
    assert "+0.0% at 128" in saturation.reason
    assert max(sizes(engine, "scaling") + sizes(engine, "saturation")) == 256


def test_one_flat_step_is_no_saturation():
    class Bump(Analytic):
        def closed_rate(self, slots, tokens):
            return super().closed_rate(16 if slots == 32 else slots, tokens)

    engine = Bump(slope=0, slo=())
    outcome = play(
        protocol(Requested(WORKLOAD, phases=("scaling", "saturation"), most=256)),
        engine,
    )

    assert outcome.saturation[0].concurrency is None
    assert outcome.saturation[0].reason == "not seen up to 256 concurrent requests"
    assert codes(outcome) == ["BENCH-NOT-SATURATED"]


def test_saturation_goes_on_where_listed_levels_end():
    engine = Analytic(slope=0.00001, slots=60)
    outcome = play(protocol(requested("scaling", "saturation", concurrency=(10, 20, 30))), engine)

    assert sizes(engine, "saturation") == [60, 120, 240]
    assert outcome.saturation[0].concurrency == 60


def test_a_client_that_ends_first_is_not_taken_for_the_engine():
    # The study's mistake: above 32 the levels do not reach their concurrency.
    engine = Analytic(
        slope=0,
        slots=32,
        invalid=lambda load: (load.concurrency or 0) > 32 and "BENCH-CONCURRENCY",
    )
    outcome = play(protocol(requested("scaling", "saturation")), engine)

    (saturation,) = outcome.saturation
    assert (saturation.concurrency, saturation.verified) == (None, False)
    assert "BENCH-PHASE-ENDED" in codes(outcome)


@pytest.mark.parametrize("use", [{"kv_usage": lambda load: 0.97 if load.concurrency > 16 else 0.5}])
def test_a_full_kv_cache_is_saturation(use):
    outcome = play(protocol(requested("scaling", "saturation")), Analytic(slope=0, **use))

    assert outcome.saturation[0].concurrency == 32
    assert outcome.saturation[0].reason == "KV cache 97% full"


def test_a_queue_is_saturation_at_the_lowest_level_with_that_rate():
    class Queueing(Analytic):
        def closed_rate(self, slots, tokens):
            return super().closed_rate(slots, tokens) * (1 + 0.0001 * slots)

        def level(self, load):
            level = super().level(load)
            waits = level.measured.e2el.mean * max(0, 1 - self.slots / (load.concurrency or 1))
            return replace(level, engine=EngineUse(queue_seconds_mean=waits))

    engine = Queueing(slope=0, slots=96)
    outcome = play(protocol(requested("scaling", "saturation")), engine)

    # 128 fill all 96 slots; at 256 most of the time is waiting.
    assert outcome.saturation[0].concurrency == 128
    assert outcome.saturation[0].reason.endswith("spent in the engine's queue, seen at 256")
    assert max(sizes(engine, "scaling")) == 256


def test_an_invalid_level_is_measured_once_more_for_longer():
    engine = Analytic(
        slots=32,
        invalid=lambda load: load.concurrency == 16 and load.requests < 400 and "BENCH-CONCURRENCY",
    )
    outcome = play(protocol(requested("scaling", "saturation")), engine)

    tries = [(load.requests, load.warmups) for load in engine.loads if load.concurrency == 16]
    assert tries == [(200, 16), (400, 32)]
    assert outcome.saturation[0].verified
    assert codes(outcome) == []


def test_what_more_requests_cannot_heal_is_not_repeated():
    engine = Analytic(invalid=lambda load: load.concurrency == 16 and "BENCH-LENGTHS")
    outcome = play(protocol(requested("scaling")), engine)

    assert sizes(engine, "scaling") == [1, 2, 4, 8, 16]
    assert "INVALID (BENCH-LENGTHS)" in outcome.findings[0].message


def test_a_level_that_fails_ends_its_phase_when_the_engine_engine_runs_on():
    engine = Analytic(failed=lambda load: (load.concurrency or 0) >= 64)
    outcome = play(protocol(requested("scaling", "slo")), engine)

    # After each failure a small load shows that the engine still answers.
    after = [
        b.phase
        for a, b in zip(engine.loads, engine.loads[1:], strict=False)
        if (a.concurrency or 0) >= 64
    ]
    assert set(after) == {"warmup"}
    assert (outcome.searches[0].best, outcome.searches[0].fails) == (63, 64)


def test_a_dead_engine_ends_the_run_and_nothing_is_concluded_from_its_silence():
    engine = Analytic(crash=64)
    outcome = play(protocol(requested("baseline", "scaling", "slo", "saturation")), engine)

    assert engine.loads[-1].phase == "warmup"
    assert outcome.searches == ()
    assert not outcome.saturation[0].verified
    assert codes(outcome) == ["BENCH-ENGINE-GONE"]
    assert "scaling-100x50-c128" in outcome.findings[0].message


def test_an_engine_that_does_not_answer_at_all_is_one_finding():
    engine = Analytic(dead=True)
    outcome = play(protocol(requested(*EVERY)), engine)

    assert len(engine.loads) == 1
    assert codes(outcome) == ["BENCH-ENGINE-GONE"]


def test_open_loop_is_at_shares_of_the_rate_at_the_slo():
    engine = Analytic()
    outcome = play(protocol(requested("scaling", "slo", "open")), engine)

    rate = outcome.searches[0].request_rate.mean
    rates = [load.request_rate for load in engine.loads if load.phase == "open"]
    assert rates == [pytest.approx(share * rate, rel=1e-3) for share in (0.5, 0.8, 0.95)]
    # Half as many again as a closed loop of that rate has are in flight: so many warm it.
    opened = [load for load in engine.loads if load.phase == "open"]
    for load in opened:
        truth = engine.in_flight(load.request_rate, 50)
        assert truth <= load.warmups <= 3 * truth
        assert load.requests >= 10 * load.warmups


def test_a_rate_beyond_all_levels_is_not_given_the_most_requests():
    engine = Analytic(slope=0, slots=32)
    requested_for = requested("scaling", "open", concurrency=(16, 32, 512), request_rate=(1000.0,))
    play(protocol(requested_for, rules(open_seconds=0)), engine)

    assert engine.loads[-1].request_rate == 1000
    assert engine.loads[-1].requests == 10 * 48


def test_open_loop_without_limits_is_at_shares_of_the_highest_rate():
    engine = Analytic(slope=0, slots=64)
    play(protocol(Requested(WORKLOAD, phases=("scaling", "open"))), engine)

    rates = [load.request_rate for load in engine.loads if load.phase == "open"]
    assert rates[1] == pytest.approx(0.8 * engine.closed_rate(64, 50), rel=1e-3)


def test_fixed_loads_are_measured_as_often_as_requested():
    engine = Analytic()
    play(protocol(requested("fixed", concurrency=(8,), request_rate=(2.5,), repeats=3)), engine)

    fixed = [(load.concurrency, load.request_rate, load.repeat) for load in engine.loads[2:]]
    assert fixed == [(8, None, 0), (8, None, 1), (8, None, 2)] + [
        (None, 2.5, repeat) for repeat in range(3)
    ]


def test_stress_workloads_are_measured_at_a_load_that_the_main_one_keeps():
    engine = Analytic(slope=0.001)
    long = Workload("8000/100", 8000, 100)
    play(protocol(requested("scaling", "slo", "stress", stress=(long,))), engine)

    (stress,) = [load for load in engine.loads if load.phase == "stress"]
    assert (stress.workload, stress.concurrency) == (long, 30)


def test_a_soak_that_gets_slower_is_told():
    class Leaking(Analytic):
        def level(self, load):
            level = super().level(load)
            if load.phase != "soak":
                return level
            rate = level.measured.request_rate * (1 - 0.03 * load.repeat)
            return replace(level, measured=replace(level.measured, request_rate=rate))

    engine = Leaking()
    outcome = play(protocol(requested("scaling", "soak", soak_seconds=3000)), engine)

    soak = [load for load in engine.loads if load.phase == "soak"]
    assert len(soak) == 5
    rate = engine.closed_rate(soak[0].concurrency, 50)
    assert sum(load.requests for load in soak) / rate == pytest.approx(3000, rel=0.02)
    assert codes(outcome) == ["BENCH-SOAK-DRIFT"]


def test_without_limits_there_is_no_search():
    outcome = play(protocol(Requested(WORKLOAD, phases=("slo",))), Analytic())

    assert outcome.searches == ()
    assert codes(outcome) == ["BENCH-SLO-NOT-ASKED"]


def test_each_engine_run_repeats_the_phases_from_the_edge_of_the_one_before():
    engine = Analytic(slots=200)
    outcome = play(
        protocol(requested("baseline", "scaling", "slo", "saturation", engine_runs=3)), engine
    )

    engine_runs = Counter(load.engine_run for load in engine.loads)
    assert set(engine_runs) == {0, 1, 2}
    searched = Counter(load.engine_run for load in engine.loads if load.phase == "slo")
    assert searched[1] < searched[0]
    assert outcome.searches[0].request_rate.n == 3
    assert len({load.seed for load in engine.loads}) == len(engine.loads)


def test_a_short_lab_run_keeps_ten_requests_a_slot():
    engine = Analytic(slots=64)
    play(protocol(requested("scaling"), rules(requests_least=10)), engine)

    assert all(load.requests == 10 * load.concurrency for load in engine.loads)


def test_the_baseline_of_a_short_run_is_as_short():
    engine = Analytic(slots=64)
    play(protocol(requested("baseline"), rules(requests_least=20)), engine)
    assert [load.requests for load in engine.loads if load.phase == "baseline"] == [20]


@pytest.mark.parametrize(
    ("most", "text"), [(0, "it was not checked"), (1, "it was not checked"), (2, "still changed")]
)
def test_a_warm_up_that_cannot_settle_is_told_as_what_it_is(most, text):
    outcome = play(
        protocol(requested("baseline"), rules(warmup_most=most, warmup_agree=0)), Analytic()
    )
    (told,) = [finding for finding in outcome.findings if finding.code == "BENCH-WARMUP"]
    assert text in told.message


@pytest.mark.parametrize(
    ("name", "value"),
    [("gain_step", 1), ("grow", 1), ("heal_factor", 1), ("gain", float("nan")), ("band", -1),
     ("open_room", float("inf"))],
)  # fmt: skip
def test_numbers_without_an_end_are_refused(name, value):
    with pytest.raises(ApiaryError, match=f"BENCH-RULES: {name}"):
        rules(**{name: value})


def test_saturation_grows_from_one_however_small_its_step():
    engine = Analytic(slots=4)
    play(protocol(requested("saturation", most=16), rules(gain_step=1.1)), engine)
    assert sizes(engine, "saturation")[:3] == [1, 2, 3]


def test_stress_without_other_phases_has_a_load_of_its_own():
    engine = Analytic()
    own, other = workload("4k"), Workload("8000/100", 8000, 100)
    play(protocol(requested("stress", stress=(own, other), concurrency=(2, 40))), engine)
    stress = [load.concurrency for load in engine.loads if load.phase == "stress"]
    assert stress == [concurrency_of("4k"), 40]

    small = Analytic()
    play(protocol(requested("stress", stress=(own,), most=4)), small)
    assert sizes(small, "stress") == [4]


def test_a_soak_by_itself_lasts_as_long_as_was_requested():
    engine = Analytic()
    play(protocol(requested("soak", soak_seconds=3000, concurrency=(8,))), engine)

    soak = [load for load in engine.loads if load.phase == "soak"]
    assert {load.concurrency for load in soak} == {8}
    rate = engine.closed_rate(8, 50)
    assert sum(load.requests for load in soak) / rate == pytest.approx(3000, rel=0.02)


def test_fewer_than_ten_requests_a_slot_are_refused():
    with pytest.raises(ApiaryError, match="BENCH-RULES"):
        rules(requests_per_concurrency=9)


def test_equal_questions_ask_equal_loads():
    first, second = Analytic(noise=0.02), Analytic(noise=0.02)
    play(protocol(requested(*EVERY)), first)
    play(protocol(requested(*EVERY)), second)

    assert first.loads == second.loads
