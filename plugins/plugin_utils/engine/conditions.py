# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions of rules: a small typed language over facts, read once and checked then.

A condition is a mapping of tests, all of which must hold; `any` is a list of conditions, one of
which must. A test compares one fact with a value, with a list of values (one of them), or by
operators: `not`, `contains` for text; `not`, `min`, `max`, `not_multiple_of` for numbers; `from`,
`until` (both inclusive) for versions. Which
facts there are, and their types, stands in knowledge/vllm/facts.yml; `flag <dest>` and
`env <NAME>` are the elements of the command, as text, empty when not set. In a text, {fact}
stands for another fact.

Versions are in order as PEP 440 has it for the forms that vLLM releases use. The packaging library
would do, but ansible-test's import check runs without it.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..documents import knowledge

_FORM = re.compile(
    r"v?(?P<release>\d+(?:\.\d+){0,2})"
    r"(?P<pre>(?:a|b|rc)\d+)?(?:\.post(?P<post>\d+))?(?P<dev>\.dev\d+)?(?:\+[\w.]+)?"
)


class Version(NamedTuple):
    """A version's place in the order; local builds share their release's place.

    ``final`` is False for pre-releases and development builds, which come before their release.
    """

    release: tuple[int, int, int]
    final: bool
    post: int


@functools.cache
def parse_version(text: str) -> Version | None:
    """Return the version, or None for what is none (such as "latest")."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [int(number) for number in match["release"].split(".")]
    major, minor, micro = (*numbers, 0, 0)[:3]
    final = match["pre"] is None and match["dev"] is None
    return Version((major, minor, micro), final, int(match["post"] or 0))


def order(text: str) -> Version:
    """Return a version that must be one: it comes from our own knowledge."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"not a version: {text!r}")
    return parsed


@dataclass(frozen=True)
class Span:
    """A range of versions, both ends included; None is open."""

    first: str | None = None
    last: str | None = None

    def covers(self, version: str) -> bool:
        """Say whether a version is in the range."""
        return (self.first is None or order(version) >= order(self.first)) and (
            self.last is None or order(version) <= order(self.last)
        )

    def __str__(self) -> str:
        if self.first is None:
            return "all" if self.last is None else f"up to {self.last}"
        if self.last is None:
            return f"{self.first} and newer"
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def read_span(entry: Mapping[str, str] | None) -> Span:
    """Return the range that `{from: …, until: …}` means."""
    return Span((entry or {}).get("from"), (entry or {}).get("until"))


Fact = str | int | float | bool | None
ELEMENTS = ("flag ", "env ")
_OPERATORS = {
    "text": {"is", "not", "contains"},
    "bool": {"is"},
    "number": {"is", "not", "min", "max", "not_multiple_of"},
    "version": {"is", "from", "until"},
    # An element is text; what it is compared with says whether it is read as a number.
    "element": {"is", "not", "contains", "min", "max", "not_multiple_of"},
}


