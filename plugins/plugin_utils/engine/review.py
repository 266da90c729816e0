# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody's own engine command, evaluated for a model, a GPU and an exact vLLM version."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..deployment import Deployment, Layout, Limits
from ..documents import knowledge
from ..findings import Finding, by_severity
from ..model.types import Architecture
from .advisories import Advisory, advisories
from .command import EngineCommand, read_command
from .conditions import Fact, as_number, fill
from .elements import Reading, read_env, read_flag
from .facts import facts
from .flags import SOURCE, actions, env_vars, resolve_version
from .recipe import Command, assess
from .rules import Rule, rules
from .types import Recipe
from .values import Problem

_LIMITS = (
    ("max_model_len", "whole"),
    ("max_num_batched_tokens", "whole"),
    ("max_num_seqs", "whole"),
    ("gpu_memory_utilization", "number"),
    ("kv_cache_dtype", "text"),
)
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# How a deployment's fields are called on a command line.
_SPOKEN = (
    (re.compile(r" from engine\.(args|env)\b"), ""),
    (re.compile(r"(?:set )?engine\.args ([a-z-]+): (\S+)"), r"add --\1 \2"),
    (re.compile(r"(?:set )?engine\.env (\w+): (\S+)"), r"set \1=\2"),
    (re.compile(r"set layout\.expert_parallel to true"), "add --enable-expert-parallel"),
    (re.compile(r"set layout\.expert_parallel to false"), "leave --enable-expert-parallel out"),
    (re.compile(r"\blimits\.(\w+)|\blayout\.(tensor_parallel_size|expert_parallel)"), None),
)


@dataclass(frozen=True)
class Review:
    """What was read, what is wrong with it, and what Apiary would write instead.

    ``findings`` are sorted by line, their subjects `file:line`. ``attention_backend`` is what vLLM
    would choose for the command as it is. ``recipe`` is for the same model, layout and limits,
    None where they are refused themselves; ``rules_of`` the known version whose facts hold.
    """

    command: EngineCommand
    findings: tuple[Finding, ...]
    attention_backend: str | None
    recipe: Recipe | None
    rules_of: str


def review(
    text: str,
    architecture: Architecture,
    deployment: Deployment,
    gpu_model: str | None,
    file: str = "command",
) -> Review:
    """Evaluate the engine command in a shell text for ``deployment.engine.version``.

    Layout, limits and overrides of the deployment are not looked at: the command's own hold.
    Raises ApiaryError for a text that holds no such command, or a version older than all known.
    """
    resolved = resolve_version(deployment.engine.version, deployment.engine.treat_as)
    command = read_command(text, resolved.version, file)
    stated = deployment_of(command, deployment, resolved.version)
    values = facts(architecture, stated, gpu_model, resolved.version, stated.base_port)
    evaluated = _Evaluated(command, file, values)
    evaluated.apply()
    assessment = assess(architecture, stated, gpu_model, stated.base_port)
    return Review(
        command=command,
        findings=(*resolved.findings, *sorted(evaluated.findings, key=_place)),
        attention_backend=evaluated.choice.backend,
        recipe=None if assessment.refused else assessment.recipe,
        rules_of=resolved.version,
    )


def _place(finding: Finding) -> tuple[int, int]:
    """Return where a finding belongs: by line, the graver first."""
    line = finding.subject.rpartition(":")[2]
    return (int(line) if line.isdigit() else 0, by_severity(finding))


def deployment_of(command: EngineCommand, deployment: Deployment, version: str) -> Deployment:
    """Return the deployment that the command's own layout and limits make."""
    values, own = flags_of(command, version), deployment.engine
    limits: dict[str, Any] = {}
    for name, kind in _LIMITS:
        text = values.get(f"flag {name}")
        if value := text if kind == "text" else _number(text, kind):
            limits[name] = value
    return dataclasses.replace(
        deployment,
        engine=dataclasses.replace(own, args={}, env={}),
        layout=Layout(
            int(_number(values.get("flag tensor_parallel_size"), "whole") or 1),
            1,
            values.get("flag enable_expert_parallel") == "true",
            int(_number(values.get("flag pipeline_parallel_size"), "whole") or 1),
            int(_number(values.get("flag nnodes"), "whole") or 1),
        ),
        limits=Limits(**limits),
        profile=None,
        force=(),
    )


def flags_of(command: EngineCommand, version: str) -> dict[str, Fact]:
    """Return the flags of a command as rules see them: `flag dest`, and `flag dest.key` of JSON."""
    seen = _Evaluated(command, "", {"version": version}).facts
    return {name: text for name, text in seen.items() if name.startswith("flag ")}


