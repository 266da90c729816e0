# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A command in the making: the rules' elements and the operator's overrides, judged as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..findings import Finding
from . import attention, elements, ownership
from .conditions import Fact, fill
from .elements import EnvElement, FlagElement
from .ownership import Owner
from .problems import ElementError, Problem, check_of
from .rules import Rule
from .types import Reason, Refused

OPERATOR = "OPERATOR"


class Command:
    """The elements of one command, and the facts that they make: what rules look at."""

    def __init__(self, known: Mapping[str, Fact]) -> None:
        self.version = str(known["version"])
        self.facts: dict[str, Fact] = dict(known)
        self.flags: dict[str, FlagElement] = {}
        self.env: dict[str, str] = {}
        self.choice = attention.Choice()

    def hide(self, element: str) -> None:
        """Keep rules from judging an element (`flag dest`, `env NAME`) that is refused already."""
        for name in [element, *(item for item in self.facts if item.startswith(f"{element}."))]:
            self.facts[name] = None

    def see_flag(self, key: str, element: FlagElement | None) -> None:
        """Let rules see a flag, and the keys of a JSON value; None is one that is left out."""
        self.facts[f"flag {key}"] = element.text if element else ""
        for name, text in (element.keys or {}).items() if element else ():
            self.facts[f"flag {key}.{name}"] = text.strip('"')

    def see_env(self, name: str, text: str | None) -> None:
        """Let rules see a variable; None is one that is left out."""
        self.facts[f"env {name}"] = elements.switch(name, text or "", self.version)

    def choose_backend(self) -> None:
        """Find out, once all elements are there, which attention backend vLLM will choose."""
        self.choice = attention.choose(self.facts)
        self.facts["attention_backend"] = self.choice.backend
        self.facts["attention_refuses"] = self.choice.refuses
        self.facts["attention_note"] = self.choice.note

    def argv(self) -> list[str]:
        """Return the flags in order, each with its values."""
        return [part for element in self.flags.values() for part in element.argv]


