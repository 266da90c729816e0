# SPDX-License-Identifier: GPL-3.0-or-later

"""What every concern of a host shares: files to write, live settings, checks; the concerns by name.

Each concern is a package here with ``Settings`` and ``decide``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..documents import from_document
from ..evidence.types import Evidence
from ..findings import Finding, Severity

CheckState = Literal["pass", "fail", "skip", "unknown"]
# Where units of ours lie, and how files of ours begin.
UNITS = "/etc/systemd/system"
MANAGED = "# Managed by Apiary; changes made here are overwritten.\n"


@dataclass(frozen=True)
class HostFile:
    """One file that is to be there with this text and octal mode; without text it is to be gone."""

    path: str
    content: str | None
    mode: str = "0644"


@dataclass(frozen=True)
class LiveSetting:
    """One value of the running kernel, by its path in /proc/sys or /sys."""

    path: str
    value: str


@dataclass(frozen=True)
class Skipped:
    """What was left out on this host, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Kept(Skipped):
    """What others have set up on this host, and what of it stays."""


@dataclass(frozen=True, init=False)
class Check:
    """One fact of a right host; a drift is a check that no longer passes.

    ``code`` is a documented finding code, and severity and remedy of a failure are the catalogue's,
    as a Finding's, whose keywords this takes. "skip" is for what does not apply here, "unknown" for
    what could not be read; both say why in ``found``.
    """

    code: str
    subject: str
    state: CheckState
    found: str
    expected: str
    severity: Severity = "error"
    remedy: str = ""
    source: str | None = None

    def __init__(
        self, code: str, subject: str, state: CheckState, found: str, expected: str, **facts: Any
    ) -> None:
        message = f"found {found}, expected {expected}"
        failure = Finding(code, subject, message, **facts)
        self._set(
            code=code,
            subject=subject,
            state=state,
            found=found,
            expected=expected,
            severity=failure.severity,
            remedy=failure.remedy,
            source=failure.source,
        )

    @classmethod
    def of(
        cls, code: str, subject: str, right: bool | None, found: str, expected: str, **facts: Any
    ) -> Check:
        """Return the check of a fact that holds, or does not, or, where it is None, is unknown."""
        state: CheckState = "unknown" if right is None else "pass" if right else "fail"
        return cls(code, subject, state, found, expected, **facts)

    @classmethod
    def from_fields(cls, **fields: Any) -> Check:
        """Return a check as a document has it."""
        check = cls.__new__(cls)
        check._set(**fields)
        return check

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def finding(self) -> Finding | None:
        """Return what a person should know of it: nothing where it passes or does not apply."""
        if self.state in ("pass", "skip"):
            return None
        return Finding.from_fields(
            code=self.code,
            severity=self.severity if self.state == "fail" else "info",
            subject=self.subject,
            message=f"found {self.found}, expected {self.expected}",
            remedy=self.remedy,
            source=self.source,
        )


@dataclass(frozen=True)
class ConcernPlan:
    """What every role's plan has; each adds what its role needs.

    ``resources`` are what converge brings the host to, in this order. ``reboot`` are reasons why
    the host must be rebooted once they are applied; empty: it need not.
    """

    files: tuple[HostFile, ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    reboot: tuple[str, ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()


# In the order in which a host is made right; each with the scopes of evidence it needs.
CONCERNS: Mapping[str, tuple[str, ...]] = {
    "rocm": ("rocm",),
    "host_tuning": ("gpu", "tuning"),
    "weight_cache": ("weights",),
    "container_runtime": ("gpu", "container"),
    "engine": ("gpu", "engine"),
    "device_plugin": ("gpu", "kubernetes"),
    "reboot": ("reboot",),
}


def decide(concern: str, settings: Mapping[str, Any], evidence: Evidence) -> ConcernPlan:
    """Return a concern's plan for one host; raise ApiaryError for settings that can't be right."""
    package = importlib.import_module(f"{__package__}.{concern}")
    asked = from_document(package.Settings, settings, f"{evidence.host}: {concern}")
    plan: ConcernPlan = package.decide(asked, evidence)
    return plan


def failing(plan: Any) -> list[Finding]:
    """Return a finding for each check that fails, and whose failure no reboot of the plan mends."""
    later = getattr(plan, "after_reboot", ())
    found = (item.finding() for item in plan.checks if item.code not in later)
    return [item for item in found if item is not None and item.severity == "error"]