@dataclass(frozen=True)
class Test:
    """One comparison of a fact; ``bounds`` has one value but for `is` and `not`."""

    fact: str
    operator: str
    bounds: tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """All tests hold, and of each group of alternatives one."""

    tests: tuple[Test, ...] = ()
    alternatives: tuple[tuple[Condition, ...], ...] = ()

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Say whether it holds; None when an unknown fact leaves that open."""
        outcomes = [_outcome(test, facts) for test in self.tests]
        for group in self.alternatives:
            members = [item.holds(facts) for item in group]
            outcomes.append(True if True in members else None if None in members else False)
        if False in outcomes:
            return False
        return None if None in outcomes else True

    def unknown(self, facts: Mapping[str, Fact]) -> tuple[str, ...]:
        """Return the names of the facts that leave it open."""
        names = [test.fact for test in self.tests if _outcome(test, facts) is None]
        for group in self.alternatives:
            names += [name for item in group for name in item.unknown(facts)]
        return tuple(names)

    def open(self, facts: Mapping[str, Fact]) -> Condition:
        """Return what of it these facts leave open."""
        return Condition(
            tuple(test for test in self.tests if _outcome(test, facts) is None),
            tuple(group for group in self.alternatives if not any(i.holds(facts) for i in group)),
        )

    def facts(self) -> tuple[str, ...]:
        """Return the names of all facts that it asks about."""
        names = [test.fact for test in self.tests]
        return tuple(names + [n for group in self.alternatives for i in group for n in i.facts()])

    def words(self) -> str:
        """Return it for a person; empty where it always holds."""
        parts = [_words(test) for test in self.tests]
        for group in self.alternatives:
            parts.append("(" + " or ".join(item.words() for item in group) + ")")
        return " and ".join(parts)


@functools.cache
def fact_types() -> Mapping[str, str]:
    """Return the type of each fact: text, number, bool or version."""
    return {name: entry["type"] for name, entry in knowledge("vllm/facts.yml")["facts"].items()}


def parse(when: Mapping[str, Any]) -> Condition:
    """Read a condition; ValueError for an unknown fact, operator or a bound of another type."""
    tests: list[Test] = []
    alternatives: list[tuple[Condition, ...]] = []
    for name, given in when.items():
        if name == "any":
            alternatives.append(tuple(parse(item) for item in given))
            continue
        kind = type_of(name)
        operators = given if isinstance(given, Mapping) else {"is": given}
        for operator, bound in operators.items():
            if operator not in _OPERATORS[kind]:
                raise ValueError(f"{name} is {kind}, which has no operator {operator}")
            bounds = tuple(bound) if isinstance(bound, list) else (bound,)
            for item in bounds:
                _check_bound(name, kind, operator, item)
            tests.append(Test(name, operator, bounds))
    return Condition(tuple(tests), tuple(alternatives))


def type_of(name: str) -> str:
    """Return what a fact is, `element` for one of the command; ValueError for none such."""
    if name.startswith(ELEMENTS):
        return "element"
    kind = fact_types().get(name)
    if kind is None:
        raise ValueError(f"there is no fact {name}")
    return kind


def _check_bound(name: str, kind: str, operator: str, bound: Any) -> None:
    number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    expected: bool
    if kind == "bool":
        expected = isinstance(bound, bool)
    elif kind == "number" or operator in ("min", "max", "not_multiple_of"):
        expected = number
    else:
        expected = isinstance(bound, str)
        if kind == "version":
            expected = expected and parse_version(bound) is not None
    if not expected:
        raise ValueError(f"{name} is {kind}: {operator} cannot take {bound!r}")


def lookup(facts: Mapping[str, Fact], name: str) -> Fact:
    """Return a fact; an element that is not set is the empty text, not unknown."""
    return facts.get(name, "" if name.startswith(ELEMENTS) else None)


def _outcome(test: Test, facts: Mapping[str, Fact]) -> bool | None:
    value = lookup(facts, test.fact)
    if value is None:
        return None
    if test.operator in ("from", "until"):
        return _in_order(str(value), test)
    if test.operator in ("is", "not"):
        among = any(value == _bound(item, facts) for item in test.bounds)
        return among == (test.operator == "is")
    (bound,) = test.bounds
    if test.operator == "contains":
        return str(bound) in str(value)
    number = as_number(value)
    if number is None:
        return False  # an element that is not set, or no number: the parser says so itself
    if test.operator == "min":
        return number >= float(bound)
    if test.operator == "max":
        return number <= float(bound)
    return bool(number % float(bound))


def _in_order(value: str, test: Test) -> bool | None:
    """Compare versions; None for a text that is none, such as a commit."""
    place, (bound,) = parse_version(value), test.bounds
    if place is None:
        return None
    return place >= order(bound) if test.operator == "from" else place <= order(bound)


def as_number(value: Fact) -> float | None:
    """Return a number, or None for a text that is none."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


def _bound(item: Any, facts: Mapping[str, Fact]) -> Any:
    return fill(item, facts) if isinstance(item, str) else item


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


def names_in(template: str) -> tuple[str, ...]:
    """Return the facts that a text stands on."""
    return tuple(part[1] for part in string.Formatter().parse(template) if part[1] is not None)


def _shown(fact: str) -> str:
    kind, _space, name = fact.partition(" ")
    if kind == "env":
        return name
    return "--" + name.replace("_", "-") if kind == "flag" and name else fact.replace("_", " ")


def _words(test: Test) -> str:
    name = _shown(test.fact)
    values = [_value_words(item) for item in test.bounds]
    listed = values[0] if len(values) == 1 else ", ".join(values[:-1]) + " or " + values[-1]
    if test.fact.startswith(ELEMENTS) and "" in test.bounds and len(values) == 1:
        return f"{name} is {'not set' if test.operator == 'is' else 'set'}"
    words = {
        "is": "is",
        "not": "is not",
        "contains": "contains",
        "from": "is from",
        "until": "is up to",
        "min": "is at least",
        "max": "is at most",
        "not_multiple_of": "is no multiple of",
    }
    return f"{name} {words[test.operator]} {listed}"


def _value_words(item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    return "unset" if item == "" else str(item)


def holding(
    entries: Iterable[Mapping[str, Any]], version: str, facts: Mapping[str, Fact]
) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a table that hold for a release and these facts."""
    for entry in entries:
        if read_span(entry["versions"]).covers(version) and parse(entry["when"]).holds(facts):
            yield entry
