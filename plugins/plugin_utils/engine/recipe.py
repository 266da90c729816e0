# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of one engine for an exact vLLM version: the elements of rules and overrides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..deployment import Deployment, check_deployment
from ..documents import knowledge
from ..findings import ApiaryError, Finding, has_errors
from ..model.types import Architecture
from . import attention, types
from .advisories import Advisory, advisories
from .attention import RULE, Choice
from .conditions import Fact, fill
from .elements import Element, Reading, read_env, read_flag
from .facts import ALONE, NodeRank, facts, with_profile
from .flags import resolve_version
from .rules import Rule, by_id, rules
from .types import Assessment, Reason, Recipe, Refused
from .values import Problem, check_of, checks, nearest

OPERATOR = "OPERATOR"


class Command:
    """The elements of one command, and the facts that they make: what rules look at."""

    def __init__(self, known: Mapping[str, Fact]) -> None:
        self.version = str(known["version"])
        self.facts: dict[str, Fact] = dict(known)
        self.elements: dict[str, Element] = {}
        self.choice = attention.Choice()

    def hide(self, element: str) -> None:
        """Keep rules from judging an element (`flag dest`, `env NAME`) that is refused already."""
        for name in [element, *(item for item in self.facts if item.startswith(f"{element}."))]:
            self.facts[name] = None

    def see(self, key: str, element: Element | None) -> None:
        """Let rules see an element, and the keys of a JSON value; None is one that is left out."""
        self.facts[key] = element.seen if element else ""
        for name, text in element.keys.items() if element else ():
            self.facts[f"{key}.{name}"] = text.strip('"')

    def meant(self, entry: Mapping[str, str]) -> Reading | None:
        """Return the element that an effect sets; None where its value is not known."""
        value: Any = fill(entry["value"], self.facts) if "value" in entry else True
        if value is None:
            return None
        if "env" in entry:
            return read_env(entry["env"], value, self.version)
        return read_flag(entry["flag"], value, self.version)

    def judged(self, finding: Finding) -> Finding:
        """Return what is wrong with an element; a note of a variable that vLLM goes on without."""
        past, name = knowledge("vllm/renamed.yml"), finding.subject
        checked = self.facts.get("flag fail_on_environ_validation") == "true"
        if finding.code != "ENGINE-UNKNOWN-ENV" or name not in past["ignored"] or checked:
            return finding
        message = f"{finding.message}; {past['env'][name]}"
        return Finding("ENGINE-NO-EFFECT", name, message, source=finding.source)

    def choose_backend(self) -> None:
        """Find out, once all elements are there, which attention backend vLLM will choose."""
        self.choice = attention.choose(self.facts)
        self.facts["attention_backend"] = self.choice.backend
        self.facts["attention_refuses"] = self.choice.refuses
        self.facts["attention_note"] = self.choice.note


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
        self._given: dict[str, Element | None] = {}
        for key, value in args.items():
            self._override(read_flag(key, value, self.version), value, "engine.args")
        for name, value in env.items():
            self._override(read_env(name, value, self.version), value, "engine.env")
        self._pending = dict(self._given)

    def argv(self) -> list[str]:
        """Return the flags in order, each with its values."""
        return [part for element in self.elements.values() for part in element.argv]

    def env(self) -> dict[str, str]:
        """Return the variables."""
        return {each.name: each.text for each in self.elements.values() if not each.argv}

    def _note(self, problems: Iterable[Problem], key: str) -> None:
        """Refuse what is wrong with one element, or note it."""
        for problem in problems:
            finding = self.judged(problem.finding)
            if finding is problem.finding:
                self.refuse(problem.check, finding, problem.stage)
            else:
                self.findings.append(finding)
            if problem.check not in self.forced:
                self.hide(key)

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

    def _override(self, reading: Reading, value: Any, where: str) -> None:
        key, element = reading.key, reading.element
        if key in self._given:
            self._refuse_override(
                "ENGINE-DUPLICATE-OVERRIDE",
                reading.name,
                f"{where} sets {reading.flag.name if reading.flag else key} twice, under two"
                " spellings",
            )
        elif element is None and (value is not None or not key):
            self._note(reading.problems, "")
        else:
            self._given[key] = element
            self.see(key, element)
            self._check_owned(reading, where)
            self._note(reading.problems, key)

    def _check_owned(self, reading: Reading, where: str) -> None:
        """Refuse an override of what the plan decides, unless they agree."""
        flag, text = reading.flag, reading.element.text if reading.element else None
        owner = types.of_flag(flag.dest) if flag else types.of_env(reading.name)
        if owner is None or owner.agrees(text, self.facts):
            return
        name = flag.name if flag else reading.name
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

    def apply(self, rules: Iterable[Rule], advisories: Iterable[Advisory] = ()) -> None:
        """Evaluate the rules in their order: elements first, then what the whole command is.

        Known defects come between, as far as an element avoids them, and after what is refused.
        """
        known, statements = tuple(advisories), []
        for rule in rules:
            if rule.kind == "set":
                self._apply(rule)
            else:
                statements.append(rule)
        for advisory in known:
            self._avoid(advisory)
        self._finish_overrides()
        self.choose_backend()
        for rule in (*statements, *known):
            self._apply(rule)

    def _avoid(self, advisory: Advisory) -> None:
        """Set the element that keeps a known defect away, where it would be met."""
        if advisory.avoid is None or not advisory.covers(self.facts):
            return
        self.choose_backend()
        if advisory.holds(self.facts):
            self._set(advisory, advisory.avoid, f"avoids {advisory.id}: {advisory.says}")

    def _apply(self, rule: Rule) -> None:
        outcome = rule.holds(self.facts)
        if outcome is None and rule.needs is not None:
            self._unchecked(rule)
        if outcome is None and isinstance(rule, Advisory):
            self.findings += rule.supposed(self.facts)
        if not outcome:
            return
        if rule.kind == "set":
            self._set(rule, rule.effect, fill(rule.reason, self.facts) or rule.reason)
        elif rule.kind == "refuse":
            self.refuse(rule.id, rule.finding(self.facts), rule.stage(self.version))
        else:
            self.findings.append(rule.finding(self.facts))

    def _unchecked(self, rule: Rule) -> None:
        if rule.kind == "set" and f"env {rule.effect.get('env')}" in self._given:
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

    def _set(self, rule: Rule, effect: Mapping[str, str], reason: str) -> None:
        meant = self.meant(effect)
        if meant is None:
            return
        if meant.key in self._given:
            self._keep(meant.key)
            return
        if meant.element is not None:
            self._add(meant.element, rule.id, reason, rule.source)
        self._note(meant.problems, meant.key)  # the deployment's value, in this version

    def _add(self, element: Element, rule: str, reason: str, source: str) -> None:
        self.elements[element.key] = element
        if self.facts.get(element.key, "") is not None:
            self.see(element.key, element)
        self.reasons[element.key] = Reason(element.name, rule, reason, source)

    def _keep(self, key: str) -> None:
        """Put an override where the rule's own element would stand."""
        element = self._pending.pop(key, None)
        if element is not None:
            where = "engine.args" if element.argv else "engine.env"
            self._add(element, OPERATOR, "set by the operator", where)

    def _finish_overrides(self) -> None:
        """Add the overrides that no rule has a place for, sorted, before the refusals look."""
        for key in sorted(self._pending, key=lambda key: (key.startswith("env "), key)):
            self._keep(key)


