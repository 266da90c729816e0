# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `rocm-smi` prints as JSON, and choose between JSON and text; ROCm 4 to 7.

Formats: rocm_smi.py at every rocm-3.9 to rocm-6.2.2 tag and in ROCm/rocm-systems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...findings import Finding
from .. import problems
from ..observation import Device, Observation, Path, bandwidth, merged, paths_from_cells, positions
from . import rocm_smi_text
from .several import Tables, contradicted, restated
from .text import json_documents

NAME = "rocm-smi"

_PAIR = re.compile(
    r"\(Topology\) (weight|hops|link type) between DRM devices (\d{1,4}) and (\d{1,4})",
    re.IGNORECASE,
)
# What rocm-smi says when it sees no GPU, and what that means.
_ABSENCES = (
    (
        re.compile(r"Driver not initialized|Unable to detect amdgpu driver"),
        "the amdgpu driver is not loaded",
    ),
    (re.compile(r"ROCm SMI returned (\d+)"), "the rocm-smi library failed to start"),
    (
        re.compile(r"No AMD GPUs specified|No JSON data to report|No AMD GPU devices found"),
        "rocm-smi sees no GPU",
    ),
    (re.compile(r"rsmiBindings|NameError: name 'rocmsmi'"), "the rocm-smi library is missing"),
)


def recognise(text: str) -> bool:
    """Say whether text (clean) was printed by rocm-smi."""
    return bool(
        re.search(
            r"ROCm System Management Interface|End of ROCm SMI Log|ROCM-SMI|between two GPUs"
            r"|^\s*GPU ?\[?\d+\]?\s*: |^GPU\d+(?:\s+\d+){2,}\s*$"
            r"|NOT_SUPPORTED: Cannot print|^(?:rocm-smi|rocm_smi\.py): error: ",
            text,
            re.MULTILINE,
        )
        or why_absent(text)
    )


def recognise_json(document: Any) -> bool:
    """Say whether a JSON document was printed by rocm-smi."""
    return isinstance(document, Mapping) and any(
        re.fullmatch(r"card\d{1,4}|system", str(key)) for key in document
    )


def why_absent(text: str) -> str | None:
    """Return why rocm-smi sees no GPU, if text (stdout or stderr) tells."""
    return next((meaning for pattern, meaning in _ABSENCES if pattern.search(text)), None)


def version(text: str) -> str | None:
    """Return the tool's version from `rocm-smi --version`."""
    match = re.search(r"ROCM-SMI version:\s*(\S+)", text)
    return match.group(1) if match else None


def parse(texts: Iterable[str], subject: str) -> Observation:
    """Return what several outputs (clean) of one rocm-smi on one host say together.

    They share its numbering, so they are joined by index here and nowhere else.
    """
    devices: list[tuple[int, Device]] = []
    tables: Tables = {}
    findings: list[Finding] = []
    absence: str | None = None
    for text in texts:
        documents = [item for item in json_documents(text) if recognise_json(item)]
        own: Tables = {}
        told: str | None = None
        found: list[tuple[int, Device]] = []
        for document in documents:
            found += _json_devices(document)
            for kind, cells in _json_tables(document).items():
                told = told or contradicted(own, kind, cells)
        if documents:
            if told := told or restated(found):
                findings.append(problems.several(subject, told))
        else:
            found, more = rocm_smi_text.read(text, own, subject)
            findings += more
        devices += found
        # What two commands say differently is weighed elsewhere.
        for kind, cells in own.items():
            contradicted(tables, kind, cells)
        absence = absence or why_absent(text)
        if "Concise Info" in text:
            absence = absence or "rocm-smi lists no GPU"
    # rocm_smi.cc has bandwidths of xGMI links only.
    for pair, cell in tables.get("bandwidth", {}).items():
        if bandwidth(cell):
            tables.setdefault("type", {}).setdefault(pair, "XGMI")
    indices = {index for cells in tables.values() for pair in cells for index in pair}
    listed = merged([*devices, *((index, Device()) for index in sorted(indices))])
    place = positions(listed)
    paths = tuple(replace_ends(path, place) for path in paths_from_cells(tables))
    return Observation(
        NAME, tuple(listed), paths, tuple(findings), absence=None if listed else absence
    )


def replace_ends(path: Path, place: Mapping[int, int]) -> Path:
    """Return a path between tool indices as one between positions."""
    return replace(path, a=place[path.a], b=place[path.b])


def _json_devices(document: Mapping[str, Any]) -> list[tuple[int, Device]]:
    found = []
    for key, values in document.items():
        match = re.fullmatch(r"card(\d{1,4})", str(key))
        if match and isinstance(values, Mapping):
            found.append((int(match.group(1)), rocm_smi_text.device(values)))
    return found


def _json_tables(document: Mapping[str, Any]) -> Tables:
    tables: Tables = {}
    system = document.get("system")
    for key, value in system.items() if isinstance(system, Mapping) else ():
        match = _PAIR.search(str(key))
        if match:
            kind = {"link type": "type"}.get(match.group(1).lower(), match.group(1).lower())
            pair = int(match.group(2)), int(match.group(3))
            tables.setdefault(kind, {})[pair] = str(value)
    return tables
