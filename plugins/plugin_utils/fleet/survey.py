# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was decided for a host, and what converge in check mode reports of it, to a survey."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..documents import to_document
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, from_host, has_errors
from ..host.resources import with_overrides
from ..host.types import Kept
from ..plan.types import Plan, name_of
from ..render.replicas import ReplicasPlan
from .types import Change, ConcernSurvey, Served

_UP = ("active", "reloading")


@dataclass(frozen=True)
class Concern:
    """One role of a host as decided, or one deployment: its resources, and what they don't show.

    ``changes`` are what the role does beside its resources whenever its plan says so. ``unsure``
    says that only the role itself can tell whether something would change, ``missing`` why it can't
    be applied where no role before it brings what is missing; ``kept`` is what of others stays.
    """

    name: str
    asked: str = ""
    resources: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[Change, ...] = ()
    reboot: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unsure: bool = False
    missing: tuple[Finding, ...] = ()
    kept: tuple[Kept, ...] = ()


def refused(name: str, asked: str, refusal: ApiaryError) -> Concern:
    """Return a concern that could not be decided."""
    return Concern(name, asked, findings=refusal.findings)


def concern_of(name: str, plan: Any, options: Mapping[str, Any], asked: str) -> Concern:
    """Return a role's concern: what its plan and these options bring the host to."""
    return Concern(
        name,
        asked,
        tuple(with_overrides(name, plan.resources, options)),
        reboot=plan.reboot,
        findings=_notable(plan.findings),
        unsure=_unsure(name, options),
        kept=tuple(one for one in plan.skipped if isinstance(one, Kept)),
    )


def deployment_of(
    name: str,
    plan: ReplicasPlan,
    options: Mapping[str, Any],
    asked: str,
    findings: Sequence[Finding] = (),
) -> Concern:
    """Return a deployment's concern: what it is brought to, or its absence."""
    resources = tuple(with_overrides("replicas", plan.resources, options))
    notable = _notable((*findings, *plan.findings))
    return Concern(f"replicas:{name}", asked, resources, findings=notable, unsure=plan.unsure)


def _notable(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return what somebody may have to act on; information is in the plans."""
    return tuple(finding for finding in findings if finding.severity != "info")


def _unsure(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a role also does what is no resource: copy models, ask a cluster."""
    if name == "weight_cache":
        here = options["weight_cache_state"] == "present"
        return bool(here and options["weight_cache_staged"])
    return bool(name == "device_plugin" and options["device_plugin_apply"])


def resources_of(concerns: Sequence[Concern]) -> list[dict[str, Any]]:
    """Return what converge inspects: all resources, each with its concern as its role."""
    return [
        {**to_document(resource), "role": concern.name}
        for concern in concerns
        if not has_errors(concern.findings)
        for resource in concern.resources
    ]


def evaluate(
    concerns: Sequence[Concern], reports: Sequence[Mapping[str, Any]], host: str
) -> tuple[ConcernSurvey, ...]:
    """Return what holds of each concern; ``reports`` are converge's, of any order."""
    return tuple(
        _evaluated(concern, [each for each in reports if each["role"] == concern.name], host)
        for concern in concerns
    )


def _evaluated(concern: Concern, reports: Sequence[Mapping[str, Any]], host: str) -> ConcernSurvey:
    changes = [change for report in reports for change in changes_of(report)]
    changes += concern.changes
    findings = list(concern.findings)
    for report in reports:
        findings += map(from_host, report["findings"])
    settled = not (changes or concern.reboot or concern.unsure or has_errors(findings))
    return ConcernSurvey(
        concern=concern.name,
        settled=settled,
        changes=tuple(changes),
        reboot=concern.reboot,
        findings=tuple(findings),
        asked=concern.asked,
    )


def changes_of(report: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what converge would change of one resource, as ``--diff`` shows it."""
    for step in report["steps"]:
        yield Change(str(step))
    for diff in report["diff"]:
        yield Change(*(str(diff.get(side, "")) for side in ("after_header", "before", "after")))


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
