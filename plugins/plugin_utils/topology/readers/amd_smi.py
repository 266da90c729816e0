# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `amd-smi` prints as JSON, and choose between JSON and text; 23.x to 26.x.

Formats: amdsmi_cli at the rocm-6.0 to rocm-6.2.2 tags and in the ROCm 7.1 tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...documents import knowledge
from ...findings import Finding
from .. import problems
from ..observation import Device, Observation
from . import amd_smi_rows, amd_smi_text, marks
from .several import Devices, Reader, Tables, outputs
from .text import bus_address, known, natural

NAME = marks.AMD_SMI
_FACTS: Mapping[str, Any] = knowledge("outputs.yml")["tools"][NAME]
_OLD_TABLES, _NEW_TABLES, _LISTS = (_FACTS[name] for name in ("pairs", "links", "lists"))

# Of entries that are not about a GPU.
_FOREIGN = {"cpu", "nic", "error", "gpu_data", "cpu_data"}


def recognise_json(document: Any) -> bool:
    """Say whether a JSON document was printed by amd-smi."""
    return bool(_items(document)) or (
        isinstance(document, Mapping)
        and bool(set(_LISTS) & document.keys() or {"error", "code"} <= document.keys())
    )


def version(text: str) -> str | None:
    """Return tool and ROCm versions from `amd-smi version`."""
    tool = re.search(r"AMDSMI Tool:\s*([^\s|]+)", text)
    rocm = re.search(r"ROCm version:\s*([^\s|]+)", text)
    if tool is None:
        return None
    with_rocm = f" (ROCm {rocm.group(1)})" if rocm and known(rocm.group(1)) else ""
    return tool.group(1) + with_rocm


def parse(texts: Iterable[str], subject: str, one_file: bool = False) -> Observation:
    """Return what several outputs (clean) of one amd-smi on one host say together.

    Within one amd-smi the GPU number and the BDF mean the same device in all its outputs.
    """
    result = outputs(texts, subject, _READER, one_file)
    devices = result.listed()
    if result.absence and devices and all(device.bdf is None for device in devices):
        result.findings.append(problems.tool_failed(subject, NAME, result.absence))
    return result.observation()


def _absence(text: str, documents: list[Any]) -> str | None:
    empty = any(
        isinstance(item, Mapping) and "gpu_data" in item and not _items(item) for item in documents
    )
    return "amd-smi lists no GPU" if empty else marks.why_absent(NAME, text)


def _document(document: Any, tables: Tables, subject: str) -> tuple[Devices, list[Finding]]:
    return _json(document, tables), list(_json_errors(document, subject))


def _items(document: Any) -> list[Mapping[str, Any]]:
    """Return the entries per GPU of every shape: alone in a list, or under their names.

    7.x wraps in `{"gpu_data": […]}`; a bare `amd-smi --json` is a list around one mapping.
    """
    return list(_entries(document, depth=4))


def _entries(document: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, Mapping) and _number(document) is not None:
        yield document
        return
    parts: Iterable[Any] = ()
    if isinstance(document, list):
        parts = document
    elif isinstance(document, Mapping):
        parts = (document.get(name) for name in _LISTS)
    for part in parts if depth else ():
        yield from _entries(part, depth - 1)


def _lists(document: Any, depth: int) -> Iterator[list[Any]]:
    """Yield the lists of entries, of which `_entries` takes those with a number."""
    if isinstance(document, list):
        yield document
    elif isinstance(document, Mapping) and depth:
        for name in _LISTS:
            yield from _lists(document.get(name), depth - 1)


def _nameless(entries: Sequence[Any]) -> bool:
    """Say whether entries of a list lack the number that others of the same kind have."""
    own = [each for each in entries if isinstance(each, Mapping) and not _FOREIGN & each.keys()]
    return len({_number(each) is None for each in own}) > 1


def _split(entries: Sequence[Any]) -> bool:
    """Say whether two entries of a list have one number and other members each."""
    members: dict[int, frozenset[str]] = {}
    own = (each for each in entries if isinstance(each, Mapping))
    numbered = ((number, frozenset(each)) for each in own if (number := _number(each)) is not None)
    return any(members.setdefault(number, names) != names for number, names in numbered)


def _links(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    links = item.get("links")
    return [link for link in links if isinstance(link, Mapping)] if isinstance(links, list) else []


def _number(item: Mapping[str, Any]) -> int | None:
    number = natural(item.get("gpu"))
    return natural(item.get("gpu_id")) if number is None else number


def _json_errors(document: Any, subject: str) -> Iterator[Finding]:
    if any(map(_nameless, _lists(document, depth=4))):
        yield problems.truncated(subject, "the number of a GPU is missing")
    if any(map(_split, _lists(document, depth=4))):
        yield problems.truncated(subject, "what is printed of a GPU is in two entries")
    if len({frozenset(link) for item in _items(document) for link in _links(item)}) > 1:
        yield problems.truncated(subject, "links of some GPUs lack what others have")
    entries = document if isinstance(document, list) else [document]
    for entry in entries:
        if isinstance(entry, Mapping) and "error" in entry:
            yield problems.tool_failed(subject, NAME, str(entry["error"]))


def _json(document: Any, tables: Tables) -> list[tuple[int, Device]]:
    devices: list[tuple[int, Device]] = []
    items = _items(document)
    texts = [
        str(item.get("partition_id", amd_smi_text.section(item, "partition").get("partition_id")))
        for item in items
    ]
    for item, partition in zip(items, amd_smi_rows.partition_ids(texts), strict=True):
        index = _number(item) or 0
        devices.append((index, replace(amd_smi_text.device(item), partition=partition)))
        for link in _links(item):
            other = natural(link.get("gpu"))
            if other is None:
                continue
            devices.append((other, Device(bdf=bus_address(link.get("bdf")))))
            for key, kind in _NEW_TABLES.items():
                if key in link:
                    tables.setdefault(kind, {})[index, other] = str(link[key])
        for key, kind in _OLD_TABLES.items():
            cells = item.get(key)
            for name, value in cells.items() if isinstance(cells, Mapping) else ():
                match = re.fullmatch(r"gpu_(\d{1,4})", str(name))
                if match:
                    tables.setdefault(kind, {})[index, int(match.group(1))] = str(value)
    described = [item for item in items if {"link_metrics", "link_status"} & item.keys()]
    return devices + amd_smi_rows.xgmi_json(described, tables)


_READER = Reader(NAME, recognise_json, _document, amd_smi_text.read, _absence)
