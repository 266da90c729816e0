# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every tuning and every file of variables."""

import functools

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import scores, steps, trials
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.variables import winner_diff
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.tuned import World, begun, carried_out, saved

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


@settings(max_examples=40, deadline=None)
@given(worlds(), st.booleans())
def test_every_tuning_comes_to_a_choice_that_ran(lived, knobs):
    state = carried_out(start(knobs=knobs), lived)
    chosen = state.choice.candidate
    if chosen is not None:
        assert trials.out(state, chosen) is None
    measured = {one.candidate for one in state.trials if trials.ended(one, "measured")}
    assert chosen is None or chosen in measured
    assert len({one.id for one in state.trials}) == len(state.trials)
    untried = {one.label for one in state.not_tried}
    for one in state.candidates:
        known = [trial for trial in state.trials if trial.candidate == one.id]
        assert known or one.label in untried


@settings(max_examples=25, deadline=None)
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


@settings(max_examples=12, deadline=None)
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


# Files of variables: a deployment in any of YAML's ways of writing one, between other lines.
words = st.sampled_from(["fp8", "auto", "1", "0x10", "yes", "a b", "x: y", "#1", "ü", "null", "~"])
scalars = st.one_of(st.integers(-5, 10**6), st.booleans(), st.none(), words, st.floats(0, 1))
names = st.sampled_from(
    ["max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "gpu_memory_utilization"]
)
switches = st.sampled_from(["A", "VLLM_X", "block-size", "a.b"])
comments = st.sampled_from(["", "", "", "# why", "# {{ not a template }}: x", "# 'quoted"])


def value_text(draw, value):
    styles = [yaml.safe_dump(value, default_flow_style=True, width=10**6).partition("\n")[0]]
    if isinstance(value, str):
        styles.append("'" + value.replace("'", "''") + "'")
    return draw(st.sampled_from(styles))


def lines_of(draw, data, indent):
    """Write a mapping as lines, sections as blocks or in braces, with comments and gaps."""
    for key, value in data.items():
        if draw(st.booleans()) and draw(st.booleans()):
            yield draw(st.sampled_from(["", indent + "# above " + key, indent + "#"]))
        comment = draw(comments)
        end = f" {comment}" if comment else ""
        if isinstance(value, dict) and value and draw(st.booleans()):
            yield f"{indent}{key}:{end}"
            yield from lines_of(draw, value, indent + draw(st.sampled_from(["  ", "    "])))
        elif isinstance(value, dict):
            inner = ", ".join(f"{name}: {value_text(draw, one)}" for name, one in value.items())
            braces = draw(st.sampled_from(["{%s}", "{ %s }"])) % inner
            yield f"{indent}{key}: {braces}{end}"
        else:
            yield f"{indent}{key}: {value_text(draw, value)}{end}"


@st.composite
def files(draw):
    engine = {"version": "0.33.0"}
    for name in ("args", "env"):
        if draw(st.booleans()):
            engine[name] = draw(st.dictionaries(switches, scalars, max_size=2))
    deployment = {"name": "mine", "engine": engine}
    layout = st.sampled_from(["auto", {"tensor_parallel_size": 4, "replicas": 2}, {"sizes": 8}])
    if draw(st.booleans()):
        deployment["layout"] = draw(layout)
    if draw(st.booleans()):
        deployment["limits"] = draw(st.none() | st.dictionaries(names, scalars, max_size=3))
    keys = draw(st.permutations(list(deployment)))
    deployment = {key: deployment[key] for key in keys}
    several = draw(st.booleans())
    head = ["---"] * draw(st.booleans()) + ["# what the group serves", "other: {a: [1, 2]} # x"]
    if several:
        indent = draw(st.sampled_from(["", "  "]))
        body = ["apiary_deployments:", f"{indent}- name: other", f"{indent}  limits: {{}}"]
        inner = list(lines_of(draw, deployment, indent + "  "))
        first = next(at for at, line in enumerate(inner) if line.strip()[:1] not in ("", "#"))
        inner[first] = f"{indent}- {inner[first].lstrip()}"
        body += [*inner[:first], *inner[first:]]
    else:
        body = ["apiary_deployment:", *lines_of(draw, deployment, "  ")]
    tail = draw(st.sampled_from([[], ["last: 1"], ["", "# the end"]]))
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    text = newline.join([*head, *body, *tail])
    return text + newline * draw(st.integers(0, 2))


layouts = st.sampled_from(
    [
        {"tensor_parallel_size": 8, "replicas": 1, "expert_parallel": True},
        {"sizes": [4, 2, 2], "expert_parallel": False},
    ]
)
changes = st.dictionaries(
    st.one_of(
        names.map("limits.{}".format),
        switches.map("engine.env.{}".format),
        switches.map("engine.args.{}".format),
    ),
    scalars,
    max_size=4,
).flatmap(lambda found: st.just(found) | layouts.map(lambda one: {"layout": one, **found}))


def found(text):
    """The deployment of a file, and everything else."""
    data = yaml.safe_load(text)
    if "apiary_deployment" in data:
        return data["apiary_deployment"], data
    (mine,) = [one for one in data["apiary_deployments"] if one["name"] == "mine"]
    return mine, data


def parts(path):
    sections = ("engine.args.", "engine.env.")
    if path.startswith(sections):
        _engine, section, name = path.split(".", 2)
        return ["engine", section, name]
    return path.split(".")


@settings(max_examples=80, deadline=None)
@given(files(), changes)
def test_a_file_of_variables_says_the_changes_and_nothing_else_new(text, wanted):
    try:
        new, diff = winner_diff(text, "vars.yml", "mine", wanted, "tune.json")
    except ApiaryError as refusal:
        (finding,) = refusal.findings
        assert finding.code == "TRIAL-VARIABLES"
        # The only place of these files that has no line of its own to take out.
        assert "layout" in wanted, finding
        return
    deployment, data = found(text)
    for path, value in wanted.items():
        *above, last = parts(path)
        section = deployment
        for name in above:
            if section.get(name) is None:
                section[name] = {}
            section = section[name]
        section[last] = value
    assert yaml.safe_load(new) == data

    removed = [line[1:] for line in diff.splitlines() if line[:1] == "-" and line[:3] != "---"]
    added = [line[1:] for line in diff.splitlines() if line[:1] == "+" and line[:3] != "+++"]
    touched = {part for path in wanted for part in parts(path)}
    touched |= {"tensor_parallel_size", "replicas", "expert_parallel", "sizes"}
    mark = "# Measured by playbooks/tune.yml: tune.json"
    for line in [*removed, *added]:
        key = line.strip().removeprefix("- ").partition(":")[0].strip("'\"")
        assert key in touched or line.strip() == mark or (line in removed and line in added), line
    for line in text.splitlines():  # every comment is still there
        if "#" in line and line.strip().startswith("#"):
            assert line in new.splitlines()
    assert added.count(mark) <= 1
    if removed or added:
        assert mark in [line.strip() for line in added]
    assert winner_diff(new, "vars.yml", "mine", wanted, "tune.json") == (new, "")
