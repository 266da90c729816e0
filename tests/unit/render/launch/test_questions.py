# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which question a serving replica is sent, and what counts of its answers."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.client import Answer, Load
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.questions import Questions

from support.each import each

IDLE, WAITS = Load(1, 0, 9), Load(1, 2, 9)
COMMAND = ["vllm", "serve", "/m"]


@pytest.fixture
def make(life):
    return lambda per_hour=6, command=COMMAND: Questions(life["questions"], per_hour, command, 0)


def answered(text):
    return Answer(200, json.dumps({"choices": [{"text": text}]}))


def test_each_question_comes_once_before_any_comes_again(make, life):
    known = [one["body"] for one in life["questions"]["entries"]]
    questions, sent = make(), []
    for number in range(1, 2 * len(known) + 1):
        sent.append(questions.due(IDLE, number * 600))
        questions.take(answered("x"))
    assert sent == known * 2
    assert len({body["prompt"] for body in known}) == 23
    assert max(body["max_tokens"] for body in known) <= 8
    # Without a compiler vLLM 0.32.0 ends at the first request that wants them.
    assert not any("logprobs" in body for body in known)


def test_one_at_a_time_and_none_that_others_wait_for(make):
    questions = make()
    assert questions.due(IDLE, 599) is None
    assert questions.due(WAITS, 700) is None
    assert questions.due(None, 700) is None
    assert questions.due(IDLE, 701)
    assert questions.due(IDLE, 5000) is None
    questions.take(answered("x"))
    # What was skipped is not made up for.
    assert questions.due(IDLE, 5000)
    questions.take(answered("x"))
    assert questions.due(IDLE, 5001) is None


def test_none_an_hour_is_none(make):
    assert make(per_hour=0).due(IDLE, 1e9) is None


@each(["--scheduling-policy priority", "--scheduling_policy=priority"])
def test_the_last_place_where_the_engine_orders_by_priority(words, make):
    assert "priority" not in make().due(IDLE, 1e9)
    assert make(command=[*COMMAND, *words.split()]).due(IDLE, 1e9)["priority"] > 1000


def result(questions, answer):
    """What counts of one answer to the first question, "What is the capital of France?"."""
    questions.due(IDLE, 1e9)
    questions.take(answer)
    return [name for name, count in questions.counts.items() if count]


@each([" Paris", "PARIS.", " Paris, the capital"])
def test_right_answers(text, make):
    assert result(make(), answered(text)) == ["right"]


@each(["London", "Parisian", "", "It is Paris"])
def test_wrong_answers(text, make):
    assert result(make(), answered(text)) == ["wrong"]


@each([Answer(0, "timed out"), Answer(500, "{}"), Answer(200, "[" * 9999), Answer(200, "7"), None])
def test_an_answer_that_is_none(answer, make):
    questions = make()
    assert result(questions, answer or answered(None)) == ["unanswered"]
    assert questions.answers == {}


def test_equal_first_words_have_equal_numbers(make):
    numbers = []
    for text in (" Paris", "paris is", "Rome"):
        questions = make()
        result(questions, answered(text))
        numbers += questions.answers.values()
    assert numbers[0] == numbers[1] != numbers[2]
    assert all(0 <= number < 2**32 for number in numbers)