def recipe(
    architecture: Architecture,
    deployment: Deployment,
    gpu_model: str | None,
    port: int,
    node: NodeRank = ALONE,
) -> Recipe:
    """Return the engine's env and argv (`serve MODEL …`), every element with rule and source.

    ``gpu_model`` is a name of knowledge/gpus, such as MI325X; ``node`` matters to an engine on
    several hosts. Raises ApiaryError with every
    refusal at once, and the warnings; these and the notes are otherwise in the recipe's findings.
    """
    assessment = assess(architecture, deployment, gpu_model, port, node)
    if assessment.refused:
        warnings = (item for item in assessment.recipe.findings if item.severity == "warning")
        raise ApiaryError(*(refused.finding for refused in assessment.refused), *warnings)
    return assessment.recipe


def assess(
    architecture: Architecture,
    deployment: Deployment,
    gpu_model: str | None,
    port: int,
    node: NodeRank = ALONE,
) -> Assessment:
    """Return the recipe as if every refusal had been forced, and the refusals.

    Raises ApiaryError only for a deployment that cannot be read: a malformed field, no such
    version or profile, a `force` that names no rule.
    """
    findings = [*check_deployment(deployment), *_check_force(deployment)]
    if has_errors(findings):
        raise ApiaryError(*findings)
    engine, deployment = deployment.engine, with_profile(deployment)
    resolved = resolve_version(engine.version, engine.treat_as)
    values = facts(architecture, deployment, gpu_model, resolved.version, port, node)
    assembly = Assembly(values, engine.args, engine.env, deployment.force)
    assembly.apply(rules(), advisories())
    result = Recipe(
        engine=engine.name,
        version=engine.version,
        env=assembly.env(),
        argv=("serve", deployment.model.path, *assembly.argv()),
        reasons=(
            Reason("model", "DEPLOYMENT", "where the weights lie on the host", "model.path"),
            *assembly.reasons.values(),
        ),
        findings=(
            *findings,
            *resolved.findings,
            *assembly.findings,
            *_unused(deployment, assembly.used),
        ),
        attention_backend=assembly.choice.backend,
        attention_reason=_backend_reason(assembly.choice),
        rules_of=resolved.version,
    )
    return Assessment(result, tuple(assembly.refused))


def _backend_reason(choice: Choice) -> Reason | None:
    if choice.backend is None:
        return None
    return Reason("attention backend", RULE, choice.because, by_id()[RULE].source)


def _forcible() -> dict[str, bool]:
    """Return the ids that `force` may know, and whether it may name them."""
    forcible = {r.id: True for r in (*rules(), *advisories()) if r.kind == "refuse"}
    return forcible | {check.id: check.forcible for check in checks()}


def _check_force(deployment: Deployment) -> Iterator[Finding]:
    """Refuse a `force` that names no rule, or one that cannot be forced."""
    forcible = _forcible()
    for name in deployment.force:
        if forcible.get(name):
            continue
        close = nearest(name, [item for item, allowed in forcible.items() if allowed])
        wrong = "cannot be forced" if name in forcible else "is no rule that refuses anything"
        yield Finding("ENGINE-FORCE-UNKNOWN", "force", f"{name} {wrong}", nearest=close or "none")


def _unused(deployment: Deployment, used: set[str]) -> Iterator[Finding]:
    """Say of a `force` that nothing had to be forced."""
    for name in deployment.force:
        if name not in used:
            yield Finding("ENGINE-FORCE-UNUSED", "force", f"{name} refuses nothing here")
