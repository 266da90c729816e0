# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was decided for a host, and what host_check saw there, to a survey of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..documents import from_document, to_document
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, Severity, has_errors
from ..plan.naming import name_of
from ..plan.types import Plan
from .types import Change, ConcernSurvey, Served

# How modules word a refusal: a finding as text, each with its remedy on a line of its own.
_REFUSAL = re.compile(
    r"(?:(?P<severity>error|warning): )?(?P<code>[A-Z]+(?:-[A-Z0-9]+)+): (?P<message>.*?)"
    r"(?:(?:\n  |; )remedy: (?P<remedy>.*?))?(?=\n(?:error|warning): [A-Z]+-|\Z)",
    re.DOTALL,
)
_UP = ("active", "reloading")


@dataclass(frozen=True)
class Step:
    """What host_check is asked: a module by name and its arguments.

    ``late`` is for one that the role takes only once all before it is done: it says nothing where
    something before it would change.
    """

    module: str
    arguments: Mapping[str, Any]
    late: bool = False


@dataclass(frozen=True)
class Concern:
    """One concern as decided: what has to be looked at, and what is known without a look.

    ``changes`` are what the role does whenever its plan says so. ``unsure`` says that only the
    role itself can tell whether something would change.
    """

    name: str
    asked: str = ""
    steps: tuple[Step, ...] = ()
    changes: tuple[Change, ...] = ()
    reboot: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unsure: bool = False


def refused(name: str, asked: str, refusal: ApiaryError) -> Concern:
    """Return a concern that could not be decided."""
    return Concern(name, asked, findings=refusal.findings)


def questions(concerns: Sequence[Concern]) -> list[dict[str, Any]]:
    """Return the steps of host_check, in the order of the concerns."""
    return [
        {"concern": one.name, "module": step.module, "arguments": to_document(step.arguments)}
        for one in concerns
        if not has_errors(one.findings)
        for step in one.steps
    ]


def judge(
    concerns: Sequence[Concern], answers: Sequence[Mapping[str, Any]], host: str
) -> tuple[ConcernSurvey, ...]:
    """Return what is known of each concern; ``answers`` are host_check's, in their order."""
    left = iter(answers)
    told = []
    for one in concerns:
        asked = [] if has_errors(one.findings) else one.steps
        told.append(_judged(one, [(step, next(left)) for step in asked], host))
    return tuple(told)


def _judged(
    concern: Concern, answers: Sequence[tuple[Step, Mapping[str, Any]]], host: str
) -> ConcernSurvey:
    changes: list[Change] = []
    findings = list(concern.findings)
    for step, answer in answers:
        if step.late and (changes or concern.changes):
            continue
        changes += changes_of(answer)
        findings += _findings_of(answer, host)
    changes += concern.changes
    settled = not (changes or concern.reboot or concern.unsure or has_errors(findings))
    return ConcernSurvey(
        concern=concern.name,
        settled=settled,
        changes=tuple(changes),
        reboot=concern.reboot,
        findings=tuple(findings),
        asked=concern.asked,
    )


def changes_of(answer: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what one step of host_check would change, as its module's --diff shows it."""
    if not answer["changed"]:
        return
    told = False
    for step in answer["steps"]:
        told = True
        yield Change(str(step))
    for diff in answer["diff"]:
        subject = diff.get("after_header") or diff.get("before_header")
        if subject:
            told = True
            yield Change(str(subject), str(diff.get("before", "")), str(diff.get("after", "")))
        elif not answer["steps"]:
            lines = f"{diff.get('prepared', '')}{diff.get('before', '')}".splitlines()
            told = told or bool(lines)
            removed = "" if "prepared" in diff else "remove "
            yield from (Change(f"{removed}{line}") for line in lines)
    if not told:
        yield Change(str(answer["module"]))


def _findings_of(answer: Mapping[str, Any], host: str) -> Iterator[Finding]:
    if answer["findings"]:
        for one in answer["findings"]:
            yield from_document(Finding, one, host)
    elif answer["failure"]:
        yield from told_findings(str(answer["failure"]), host, "error")
    for text in answer["warnings"]:
        yield from told_findings(str(text), host, "warning")


def told_findings(text: str, host: str, severity: Severity) -> Iterator[Finding]:
    """Yield the findings that a module's message has; a text that is none is one all the same."""
    found = list(_REFUSAL.finditer(text))
    if not found or found[0].start() > 0:
        code = "FLEET-CHECK" if severity == "error" else "FLEET-CHECK-WARNING"
        yield Finding(code, severity, host, text, "see what the role says when it runs")
        return
    for one in found:
        remedy = (one["remedy"] or "see what the role says when it runs").strip()
        yield Finding(one["code"], severity, host, one["message"].strip(), remedy)


def served(plan: Plan, text: str, up: int | None = None) -> Served:
    """Return a deployment of a host; ``text`` is its plan.json."""
    deployment = plan.deployment
    sizes = {len(one.gpus) for one in plan.replicas}
    return Served(
        deployment=deployment.name,
        model=deployment.model.name,
        engine=f"{deployment.engine.name} {deployment.engine.version}",
        layout=name_of(plan.layout),
        replicas=len(plan.replicas),
        gpus_per_replica=max(sizes, default=0),
        plan=hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
        up=up,
    )


def active_units(evidence: Evidence) -> frozenset[str] | None:
    """Return the units of ours that are active, None where systemd gave no answer."""
    said = evidence.commands.get("replicas")
    if said is None or said.exit != 0:
        return None
    rows = (line.split() for line in said.stdout.splitlines())
    return frozenset(row[0] for row in rows if len(row) > 2 and row[2] in _UP)


def running(evidence: Evidence, plans: Mapping[str, Plan]) -> tuple[Served, ...]:
    """Return what a host has now; ``plans`` are by path, each of a text of the evidence."""
    active = active_units(evidence)
    found = []
    for path, plan in sorted(plans.items()):
        units = {one.unit for one in plan.replicas}
        up = None if active is None else len(units & active)
        found.append(served(plan, evidence.files[path], up))
    return tuple(found)
