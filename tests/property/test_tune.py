# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every tuning and its file of variables."""

import dataclasses
import functools

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores, steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import tuned_variables
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome
from hypothesis import assume, given
from hypothesis import strategies as st

from support.bench.tuned import World, begun, carried_out, saved
from support.demo import demo_deployment
from support.examples import examples

# Not in the order of a sorted document.
KNOBS = {"limits.max_num_seqs": (64, 128), "engine.env.A": ("1",), "engine.env.B": ("1",)}


@functools.cache
def start(hosts=("a",), knobs=False):
    """A tuning at its beginning; planning its layouts takes longer than carrying it out."""
    return begun(hosts=hosts, knobs=KNOBS if knobs else {})


NAMES = tuple(one.id for one in start().candidates)
true_rates = st.fixed_dictionaries({name: st.floats(1, 20) for name in NAMES})
fates = st.sampled_from(["measured"] * 8 + ["failed", "lost", "invalid"])


def world(rates, seed, noise=0.02, fate=None):
    """A world with a true rate for each layout, in which each trial may have a bad fate."""

    def rate(name):
        layout = next((one for one in NAMES if name.startswith(one)), "current")
        return rates[layout] * (1.1 if name.endswith("128") else 1.0)

    def event(trial):
        status = "measured" if fate is None else fate(trial)
        return None if status == "measured" else Outcome(status, cause="chance")

    return World(rate, noise, seed, events=event)


@st.composite
def worlds(draw):
    draw_fates = draw(st.lists(fates, min_size=40, max_size=40))

    def fate(trial):
        return draw_fates[sum(map(ord, trial.id)) % len(draw_fates)]

    return world(draw(true_rates), draw(st.integers(0, 10**6)), 0.03, fate)


@examples(0.4)
@given(worlds(), st.booleans())
def test_every_tuning_comes_to_a_choice_that_ran(lived, knobs):
    state = carried_out(start(knobs=knobs), lived)
    chosen = state.choice.candidate
    if chosen is not None:
        assert scores.out(state, chosen) is None
    measured = {one.candidate for one in state.trials if scores.ended(one, "measured")}
    assert chosen is None or chosen in measured
    assert len({one.id for one in state.trials}) == len(state.trials)
    untried = {one.label for one in state.not_tried}
    for one in state.candidates:
        known = [trial for trial in state.trials if trial.candidate == one.id]
        assert known or one.label in untried


@examples(0.25)
@given(worlds(), st.booleans(), st.data())
def test_a_tuning_goes_on_from_every_state_to_the_same_choice(lived, knobs, data):
    """It is read again from its file after every trial, and the whole document ends the same."""
    whole = carried_out(start(knobs=knobs), lived)
    state = start(knobs=knobs)
    stop = data.draw(st.integers(0, len(whole.trials)))
    while state.choice is None:
        (trial,) = steps.assign(state, ("a",))
        if len(state.trials) == stop:  # interrupted in this trial: it is simply assigned again
            stop, state = -1, saved(state)
            assert steps.assign(state, ("a",)) == (trial,)
        state = steps.record(state, trial, lived.run(trial))
    assert saved(state) == saved(whole)


@examples(0.12)
@given(true_rates, st.integers(0, 10**6), st.data())
def test_hosts_that_are_interrupted_halfway_come_to_the_same_choice(rates, seed, data):
    best = max(rates.values())
    assume(sum(rate > best * 0.8 for rate in rates.values()) == 1)  # a clear winner
    state, lived = start(("a", "b")), world(rates, seed, 0.01)
    whole = carried_out(state, lived, ("a", "b"))
    for _step in range(steps.most(state, 2)):
        batch = steps.assign(state, ("a", "b"))
        for trial in batch[: data.draw(st.integers(0, len(batch))) or None]:
            state = steps.record(state, trial, lived.run(trial))
        state = saved(state)
        if state.choice:
            break
    assert state.choice.candidate == whole.choice.candidate == max(rates, key=rates.get)


def test_the_true_best_is_dropped_no_oftener_than_intervals_of_95_per_cent_allow():
    """Restarts spread as is assumed, and all lie closer together than that."""
    rates = dict(zip(NAMES, (9.7, 10.0, 9.9, 9.8, 9.7), strict=True))
    runs, dropped = 120, 0
    for seed in range(runs):
        state = carried_out(start(), world(rates, seed, 0.04))
        (final,) = [one for one in state.rounds if one.kind == "final"]
        gone = [
            drop.candidate
            for one in state.rounds
            if one.kind in ("short", "longer")
            for drop in one.dropped
        ]
        dropped += NAMES[1] in gone
        assert "current" in final.candidates
    assert dropped <= 0.05 * runs


def test_no_difference_is_told_as_one_no_oftener_than_it_may_be():
    """Equal configurations: finals and repeat would both have to be wrong."""
    wrong = sum(
        carried_out(start(), world(dict.fromkeys(NAMES, 9.0), seed, 0.04)).choice.verdict
        == "better"
        for seed in range(60)
    )
    assert wrong <= 1


@given(st.dictionaries(st.text("abc", min_size=1), st.floats(0.1, 100), min_size=1), st.data())
def test_who_may_be_the_best_is_kept(means, data):
    widths = {name: data.draw(st.floats(0, 0.5)) for name in means}
    found = {
        name: Interval(3, one, one * (1 - widths[name]), one * (1 + widths[name]))
        for name, one in means.items()
    }
    kept, dropped = scores.keep(found, 0.25)
    assert sorted([*kept, *(one.candidate for one in dropped)]) == sorted(means)
    best = found[kept[0]]
    assert best.mean == max(means.values())
    assert not any(scores.meets(found[one.candidate], best) for one in dropped)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
values = st.one_of(st.integers(-5, 10**6), st.booleans(), st.floats(0, 1), texts)
words = st.sampled_from(["1", "0x10", "yes", "a b", "x: y", "#1", "null", "~", "{{ x }}", "!a"])


@examples(0.8)
@given(st.dictionaries(texts, values | words, max_size=4), texts | words)
def test_a_tuned_deployment_is_read_as_it_was_written(args, value):
    before = demo_deployment()
    engine = dataclasses.replace(before.engine, args=args, env={"SWITCH": value})
    after = dataclasses.replace(before, engine=engine)
    text, diff = tuned_variables(before, after, "state.json")
    data = yaml.safe_load(text.replace("!unsafe", ""))
    assert from_document(Deployment, data["apiary_deployment"], "tuned.yml") == after
    assert diff
