# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The condition language: what holds, what stays open, what is refused when it is read."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    as_number,
    fact_types,
    fill,
    parse,
)

FACTS = {
    "version": "0.14.1",
    "attention": "mla",
    "tensor_parallel_size": 4,
    "heads": None,
    "expert_parallel": False,
    "env A": "x:True,y",
    "env N": "1025",
    "flag word": "many",
    "moe_unit_note": "",
}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, True),
        ({"attention": "mla"}, True),
        ({"attention": "gqa"}, False),
        ({"attention": ["gqa", "mla"]}, True),
        ({"attention": {"not": ["gqa"]}}, True),
        ({"attention": {"not": ["mla"]}}, False),
        ({"expert_parallel": False}, True),
        ({"expert_parallel": True}, False),
        ({"tensor_parallel_size": 4}, True),
        ({"tensor_parallel_size": [2, 8]}, False),
        ({"tensor_parallel_size": {"min": 4}}, True),
        ({"tensor_parallel_size": {"min": 5}}, False),
        ({"tensor_parallel_size": {"min": 2, "max": 3}}, False),
        ({"tensor_parallel_size": {"max": 4}}, True),
        ({"tensor_parallel_size": {"not": [2, 4]}}, False),
        ({"tensor_parallel_size": {"not_multiple_of": 3}}, True),
        ({"tensor_parallel_size": {"not_multiple_of": 2}}, False),
        ({"env A": {"contains": "x:True"}}, True),
        ({"env B": ""}, True),  # not set is not unknown
        ({"env B": {"not": ["0"]}}, True),
        ({"flag b": {"not": [""]}}, False),
        ({"env N": {"min": 1025}}, True),
        ({"env N": {"min": 1026}}, False),
        ({"env N": {"not_multiple_of": 16}}, True),
        ({"env N": {"not_multiple_of": 5}}, False),
        ({"env B": {"not_multiple_of": 16}}, False),
        ({"env B": {"min": 0}}, False),  # not set is no number
        ({"flag word": {"max": 9}}, False),
        ({"heads": 4}, None),
        ({"heads": 4, "tensor_parallel_size": 4}, None),
        ({"heads": 4, "tensor_parallel_size": 5}, False),  # false whatever the heads are
        ({"any": [{"tensor_parallel_size": 5}, {"attention": "mla"}]}, True),
        ({"any": [{"tensor_parallel_size": 5}, {"heads": 1}]}, None),
        ({"any": [{"attention": "mla"}, {"heads": 1}]}, True),
        ({"any": [{"tensor_parallel_size": 5}, {"tensor_parallel_size": 6}]}, False),
        ({"attention": {"not": ["{attention}"]}}, False),
    ],
)
def test_conditions(when, expected):
    assert parse(when).holds(FACTS) is expected


def test_the_facts_that_leave_a_condition_open_are_named():
    when = {"heads": 4, "attention": "mla", "any": [{"kv_heads": 1}, {"env B": "1"}]}
    condition = parse(when)
    assert condition.unknown(FACTS) == ("heads", "kv_heads")
    assert condition.facts() == ("heads", "attention", "kv_heads", "env B")


@pytest.mark.parametrize(
    ("when", "part"),
    [
        ({"colour": "red"}, "no fact colour"),
        ({"attention": {"around": "mla"}}, "no operator around"),
        ({"attention": {"min": 3}}, "no operator min"),
        ({"expert_parallel": {"not": [True]}}, "no operator not"),
        ({"tensor_parallel_size": {"contains": "4"}}, "no operator contains"),
        ({"tensor_parallel_size": "4"}, "cannot take '4'"),
        ({"tensor_parallel_size": True}, "cannot take True"),
        ({"expert_parallel": "yes"}, "cannot take 'yes'"),
        ({"attention": 4}, "cannot take 4"),
        ({"env A": 1}, "cannot take 1"),
        ({"env A": {"min": "1"}}, "cannot take '1'"),
        ({"flag a": {"not_multiple_of": "2"}}, "cannot take '2'"),
        ({"any": [{"colour": "red"}]}, "no fact colour"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused_when_it_is_read(when, part):
    with pytest.raises(ValueError, match=part):
        parse(when)


def test_every_fact_has_a_type_that_the_language_has():
    assert set(fact_types().values()) == {"text", "number", "bool", "version"}


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({}, ""),
        ({"attention": ["mla", "gqa"]}, "attention is mla or gqa"),
        (
            {"expert_parallel": True, "tensor_parallel_size": {"min": 2}},
            "expert parallel is true and tensor parallel size is at least 2",
        ),
        ({"env VLLM_X": {"not": ["0"]}}, "VLLM_X is not 0"),
        ({"flag block_size": {"not": [""]}}, "--block-size is set"),
        ({"flag block_size": ""}, "--block-size is not set"),
        ({"any": [{"env A": "1"}, {"heads": {"max": 3}}]}, "(A is 1 or heads is at most 3)"),
        ({"heads": {"not_multiple_of": 16}}, "heads is no multiple of 16"),
    ],
)
def test_conditions_have_words(when, words):
    assert parse(when).words() == words


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{tensor_parallel_size} of {attention}", "4 of mla"),
        ("{env A}", "x:True,y"),
        ("{expert_parallel}", "false"),
        ("plain", "plain"),
        ("{heads}", None),
        ("{env B}", None),
        ("a{moe_unit_note}", "a"),
    ],
)
def test_templates_drop_on_what_is_unknown_or_empty(template, expected):
    assert fill(template, FACTS) == expected


@pytest.mark.parametrize(
    ("value", "number"), [("7", 7.0), (7, 7.0), (0.5, 0.5), ("x", None), (None, None), ("", None)]
)
def test_numbers_in_texts(value, number):
    assert as_number(value) == number
