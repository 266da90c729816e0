# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quality gate's core: the battery, its scores and its verdicts."""

import json
import math
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.quality import _whole, answer_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    knowledge,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality import battery as batteries
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.battery import (
    Answer,
    read_reference,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.evaluate import (
    evaluate,
    is_right,
    outliers,
    quality,
)
from hypothesis import given
from hypothesis import strategies as st

ITEMS = batteries.battery(tools=True)
NAMES = [
    *("choices", "text", "logprobs", "tokens", "token_logprobs", "prompt_logprobs", "message"),
    *("content", "tool_calls", "function", "name", "arguments", "logprob"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


def sound(item):
    """A right answer of a sound engine."""
    if item.kind == "tokens":
        return {"ids": [1, 2, 3]}
    if item.kind == "text":
        return {"logprobs": [-1.0, -2.0, -0.5]}
    if item.group == "schema":
        values = {"string": "x", "integer": 3, "boolean": True}
        names = (one.split(":") for one in item.right)
        return {"text": json.dumps({name: values[kind] for name, kind in names})}
    if item.group == "tools":
        return {"text": "", "call": [item.right[0], json.dumps({item.right[1]: "x"})]}
    text = item.right[0] if item.right else "and so on"
    return {"text": f" {text}", "tokens": [text], "logprobs": [-0.25]}


def measured(change=None, **more):
    """Answers of a sound engine; ``change(item, answer)`` makes others of them."""
    answers = {item.id: sound(item) for item in ITEMS}
    if change:
        answers = {item.id: change(item, dict(answers[item.id])) for item in ITEMS}
    facts = {"model": "m", "engine": "0.32.0", "max_model_len": 4096, "seconds": 60.0}
    return quality(ITEMS, {**facts, "answers": answers, **more}, "2026-11-28T12:00:00Z")


SOUND = measured()


def verdict_of(change):
    return evaluate("r", ITEMS, measured(change), SOUND)


def lost(*groups, every=1):
    """Wrong answers to each nth question of some groups."""
    numbers = {
        item.id: place
        for group in groups
        for place, item in enumerate(one for one in ITEMS if one.group == group)
    }

    def change(item, answer):
        if item.id in numbers and numbers[item.id] % every == 0:
            return {**answer, "text": " zzz", "call": []}
        return answer

    return change


def moved(group, by, suffix=""):
    """Log probabilities of a group's answers that are off by ``by``."""

    def change(item, answer):
        if item.group == group and item.id.endswith(suffix):
            return {**answer, "logprobs": [value - by for value in answer["logprobs"]]}
        return answer

    return change


def test_the_battery_has_two_hundred_questions_with_one_right_answer_and_is_always_the_same():
    asked = [item for item in ITEMS if item.group == "questions"]
    assert len({item.body["prompt"] for item in asked}) == len(asked) >= 200
    assert all(item.right and all(item.right) for item in asked)
    assert len({item.id for item in ITEMS}) == len(ITEMS)
    batteries.battery.cache_clear()
    assert batteries.battery(tools=True) == ITEMS
    more = [item for item in ITEMS if item not in batteries.battery()]
    assert {item.group for item in more} == {"tools"}


def test_generated_answers_are_right():
    forms = {"What is {} + {}?": int.__add__, "What is {} - {}?": int.__sub__}
    for item in ITEMS:
        words = item.body.get("prompt", "").rpartition("Q: ")[2].split("\n")[0].rstrip("?").split()
        if item.group == "questions" and len(words) == 5 and words[3] in "+-":
            form = forms[f"What is {{}} {words[3]} {{}}?"]
            assert item.right == (str(form(int(words[2]), int(words[4]))),)


@pytest.mark.parametrize(
    ("group", "right", "answer", "verdict"),
    [
        ("questions", ("42",), Answer(text=" 42."), True),
        ("questions", ("1042",), Answer(text=" 1,042"), True),
        ("questions", ("42",), Answer(text=" 421"), False),
        ("questions", ("paris",), Answer(text=" Paris, of course"), True),
        ("questions", ("paris",), Answer(text=" not Paris"), False),
        ("questions", ("paris",), Answer(text=" Paris", problem="late"), False),
        ("chat", ("paris",), Answer(text="The capital is Paris."), True),
        ("chat", ("c",), Answer(text="Its symbol is Co."), False),
        ("schema", ("a:integer",), Answer(text='{"a": 3}'), True),
        ("schema", ("a:integer",), Answer(text='{"a": true}'), False),
        ("schema", ("a:integer",), Answer(text="[" * 100_000), False),
        ("tools", ("f", "x"), Answer(call=("f", '{"x": "1"}')), True),
        ("tools", ("f", "x"), Answer(text='f({"x": "1"})'), False),
    ],
)
def test_an_answer_is_right_or_not(group, right, answer, verdict):
    item = replace(next(one for one in ITEMS if one.group == group), right=right)
    assert is_right(item, answer) is verdict


def test_the_same_answers_are_the_same_and_say_what_would_have_shown():
    verdict = evaluate("r", ITEMS, SOUND, SOUND)
    assert (verdict.verdict, verdict.findings, verdict.share) == ("same", (), 1.0)
    questions = next(probe for probe in verdict.probes if probe.name == "questions")
    assert 0 < questions.detectable <= knowledge("quality/battery.yml")["resolution"]


@pytest.mark.parametrize(
    ("change", "probe"),
    [
        (lost("questions", every=10), "questions"),
        (lost("long", every=3), "long"),
        (lost("tools"), "tools"),
        (lost("schema"), "schema"),
        (moved("texts", 0.1), "text drift"),
        (moved("texts", 0.1, "b"), "repeatability"),
        (moved("questions", 0.1), "decoding drift"),
        (moved("long", 0.1), "long drift"),
        (moved("cache", 0.1), "cache drift"),
        (lambda i, a: {**a, "ids": [1, 2]} if i.group == "template" else a, "template"),
        (lambda i, a: {**a, "ids": [9, 2, 3]} if i.id == "tokenizer-1" else a, "tokenizer"),
    ],
)
def test_each_probe_catches_what_it_is_for(change, probe):
    verdict = verdict_of(change)
    assert verdict.verdict == "worse"
    assert probe in [one.name for one in verdict.probes if one.verdict == "worse"]
    (finding,) = verdict.findings
    assert finding.code == "QUALITY-WORSE"
    assert probe in finding.message


def test_rounding_is_no_loss():
    assert verdict_of(lost("questions", every=60)).verdict == "same"
    assert verdict_of(moved("texts", 0.004)).verdict == "same"


def test_another_recipe_may_round_otherwise():
    now = replace(measured(moved("texts", 0.05)), recipe="b")
    assert evaluate("r", ITEMS, now, replace(SOUND, recipe="a")).verdict == "same"
    assert evaluate("r", ITEMS, now, replace(SOUND, recipe="b")).verdict == "worse"
    assert evaluate("r", ITEMS, now, replace(SOUND, recipe="a")).differs


def test_what_is_known_of_one_side_only_is_said_to_differ():
    now = replace(measured(moved("texts", 0.05)), recipe="b")
    verdict = evaluate("r", ITEMS, now, SOUND)
    assert (verdict.verdict, verdict.differs) == ("same", ("recipe: unknown against b",))
    assert evaluate("r", ITEMS, replace(now, recipe=None), SOUND).differs == ()


@pytest.mark.parametrize("group", ["chat", "long", "schema", "tools"])
def test_few_answers_say_what_they_would_have_shown_and_are_no_warning_alone(group):
    verdict = evaluate("r", ITEMS, SOUND, SOUND)
    (probe,) = (one for one in verdict.probes if one.name == group)
    assert (probe.verdict, verdict.verdict, verdict.findings) == ("not decided", "same", ())
    # Losses of that share do show.
    right = [item for item in ITEMS if item.group == group]
    missing = {item.id for item in right[: math.ceil(probe.detectable * len(right))]}
    change = measured(lambda i, a: {**a, "text": "zzz", "call": []} if i.id in missing else a)
    worse = evaluate("r", ITEMS, change, SOUND)
    assert group in [one.name for one in worse.probes if one.verdict == "worse"]


def test_one_answer_that_is_far_off_hides_no_drift_of_the_others():
    def change(item, answer):
        if item.group != "texts":
            return answer
        by = 3.0 if item.id == "texts-0a" else 0.05
        return {**answer, "logprobs": [value - by for value in answer["logprobs"]]}

    (probe,) = (one for one in verdict_of(change).probes if one.name == "text drift")
    assert probe.low < 0.02
    assert probe.verdict == "worse"
    # Where the others are as they were, it is one answer's, and not decided.
    alone = verdict_of(
        lambda item, answer: change(item, answer) if item.id == "texts-0a" else answer
    )
    assert next(one for one in alone.probes if one.name == "text drift").verdict == "not decided"


def test_what_was_never_right_cannot_be_lost():
    wrong = measured(lost("schema"))
    (probe,) = (one for one in evaluate("r", ITEMS, wrong, wrong).probes if one.name == "schema")
    assert (probe.verdict, probe.detectable) == ("not decided", 1.0)


def test_nothing_may_differ_where_both_compute_a_request_alike_in_any_batch():
    exact, moved_little = replace(SOUND, exact=True), measured(moved("texts", 0.0001, "-3a"))
    for now, reference, verdict in (
        (exact, exact, "same"),
        (replace(moved_little, exact=True), exact, "worse"),
        (moved_little, exact, "same"),
        (replace(moved_little, exact=True, recipe="b"), replace(exact, recipe="a"), "same"),
    ):
        assert evaluate("r", ITEMS, now, reference).verdict == verdict


def test_what_could_not_have_shown_is_not_decided():
    def change(item, answer):
        if item.group == "questions":
            number = int(item.id.split("-")[1])
            return {**answer, "text": " zzz" if number % 3 == 0 else answer["text"]}
        return answer

    def other(item, answer):
        if item.group == "questions":
            number = int(item.id.split("-")[1])
            return {**answer, "text": " zzz" if number % 3 == 1 else answer["text"]}
        return answer

    verdict = evaluate("r", ITEMS, measured(other), measured(change))
    assert verdict.verdict == "not decided"
    assert [finding.code for finding in verdict.findings] == ["QUALITY-NOT-DECIDED"]


def test_answers_that_are_missing_are_no_right_ones():
    verdict = verdict_of(lambda item, answer: {"problem": "HTTP 500"})
    assert verdict.verdict == "worse"
    assert [f.code for f in verdict.findings] == ["QUALITY-UNANSWERED", "QUALITY-WORSE"]


def test_without_a_reference_a_published_score_is_a_floor():
    verdict = evaluate("r", ITEMS, SOUND, None)
    assert verdict.verdict is None
    assert [finding.code for finding in verdict.findings] == ["QUALITY-FIRST-RUN"]
    known = replace(SOUND, model="MiniMaxAI/MiniMax-M3-FP8")
    assert evaluate("r", ITEMS, known, None).findings == ()
    (finding,) = evaluate("r", ITEMS, replace(known, share=0.3), None).findings
    assert finding.code == "QUALITY-BELOW-PUBLISHED"
    assert "45562" in finding.source


def test_another_context_length_is_told_and_long_prompts_are_not_compared():
    verdict = evaluate("r", ITEMS, measured(moved("long", 1.0)), replace(SOUND, max_model_len=9))
    assert verdict.verdict == "same"
    assert verdict.differs == ("max_model_len: 9 against 4096",)


@pytest.mark.parametrize("field", ["battery", "model"])
def test_a_reference_of_something_else_is_refused(field):
    other = replace(SOUND, **{field: "other"})
    with pytest.raises(ApiaryError, match="QUALITY-BATTERY"):
        evaluate("r", ITEMS, SOUND, other)


def test_the_replica_that_differs_is_named():
    bad = measured(moved("texts", 0.1))
    assert outliers({"a": SOUND, "b": SOUND, "c": SOUND}, ITEMS) == ()
    found = outliers({"a": SOUND, "b": bad, "c": SOUND}, ITEMS)
    assert [(one.code, one.subject) for one in found] == [("QUALITY-SIBLING", "b")]
    assert len(outliers({"a": SOUND, "b": bad}, ITEMS)) == 2
    assert outliers({"a": SOUND, "b": replace(bad, recipe="other")}, ITEMS) == ()


def test_a_reference_comes_back_as_it_was_written():
    assert read_reference(dumps(SOUND), "f") == SOUND


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "nonsense",
        json.dumps(to_document(replace(SOUND, answers={"x": Answer(logprobs=(float("nan"),))}))),
        json.dumps(to_document(replace(SOUND, answers={"x": Answer(tokens=("x",) * 5000)}))),
        json.dumps(to_document(replace(SOUND, answers={str(n): Answer() for n in range(3000)}))),
    ],
)
def test_a_reference_out_of_bounds_is_refused(text):
    with pytest.raises(ApiaryError, match="QUALITY-REFERENCE"):
        read_reference(text, "f")


def answer(kind, body):
    return answer_of(kind, json.loads(body, parse_int=_whole))


@given(st.sampled_from(("tokens", "text", "complete", "chat")), JSON)
def test_no_answer_of_an_engine_does_any_harm(kind, data):
    told = answer(kind, json.dumps(data).encode())
    assert isinstance(told.get("problem", ""), str)
    Answer(**{key: tuple(item) if isinstance(item, list) else item for key, item in told.items()})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("complete", b'{"choices": [{"text": "x", "logprobs": {"token_logprobs": [NaN]}}]}'),
        ("complete", b'{"choices": [{"text": "x", "logprobs": {"token_logprobs": [1e999]}}]}'),
        ("complete", b'{"choices": [{"text": 3}]}'),
        ("tokens", b'{"tokens": [-1]}'),
        ("tokens", b'{"tokens": [' + b"9" * 100_000 + b"]}"),
        ("chat", b'{"choices": []}'),
    ],
)
def test_what_is_no_answer_is_a_problem(kind, body):
    assert answer(kind, body)["problem"]


def test_long_answers_are_cut():
    told = answer("complete", json.dumps({"choices": [{"text": "x" * 100_000}]}).encode())
    assert len(told["text"]) == 2000
