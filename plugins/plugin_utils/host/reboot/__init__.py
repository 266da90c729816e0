# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is rebooted: only for a reason, never beside serving replicas, never in a loop."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, Severity
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.facts import (
    boot_id,
    serving_replicas,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import (
    ConcernPlan,
    HostFile,
)

# Outlives the boot, so that a run after it knows why the host was rebooted.
RECORD = "/var/lib/apiary/reboot.json"


@dataclass(frozen=True)
class Settings:
    """``reasons`` are the other concerns' reasons; ``allowed`` is the operator's word."""

    reasons: tuple[str, ...] = ()
    allowed: bool = True


@dataclass(frozen=True)
class RebootPlan(ConcernPlan):
    """Whether to reboot now; ``files`` has the record that a reboot for these reasons began."""

    needed: bool = False


def decide(settings: Settings, evidence: Evidence) -> RebootPlan:
    """Return whether the host is to be rebooted now, with the finding that forbids it if any."""
    reasons = tuple(dict.fromkeys(settings.reasons))
    known = RECORD in evidence.files
    if not reasons:
        return RebootPlan(files=(HostFile(RECORD, None),) if known else ())
    why = "; ".join(reasons)
    if not settings.allowed:
        return RebootPlan(
            reboot=reasons,
            findings=(
                _finding(
                    "REBOOT-PENDING",
                    "warning",
                    evidence,
                    f"needs a reboot ({why}) and may not have one in this run",
                    "run again with reboot_allowed=true when the host can be spared",
                ),
            ),
        )
    serving = serving_replicas(evidence)
    if serving:
        return RebootPlan(
            reboot=reasons,
            findings=(
                _finding(
                    "REBOOT-SERVING",
                    "error",
                    evidence,
                    f"needs a reboot ({why}), and {', '.join(serving)} run",
                    "drain the host and stop its replicas (systemctl stop the deployment's target),"
                    " or run with reboot_allowed=false to leave the reboot for later",
                ),
            ),
        )
    boot = boot_id(evidence)
    if _done_before(evidence, reasons, boot):
        return RebootPlan(
            reboot=reasons,
            findings=(
                _finding(
                    "REBOOT-NO-USE",
                    "error",
                    evidence,
                    f"was rebooted, and the reason is still there: {why}",
                    "see what the host made of its last boot (journalctl --boot, dmesg); when it is"
                    f" mended, remove {RECORD} and run again",
                ),
            ),
        )
    record = json.dumps({"boot_id": boot, "reasons": sorted(reasons)}, indent=2) + "\n"
    return RebootPlan(needed=True, reboot=reasons, files=(HostFile(RECORD, record),))


def _done_before(evidence: Evidence, reasons: tuple[str, ...], boot: str | None) -> bool:
    """Say whether an earlier boot was ended for one of the same reasons."""
    try:
        record = json.loads(evidence.files.get(RECORD, "{}"))
        before = record.get("boot_id")
        return before not in (None, boot) and bool(set(record["reasons"]) & set(reasons))
    except (ValueError, TypeError, AttributeError, KeyError):
        return False  # a damaged record forbids nothing; it is written anew


def _finding(
    code: str, severity: Severity, evidence: Evidence, message: str, remedy: str
) -> Finding:
    return Finding(code, severity, evidence.host, message, remedy)
