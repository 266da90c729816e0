# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the checks of every concern with those of the hardware and the replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance import hardware, replicas
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Acceptance
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import Check


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
    checks = [*hardware.checks(bundle, evidence, gpus)]
    for concern, plan in plans.items():
        subject = f"{evidence.host}: {concern}"
        checks += _checks(plan.get("checks", ()), subject)
        checks += [_refused(one) for one in plan.get("findings", ()) if one["severity"] != "info"]
    checks += replicas.checks(evidence)
    forbidding = ("error", "warning") if strict else ("error",)
    accepted = not any(check.state == "fail" and check.severity in forbidding for check in checks)
    return Acceptance(evidence.host, evidence.collected_at, accepted, tuple(checks))


def _checks(documents: Sequence[Any], subject: str) -> list[Check]:
    return [from_document(Check, one, subject) for one in documents]


def _refused(finding: Mapping[str, Any]) -> Check:
    """Return a finding of a concern's decision as a check that fails."""
    return Check(
        code=finding["code"],
        subject=finding["subject"],
        state="fail",
        found=finding["message"],
        expected="nothing of the kind",
        severity=finding["severity"],
        remedy=finding["remedy"],
        source=finding["source"],
    )
