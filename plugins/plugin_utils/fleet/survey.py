# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was decided for a host, and what converge in check mode reports, to its survey."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils.finding import visible
from ..documents import to_document
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, from_host, has_errors
from ..host.facts import serving_replicas
from ..host.resources import with_overrides
from ..host.rocm.host import read
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


# Values of the running kernel, and files whose path or first line names Apiary; what of converge's
# steps takes away.
_OURS = re.compile("^/(?:proc|sys)/|[Aa]piary")
_TAKES = re.compile("(?:remove|take|unmount|remount|disable|stop|restart|mask) ")


@dataclass(frozen=True)
class Entry:
    """One line: ``action`` is replace, remove, change (a step of converge) or keep."""

    action: str
    subject: str
    role: str
    detail: str = ""


def takeover(
    concerns: Sequence[Concern], reports: Sequence[Mapping[str, Any]], evidence: Evidence
) -> tuple[Entry, ...]:
    """Return what of others would change, by converge's reports in check mode, and what stays."""
    found = [entry for report in reports for entry in _changed(report)]
    packages = read(evidence).packages
    for concern in concerns:
        for resource in concern.resources:
            found += _packages(concern.name, resource, packages)
        found += [Entry("keep", one.name, concern.name, one.reason) for one in concern.kept]
    serving = "no driver changes and no reboot while it runs"
    busy = [each for each in serving_replicas(evidence) if not each.startswith("apiary-")]
    found += [Entry("keep", each, "reboot", serving) for each in busy]
    return tuple(dict.fromkeys(found))


def _changed(report: Mapping[str, Any]) -> Iterator[Entry]:
    for change in changes_of(report):
        if _OURS.search(f"{change.subject}\n{change.before.partition(chr(10))[0]}"):
            continue
        if change.before:
            action = "replace" if change.after else "remove"
            yield Entry(action, change.subject, report["role"])
        elif not change.after and _TAKES.match(change.subject):
            yield Entry("change", change.subject, report["role"])


def _packages(
    role: str, resource: Mapping[str, Any], packages: Mapping[str, tuple[str, ...]]
) -> Iterator[Entry]:
    """Yield packages that go, or are there in another version, whether or not the role may run."""
    if resource["kind"] != "transaction":
        return
    for name in resource["remove"]:
        yield Entry("remove", f"package {name}", role, ", ".join(packages.get(name, ())))
    coming = {spec for stage in resource["install"] for spec in stage}
    for one in resource["packages"]:
        if one["spec"] in coming and one["name"] in packages:
            detail = f"{', '.join(packages[one['name']])} becomes {one['version']}"
            yield Entry("replace", f"package {one['name']}", role, detail)


def lines(entries: Sequence[Entry]) -> list[str]:
    """Return the table as text; nothing where nothing would be taken over."""
    if all(entry.action == "keep" for entry in entries):
        return []
    rows = []
    for one in entries:
        text = ": ".join(filter(None, (one.subject, one.detail))).replace("\n", "\\n")
        rows.append(visible(f"{one.action:<8} {one.role:<18} {text}"))
    return [*rows, "What is not listed is left alone."]
