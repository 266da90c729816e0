# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules as data (knowledge/vllm/rules.yml) and the evaluation of their conditions."""

from __future__ import annotations

import functools
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import Fact
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.versions import order

ELEMENTS = ("flag ", "env ")


@dataclass(frozen=True)
class Rule:
    """One rule: exactly one of ``set``, ``refuse`` and ``warn`` says what it does."""

    id: str
    reason: str
    source: str
    when: Mapping[str, Any]
    set: Mapping[str, str] | None = None
    refuse: Mapping[str, str] | None = None
    warn: Mapping[str, str] | None = None
    needs: str | None = None


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules in their order, with named sources spelled out."""
    data = knowledge("vllm/rules.yml")
    result = []
    for entry in data["rules"]:
        source = entry["source"]
        if source.startswith("sources."):
            source = data["sources"][source.removeprefix("sources.")]
        result.append(Rule(**{"when": {}, **entry, "source": source}))
    return tuple(result)


def holds(when: Mapping[str, Any], facts: Mapping[str, Fact]) -> bool | None:
    """Evaluate a condition; None when an unknown fact leaves it open.

    The language is described at the top of rules.yml.
    """
    open_ = False
    for name, test in when.items():
        if name == "any":
            outcomes = [holds(item, facts) for item in test]
            outcome = True if True in outcomes else None if None in outcomes else False
        else:
            outcome = _test(lookup(facts, name), test, facts)
        if outcome is False:
            return False
        open_ = open_ or outcome is None
    return None if open_ else True


def lookup(facts: Mapping[str, Fact], name: str) -> Fact:
    """Return a fact; an element that is not set is the empty text, not unknown."""
    return facts.get(name, "" if name.startswith(ELEMENTS) else None)


def unknown_facts(when: Mapping[str, Any], facts: Mapping[str, Fact]) -> list[str]:
    """Return the names of the facts that leave a condition open."""
    names: list[str] = []
    for name, test in when.items():
        if name == "any":
            names += [inner for item in test for inner in unknown_facts(item, facts)]
        elif lookup(facts, name) is None:
            names.append(name)
    return names


def _test(value: Fact, test: Any, facts: Mapping[str, Fact]) -> bool | None:
    if value is None:
        return None
    if not isinstance(test, Mapping):
        return _is_one_of(value, test, facts)
    return all(_operate(value, operator, bound, facts) for operator, bound in test.items())


def _operate(value: Fact, operator: str, bound: Any, facts: Mapping[str, Fact]) -> bool:
    if operator == "from":
        return order(str(value)) >= order(bound)
    if operator == "until":
        return order(str(value)) <= order(bound)
    if operator == "not":
        return not _is_one_of(value, bound, facts)
    if operator == "contains":
        return str(bound) in str(value)
    if not isinstance(value, (int, float)):
        raise ValueError(f"{operator} needs a number, not {value!r}")
    if operator == "min":
        return bool(value >= bound)
    if operator == "max":
        return bool(value <= bound)
    if operator == "not_multiple_of":
        return bool(value % bound)
    raise ValueError(f"unknown operator {operator}")


def _is_one_of(value: Fact, expected: Any, facts: Mapping[str, Fact]) -> bool:
    options = expected if isinstance(expected, list) else [expected]
    return any(value == (fill(item, facts) if isinstance(item, str) else item) for item in options)


def fill(template: str, facts: Mapping[str, Fact]) -> str | None:
    """Return the text with each {fact} replaced, or None when one is unknown or empty.

    Notes (facts whose name ends in `_note`) may be empty; booleans are true and false.
    """
    parts = []
    for literal, name, _spec, _conversion in string.Formatter().parse(template):
        parts.append(literal)
        if name is None:
            continue
        value = lookup(facts, name)
        if value is None or (value == "" and not name.endswith("_note")):
            return None
        parts.append(str(value).lower() if isinstance(value, bool) else str(value))
    return "".join(parts)
