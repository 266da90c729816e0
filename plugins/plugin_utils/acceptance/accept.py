# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the checks of every concern with those of the hardware and the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance import hardware, replicas
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Acceptance
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import Check
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import from_evidence


def accept(
    bundle: Mapping[str, Any],
    plans: Mapping[str, Mapping[str, Any]],
    gpus: int | None = None,
    strict: bool = False,
) -> Acceptance:
    """Return the acceptance of one host.

    ``plans`` are the concerns' plans as documents, decided on the same evidence; of each only
    ``checks`` and ``findings`` are read. ``gpus`` is how many GPUs the host is to have, None for as
    many as its board carries. With ``strict`` a warning is no acceptance, either.
    Raises ApiaryError (DOC-…) for a damaged document.
    """
    evidence = from_document(Evidence, bundle, str(bundle.get("host") or "evidence"))
    try:
        topology = from_evidence(bundle)
    except ApiaryError as refusal:
        complaints, checks = list(refusal.findings), list[Check]()
    else:
        complaints = [one for one in topology.findings if one.severity != "info"]
        checks = [*hardware.checks(evidence, topology, gpus)]
    for concern, plan in plans.items():
        subject = f"{evidence.host}: {concern}"
        told = [from_document(Finding, one, subject) for one in plan.get("findings", ())]
        complaints += [one for one in told if one.severity != "info"]
        checks += [from_document(Check, one, subject) for one in plan.get("checks", ())]
    checks += replicas.checks(evidence)
    forbidding = ("error", "warning") if strict else ("error",)
    severities = [check.severity for check in checks if check.state == "fail"]
    severities += [complaint.severity for complaint in complaints]
    accepted = not any(severity in forbidding for severity in severities)
    return Acceptance(
        evidence.host, evidence.collected_at, accepted, tuple(checks), tuple(complaints)
    )
