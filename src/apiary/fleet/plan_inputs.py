# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary plan --inventory` reads: hosts, their surveys, ledgers, quarantines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Applied, Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import Observed
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan_types import Quarantined
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Survey

from apiary.fleet.hosts import FleetHost

QUARANTINE = "apiary.quarantine/v1"


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
    own = Path(host.artifacts) / host.name
    findings: list[Finding] = []
    survey = _read(Survey, own / "survey.json", findings)
    if survey is not None and survey.host != host.name:
        findings.append(_other(own / "survey.json", host.name, survey.host))
        survey = None
    made = None if survey is None else _time(survey.collected_at)
    age = None if made is None else max(0, int((now - made).total_seconds()))
    why = ""
    if survey is None or (run.began is not None and (made is None or made < run.began)):
        why = _why(host.name, run, age, survey is not None)
        lost = run.lost.get(host.name)
        if lost is not None and lost.findings:
            findings += lost.findings
        elif not findings:
            findings.append(_no_survey(host.name, why, run))
        survey = None
    ledger = _read(
        Ledger, Path(host.artifacts) / "fleet" / "ledger" / f"{host.name}.json", findings
    )
    applied: dict[str, Applied] = {} if ledger is None else {a.concern: a for a in ledger.applied}
    return Observed(
        host=host.name,
        survey=survey,
        why=why,
        age_seconds=age,
        addresses=host.addresses,
        groups=host.groups,
        domain=host.domain,
        rack=host.rack,
        quarantined=_quarantined(own / "quarantine.json", host.name, findings),
        applied=applied,
        findings=tuple(findings),
    )


def _read(cls: Any, path: Path, findings: list[Finding]) -> Any:
    """Return the document in a file, None where there is none or it is not one."""
    if not path.exists():
        return None
    try:
        return from_document(cls, _json(path), str(path))
    except ApiaryError as refusal:
        findings += refusal.findings
        return None


def _json(path: Path) -> Any:
    try:
        return json.loads(read_text(str(path)))
    except json.JSONDecodeError as failure:
        raise error("FILE-SYNTAX", str(path), f"is no JSON: {failure}") from failure


def _quarantined(path: Path, host: str, findings: list[Finding]) -> Quarantined | None:
    if not path.exists():
        return None
    try:
        data = _json(path)
    except ApiaryError as refusal:
        findings += refusal.findings
        return Quarantined(host, "", "quarantine.json cannot be read")
    document = data if isinstance(data, dict) and data.get("schema") == QUARANTINE else {}
    return Quarantined(host, str(document.get("task", "")), str(document.get("message", "")))


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _why(host: str, run: Run, age: int | None, there: bool) -> str:
    lost = run.lost.get(host)
    if lost is not None:
        return lost.why
    if not there:
        return "has no survey"
    old = "of an unknown time" if age is None else f"{age_text(age)} old"
    return f"was not surveyed; its last survey is {old}"


def _no_survey(host: str, why: str, run: Run) -> Finding:
    return Finding("FLEET-PLAN-NO-SURVEY", host, why)


def _other(path: Path, host: str, found: str) -> Finding:
    return Finding("FLEET-PLAN-NO-SURVEY", host, f"{path} is the survey of {found}")


def age_text(seconds: int) -> str:
    """Return an age as people say it: 40 s, 12 min, 3 h, 5 days."""
    age = timedelta(seconds=seconds)
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if age >= timedelta(seconds=2 * size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
