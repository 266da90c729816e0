# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Known defects as data: each entry makes sense, and holds where it says and not beside it."""

import collections
import re
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import advisories as engine
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    advisories,
    advisory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    type_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.values import checks
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import explanation
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models

from support.each import each

ROOT = Path(__file__).parents[3]
# Releases of vLLM whose flags are not known.
RELEASES = {"0.10.1", "0.11.1", "0.11.2", "0.14.0"}
THREAD = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+#\d+")
ENTRY = {
    **{"id": "X-1", "symptom": "start", "says": "s", "do": "d", "proof": "reported"},
    **{"read": "row", "source": "a/b#1"},
}


def releases():
    return RELEASES | set(versions())


def test_there_are_more_than_a_hundred_and_no_two_have_one_name():
    names = [each.id for each in (*advisories(), *rules(), *checks())]
    assert len(advisories()) > 100
    assert len(names) == len(set(names))
    assert advisory("VLLM-51964").fixed == "vLLM 0.28.0"
    assert advisory("VLLM-1") is None


def test_the_limits_say_how_far_the_threads_were_read():
    read = collections.Counter(item.read for item in advisories())
    limits = (ROOT / "docs/explanation/limits.md").read_text(encoding="utf-8")
    assert read["thread"] == 1
    assert f"Of {len(advisories())} advisories one rests on a thread that was read" in limits
    assert f"| {read['excerpts']} rest on excerpts" in limits
    assert f"{read['row']} on a reviewer's row" in limits


@each(advisories(), name=lambda item: item.id)
def test_an_advisory_names_its_thread_and_releases_that_exist(item):
    assert THREAD.search(item.source)
    assert item.read in ("thread", "excerpts", "row")
    assert item.read != "row" or item.proof == "reported"
    bounds = {item.versions.first, item.versions.last} - {None}
    assert bounds <= releases(), bounds
    assert any(item.versions.covers(release) for release in releases())
    assert explanation(item.effect["code"])["severity"] == item.severity
    assert "{" not in item.says + item.remedy
    assert item.log is None or item.log.strip()


def value(test):
    """A value for which a test holds."""
    (first, *_rest), kind = test.bounds, type_of(test.fact)
    if test.operator == "not":
        return "something-else" if kind in ("text", "element") else not first
    if test.operator == "contains":
        return f"a {first} b"
    return str(first) if kind == "element" else first


def met(condition):
    """Facts for which a condition holds: each test by a value of its own, first alternatives."""
    facts = {}
    for test in condition.tests:
        facts.setdefault(test.fact, value(test))
    for group in condition.alternatives:
        facts |= met(group[0])
    return facts


def missed(test):
    """A value for which a test doesn't hold."""
    (first, *_rest), kind = test.bounds, type_of(test.fact)
    if test.operator == "not":
        return first
    if kind == "bool":
        return not first
    if test.operator in ("min", "max"):
        off = first + (-1 if test.operator == "min" else 1)
        return str(off) if kind == "element" else off
    if kind == "version":
        return "0.0.1" if test.operator in ("is", "from") else "99"
    return -1 if kind == "number" else "something-else"


@each(advisories(), name=lambda item: item.id)
def test_it_holds_where_it_says_and_not_beside_it(item):
    release = next(each for each in sorted(releases()) if item.versions.covers(each))
    facts = {"release": release, **met(item.when)}
    assert item.holds(facts) is True
    for test in item.when.tests:
        assert item.holds({**facts, test.fact: missed(test)}) is False, test
    other = next((each for each in releases() if not item.versions.covers(each)), None)
    assert other is None or item.holds({**facts, "release": other}) is False
    assert item.possible({"release": release}) is not None


@each([item for item in advisories() if item.avoid], name=lambda item: item.id)
def test_what_avoids_it_is_an_element_that_ends_it(item):
    name, text = item.avoid.get("env") or item.avoid["flag"], item.avoid.get("value", "true")
    fact = f"env {name}" if "env" in item.avoid else f"flag {name.lstrip('-').replace('-', '_')}"
    facts = {"release": item.versions.last or item.versions.first, **met(item.when), fact: text}
    if "attention_backend" in facts:
        facts["attention_backend"] = "ANOTHER"  # what the element is for
    alternatives = [fact in item.facts() for group in item.when.alternatives for item in group]
    assert item.holds(facts) is False or any(alternatives)


def test_every_gpu_that_an_advisory_names_is_one():
    named = {
        bound
        for item in advisories()
        for test in item.when.tests
        if test.fact in ("gpu", "gfx")
        for bound in test.bounds
    }
    assert named <= set(gpu_models()) | {model.gfx for model in gpu_models().values()}


