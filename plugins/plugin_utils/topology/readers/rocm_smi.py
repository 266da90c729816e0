# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `rocm-smi` prints as JSON, and choose between JSON and text; ROCm 4 to 7.

Formats: rocm_smi.py at every rocm-3.9 to rocm-6.2.2 tag and in ROCm/rocm-systems.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...findings import Finding
from ..observation import Device, Observation, bandwidth
from . import marks, rocm_smi_text
from .several import Devices, Reader, Tables, outputs

NAME = marks.ROCM_SMI

_PAIR = re.compile(
    r"\(Topology\) (weight|hops|link type|link accessibility) between DRM devices"
    r" (\d{1,4}) and (\d{1,4})",
    re.IGNORECASE,
)
# Banners and keys up to ROCm 5.7, which numbers GPUs by DRM card.
_BY_CARD = re.compile(r"^={20,26} ROCm System Management Interface ={20,26}$|Card series:", re.M)


def recognise_json(document: Any) -> bool:
    """Say whether a JSON document was printed by rocm-smi."""
    return isinstance(document, Mapping) and any(
        re.fullmatch(r"card\d{1,4}|system", str(key)) for key in document
    )


def version(text: str) -> str | None:
    """Return the tool's version from `rocm-smi --version`."""
    match = re.search(r"ROCM-SMI version:\s*(\S+)", text)
    return match.group(1) if match else None


def parse(texts: Iterable[str], subject: str, one_file: bool = False) -> Observation:
    """Return what several outputs (clean) of one rocm-smi on one host say together."""
    texts = list(texts)
    result = outputs(texts, subject, _READER, one_file)
    # rocm_smi.cc has bandwidths of xGMI links only.
    for pair, cell in result.tables.get("bandwidth", {}).items():
        if bandwidth(cell):
            result.tables.setdefault("type", {}).setdefault(pair, "XGMI")
    old = any(_BY_CARD.search(text) for text in texts)
    return dataclasses.replace(result.observation(), by_address=not old)


def _absence(text: str, _documents: list[Any]) -> str | None:
    return marks.why_absent(NAME, text) or (
        "rocm-smi lists no GPU" if "Concise Info" in text else None
    )


def _document(
    document: Mapping[str, Any], tables: Tables, _subject: str
) -> tuple[Devices, list[Finding]]:
    tables |= _json_tables(document)
    return _json_devices(document), []


def _json_devices(document: Mapping[str, Any]) -> list[tuple[int, Device]]:
    devices = []
    for key, values in document.items():
        match = re.fullmatch(r"card(\d{1,4})", str(key))
        if match and isinstance(values, Mapping):
            devices.append((int(match.group(1)), rocm_smi_text.device(values)))
    return devices


def _json_tables(document: Mapping[str, Any]) -> Tables:
    tables = Tables()
    system = document.get("system")
    for key, value in system.items() if isinstance(system, Mapping) else ():
        match = _PAIR.search(str(key))
        if match:
            title = match.group(1).lower()
            kind = {"link type": "type", "link accessibility": "access"}.get(title, title)
            pair = int(match.group(2)), int(match.group(3))
            tables.setdefault(kind, {})[pair] = str(value)
    return tables


_READER = Reader(NAME, recognise_json, _document, rocm_smi_text.read, _absence)
