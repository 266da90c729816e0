# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules as data: that each makes sense, has its source, and says where vLLM itself stops."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import rules as engine
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import advisories
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    Span,
    fact_types,
    fill,
    order,
    parse,
    read_span,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import facts
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import newest, versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import of_flag
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.values import (
    check_of,
    checks,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.each import each
from support.engines import KIMI, deployment

EFFECT = {"code": "C", "message": "m", "remedy": "r"}
ENTRY = {"id": "X", "note": EFFECT, "reason": "x", "source": "y"}


@each(rules(), name=lambda rule: rule.id)
def test_every_rule_has_reason_and_source(rule):
    assert rule.id.startswith("VLLM-")
    assert rule.reason
    assert rule.source
    assert "sources." not in rule.source
    assert rule.missing in ("warning", "info", "none")
    for claim in rule.claims:
        assert claim.says
        assert claim.verdict
        assert "sources." not in claim.by


@each(rules(), name=lambda rule: rule.id)
def test_the_versions_of_a_rule_are_known_ones(rule):
    bounds = [rule.versions.first, rule.versions.last, *(first for first, _ in rule.stages[1:])]
    assert {bound for bound in bounds if bound} <= set(versions())
    assert any(rule.versions.covers(version) for version in versions())


def test_every_refusal_says_where_vllm_stops():
    for rule in rules():
        said = {rule.stage(version) for version in versions()}
        assert said <= {*engine.STAGES, None}
        assert (rule.kind == "refuse") == bool(rule.stages)


@pytest.mark.parametrize(
    ("version", "stage"), [("0.9.2", "backend"), ("0.17.1", "backend"), ("0.18.1", "load")]
)
def test_a_stage_may_change_with_the_version(version, stage):
    assert engine.by_id()["VLLM-TRITON-MLA-BLOCK"].stage(version) == stage


def test_rule_and_check_ids_are_unique():
    ids = [rule.id for rule in rules()] + [check.id for check in checks()]
    assert len(ids) == len(set(ids))


def test_refusals_come_after_all_elements():
    kinds = [rule.kind == "set" for rule in rules()]
    assert kinds == sorted(kinds, reverse=True)


def test_there_is_a_rule_for_each_kind_of_statement():
    assert {rule.severity for rule in rules()} == {None, "error", "warning", "info"}


def test_the_facts_are_those_that_are_declared():
    made = facts(known(KIMI), deployment(KIMI, size=8), "MI325X", "0.33.0", 8000)
    late = {"attention_backend", "attention_refuses", "attention_note"}
    late |= {"attention_width", "attention_block"}  # of a projection that cannot be split
    assert set(made) <= set(fact_types())
    assert set(fact_types()) - set(made) <= late | {"block_size", "ffn_width", "ffn_unit_note"}
    kinds = {"text": str, "version": str, "number": (int, float), "bool": bool}
    for name, value in made.items():
        assert value is None or isinstance(value, kinds[fact_types()[name]]), name


def test_every_declared_fact_is_used():
    used = {name for rule in (*rules(), *advisories()) for name in rule.when.facts()}
    tables = [table for table in knowledge("vllm/kernels.yml").values() if isinstance(table, list)]
    used |= {name for table in tables for one in table for name in parse(one["when"]).facts()}
    texts = " ".join(text for rule in rules() for text in (rule.reason, *rule.effect.values()))
    for name in fact_types():
        asked_by_code = {
            "checkpoint_kv_dtype",
            "kv_cache_dtype",
            "model_type",
            "release",
            "version",
            "vision_width",
        }
        assert name in used | asked_by_code or f"{{{name}}}" in texts, name


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"note": None}, "found"),
        ({"when": {"colour": "red"}}, "rule X: there is no fact colour"),
        ({"note": None, "refuse": EFFECT, "stage": "somewhere"}, "no stage somewhere"),
        ({"reason": "because {colour}"}, "no fact colour"),
        ({"warn": {}}, "found"),
        ({"source": "sources.nowhere"}, "nowhere"),
        ({"note": None, "refuse": EFFECT}, "has a stage"),
        ({"stage": "load"}, "has a stage"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_when_it_is_read(change, part):
    entry = {key: value for key, value in (ENTRY | change).items() if value is not None}
    with pytest.raises(ValueError, match=part):
        engine._rule(entry, {})


@pytest.mark.parametrize(
    ("entry", "version", "covered"),
    [
        (None, "0.9.2", True),
        ({"from": "0.14.1"}, "0.14.1", True),
        ({"from": "0.14.1"}, "0.13.0", False),
        ({"until": "0.9.2"}, "0.10.2", False),  # versions, not text
        ({"from": "0.9.2", "until": "0.10.2"}, "0.10.2", True),
    ],
)
def test_a_span_includes_both_ends(entry, version, covered):
    assert read_span(entry).covers(version) is covered


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(), "all"),
        (Span("0.14.1"), "0.14.1 and newer"),
        (Span(None, "0.14.1"), "up to 0.14.1"),
        (Span("0.14.1", "0.14.1"), "0.14.1"),
        (Span("0.14.1", "0.16.0"), "0.14.1 to 0.16.0"),
    ],
)
def test_a_span_has_words(span, words):
    assert str(span) == words


def test_order_refuses_what_is_no_version():
    with pytest.raises(ValueError, match="latest"):
        order("latest")


@each(knowledge("vllm/owned.yml")["flags"])
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


def test_what_the_plan_owns_cannot_be_forced():
    assert not check_of("ENGINE-OVERRIDE-OWNED").forcible
    assert check_of("ENGINE-UNKNOWN-FLAG").forcible


_ANY = {"text": "text", "number": 7, "bool": True, "version": "0.1"}


def _facts_of(condition):
    """Return facts with which a condition holds, as far as its texts need them."""
    found = {}
    for test in condition.tests:
        bound = test.bounds[0]
        if test.operator == "not":
            unset = test.fact.startswith(("flag ", "env ")) and "" not in test.bounds
            bound = "" if unset else "other"
        if test.operator == "not_multiple_of":
            bound = 1
        found[test.fact] = bound
    for group in condition.alternatives:
        found |= _facts_of(group[0])
    return found


@each(rules(), name=lambda rule: rule.id)
def test_every_rules_text_is_whole(rule):
    """A text about an element that is not set would be printed with its braces."""
    facts = {name: _ANY[kind] for name, kind in fact_types().items()}
    facts |= {"version": rule.versions.last or rule.versions.first or newest()}
    facts |= _facts_of(rule.when)
    texts = [fill(rule.reason, facts) or rule.reason]
    if rule.kind != "set":
        finding = rule.finding(facts)
        texts += [finding.message, finding.remedy]
    for text in texts:
        assert text
        assert "{" not in text, text
