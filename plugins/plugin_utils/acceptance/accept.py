# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the checks of every role with those of the hardware and the replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, from_host, has_errors
from ..host.types import Check, ConcernPlan
from ..topology.host import evidence_of, from_evidence
from ..topology.types import Topology
from . import board, drift, hardware, measured, replicas
from .excerpts import excerpts
from .request import request
from .types import Acceptance, Measured, Requested, Settings

_NOT_ASKED, _NOT_MEASURED = Settings(), Measured()
_NO_PLANS: Mapping[str, ConcernPlan] = MappingProxyType({})


def to_measure(bundle: Mapping[str, Any], settings: Settings) -> Requested:
    """Return what the host is to be measured for beside its evidence, and what of it is refused.

    Raises ApiaryError (DOC-…) for a damaged document.
    """
    evidence = evidence_of(bundle)
    topology, _refusal = _topology(evidence)
    return request(evidence, topology, settings)


def accept(
    bundle: Mapping[str, Any],
    settings: Settings = _NOT_ASKED,
    plans: Mapping[str, ConcernPlan] = _NO_PLANS,
    reports: Sequence[Mapping[str, Any]] = (),
    given: Measured = _NOT_MEASURED,
    refused: tuple[Finding, ...] = (),
) -> Acceptance:
    """Return the acceptance of one host.

    ``plans`` are by role, decided on the same evidence, ``reports`` what converge in check
    mode reports of their resources. ``given`` is what the host answered to what `to_measure` asks,
    ``refused`` what of that was not asked.
    Raises ApiaryError (DOC-…) for a damaged document.
    """
    evidence = evidence_of(bundle)
    topology, refusals = _topology(evidence)
    complaints = [*refused, *refusals]
    checks: list[Check] = []
    models: set[str | None] = set()
    if topology is not None:
        models = {gpu.model for gpu in topology.gpus}
        complaints += [item for item in topology.findings if item.severity != "info"]
        checks += hardware.checks(evidence, topology, settings.gpus)
        checks += board.links(topology)
        checks += board.pcie(evidence, topology)
        checks += board.pcie_errors(evidence, topology)
        checks += board.memory(evidence, topology, settings.memory_gib)
    checks += board.bad_pages(evidence)
    checks += board.firmware(evidence)
    checks += board.versions(evidence, settings.versions)
    for plan in plans.values():
        complaints += [item for item in plan.findings if item.severity != "info"]
        checks += plan.checks
    for report in reports:
        findings = map(from_host, report["findings"])
        complaints += [item for item in findings if item.severity != "info"]
    inspected = [role for role, plan in plans.items() if not has_errors(plan.findings)]
    checks += drift.checks(evidence.host, inspected, reports)
    checks += replicas.checks(evidence)
    model = models.pop() if len(models) == 1 else None
    checks += measured.checks(evidence.host, model, given, settings)
    forbidding = ("error", "warning") if settings.strict else ("error",)
    severities = [check.severity for check in checks if check.state == "fail"]
    severities += [complaint.severity for complaint in complaints]
    accepted = not any(severity in forbidding for severity in severities)
    result = Acceptance(
        evidence.host, evidence.collected_at, accepted, tuple(checks), tuple(complaints)
    )
    return replace(result, excerpts=excerpts(evidence, result.findings, given))


def _topology(evidence: Evidence) -> tuple[Topology | None, tuple[Finding, ...]]:
    """Return the host's topology, or why there is none."""
    try:
        return from_evidence(evidence), ()
    except ApiaryError as refusal:
        return None, refusal.findings
