# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The condition language, and that every rule can be evaluated."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.ownership import of_flag
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import (
    fill,
    holds,
    rules,
    unknown_facts,
)

FACTS = {
    "version": "0.14.1",
    "attention": "mla",
    "size": 4,
    "heads": None,
    "ep": False,
    "env A": "x:True,y",
    "some_note": "",
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
        ({"ep": False}, True),
        ({"ep": True}, False),
        ({"size": {"min": 4}}, True),
        ({"size": {"min": 5}}, False),
        ({"size": {"min": 2, "max": 3}}, False),
        ({"size": {"not_multiple_of": 3}}, True),
        ({"size": {"not_multiple_of": 2}}, False),
        ({"version": {"from": "0.13.0"}}, True),
        ({"version": {"from": "0.14.1", "until": "0.14.1"}}, True),
        ({"version": {"until": "0.14.0"}}, False),
        ({"version": {"until": "0.9.2"}}, False),  # versions, not text
        ({"env A": {"contains": "x:True"}}, True),
        ({"env B": ""}, True),  # not set is not unknown
        ({"env B": {"not": ["0"]}}, True),
        ({"flag b": {"not": [""]}}, False),
        ({"heads": 4}, None),
        ({"heads": 4, "size": 4}, None),
        ({"heads": 4, "size": 5}, False),  # false whatever the heads are
        ({"any": [{"size": 5}, {"attention": "mla"}]}, True),
        ({"any": [{"size": 5}, {"heads": 1}]}, None),
        ({"any": [{"size": 5}, {"size": 6}]}, False),
        ({"attention": {"not": ["{attention}"]}}, False),
    ],
)
def test_conditions(when, expected):
    assert holds(when, FACTS) is expected


def test_the_facts_that_leave_a_condition_open_are_named():
    when = {"heads": 4, "size": 4, "any": [{"kv_heads": 1}, {"env B": "1"}]}
    assert unknown_facts(when, FACTS) == ["heads", "kv_heads"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{size} of {attention}", "4 of mla"),
        ("{env A}", "x:True,y"),
        ("plain", "plain"),
        ("{heads}", None),
        ("{env B}", None),
        ("a{some_note}", "a"),
    ],
)
def test_templates_drop_on_what_is_unknown_or_empty(template, expected):
    assert fill(template, FACTS) == expected


@pytest.mark.parametrize("test", [{"around": 3}, {"min": 3}])
def test_a_test_that_makes_no_sense_is_an_error_of_the_rule(test):
    with pytest.raises(ValueError, match=r"around|min"):
        holds({"attention": test} if "min" in test else {"size": test}, FACTS)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_rule_does_one_thing_and_has_a_source(rule):
    assert rule.id.startswith("VLLM-")
    assert sum(effect is not None for effect in (rule.set, rule.refuse, rule.warn)) == 1
    assert rule.reason
    assert rule.source
    assert not rule.source.startswith("sources.")


def test_rule_ids_are_unique():
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))


def test_refusals_come_after_all_elements():
    kinds = [rule.set is None for rule in rules()]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize("dest", knowledge("vllm/rules.yml")["owned"]["flags"])
def test_every_owned_flag_is_one_of_vllms(dest):
    owner = of_flag(dest)
    assert owner.reason
    assert dest == "model_tag" or dest in knowledge("vllm/flags.yml")["flags"]
    assert owner.dropped is None or not owner.agrees(None, {"expert_parallel": True})


@pytest.mark.parametrize(("text", "agrees"), [(None, False), ("false", False), ("true", True)])
def test_a_boolean_that_is_dropped_is_false(text, agrees):
    owner = of_flag("enable_expert_parallel")
    assert owner.agrees(text, {"expert_parallel": True}) is agrees
    assert owner.agrees(text, {"expert_parallel": False}) is not agrees
