# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files below a directory that others also use: written at once, and only our own ever removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

State = Literal["written", "unchanged", "removed", "kept"]
# What was written here, by whom is plain: path -> SHA-256 of the content.
LEDGER = ".apiary-telemetry.json"


def write_files(out: Path, files: Mapping[str, str]) -> tuple[dict[str, State], list[Finding]]:
    """Write files by path below ``out``; return what became of each, and what was left alone.

    A file of an earlier run that is not among them is removed where its content is still ours,
    else it stays, as TELEMETRY-FILE-KEPT. Raises FILE-UNWRITABLE.
    """
    before = _ledger(out / LEDGER)
    states: dict[str, State] = {}
    for path, content in sorted(files.items()):
        if _digest(out / path) == _sum(content):
            states[path] = "unchanged"
            continue
        write_text(out / path, content)
        states[path] = "written"
    findings = []
    for path in sorted(before.keys() - files.keys()):
        now = _digest(out / path)
        if now is None:
            continue
        if now == before[path]:
            (out / path).unlink()
            states[path] = "removed"
        else:
            states[path] = "kept"
            findings.append(_kept(out / path))
    sums = {path: _sum(content) for path, content in sorted(files.items())}
    kept = {path: before[path] for path, state in states.items() if state == "kept"}
    if before != {**sums, **kept}:
        write_text(out / LEDGER, json.dumps({**sums, **kept}, indent=2, sort_keys=True) + "\n")
    return states, findings


def _sum(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _ledger(path: Path) -> dict[str, str]:
    """Return what an earlier run wrote; where nobody can read it, nothing is removed."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(read_text(str(path)))
    except json.JSONDecodeError:
        return {}
    if not isinstance(data, dict):
        return {}
    own = {str(name): str(digest) for name, digest in data.items()}
    return {name: digest for name, digest in own.items() if _is_below(name)}


def _is_below(name: str) -> bool:
    """Return whether a path stays below the directory that it is relative to."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _kept(path: Path) -> Finding:
    return Finding(
        "TELEMETRY-FILE-KEPT",
        str(path),
        "is not part of the telemetry any more, but was changed since it was written",
    )
