# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings on the controller: the class that hosts have, explained by the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..module_utils.finding import (
    ApiaryError,
    Finding,
    Severity,
    error,
    has_errors,
    use_catalogue,
    visible,
)

__all__ = [
    "ApiaryError",
    "Finding",
    "Severity",
    "by_severity",
    "error",
    "errors_of",
    "explanation",
    "findings_of",
    "from_host",
    "has_errors",
    "stop_on_errors",
    "visible",
]

_FOLDER = Path(__file__).parent / "knowledge" / "findings"
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _texts() -> tuple[str, ...]:
    return tuple("\n" + path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.yml")))


@cache
def explanation(code: str) -> Mapping[str, Any] | None:
    """Return what the catalogue says of a code, or None.

    Only the entry itself is parsed: the whole catalogue costs a tenth of a second.
    """
    for text in _texts():
        _before, key, after = text.partition(f"\n{code}:\n")
        if key:
            lines = []
            for line in after.splitlines():
                if line and not line.startswith(" "):
                    break
                lines.append(line)
            entry: Mapping[str, Any] = yaml.load("\n".join(lines), Loader=_YAML)  # noqa: S506 - a safe loader
            return entry
    return None


def explained_codes(areas: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what findings take from the catalogue, of every code of some areas."""
    pattern = re.compile(rf"^((?:{'|'.join(areas)})-[A-Z0-9-]+):$", re.MULTILINE)
    codes = sorted(code for text in _texts() for code in pattern.findall(text))
    used = ("severity", "accepted", "minor", "remedy")
    entries = {code: explanation(code) or {} for code in codes}
    return {
        code: {name: entry[name] for name in used if name in entry}
        for code, entry in entries.items()
    }


use_catalogue(explanation)


def by_severity(finding: Finding) -> int:
    """Return what sorts findings, the gravest first."""
    return ("error", "warning", "info").index(finding.severity)


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the refusals among findings."""
    return tuple(finding for finding in findings if finding.severity == "error")


def stop_on_errors(findings: Iterable[Finding]) -> None:
    """Raise the refusals among findings, where there are any."""
    if errors := errors_of(findings):
        raise ApiaryError(*errors)


def from_host(data: Mapping[str, Any]) -> Finding:
    """Return a finding that a module returned, facts or a document; ValueError for what is none.

    So the same failure reads the same in a survey, a ledger, on the fleet's page and in a terminal:
    the catalogue explains it. Only a code that it lacks keeps the host's words.
    """
    finding = Finding.from_facts(data)
    entry = explanation(finding.code)
    severity, remedy = data.get("severity"), data.get("remedy")
    if severity is None:
        return finding
    if not isinstance(remedy, str) or severity not in ("error", "warning", "info"):
        raise ValueError("a finding has a severity and a remedy, or neither")
    if entry and severity not in (entry["severity"], entry.get("accepted"), entry.get("minor")):
        severity = finding.severity
    # The host gave no values for the places in the catalogue's remedy.
    open_ended = entry is None or re.search(r"\{[a-z_]+\}", finding.remedy)
    return Finding.from_fields(
        code=finding.code,
        severity=severity,
        subject=finding.subject,
        message=finding.message,
        remedy=remedy if open_ended else finding.remedy,
        source=finding.source,
    )


def findings_of(result: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings of a task's result; none where somebody else's has such a key."""
    try:
        return tuple(map(from_host, result.get("findings") or ()))
    except (AttributeError, TypeError, ValueError):
        return ()
