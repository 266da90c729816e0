# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings: the one shape for every warning and refusal, from parsing to acceptance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing a person should know, with what to do about it.

    ``code`` is stable and listed in knowledge/findings.yml; ``subject`` names the
    file, host or field; ``message`` says what was found and what was expected.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    remedy: str
    source: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.severity}: {self.code}: {self.subject}: {self.message}\n  remedy: {self.remedy}"
        )


class ApiaryError(Exception):
    """The base of every refusal: it carries the findings that explain it."""

    def __init__(self, *findings: Finding) -> None:
        if not findings:
            raise ValueError("an ApiaryError needs at least one finding")
        self.findings = findings
        super().__init__("\n".join(str(finding) for finding in findings))


def error(
    code: str, subject: str, message: str, remedy: str, source: str | None = None
) -> ApiaryError:
    """Return a refusal with one finding, ready to be raised."""
    return ApiaryError(Finding(code, "error", subject, message, remedy, source))


def has_errors(findings: Iterable[Finding]) -> bool:
    """Say whether any finding is a refusal."""
    return any(finding.severity == "error" for finding in findings)
