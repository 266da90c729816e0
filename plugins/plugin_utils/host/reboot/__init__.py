# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is rebooted: only for a reason, never beside serving replicas, never in a loop."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from ...evidence.types import Evidence
from ...findings import Finding
from .. import resources
from ..facts import boot_id, serving_replicas
from ..types import ConcernPlan, HostFile

# Outlives the boot, so that a run after it knows why the host was rebooted.
RECORD = "/var/lib/apiary/reboot.json"
# A reason may be told in other words after each boot; this many in a row help no more.
TRIES = 2


@dataclass(frozen=True)
class Settings:
    """``reasons`` are the other concerns' reasons; ``allowed`` is the operator's word.

    ``rebooted`` says that this run has rebooted the host already.
    """

    reasons: tuple[str, ...] = ()
    allowed: bool = True
    rebooted: bool = False


@dataclass(frozen=True)
class RebootPlan(ConcernPlan):
    """Whether to reboot now; ``files`` has the record that a reboot for these reasons began."""

    needed: bool = False


def decide(settings: Settings, evidence: Evidence) -> RebootPlan:
    """Return whether the host is to be rebooted now, with the finding that forbids it if any."""
    plan = _decide(settings, evidence)
    return replace(plan, resources=tuple(resources.files(plan.files)))


def _decide(settings: Settings, evidence: Evidence) -> RebootPlan:
    reasons = tuple(dict.fromkeys(settings.reasons))
    known = RECORD in evidence.files
    if not reasons:
        return RebootPlan(files=(HostFile(RECORD, None),) if known else ())
    boot = boot_id(evidence)
    if refusal := _refusal(settings, evidence, reasons, boot):
        return RebootPlan(reboot=reasons, findings=(refusal,))
    attempts = _attempts(evidence, boot)
    told = {"attempts": attempts + 1, "boot_id": boot, "reasons": sorted(reasons)}
    record = HostFile(RECORD, json.dumps(told, indent=2) + "\n")
    return RebootPlan(needed=True, reboot=reasons, files=(record,))


def _refusal(
    settings: Settings, evidence: Evidence, reasons: tuple[str, ...], boot: str | None
) -> Finding | None:
    """Return what forbids a reboot for these reasons now."""
    why, host = "; ".join(reasons), evidence.host
    if not settings.allowed:
        message = f"needs a reboot ({why}) and may not have one in this run"
        return Finding("REBOOT-PENDING", host, message)
    if serving := serving_replicas(evidence):
        message = f"needs a reboot ({why}), and {', '.join(serving)} run"
        return Finding("REBOOT-SERVING", host, message)
    tried = settings.rebooted or _attempts(evidence, boot) >= TRIES
    if tried or _done_before(evidence, reasons, boot):
        message = f"was rebooted, and the reason is still there: {why}"
        return Finding("REBOOT-NO-USE", host, message)
    return None


def _record(evidence: Evidence, boot: str | None) -> dict[str, Any]:
    """Return what an earlier boot was ended for; a damaged record forbids nothing."""
    try:
        record = json.loads(evidence.files.get(RECORD, "{}"))
    except ValueError:
        return {}
    if not isinstance(record, dict) or record.get("boot_id") in (None, boot):
        return {}
    return record


def _done_before(evidence: Evidence, reasons: tuple[str, ...], boot: str | None) -> bool:
    """Say whether an earlier boot was ended for one of the same reasons."""
    before = _record(evidence, boot).get("reasons")
    return isinstance(before, list) and bool(set(map(str, before)) & set(reasons))


def _attempts(evidence: Evidence, boot: str | None) -> int:
    """Return how many reboots there were since the host last had no reason for one."""
    count = _record(evidence, boot).get("attempts")
    return count if isinstance(count, int) else 0
