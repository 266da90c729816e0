# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The raw evidence that a failed check rests on, cut to what a person reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..documents import knowledge
from ..evidence.types import Evidence
from ..findings import Finding
from ..host.facts import command
from .types import Excerpt, Measured

# Of one check, and of one host: a panel is read, not searched.
_LINES, _WIDTH, _MOST = 12, 300, 24
_WHERE = "acceptance/excerpts.yml"
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def excerpts(
    evidence: Evidence, findings: Sequence[Finding], measured: Measured
) -> tuple[Excerpt, ...]:
    """Return excerpts for findings that are no mere notes, each piece of evidence once."""
    result: dict[tuple[str, str], Excerpt] = {}
    for finding in findings:
        if finding.severity == "info":
            continue
        for origin, text in _of(evidence, finding, measured):
            if text and (finding.code, origin) not in result and len(result) < _MOST:
                result[finding.code, origin] = Excerpt(
                    finding.code, finding.subject, origin, _cut(text)
                )
    return tuple(result.values())


def _of(evidence: Evidence, finding: Finding, measured: Measured) -> Iterator[tuple[str, str]]:
    text = f"{finding.subject} {finding.message}"
    if finding.code == "ACCEPT-KERNEL-LOG":
        yield from _log(evidence, finding)
        return
    for ran in measured.runs:
        if ran.argv and f": {ran.test} {ran.name}" in finding.subject:
            yield " ".join(ran.argv), "\n".join(ran.output.splitlines()[-_LINES:])
    where: Mapping[str, Any] = next(
        (entry for entry in knowledge(_WHERE)["excerpts"] if entry["code"] in finding.code), {}
    )
    for name in where.get("commands", ()):
        output = command(evidence, name)
        if output:
            yield " ".join(output.argv), output.stdout
    functions = _PCI.findall(text) or [None]
    for bdf in functions[:2]:
        card = _card(evidence, bdf) or "card[0-9]+"
        if pattern := where.get("files"):
            words = pattern.replace("{bdf}", re.escape(bdf or "-")).replace("{card}", card)
            paths = [path for path in sorted(evidence.files) if re.fullmatch(words, path)]
            if finding.code == "ACCEPT-FIRMWARE":
                paths = [path for path in paths if _component(path) in finding.message]
            lines = [_line(path, evidence.files[path]) for path in paths]
            if lines:
                yield paths[0] if len(paths) == 1 else f"{len(paths)} files", "\n".join(lines)


def _component(path: str) -> str:
    """Return the component of a firmware's file as the check names it: "mec: "."""
    name = path.rsplit("/", 1)[-1]
    return f"{name.removesuffix('_fw_version').removesuffix('_version')}: "


def _line(path: str, text: str) -> str:
    """Return a short file beside its path, as grep would."""
    return f"{path}: {' '.join(text.split())}"


def _log(evidence: Evidence, finding: Finding) -> Iterator[tuple[str, str]]:
    output = command(evidence, "kernel_log")
    for kind in knowledge("host/acceptance.yml")["kernel_log"]:
        if output and finding.subject.endswith(f", {kind['id']}"):
            lines = [
                line for line in output.stdout.splitlines() if re.search(kind["pattern"], line)
            ]
            yield f"{' '.join(output.argv)}: {kind['id']}", "\n".join(lines[-_LINES:])


def _card(evidence: Evidence, bdf: str | None) -> str | None:
    """Return the DRM card of a PCI function."""
    for path, target in evidence.links.items():
        match = re.fullmatch(r"/sys/class/drm/(card\d+)", path)
        if match and bdf and bdf in _PCI.findall(target)[-1:]:
            return match[1]
    return None


def _cut(text: str) -> str:
    lines = text.strip("\n").splitlines()
    shown = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"… {len(lines) - _LINES} more lines")
    return "\n".join(shown)