class Assembly(Command):
    """A command made from rules and overrides; overrides are known from the start.

    ``forced`` are the ids of rules and checks whose refusals are warnings.
    """

    def __init__(
        self,
        known: Mapping[str, Fact],
        args: Mapping[str, Any],
        env: Mapping[str, Any],
        forced: Iterable[str] = (),
    ) -> None:
        super().__init__(known)
        self.reasons: dict[str, Reason] = {}
        self.findings: list[Finding] = []
        self.refused: list[Refused] = []
        self.forced = frozenset(forced)
        self.used: set[str] = set()
        self._flags: dict[str, FlagElement | None] = {}
        self._env: dict[str, str | None] = {}
        for key, value in args.items():
            self._read(self._read_flag, key, value)
        for name, value in env.items():
            self._read(self._read_env, name, value)
        self._pending = dict(self._flags)
        self._pending_env = dict(self._env)

    def _read(self, reader: Callable[[str, Any, list[Problem]], str], key: str, value: Any) -> None:
        problems: list[Problem] = []
        try:
            element = reader(key, value, problems)
        except ElementError as wrong:
            problems.append(wrong.problem)
            element = ""
        self._note(problems, element)

    def _note(self, problems: Iterable[Problem], element: str) -> None:
        """Refuse what is wrong with one element."""
        for problem in problems:
            self.refuse(problem.check, problem.finding, problem.stage)
            if problem.check not in self.forced:
                self.hide(element)

    def refuse(self, rule: str, finding: Finding, stage: str | None) -> None:
        """Note a refusal, or a warning where it is forced."""
        if rule not in self.forced:
            self.refused.append(Refused(rule, finding, stage))
            return
        self.used.add(rule)
        forced = Finding(
            "ENGINE-FORCED",
            finding.subject,
            f"forced, although: {finding.message}",
            source=finding.source,
            rule=rule,
        )
        self.findings.append(forced)

    def _read_flag(self, key: str, value: Any, problems: list[Problem]) -> str:
        flag, spelling, inner = elements.find(key, self.version, problems)
        dest = f"{flag.dest}.{inner}" if inner else flag.dest
        if dest in self._flags:
            self._refuse_override(
                "ENGINE-DUPLICATE-OVERRIDE",
                spelling,
                f"engine.args sets {flag.name} twice, under two spellings",
            )
            return f"flag {dest}"
        element = None
        if value is not None:
            problems.clear()  # an unknown flag is found again
            element = elements.flag_element(key, value, self.version, problems)
        self._flags[dest] = element
        self.see_flag(dest, element)
        owner = ownership.of_flag(flag.dest)
        self._check_owned(owner, flag.name, element.text if element else None, "engine.args")
        return f"flag {dest}"

    def _read_env(self, name: str, value: Any, problems: list[Problem]) -> str:
        element = None
        if value is not None:
            element = elements.env_element(name, value, self.version, problems)
        self._env[name] = element.text if element else None
        self.see_env(name, self._env[name])
        self._check_owned(ownership.of_env(name), name, self._env[name], "engine.env")
        return f"env {name}"

    def _check_owned(self, owner: Owner | None, name: str, text: str | None, where: str) -> None:
        """Refuse an override of what the plan decides, unless they agree."""
        if owner is None or owner.agrees(text, self.facts):
            return
        stated = owner.dropped if text is None else text
        decides = (
            f"but {owner.field} decides it" if owner.field else "but it is the plan's to decide"
        )
        instead = f" and set {owner.field} instead" if owner.field else ""
        self._refuse_override(
            "ENGINE-OVERRIDE-OWNED",
            name,
            f"{where} sets it to {stated}, {decides}: {owner.reason}",
            instead=instead,
            name=name,
            where=where,
        )

    def _refuse_override(self, code: str, subject: str, message: str, **values: Any) -> None:
        check = check_of(code)
        finding = Finding(code, subject, message, source=check.source, **values)
        self.refuse(check.id, finding, None)

    def apply(self, rules: Iterable[Rule]) -> None:
        """Evaluate the rules in their order: elements first, then what the whole command is."""
        judged = False
        for rule in rules:
            if rule.kind != "set" and not judged:
                self._finish_overrides()
                self.choose_backend()
                judged = True
            self._apply(rule)

    def _apply(self, rule: Rule) -> None:
        outcome = rule.holds(self.facts)
        if outcome is None and rule.needs is not None:
            self._unchecked(rule)
        if not outcome:
            return
        if rule.kind == "set":
            self._set(rule)
        elif rule.kind == "refuse":
            self.refuse(rule.id, rule.finding(self.facts), rule.stage(self.version))
        else:
            self.findings.append(rule.finding(self.facts))

    def _unchecked(self, rule: Rule) -> None:
        if rule.kind == "set" and rule.effect.get("env") in self._env:
            return
        names = ", ".join(rule.when.unknown(self.facts))
        self.findings.append(
            Finding(
                "ENGINE-RULE-UNCHECKED",
                rule.id,
                f"not applied, because {rule.needs} is not known ({names})",
                source=rule.source,
            )
        )

    def _set(self, rule: Rule) -> None:
        entry = rule.effect
        value: Any = fill(entry["value"], self.facts) if "value" in entry else True
        if value is None:
            return
        reason = fill(rule.reason, self.facts) or rule.reason
        problems: list[Problem] = []
        if "env" in entry:
            name = entry["env"]
            if name in self._env:
                self._keep_env(name)
                return
            variable = elements.env_element(name, value, self.version, problems)
            self._add_env(variable, Reason(name, rule.id, reason, rule.source))
            self._note(problems, f"env {name}")
            return
        element = elements.flag_element(entry["flag"], value, self.version, problems)
        if element.key in self._flags:
            self._keep_flag(element.key)
            return
        self._add_flag(element, Reason(element.name, rule.id, reason, rule.source))
        self._note(problems, f"flag {element.key}")  # the deployment's value, in this version

    def _add_flag(self, element: FlagElement, reason: Reason) -> None:
        self.flags[element.key] = element
        if self.facts.get(f"flag {element.key}", "") is not None:
            self.see_flag(element.key, element)
        self.reasons[f"flag {element.key}"] = reason

    def _add_env(self, element: EnvElement, reason: Reason) -> None:
        self.env[element.name] = element.text
        if self.facts.get(f"env {element.name}", "") is not None:
            self.see_env(element.name, element.text)
        self.reasons[f"env {element.name}"] = reason

    def _keep_flag(self, key: str) -> None:
        """Put an override where the rule's own element would stand."""
        element = self._pending.pop(key, None)
        if element is not None:
            self._add_flag(element, _operator(element.name, "engine.args"))

    def _keep_env(self, name: str) -> None:
        text = self._pending_env.pop(name, None)
        if text is not None:
            self._add_env(EnvElement(name, text), _operator(name, "engine.env"))

    def _finish_overrides(self) -> None:
        """Add the overrides that no rule has a place for, sorted, before the refusals look."""
        for key in sorted(self._pending):
            self._keep_flag(key)
        for name in sorted(self._pending_env):
            self._keep_env(name)


def _operator(element: str, where: str) -> Reason:
    return Reason(element, OPERATOR, "set by the operator", where)
