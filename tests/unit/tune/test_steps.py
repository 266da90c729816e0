# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a tuning in worlds whose best configuration is known."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import (
    routers_limits,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome

from support.bench.tuned import SLO, World, begun, carried_out, saved

RATES = {"dp4-tp1": 10.0, "dp2-tp2": 7.0, "current": 8.0}


def rates(known=None, otherwise=5.0):
    table = RATES if known is None else known
    return lambda name: table.get(name, otherwise)


def failing(*names, cause="HIP out of memory"):
    """A world's events in which the engine of some candidates does not live."""
    return lambda trial: Outcome("failed", cause=cause) if trial.candidate in names else None


def kinds(state, candidate=None):
    return [one.kind for one in state.trials if candidate in (None, one.candidate)]


def test_the_best_layout_wins_and_a_repeat_confirms_it():
    made = carried_out(begun(), World(rates())).choice
    assert (made.candidate, made.verdict, made.confirmed) == ("dp4-tp1", "better", True)
    assert made.repeat.ratio == pytest.approx(10 / 8, rel=0.05)
    assert made.score.mean == pytest.approx(10, rel=0.03)
    assert "better, +2" in made.reason


def test_routers_get_the_limits_of_what_serves_from_now_on():
    """40 at once on the winner's host of four replicas; 10 of each, the noise aside."""
    assert routers_limits(begun()) == {}
    state = carried_out(begun(), World(rates(), noise=0))
    name = state.requested.deployment.name
    limits = {"within_slo": {name: 10}, "ttft_seconds": {name: 2.0}}
    assert routers_limits(state) == {"router_queueing": limits}
    assert f"within_slo: {{{name}: 10}}" in "\n".join(summary(state))
    # The current one, one engine of four GPUs, stays.
    same = routers_limits(carried_out(begun(slo=SLO[1:]), World(lambda name: 8.0, noise=0)))
    assert same == {"router_queueing": {"within_slo": {name: 32}}}
    fixed = World(rates(), events=lambda trial: Outcome("measured", Interval(3, 1.0)))
    assert routers_limits(carried_out(begun(), fixed)) == {}


def test_equal_configurations_end_without_a_difference_and_the_current_one_stays():
    made = carried_out(begun(), World(lambda name: 8.0)).choice
    assert (made.candidate, made.verdict) == ("current", "no difference found")
    assert "stays" in made.reason


def test_a_current_configuration_that_is_best_stays():
    made = carried_out(begun(), World(rates({"current": 10.0}))).choice
    assert (made.candidate, made.verdict) == ("current", "current is best")


def test_a_gain_below_what_a_restart_moves_is_no_difference():
    made = carried_out(begun(), World(rates({"current": 8.0, "dp4-tp1": 8.1}), 0.001)).choice
    assert (made.candidate, made.verdict) == ("current", "no difference found")


def test_what_cannot_win_is_dropped_after_one_short_trial():
    state = carried_out(begun(), World(rates()))
    assert kinds(state, "dp3-tp1") == ["short"]
    assert kinds(state, "tp2-tp1-tp1") == ["short"]
    (first,) = [one for one in state.rounds if one.kind == "short"]
    reasons = {one.candidate: one.reason for one in first.dropped}
    assert "below" in reasons["dp3-tp1"]


def test_fewer_full_measurements_than_trying_everything():
    state = carried_out(begun(), World(rates()))
    full = [one for one in state.trials if one.kind in ("final", "confirm")]
    exhaustive = len(state.candidates) * (state.requested.budget.engine_runs + 3)
    assert len(full) < exhaustive / 2
    assert len(state.trials) < exhaustive


def test_finals_take_turns_on_one_host():
    state = carried_out(begun(hosts=("a", "b")), World(rates()), ("a", "b"))
    finals = [one for one in state.trials if one.kind == "final"]
    assert len({one.host for one in finals}) == 1
    names = [one.candidate for one in finals]
    assert names == names[:2] * 3
    assert len(set(names)) == 2


def test_a_crash_marks_the_candidate_with_its_cause_and_blocks_nothing():
    state = carried_out(begun(), World(rates(), events=failing("dp4-tp1")))
    assert state.choice.candidate == "current"
    assert len(kinds(state, "dp4-tp1")) == 1  # it is no host's fault: no second attempt
    assert any("HIP out of memory" in line for line in summary(state))