def test_a_defect_is_said_of_the_releases_alone_whose_source_has_it():
    for release, covered in (("0.24.0", False), ("0.25.1", True), ("0.26.0", False)):
        assert advisory("VLLM-47158").versions.covers(release) is covered
    for release, covered in (("0.25.1", False), ("0.26.0", True), ("0.29.0", False)):
        assert advisory("VLLM-54717").versions.covers(release) is covered
    for release, covered in (("0.17.1", True), ("0.18.0", False)):
        assert advisory("VLLM-35637").versions.covers(release) is covered
        assert advisory("VLLM-35637-LATER").versions.covers(release) is not covered
    for release, covered in (("0.22.1", True), ("0.23.0", False)):
        assert advisory("VLLM-39192").versions.covers(release) is covered
    for release, covered in (("0.19.1", False), ("0.20.0", True)):
        assert advisory("AITER-2720").versions.covers(release) is covered
    for release, covered in (("0.18.1", False), ("0.19.0", True), ("0.24.0", True)):
        assert advisory("VLLM-47276").versions.covers(release) is covered
    for release, covered in (("0.30.0", True), ("0.31.0", False)):
        assert advisory("VLLM-57064").versions.covers(release) is covered
    for name, first, last in (
        ("AITER-915", None, "0.16.0"),
        ("AITER-2187", "0.17.0", "0.24.0"),
        ("AITER-2343", "0.16.0", "0.19.1"),
        ("AITER-2563", "0.16.0", "0.19.1"),
        ("AITER-3139", "0.17.0", "0.20.2"),
        ("AITER-4633", "0.24.0", "0.27.1"),
        ("AITER-5049", "0.30.0", "0.30.0"),
        ("VLLM-26329", "0.11.0", "0.11.0"),
        ("VLLM-38719", "0.19.0", "0.19.1"),
        ("VLLM-47042", "0.23.0", "0.24.0"),
        ("KVCACHED-267", "0.11.2", "0.20.2"),
        ("VLLM-39303", "0.20.0", "0.20.2"),
        ("VLLM-57227", "0.30.0", None),
    ):
        span = advisory(name).versions
        assert (span.first, span.last) == (first, last), name
    for name, first in (
        ("VLLM-31625", "0.12.0"),
        ("VLLM-38145", "0.12.0"),
        ("VLLM-42893", "0.21.0"),
        ("VLLM-43605", "0.17.0"),
        ("VLLM-45227", "0.14.0"),
        ("VLLM-50455", "0.21.0"),
        ("VLLM-52109", "0.24.0"),
        ("VLLM-54180", "0.24.0"),
        ("VLLM-57642", "0.27.0"),
    ):
        assert advisory(name).versions.first == first
    assert advisory("VLLM-54180").versions.last is None
    assert advisory("VLLM-45562") is None  # 0.24.0 has the model first, with what mends it
    assert advisory("VLLM-36795") is None  # its fix came before any release had the defect
    assert advisory("VLLM-27190") is None  # neither 0.11.0 nor 0.11.1 has it


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("VLLM-52109", "0.31.0"),
        ("VLLM-50455", "0.31.0"),
        ("VLLM-31625", "0.17.0"),
        ("VLLM-43781", "0.23.0"),
        ("VLLM-46952", "0.25.0"),
        ("VLLM-47158", "0.26.0"),
        ("VLLM-46760", "0.25.0"),
        ("VLLM-46913", "0.27.0"),
        ("VLLM-42876", "0.22.0"),
        ("VLLM-44679", "0.23.0"),
        ("VLLM-44893", "0.24.0"),
        ("VLLM-47276", "0.25.0"),
        ("VLLM-52656", "0.31.0"),
        ("VLLM-50563", "0.28.0"),
        ("VLLM-42893", "0.24.0"),
    ],
)
def test_what_a_release_mends_is_not_said_of_it(name, release):
    item = advisory(name)
    assert item.versions.last is not None
    assert not item.versions.covers(release)
    assert item.fixed.startswith(f"vLLM {release} ")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"symptom": "odd"}, "odd"),
        ({"proof": "believed"}, "believed"),
        ({"when": {"colour": "red"}}, "there is no fact colour"),
        ({"when": {"aiter": {"from": "newest"}}}, "aiter is version: from cannot take 'newest'"),
        ({"when": {"aiter": {"contains": "0.1"}}}, "no operator contains"),
        ({"says": None}, "says"),
    ],
)
def test_an_advisory_that_makes_no_sense_is_refused_when_it_is_read(change, part):
    entry = {key: item for key, item in (ENTRY | change).items() if item is not None}
    with pytest.raises(ValueError, match=f"advisory X-1: .*{part}"):
        engine._advisory(entry, knowledge("vllm/advisories.yml"))
