# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of one engine: env and argv for an exact vLLM version, each element explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import elements, ownership
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.elements import (
    ElementError,
    FlagElement,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import Fact, facts
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import resolve_version
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.ownership import Owner
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import (
    Rule,
    fill,
    holds,
    rules,
    unknown_facts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import Reason, Recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

_OPERATOR = "OPERATOR"


def recipe(
    architecture: Architecture, deployment: Deployment, gpu_model: str | None, port: int
) -> Recipe:
    """Return the engine's env and argv (`serve MODEL …`), every element with rule and source.

    ``gpu_model`` is a name of knowledge/gpus.yml, such as MI325X. Raises ApiaryError with every
    refusal at once; warnings are in the recipe's findings.
    """
    findings = list(check_deployment(deployment))
    if has_errors(findings):
        raise ApiaryError(*findings)
    engine = deployment.engine
    resolved = resolve_version(engine.version, engine.treat_as)
    findings += resolved.findings
    known = facts(architecture, deployment, gpu_model, resolved.version, port)
    assembly = _Assembly(resolved.version, known, deployment)
    for rule in rules():
        assembly.apply(rule)
    findings += assembly.findings
    if has_errors(findings):
        raise ApiaryError(*findings)
    return Recipe(
        engine=engine.name,
        version=engine.version,
        env=dict(assembly.env),
        argv=("serve", deployment.model.path, *assembly.argv()),
        reasons=(
            Reason("model", "DEPLOYMENT", "where the weights lie on the host", "model.path"),
            *assembly.reasons.values(),
        ),
        findings=tuple(findings),
    )


class _Assembly:
    """The elements so far. Overrides are known from the start, so that rules see them."""

    def __init__(self, version: str, known: Mapping[str, Fact], deployment: Deployment) -> None:
        self.version = version
        self.facts: dict[str, Fact] = dict(known)
        self.findings: list[Finding] = []
        self.flags: dict[str, FlagElement] = {}
        self.env: dict[str, str] = {}
        self.reasons: dict[str, Reason] = {}
        self._flag_overrides: dict[str, FlagElement | None] = {}
        self._env_overrides: dict[str, str | None] = {}
        for key, value in deployment.engine.args.items():
            self._override(self._read_flag, key, value)
        for name, value in deployment.engine.env.items():
            self._override(self._read_env, name, value)
        self._pending = dict(self._flag_overrides)
        self._pending_env = dict(self._env_overrides)

    def _override(self, read: Any, key: str, value: Any) -> None:
        try:
            read(key, value)
        except ElementError as problem:
            self.findings.append(problem.finding)

    def _read_flag(self, key: str, value: Any) -> None:
        flag, spelling, inner = elements.find(key, self.version)
        dest = f"{flag.dest}.{inner}" if inner else flag.dest
        if dest in self._flag_overrides:
            self._refuse(
                "ENGINE-DUPLICATE-OVERRIDE",
                spelling,
                f"engine.args sets {flag.name} twice, under two spellings",
                "keep one of them",
            )
            return
        element = None if value is None else elements.flag_element(key, value, self.version)
        self._flag_overrides[dest] = element
        self.facts[f"flag {dest}"] = element.text if element else ""
        owner = ownership.of_flag(flag.dest)
        self._check_owned(owner, flag.name, element.text if element else None, "engine.args")

    def _read_env(self, name: str, value: Any) -> None:
        text = None if value is None else elements.env_element(name, value, self.version)
        self._env_overrides[name] = text
        self.facts[f"env {name}"] = elements.switch(name, text or "", self.version)
        self._check_owned(ownership.of_env(name), name, text, "engine.env")

    def _check_owned(self, owner: Owner | None, name: str, text: str | None, where: str) -> None:
        """Refuse an override of what the plan decides, unless they agree."""
        if owner is None or owner.agrees(text, self.facts):
            return
        given = owner.dropped if text is None else text
        decides = (
            f"but {owner.field} decides it" if owner.field else "but it is the plan's to decide"
        )
        instead = f"set {owner.field} instead, and " if owner.field else ""
        self._refuse(
            "ENGINE-OVERRIDE-OWNED",
            name,
            f"{where} sets it to {given}, {decides}: {owner.reason}",
            f"{instead}remove {name} from {where}",
        )

    def _refuse(self, code: str, subject: str, message: str, remedy: str) -> None:
        self.findings.append(Finding(code, "error", subject, message, remedy))

    def apply(self, rule: Rule) -> None:
        """Evaluate one rule on the elements so far."""
        if rule.set is None:
            self._finish_overrides()
        outcome = holds(rule.when, self.facts)
        if outcome is None and rule.needs is not None:
            self._unchecked(rule)
        if not outcome:
            return
        if rule.set is not None:
            try:
                self._set(rule, rule.set)
            except ElementError as problem:  # the deployment's value, in this version
                self.findings.append(problem.finding)
        elif rule.refuse is not None:
            self._report(rule, rule.refuse, "error")
        elif rule.warn is not None:
            self._report(rule, rule.warn, "warning")

    def _unchecked(self, rule: Rule) -> None:
        if rule.set is not None and rule.set.get("env") in self._env_overrides:
            return
        names = ", ".join(unknown_facts(rule.when, self.facts))
        self.findings.append(
            Finding(
                "ENGINE-RULE-UNCHECKED",
                "warning",
                rule.id,
                f"not applied, because {rule.needs} is not known ({names})",
                "name the GPU and give the model's complete config.json",
                rule.source,
            )
        )

    def _report(self, rule: Rule, entry: Mapping[str, str], severity: Any) -> None:
        message, remedy = (
            fill(entry[key], self.facts) or entry[key] for key in ("message", "remedy")
        )
        self.findings.append(
            Finding(
                entry["code"],
                severity,
                entry.get("field", "deployment"),
                f"{message} ({rule.id})",
                remedy,
                rule.source,
            )
        )

    def _set(self, rule: Rule, entry: Mapping[str, str]) -> None:
        value: Any = fill(entry["value"], self.facts) if "value" in entry else True
        if value is None:
            return
        reason = fill(rule.reason, self.facts) or rule.reason
        if "env" in entry:
            name = entry["env"]
            if name in self._env_overrides:
                self._keep_env(name)
                return
            self.env[name] = elements.env_element(name, value, self.version)
            self.facts[f"env {name}"] = self.env[name]
            self.reasons[f"env {name}"] = Reason(name, rule.id, reason, rule.source)
            return
        element = elements.flag_element(entry["flag"], value, self.version)
        if element.key in self._flag_overrides:
            self._keep_flag(element.key)
            return
        self._add_flag(element, Reason(element.name, rule.id, reason, rule.source))

    def _add_flag(self, element: FlagElement, reason: Reason) -> None:
        self.flags[element.key] = element
        self.facts[f"flag {element.key}"] = element.text
        self.reasons[f"flag {element.key}"] = reason

    def _keep_flag(self, key: str) -> None:
        """Put an override where the rule's own element would stand."""
        element = self._pending.pop(key, None)
        if element is not None:
            self._add_flag(element, _operator(element.name, "engine.args"))

    def _keep_env(self, name: str) -> None:
        text = self._pending_env.pop(name, None)
        if text is not None:
            self.env[name] = text
            self.reasons[f"env {name}"] = _operator(name, "engine.env")

    def _finish_overrides(self) -> None:
        """Add the overrides that no rule has a place for, sorted, before the refusals look."""
        for key in sorted(self._pending):
            self._keep_flag(key)
        for name in sorted(self._pending_env):
            self._keep_env(name)

    def argv(self) -> list[str]:
        """Return the flags in order, each with its values."""
        return [part for element in self.flags.values() for part in element.argv]


def _operator(element: str, where: str) -> Reason:
    return Reason(element, _OPERATOR, "set by the operator", where)
