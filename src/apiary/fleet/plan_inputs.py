# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary plan --inventory` reads: hosts, their surveys, ledgers, quarantines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.age import (
    age_seconds,
    age_text,
    time_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import Observed
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    attempt,
    host_directory,
    ledger_path,
    load_quarantine,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Survey

from apiary.fleet.hosts import FleetHost


@dataclass(frozen=True)
class Lost:
    """Why the run of the survey left nothing for a host."""

    why: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Run:
    """The survey that was just made: when it began, and whom it lost; None began: it was not."""

    began: datetime | None = None
    lost: Mapping[str, Lost] = field(default_factory=dict)


def observed(hosts: Sequence[FleetHost], run: Run, now: datetime) -> Iterator[Observed]:
    """Yield what is known of each host, one at a time; a file that cannot be read is a finding."""
    for host in hosts:
        yield _observed(host, run, now)


def _observed(host: FleetHost, run: Run, now: datetime) -> Observed:
    directory = host_directory(Path(host.artifacts), host.name)
    findings: list[Finding] = []
    survey = attempt(Survey, directory / "survey.json", findings)
    if survey is not None and survey.host != host.name:
        findings.append(_no_survey(host.name, f"{directory} has the survey of {survey.host}"))
        survey = None
    made = time_of(survey.collected_at) if survey else None
    age = age_seconds(survey.collected_at, now) if survey else None
    why = ""
    if survey is None or (run.began is not None and (made is None or made < run.began)):
        why = _why(host.name, run, age, survey is not None)
        lost = run.lost.get(host.name)
        if lost is not None and lost.findings:
            findings += lost.findings
        elif not findings:
            findings.append(_no_survey(host.name, why))
        survey = None
    ledger = attempt(Ledger, ledger_path(directory), findings)
    quarantined = load_quarantine(directory, findings)
    return Observed(
        host=host.name,
        survey=survey,
        why=why,
        age_seconds=age,
        addresses=host.addresses,
        groups=host.groups,
        domain=host.domain,
        quarantined=quarantined,
        applied={item.concern: item for item in ledger.applied} if ledger else {},
        findings=tuple(findings),
    )


def _why(host: str, run: Run, age: int | None, there: bool) -> str:
    lost = run.lost.get(host)
    if lost is not None:
        return lost.why
    if not there:
        return "has no survey"
    old = "of an unknown time" if age is None else f"{age_text(age)} old"
    return f"was not surveyed; its last survey is {old}"


def _no_survey(host: str, why: str) -> Finding:
    return Finding("FLEET-PLAN-NO-SURVEY", host, why)