def test_a_crash_in_the_finals_ends_the_candidate_there():
    def event(trial):
        crashed = trial.kind == "final" and trial.candidate == "dp4-tp1" and trial.engine_run == 1
        return Outcome("failed", cause="hung") if crashed else None

    made = carried_out(begun(), World(rates(), events=event)).choice
    assert made.candidate == "current"
    assert "dp4-tp1" not in [one.candidate for one in made.comparisons]


def test_a_current_configuration_that_crashes_is_replaced():
    made = carried_out(begun(), World(rates(), events=failing("current"))).choice
    assert made.candidate == "dp4-tp1"
    assert made.current is None


@pytest.mark.parametrize("kind", ["final", "confirm"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_control_that_fails_once_makes_no_slower_one_better(kind, lasting):
    def fails(trial):
        here = (trial.kind, trial.candidate, trial.engine_run) == (kind, "current", 2)
        return Outcome("failed", cause="boom") if here and (lasting or not trial.attempt) else None

    state = carried_out(begun(), World(rates({"current": 10.0}), events=fails))
    assert state.choice.candidate == (None if lasting else "current")
    assert state.choice.verdict != "better"
    # A faster one is, where the control does not live.
    faster = carried_out(begun(), World(rates(), events=fails)).choice
    assert (faster.candidate, faster.verdict) == ("dp4-tp1", "better")


def test_a_repeat_that_measured_nothing_confirms_nothing():
    def fails(trial):
        gone = trial.kind == "confirm" and trial.candidate != "current"
        return Outcome("failed", cause="boom") if gone else None

    for table in ({"current": 8.0, "dp4-tp1": 8.2, "dp2-tp2": 8.1}, {**RATES, "dp2-tp2": 9.9}):
        made = carried_out(begun(), World(rates(table), events=fails)).choice
        assert made.candidate == "current"
        assert not made.confirmed


@pytest.mark.parametrize(
    "budget",
    [{"engine_runs": 1}, {"confirm_engine_runs": 1}, {"confirm_engine_runs": -1}, {"repeats": 0}],
)
def test_one_engine_run_compares_nothing(budget):
    with pytest.raises(ApiaryError) as refusal:
        begun(budget=budget)
    assert refusal.value.findings[0].code == "TRIAL-BUDGET"


def test_where_every_engine_crashes_nothing_is_chosen():
    state = begun(knobs={"limits.max_num_seqs": (64,)})
    names = [one.id for one in state.candidates]
    done = carried_out(state, World(rates(), events=failing(*names)))
    assert (done.choice.candidate, done.choice.verdict) == (None, "nothing measured")
    assert any(one.label == "other values of limits.max_num_seqs" for one in done.not_tried)


def test_a_lost_host_is_tried_again_and_on_another_host_if_there_is_one():
    def event(trial):
        lost = trial.kind == "short" and trial.candidate == "dp4-tp1" and trial.attempt == 0
        return Outcome("lost", cause="unreachable") if lost else None

    state = carried_out(begun(hosts=("a", "b")), World(rates(), events=event), ("a", "b"))
    first, again = [
        one for one in state.trials if one.kind == "short" and one.candidate == "dp4-tp1"
    ]
    assert (first.outcome.status, again.outcome.status) == ("lost", "measured")
    assert first.host != again.host
    assert state.choice.candidate == "dp4-tp1"


def test_what_is_lost_twice_is_given_up_and_said():
    def event(trial):
        return Outcome("lost", cause="no route") if trial.candidate == "dp4-tp1" else None

    state = carried_out(begun(), World(rates(), events=event))
    assert kinds(state, "dp4-tp1") == ["short", "short"]
    assert any("not measured in 2 attempts: no route" in line for line in summary(state))


def test_a_current_configuration_that_is_lost_stays_because_nothing_was_shown():
    def event(trial):
        lost = trial.kind == "final" and trial.candidate == "current"
        return Outcome("lost", cause="no route") if lost else None

    made = carried_out(begun(), World(rates(), events=event)).choice
    assert (made.candidate, made.verdict) == (None, "nothing measured")
    assert "stays" in made.reason


def test_an_invalid_measurement_is_not_the_candidates_fault():
    def event(trial):
        invalid = trial.candidate == "dp4-tp1" and trial.attempt == 0
        return Outcome("invalid", summary="BENCH-CLIENT: too slow") if invalid else None

    assert carried_out(begun(), World(rates(), events=event)).choice.candidate == "dp4-tp1"


def test_a_gain_that_does_not_come_again_is_no_gain():
    """The finals saw dp4-tp1 on a lucky day."""

    def event(trial):
        if trial.candidate == "dp4-tp1" and trial.kind != "confirm":
            return Outcome("measured", Interval(1, 10 + trial.engine_run / 10), 10.2)
        return None

    state = carried_out(begun(), World(rates({"current": 8.0, "dp4-tp1": 8.0}), events=event))
    made = state.choice
    assert (made.candidate, made.confirmed) == ("current", False)
    assert made.verdict == "no difference found"
    assert "did not come again" in made.reason


def test_a_configuration_that_never_keeps_the_slo_loses_to_one_that_does():
    def event(trial):
        return Outcome("measured", Interval(1, 0.0)) if trial.candidate == "current" else None

    made = carried_out(begun(), World(rates(), events=event)).choice
    assert (made.candidate, made.verdict) == ("dp4-tp1", "better")


def test_knobs_are_varied_around_the_best_layout_one_after_the_other():
    def rate(name):
        gain = 1.2 if "max-num-seqs-128" in name else 1.0
        gain *= 1.1 if "tokens-4096" in name else 1.0
        return RATES.get(name.partition("-max")[0], 5.0) * gain

    wanted = {"limits.max_num_seqs": (64, 128), "limits.max_num_batched_tokens": (4096, 8192)}
    state = carried_out(begun(knobs=wanted), World(rate, 0.01))
    changes = state.candidate(state.choice.candidate).changes
    assert changes == {
        "layout": {"tensor_parallel_size": 1, "replicas": 4, "expert_parallel": False},
        "limits.max_num_seqs": 128,
        "limits.max_num_batched_tokens": 4096,
    }
    tried = [one.label for one in state.candidates if one.stage.startswith("limits")]
    assert all(label.startswith("DP4/TP1") for label in tried)


def test_the_order_of_knobs_survives_a_sorted_document():
    wanted = {"limits.max_num_seqs": (64,), "engine.env.B": ("1",), "engine.env.A": ("1",)}
    state = begun(layouts=(), knobs=wanted)
    while state.choice is None:
        (trial,) = steps.assign(state, ("a",))
        state = saved(steps.record(state, trial, World(rates()).run(trial)))
    stages = [one.stage for one in state.rounds if one.kind == "short"]
    assert stages == ["limits.max_num_seqs", "engine.env.A", "engine.env.B"]


def test_what_one_after_the_other_leaves_out_is_said():
    wanted = {"limits.max_num_seqs": (64, 128), "limits.max_num_batched_tokens": (4096, 8192)}
    state = carried_out(begun(knobs=wanted), World(rates()))
    combinations = [one for one in state.not_tried if "combinations" in one.label]
    assert len(combinations) == 1
    assert "one after the other" in combinations[0].reason


def test_a_budget_ends_exploring_and_not_the_finals():
    state = begun(knobs={"limits.max_num_seqs": (64, 128)}, budget={"trials": 3})
    done = carried_out(state, World(rates()))
    exploring = [one for one in done.trials if one.kind in ("short", "longer")]
    assert len(exploring) == 3
    assert done.choice.candidate == "dp4-tp1"
    reasons = {one.label: one.reason for one in done.not_tried}
    assert reasons["DP3/TP1"] == "the budget of 3 trials is spent"
    assert reasons["other values of limits.max_num_seqs"] == "the budget of 3 trials is spent"


def test_a_budget_of_time_counts_what_trials_took():
    done = carried_out(begun(budget={"seconds": 100}), World(rates()))
    assert len([one for one in done.trials if one.kind == "short"]) == 2


def test_one_configuration_alone_is_said_to_be_alone():
    made = carried_out(begun(layouts=()), World(rates())).choice
    assert made.candidate == "current"
    assert "only configuration" in made.reason


def test_without_a_repeat_nothing_is_confirmed():
    made = carried_out(begun(budget={"confirm_engine_runs": 0}), World(rates())).choice
    assert (made.candidate, made.confirmed, made.repeat) == ("dp4-tp1", None, None)


def test_the_smallest_tuning_of_three_has_few_trials():
    state = begun(
        layouts=("DP4/TP1", "DP2/TP2"), budget={"engine_runs": 2, "confirm_engine_runs": 2}
    )
    done = carried_out(state, World(rates(), 0.001, events=failing("dp2-tp2")))
    assert kinds(done) == ["short"] * 3 + ["final"] * 4 + ["confirm"] * 4
    assert done.choice.candidate == "dp4-tp1"


def test_several_hosts_measure_the_same_first():
    state = begun(hosts=("a", "b", "c"))
    first = steps.assign(state, ("a", "b", "c"))
    assert [(one.kind, one.candidate, one.host) for one in first] == [
        ("alike", "current", "a"),
        ("alike", "current", "b"),
        ("alike", "current", "c"),
    ]


def test_hosts_within_the_band_measure_different_candidates_at_once():
    state = begun(hosts=("a", "b"))
    world = World(rates(), 0.0, hosts={"b": 0.97})
    for trial in steps.assign(state, ("a", "b")):
        state = steps.record(state, trial, world.run(trial))
    trials = steps.assign(state, ("a", "b"))
    assert [one.host for one in trials] == ["a", "b"]
    assert len({one.candidate for one in trials}) == 2


def test_a_host_outside_of_the_band_takes_no_part():
    world = World(rates(), 0.0, hosts={"c": 0.9})
    state = carried_out(begun(hosts=("a", "b", "c")), world, ("a", "b", "c"))
    assert [one.used for one in state.hosts] == [True, True, False]
    assert "the control measured 7.2" in state.hosts[2].reason
    assert {one.host for one in state.trials if one.kind != "alike"} == {"a", "b"}
    assert "TRIAL-HOSTS-DIFFER" in [one.code for one in state.findings]
    assert any("took no part" in line for line in summary(state))


def test_a_host_that_is_not_like_the_first_takes_no_part_from_the_start():
    other = Finding.from_fields(
        code="TRIAL-HOSTS-DIFFER",
        severity="warning",
        subject="b",
        message="another driver",
        remedy="",
        source=None,
    )
    state = begun((other,), hosts=("a", "b"))
    assert [one.used for one in state.hosts] == [True, False]
    assert [one.kind for one in steps.assign(state, ("a", "b"))] == ["short"]


def test_a_control_that_crashes_everywhere_is_replaced_by_the_next():
    state = carried_out(
        begun(hosts=("a", "b")), World(rates(), events=failing("current")), ("a", "b")
    )
    alike = [one.candidates for one in state.rounds if one.kind == "alike"]
    assert alike == [("current",), ("dp4-tp1",)]
    assert [one.used for one in state.hosts] == [True, True]
    assert state.choice.candidate == "dp4-tp1"


def test_a_host_where_the_control_fails_alone_is_left_out():
    def event(trial):
        return Outcome("failed", cause="RAS error") if trial.host == "b" else None

    state = carried_out(begun(hosts=("a", "b")), World(rates(), events=event), ("a", "b"))
    assert [one.used for one in state.hosts] == [True, False]
    assert "RAS error" in state.hosts[1].reason
    assert state.choice.candidate == "dp4-tp1"


def test_a_host_that_is_gone_when_a_run_goes_on_is_left_out():
    state = begun(hosts=("a", "b"))
    world = World(rates(), 0.0)
    (first,) = [one for one in steps.assign(state, ("a", "b")) if one.host == "a"]
    half = steps.record(state, first, world.run(first))
    # Until b has measured the control, nobody could go on.
    assert steps.assign(half, ("a",)) == ()
    left = steps.without(half, ("b", "stranger"))
    assert [one.used for one in left.hosts] == [True, False]
    assert [one.subject for one in left.findings if one.code == steps.GONE] == ["b"]
    assert steps.without(left, ("b",)) == left
    assert carried_out(left, world).choice.candidate == "dp4-tp1"
    assert any("host b took no part" in line for line in summary(left))
    with pytest.raises(ApiaryError, match="TRIAL-HOST-GONE"):
        steps.without(left, ("a", "b"))


def test_a_tuning_that_has_chosen_needs_no_host():
    made = carried_out(begun(), World(rates()))
    assert steps.without(made, ("a",)) == made


def test_a_host_that_is_lost_in_the_finals_gives_way_to_another():
    def event(trial):
        gone = trial.kind == "final" and trial.host == "a"
        return Outcome("lost", cause="no route") if gone else None

    state = carried_out(begun(hosts=("a", "b")), World(rates(), events=event), ("a", "b"))
    assert state.choice.candidate == "dp4-tp1"
    assert next(one for one in state.rounds if one.kind == "final").host == "b"


def test_a_trial_is_recorded_once():
    state = begun()
    (trial,) = steps.assign(state, ("a",))
    once = steps.record(state, trial, Outcome("measured", Interval(1, 5.0)))
    assert steps.record(once, trial, Outcome("failed")) == once


def test_nothing_is_assigned_to_strangers_or_after_the_choice():
    state = begun()
    assert steps.assign(state, ("z",)) == ()
    assert steps.assign(carried_out(state, World(rates())), ("a",)) == ()


def test_what_a_trial_measures_under_limits():
    state = begun(seed=7)
    (trial,) = steps.assign(state, ("a",))
    requested = steps.requested_of(state, trial)
    assert (requested.phases, requested.slo, requested.engine_runs) == (("slo",), SLO, 1)
    assert steps.rules_of(trial)["resolution"] > 0.02
    final = dataclasses.replace(trial, kind="final", engine_run=2)
    confirm = dataclasses.replace(final, kind="confirm")
    seeds = [steps.requested_of(state, one).seed for one in (trial, final, confirm)]
    assert seeds == [7, 9, 109]  # other prompts in each engine run, the same for each candidate


def test_what_a_trial_measures_without_limits():
    state = begun(slo=(), concurrency=32)
    (trial,) = steps.assign(state, ("a",))
    requested = steps.requested_of(state, trial)
    assert (requested.phases, requested.concurrency, requested.slo) == (("fixed",), (32,), ())


def test_the_budget_has_the_repeats_of_a_level_in_one_engine_run():
    (trial,) = steps.assign(begun(), ("a",))
    final = dataclasses.replace(trial, kind="final")
    assert steps.requested_of(begun(), final).repeats == 2
    assert steps.requested_of(begun(budget={"repeats": 1}), final).repeats == 1


def test_most_is_an_upper_bound_all_the_way():
    state = begun(knobs={"limits.max_num_seqs": (64, 128)})
    world, left = World(rates()), steps.most(begun(knobs={"limits.max_num_seqs": (64, 128)}))
    while state.choice is None:
        assert left > 0
        (trial,) = steps.assign(state, ("a",))
        state = steps.record(state, trial, world.run(trial))
        left -= 1
    assert steps.most(state) == 0


def test_a_lead_that_is_sure_goes_before_a_higher_one_that_is_not():
    def event(trial):
        if trial.candidate != "dp2-tp2" or trial.kind != "final":
            return None
        return Outcome("measured", Interval(1, (6.0, 10.5, 17.0)[trial.engine_run]))

    known = {"current": 8.0, "dp4-tp1": 10.0, "dp2-tp2": 10.1}
    made = carried_out(begun(), World(rates(known), 0.01, events=event)).choice
    assert (made.candidate, made.verdict, made.confirmed) == ("dp4-tp1", "better", True)
    verdicts = {one.candidate: one.verdict for one in made.comparisons}
    assert verdicts == {"dp2-tp2": "no difference found", "dp4-tp1": "better"}


def test_a_finished_tuning_says_what_how_sure_and_what_not():
    lines = summary(carried_out(begun(), World(rates())))
    assert lines[0] == "test: DP4/TP1 (better)"
    assert "  a repeat confirms it" in lines
    assert "  layout: {tensor_parallel_size: 1, replicas: 4, expert_parallel: false}" in lines
    (winner,) = [line for line in lines if line.startswith("  DP4/TP1  ")]
    assert winner.endswith(", final")
    (facts,) = [line for line in lines if line.startswith("  DP4/TP1: ") and "KV tokens" in line]
    assert "0 all-reduce hops a token" in facts
    assert any(line.endswith("[ENGINE-TP-HEADS]") for line in lines)


def test_an_unfinished_tuning_says_what_is_to_come():
    lines = summary(begun(knobs={"limits.max_num_seqs": (64, 128)}))
    assert "lab" not in lines[0]
    assert lines[0] == "test: no choice yet (layouts, short; 0 trials)"
    assert "  then, around the best: limits.max_num_seqs in 64, 128" in lines
    assert "  at last the finals, 3 runs each, and a repeat of 3" in lines