def _number(text: Fact, kind: str) -> int | float | None:
    """Return a positive number as vLLM reads it (32k is 32000, 32K is 32768), else None."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", str(text or ""))
    if match is None:
        return None
    factor = _SUFFIXES.get(match[2]) or _BINARY.get(match[2]) or 1
    value = float(match[1]) * factor
    if value <= 0 or (kind == "number" and value > 1):
        return None
    return value if kind == "number" else int(value)


class _Evaluated(Command):
    """The command's elements as the rules see them, and what there is to say."""

    def __init__(self, command: EngineCommand, file: str, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.command, self.file = command, file
        self.findings: list[Finding] = list(command.findings)
        self.lines: dict[str, int] = {}
        for given in command.flags:
            # vLLM rewrites -O, -O3 and -O.key itself before it parses.
            if not given.name.startswith("-O"):
                reading = read_flag(given.name, given.values, self.version)
                self._read(reading, given.name, given.line)
        for name, (text, line) in command.env.items():
            self._read(read_env(name, text, self.version), name, line)

    def _read(self, reading: Reading, name: str, line: int) -> None:
        element, key = reading.element, reading.key
        if element is not None and reading.flag is not None and reading.flag.deprecated:
            self._deprecated(name, line)
        self.lines[key] = line
        if element is not None:
            self.elements[element.key] = element
            self.see(element.key, element)
        self._problems(reading.problems, name, line, key)

    def _deprecated(self, name: str, line: int) -> None:
        advice = knowledge("vllm/renamed.yml")["flags"].get(name, "leave it out")
        finding = Finding("ENGINE-DEPRECATED", "", "", source=SOURCE, advice=advice)
        message = f"{name}: vLLM {self.version} takes it, and calls it deprecated"
        self._say(finding, line, message, advice)

    def _problems(self, problems: list[Problem], name: str, line: int, element: str) -> None:
        unset = [
            finding.message.split()[0]
            for finding in self.command.findings
            if finding.code == "ENGINE-RECIPE-UNRESOLVED"
        ]
        for finding in (self.judged(problem.finding) for problem in problems):
            self.hide(element)
            # What a variable stands for is not known, so it is not wrong either.
            bad = finding.code == "ENGINE-BAD-VALUE"
            if not bad or not any(variable in finding.message for variable in unset):
                self._say(finding, line, f"{name}: {finding.message}", finding.remedy)

    def _say(self, finding: Finding, line: int, message: str, remedy: str) -> None:
        place, message, remedy = f"{self.file}:{line}", spoken(message), spoken(remedy)
        self.findings.append(finding.about(place).reworded(message=message, remedy=remedy))

    def apply(self) -> None:
        """Hold the rules against the command: those that judge, then those that would add."""
        self.choose_backend()
        held = [(rule, rule.holds(self.facts)) for rule in (*rules(), *advisories())]
        for rule, outcome in held:
            if rule.kind == "set":
                continue
            findings: tuple[Finding, ...] = (rule.finding(self.facts),) if outcome else ()
            if outcome is None and isinstance(rule, Advisory):
                findings = rule.supposed(self.facts)
            for finding in findings:
                self._say(finding, self._line(rule), finding.message, finding.remedy)
        self._redundant()
        for rule in (*rules(), *advisories()):
            if rule.kind == "set" and rule.holds(self.facts):
                self._compare(rule)

    def _line(self, rule: Rule) -> int:
        """Return the line of the first element that a rule asks about, else the command's."""
        lines = [self.lines[name] for name in rule.when.facts() if name in self.lines]
        field = rule.effect.get("field", "")
        named = f"flag {field.partition('.')[2]}"
        if field.startswith(("limits.", "layout.")) and named in self.lines:
            return self.lines[named]
        return lines[0] if lines else self.command.line

    def _compare(self, rule: Rule) -> None:
        """Say of an element that the recipe has: it is missing here, or otherwise."""
        meant = self.meant(rule.effect)
        if rule.missing == "none" or meant is None or meant.element is None:
            return
        reason = fill(rule.reason, self.facts) or rule.reason
        key, shown = meant.element.key, str(meant.element)
        given = self.elements.get(key)
        there = given.seen if given else None
        if _same(there, meant.element.seen) or self.facts.get(key, "") is None:
            return
        if there is not None:
            message = f"is {there}, where the recipe has {shown}: {reason}"
            finding = Finding("ENGINE-DIFFERS", "", message, source=rule.source, shown=shown)
        else:
            warns = rule.missing == "warning"
            message = f"{shown} is {'missing' if warns else 'not there'}: {reason}"
            code = "ENGINE-MISSING" if warns else "ENGINE-OPTIONAL"
            finding = Finding(code, "", message, source=rule.source)
            if warns:  # what else it takes is judged as if it were followed
                self.see(key, meant.element)
        line = self.lines.get(key, self.command.line)
        self._say(finding, line, f"{message} ({rule.id})", finding.remedy)

    def _redundant(self) -> None:
        """Say of elements that they are the version's default."""
        defaults = {f"flag {flag.dest}": flag.default for flag in actions(self.version)}
        for name, variable in env_vars(self.version).items():
            if name.startswith("VLLM_"):
                defaults[f"env {name}"] = variable.default
        # The flags first.
        for key in sorted(self.elements, key=lambda key: key.startswith("env ")):
            element, default = self.elements[key], defaults.get(key)
            if default is None or self.facts.get(key) is None:
                continue
            spelled = str(default).lower() if isinstance(default, bool) else str(default)
            bits = str(int(default)) if isinstance(default, bool) else spelled
            if _same(element.seen, spelled) or element.seen == bits:
                finding = Finding("ENGINE-REDUNDANT", "", "", source=SOURCE)
                message = f"{element} is the default of vLLM {self.version}"
                self._say(finding, self.lines[key], message, finding.remedy)


def _same(there: str | None, wanted: str) -> bool:
    """Return whether two texts are one value: 0.90 is 0.9."""
    if there is None or there == wanted:
        return there == wanted
    number = as_number(there)
    return number is not None and number == as_number(wanted)


def spoken(text: str) -> str:
    """Return a text about a deployment's fields as one about a command line."""
    for pattern, instead in _SPOKEN:
        if instead is not None:
            text = pattern.sub(instead, text)
        else:
            text = pattern.sub(lambda match: _option(match[1] or match[2]), text)
    return text


def _option(field: str) -> str:
    names = {"expert_parallel": "--enable-expert-parallel"}
    return names.get(field, "--" + field.replace("_", "-"))
