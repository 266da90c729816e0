# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules as data (knowledge/vllm/rules.yml and rules/), read and checked once."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..documents import knowledge
from ..findings import Finding, Severity
from .conditions import Condition, Fact, Span, fill, names_in, order, parse, read_span, type_of

Kind = Literal["set", "refuse", "warn", "note"]
_KINDS: tuple[Kind, ...] = ("set", "refuse", "warn", "note")
_SEVERITIES: Mapping[str, Severity] = {"refuse": "error", "warn": "warning", "note": "info"}
STAGES = ("parser", "config", "backend", "load", "run")


@dataclass(frozen=True)
class Claim:
    """Something published that is not right for every version, by whom, and what is."""

    says: str
    by: str
    verdict: str


@dataclass(frozen=True)
class Rule:
    """One rule; rules.yml explains the members. ``effect`` is what its ``kind`` needs.

    ``stages`` are (first version, stage) pairs of a refusal; ``missing`` is what to say of a
    command without the element that it sets: warning, info or none.
    """

    id: str
    kind: Kind
    effect: Mapping[str, str]
    versions: Span
    when: Condition
    reason: str
    source: str
    needs: str | None = None
    stages: tuple[tuple[str, str | None], ...] = ()
    missing: str = "info"
    claims: tuple[Claim, ...] = ()

    @property
    def severity(self) -> Severity | None:
        """Return the severity of its finding; None for one that sets an element."""
        return _SEVERITIES.get(self.kind)

    def stage(self, version: str) -> str | None:
        """Return where vLLM of this version stops itself on what the rule refuses, or None."""
        current = None
        for first, stage in self.stages:
            if order(version) >= order(first):
                current = stage
        return current

    def covers(self, facts: Mapping[str, Fact]) -> bool:
        """Say whether the version is one of the rule's."""
        return self.versions.covers(str(facts["version"]))

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Say whether it applies; None when an unknown fact leaves that open."""
        return self.covers(facts) and self.when.holds(facts)

    def finding(self, facts: Mapping[str, Fact]) -> Finding:
        """Return the finding of a rule that refuses, warns or remarks."""
        message, remedy, reason = (
            fill(text, facts) or text
            for text in (self.effect["message"], self.effect["remedy"], self.reason)
        )
        finding = Finding(
            self.effect["code"],
            self.effect.get("field", "deployment"),
            f"{message}: {reason} ({self.id})",
            source=self.source,
        )
        # The rule, which is knowledge too, says it more closely than the catalogue can.
        return finding.reworded(remedy=remedy)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules in their order; ValueError for one that makes no sense."""
    data = knowledge("vllm/rules.yml")
    return tuple(
        _rule(entry, data["sources"])
        for name in data["files"]
        for entry in knowledge(f"vllm/rules/{name}.yml")["rules"]
    )


@functools.cache
def by_id() -> Mapping[str, Rule]:
    """Return the rules by id."""
    return {rule.id: rule for rule in rules()}


def _rule(entry: Mapping[str, Any], sources: Mapping[str, str]) -> Rule:
    try:
        kinds = [kind for kind in _KINDS if kind in entry]
        if len(kinds) != 1:
            raise ValueError(f"one of {', '.join(_KINDS)} says what it does, found {kinds}")
        (kind,) = kinds
        rule = Rule(
            id=entry["id"],
            kind=kind,
            effect=entry[kind],
            versions=read_span(entry.get("versions")),
            when=parse(entry.get("when", {})),
            reason=entry["reason"],
            source=spelled_out(entry["source"], sources),
            needs=entry.get("needs"),
            stages=_stages(entry.get("stage")),
            missing=entry.get("missing", "info"),
            claims=tuple(
                Claim(item["says"], spelled_out(item["by"], sources), item["verdict"])
                for item in entry.get("claims", ())
            ),
        )
        if (kind == "refuse") != bool(rule.stages):
            raise ValueError("a refusal has a stage, and nothing else has")
        for text in (rule.reason, *rule.effect.values()):
            for name in names_in(text):
                type_of(name)
    except (KeyError, ValueError) as wrong:
        raise ValueError(f"rule {entry.get('id')}: {wrong}") from wrong
    return rule


def _stages(value: Any) -> tuple[tuple[str, str | None], ...]:
    if value is None:
        return ()
    steps = value if isinstance(value, list) else [{"from": "0", "at": value}]
    for step in steps:
        if step["at"] not in (*STAGES, "none"):
            raise ValueError(f"there is no stage {step['at']}")
    return tuple((step["from"], None if step["at"] == "none" else step["at"]) for step in steps)


def spelled_out(source: str, sources: Mapping[str, str]) -> str:
    """Return a source with the named ones (`sources.NAME`) in full."""
    return re.sub(r"sources\.(\w+)", lambda match: sources[match[1]], source)
