# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words every concern of a host shares: files to write, live settings, checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..findings import Finding, Severity

CheckState = Literal["pass", "fail", "skip", "unknown"]


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
class Check:
    """One thing that holds on a right host; a drift is a check that no longer passes.

    ``code`` is a documented finding code; ``severity`` is what a failure means. "skip" is for what
    does not apply here, "unknown" for what could not be read; both say why in ``found``.
    """

    code: str
    subject: str
    state: CheckState
    found: str
    expected: str
    severity: Severity = "error"
    remedy: str = ""
    source: str | None = None

    def finding(self) -> Finding | None:
        """Return what a person should know of it: nothing where it passes or does not apply."""
        if self.state in ("pass", "skip"):
            return None
        severity: Severity = self.severity if self.state == "fail" else "info"
        message = f"found {self.found}, expected {self.expected}"
        return Finding(self.code, severity, self.subject, message, self.remedy, self.source)


class HostPlan(Protocol):
    """What every role's plan has; each adds what its role needs."""

    @property
    def resources(self) -> tuple[Mapping[str, Any], ...]:
        """What converge brings the host to, in this order; empty for a role not yet ported."""

    @property
    def files(self) -> tuple[HostFile, ...]: ...

    @property
    def checks(self) -> tuple[Check, ...]: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...

    @property
    def skipped(self) -> tuple[Skipped, ...]: ...

    @property
    def reboot(self) -> tuple[str, ...]:
        """Reasons why the host must be rebooted once the rest is applied; empty: it need not."""


@dataclass(frozen=True)
class ConcernPlan:
    """The fields of HostPlan, to inherit from."""

    files: tuple[HostFile, ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    reboot: tuple[str, ...] = field(default=())
    resources: tuple[Mapping[str, Any], ...] = ()
