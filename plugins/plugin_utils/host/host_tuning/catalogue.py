# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of knowledge/host/tuning.yml, and which of them a host is to have."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...documents import knowledge
from ...findings import Finding
from ..types import ConcernPlan, LiveSetting, Skipped
from .machine import Machine

BY_NAME = "by_name"
PROFILES = ("required", "serving", "full")


@dataclass(frozen=True)
class Setting:
    """One entry of knowledge; ``grade`` is its class, ``facts`` the rest of it."""

    id: str
    kind: str
    grade: str
    reason: str
    not_when: str
    check: str
    sources: tuple[str, ...]
    facts: Mapping[str, Any]

    @property
    def source(self) -> str:
        """The first source, which findings cite."""
        return self.sources[0]

    @property
    def profile(self) -> str:
        """The smallest profile that has it, or `by_name`."""
        named = self.facts.get("profile")
        classes = knowledge("host/tuning.yml")["profiles"]
        return str(named or next(name for name in PROFILES if self.grade in classes[name]))

    @property
    def lowers_security(self) -> bool:
        return bool(self.facts.get("security_lowering"))


@dataclass(frozen=True)
class Chosen:
    """A setting that this host is to have, with its value; ``None`` where it takes none."""

    setting: Setting
    value: str | None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its words on the kernel command line."""
        facts = self.setting.facts
        if "arguments" in facts:
            return (str(facts["arguments"][self.value]),)
        return (facts["argument"].format(value=self.value),) if "argument" in facts else ()


@dataclass(frozen=True)
class Part(ConcernPlan):
    """What settings of one kind come to; ``units`` are those that a boot runs."""

    live: tuple[LiveSetting, ...] = ()
    units: tuple[str, ...] = ()


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Return every setting, in the order in which it is applied."""
    document = knowledge("host/tuning.yml")
    return tuple(
        Setting(
            id=name,
            kind=entry["kind"],
            grade=entry["class"],
            reason=entry["reason"],
            not_when=entry["not_when"],
            check=entry["check"],
            sources=tuple(document["sources"][each] for each in entry["source"]),
            facts=entry,
        )
        for name, entry in document["settings"].items()
    )


@dataclass(frozen=True)
class Selection:
    """What a host is to have, what was left out and why, and what is wrong with what was asked."""

    chosen: tuple[Chosen, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    def of(self, *kinds: str) -> Iterator[Chosen]:
        """Yield the chosen settings of these kinds."""
        return (one for one in self.chosen if one.setting.kind in kinds)

    def value(self, name: str) -> str | None:
        """Return a chosen setting's value."""
        return next((one.value for one in self.chosen if one.setting.id == name), None)


def select(
    profile: Literal["required", "serving", "full"],
    asked: Mapping[str, Any],
    insecure: tuple[str, ...],
    machine: Machine,
) -> Selection:
    """Return the settings of a profile, with those that were switched by name, for one host."""
    known = {one.id: one for one in settings()}
    findings = [_unknown(machine.name, name, known) for name in asked if name not in known]
    findings += [
        _not_insecure(machine.name, name, known)
        for name in insecure
        if name not in known or not known[name].lowers_security
    ]
    chosen: list[Chosen] = []
    skipped: list[Skipped] = []
    for setting in known.values():
        answer = asked.get(setting.id, setting.id in insecure or None)
        if answer is None:
            if setting.profile == BY_NAME:
                continue
            if PROFILES.index(setting.profile) > PROFILES.index(profile):
                continue
        if answer is False:
            skipped.append(Skipped(setting.id, "switched off in host_tuning_settings"))
            continue
        value, problem = _value(machine.name, setting, answer)
        if setting.lowers_security and setting.id not in insecure:
            problem = _refused(machine.name, setting)
        if problem:
            findings.append(problem)
            continue
        why_not = machine.excludes(setting.id, setting.facts)
        if why_not:
            skipped.append(Skipped(setting.id, why_not))
            continue
        if setting.lowers_security:
            findings.append(_lowered(machine.name, setting))
        chosen.append(Chosen(setting, value))
    return Selection(tuple(chosen), tuple(skipped), tuple(findings))


def _value(host: str, setting: Setting, answer: Any) -> tuple[str | None, Finding | None]:
    """Return the value that a setting is to have, or what is wrong with the one asked for."""
    facts = setting.facts
    default = facts.get("value")
    if answer is None or answer is True:
        return default, None
    said = str(answer)
    if default is None:
        expected = "true or false"
    elif "values" in facts:
        if said in facts["values"]:
            return said, None
        expected = f"one of {', '.join(facts['values'])}"
    else:
        most = facts.get("most")
        if re.fullmatch(facts["pattern"], said) and (most is None or int(said) <= most):
            return said, None
        expected = f"a whole number such as {default}" + (f", at most {most}" if most else "")
    return None, Finding(
        "TUNE-VALUE",
        f"{host}: host_tuning_settings.{setting.id}",
        f"found {said!r}, expected {expected}",
        source=setting.source,
        allowed=expected,
    )


def _unknown(host: str, name: str, known: Mapping[str, Setting]) -> Finding:
    return Finding(
        "TUNE-UNKNOWN-SETTING",
        f"{host}: host_tuning_settings.{name}",
        f"found a setting of this name, expected one of {', '.join(known)}",
    )


def _not_insecure(host: str, name: str, known: Mapping[str, Setting]) -> Finding:
    allowed = ", ".join(one.id for one in known.values() if one.lowers_security)
    return Finding(
        "TUNE-UNKNOWN-SETTING",
        f"{host}: host_tuning_insecure",
        f"found {name}, expected settings that lower security: {allowed}",
    )


def _refused(host: str, setting: Setting) -> Finding:
    return Finding(
        "TUNE-INSECURE",
        f"{host}: host_tuning_settings.{setting.id}",
        f"found it switched on, expected it in host_tuning_insecure: {setting.facts['lowers']}",
        source=setting.source,
        setting=setting.id,
    )


def _lowered(host: str, setting: Setting) -> Finding:
    return Finding(
        "TUNE-SECURITY-LOWERED",
        f"{host}: {setting.id}",
        f"found it in host_tuning_insecure, expected none: {setting.facts['lowers']}",
        source=setting.source,
        setting=setting.id,
    )
