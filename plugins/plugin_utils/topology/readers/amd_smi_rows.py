# SPDX-License-Identifier: GPL-3.0-or-later

"""Read amd-smi's tables of a row or two per GPU: bare command, `partition` and `xgmi`.

Formats: subcommands/xgmi.py in ROCm/rocm-systems; ROCm 6.1 prints the metrics of xGMI only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...findings import Finding
from .. import problems
from ..observation import Device, port_states
from .several import rows_differ
from .text import bus_address, known, natural, partition_modes

_BOX_BUS = re.compile(r"^\|\s*([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[^\s|]+|N/A)\s(?:[^|]*\|){2,}\s*$")
_BOX_IDS = re.compile(r"^\|\s*(\d{1,4})\s+(\d{1,4}|N/A)\s+(\d{1,4}|N/A)\s+([A-Z]PX/\S+|N/A)\s*\|")
_PLATFORM = re.compile(r"^\|\s*Platform:\s*Linux (Baremetal|Guest)\s*\|")
_PARTITION_ROW = re.compile(r"^\s*(\d{1,4})\s+(NPS\d|N/A)\s+([A-Z]PX|N/A)\s+\S.{0,80}?\s(\S+)\s*$")
_MEMORY_ROW = re.compile(r"^\s*(\d{1,4})\s+((?:NPS\d,?)+|N/A)\s+(NPS\d|N/A)\s*$")
_PROFILE_ROW = re.compile(
    r"^\s*(?:(\d{1,4})\s+)?\d{1,3}\s+(?:(?:NPS\d,?)+|N/A)\s+([A-Z]PX)(\*?)\s+(?:[\d,]+|N/A)\s"
)
_DONE = re.compile(r"\|\s*Processes:|\+-[-+]{10,}$")


def box(lines: Sequence[str], subject: str, findings: list[Finding]) -> list[tuple[int, Device]]:
    """Read the box of a bare `amd-smi`; only what its fixed width cannot cut.

    A GPU has two rows. The address is N/A where the user lacks the groups. A "Linux Guest" has
    virtual functions; with whole GPUs it is a "Linux Guest (Passthrough)".
    """
    devices: list[tuple[int, Device]] = []
    address: str | None = None
    pending = ended = lost = False
    virtual: bool | None = None
    for line in lines:
        ended = ended or bool(devices and not pending and _DONE.match(line))
        if platform := _PLATFORM.match(line):
            virtual = platform.group(1) == "Guest"
        bus, ids = _BOX_BUS.match(line), _BOX_IDS.match(line)
        if bus:
            lost = lost or pending
            address, pending, ended = bus_address(bus.group(1)), True, False
        elif ids:
            compute, memory = partition_modes(ids.group(4))
            devices.append(
                (
                    int(ids.group(1)),
                    Device(
                        bdf=address,
                        hip_ordinal=natural(ids.group(2)),
                        oam_id=natural(ids.group(3)),
                        virtual_function=virtual,
                        compute_partition=compute,
                        memory_partition=memory,
                    ),
                )
            )
            address, pending = None, False
    if difference := rows_differ(number for number, _device in devices):
        findings.append(problems.several(subject, difference))
    if pending or lost:
        findings.append(problems.truncated(subject, "the second row of a GPU is missing"))
    elif devices and not ended:
        findings.append(problems.truncated(subject, "the end of the box is missing"))
    return devices


def partition_ids(texts: Iterable[str]) -> list[int | None]:
    """Return the partition id of each device, in the tool's order.

    Up to ROCm 6.3 the first partition of a GPU lists all ids and the others have N/A.
    """
    ids: list[int | None] = []
    waiting: list[int] = []
    for text in texts:
        if re.fullmatch(r"\d{1,4}(?:,\d{1,4})+", text):
            first, *waiting = map(int, text.split(","))
            ids.append(first)
        elif waiting and known(text) is None:
            ids.append(waiting.pop(0))
        else:
            ids.append(natural(text))
            waiting = []
    return ids


def _currents(lines: Sequence[str]) -> Iterator[str]:
    """Yield the rows of the table of current modes."""
    inside = False
    for line in lines:
        if not line.strip() or line.lstrip().startswith("GPU_ID"):
            inside = "ACCELERATOR_PROFILE_INDEX" in line and "RESOURCE" not in line
        elif inside and re.search(r"^\s*\d|\b(?:NPS\d|[A-Z]PX)\b", line):
            yield line


def partitions(
    lines: Sequence[str], subject: str, findings: list[Finding]
) -> list[tuple[int, Device]]:
    """Read the tables of `partition`: current modes, memory modes and accelerator profiles."""
    current = [match for line in lines if (match := _PARTITION_ROW.match(line))]
    if difference := rows_differ(int(match.group(1)) for match in current):
        findings.append(problems.several(subject, difference))
    strange = [line for line in _currents(lines) if not _PARTITION_ROW.match(line)]
    if strange:
        message = f"a row of partitions is damaged: {strange[0].strip()[:40]!r}"
        findings.append(problems.truncated(subject, message))
    ids = partition_ids(match.group(4) for match in current)
    devices: list[tuple[int, Device]] = []
    for match, identity in zip(current, ids, strict=True):
        compute, memory = partition_modes(f"{match.group(2)} {match.group(3)}")
        described = Device(partition=identity, compute_partition=compute, memory_partition=memory)
        devices.append((int(match.group(1)), described))
    index: int | None = None
    for line in lines:
        row, profile = _MEMORY_ROW.match(line), _PROFILE_ROW.match(line)
        if row:
            _compute, memory = partition_modes(row.group(3))
            devices.append((int(row.group(1)), Device(memory_partition=memory)))
        elif profile:
            index = int(profile.group(1)) if profile.group(1) else index
            if index is not None:
                mode = profile.group(2) if profile.group(3) else None
                devices.append((index, Device(compute_partition=mode)))
    return devices


Tables = dict[str, dict[tuple[int, int], str]]

XGMI_TITLES = re.compile(
    r"^\s*(LINK METRIC TABLE|GPU LINK PORT STATUS|XGMI LINK STATUS)(?: TABLE)?:?\s*$"
)
_ROW = re.compile(
    r"^\s*GPU(\d{1,4})\s+((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d|N/A)\s+(\S.*)$"
)
_COLUMN = re.compile(r"GPU\d{1,4}|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_TRAFFIC = re.compile(r"N/A|\d{1,20}(?:\.\d{1,6})? ?[KMGTPE]?B\b")
_STATES = frozenset(("U", "D", "X", "N/A"))


def xgmi(
    lines: Sequence[str], tables: Tables, subject: str
) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Return the devices of the three tables and fill in the types and states of pairs."""
    devices: list[tuple[int, Device]] = []
    findings: list[Finding] = []
    counts: dict[str, tuple[int, int]] = {}
    for title, body in _parts(lines):
        headers = [_COLUMN.findall(line) for line in body if "bdf" in line]
        headers += [_TRAFFIC.findall(line) for line in body if line.split()[:1] == ["Read"]]
        rows = [(place, match) for place, line in enumerate(body) if (match := _ROW.match(line))]
        numbers = [int(match.group(1)) for _place, match in rows]
        if counts.get(title, (len(set(numbers)),))[0] != len(set(numbers)):
            message = (
                f"table '{title}' is in it of {counts[title][0]} and of {len(set(numbers))} GPUs"
            )
            findings.append(problems.truncated(subject, message))
        counts[title] = len(set(numbers)), max(map(len, headers), default=0)
        for place, match in rows:
            number, cells = int(match.group(1)), match.group(3).split()
            states = port_states(cells) if _STATES.issuperset(cells) else None
            devices.append((number, Device(bdf=bus_address(match.group(2)), ports=states)))
            if title == "LINK METRIC TABLE" and match.group(3).rstrip().endswith("XGMI"):
                traffic = _TRAFFIC.findall("".join(body[place + 1 : place + 2]))
                _direct(number, numbers, traffic, tables)
            elif "SELF" in cells:
                _states(number, numbers, cells, tables)
    most = max((max(pair) for pair in counts.values()), default=0)
    damaged = [line for _title, body in _parts(lines) for line in body if _damaged(line)]
    if damaged:
        findings.append(problems.truncated(subject, f"a row is damaged: {damaged[0][:40]!r}"))
    for title, (present, _columns) in counts.items():
        if present < most:
            message = f"table '{title}': {present} of {most} rows are there"
            findings.append(problems.truncated(subject, message))
    return devices, findings


def _damaged(line: str) -> bool:
    return line.lstrip().startswith("GPU") and ":" in line[:24] and not _ROW.match(line)


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    title, body = "", list[str]()
    for line in [*lines, "XGMI LINK STATUS:"]:
        match = XGMI_TITLES.match(line)
        if match:
            if title:
                yield title, body
            title, body = match.group(1), []
        else:
            body.append(line)


def _direct(number: int, numbers: Sequence[int], traffic: Sequence[str], tables: Tables) -> None:
    """Note an xGMI link to each GPU that there is a traffic counter for; N/A is no direct link."""
    for other, cell in zip(numbers, traffic, strict=False):
        if other != number and cell != "N/A":
            tables.setdefault("type", {}).setdefault((number, other), "XGMI")


def _states(number: int, numbers: Sequence[int], cells: Sequence[str], tables: Tables) -> None:
    for other, cell in zip(numbers, cells, strict=False):
        if other != number and cell not in ("N/A", "SELF"):
            tables.setdefault("status", {})[number, other] = cell


def xgmi_json(items: Sequence[Mapping[str, Any]], tables: Tables) -> list[tuple[int, Device]]:
    """Return the ports of entries that have them and fill in the types and states of pairs."""
    devices: list[tuple[int, Device]] = []
    numbers = list(dict.fromkeys(natural(item.get("gpu")) or 0 for item in items))
    for item in items:
        number = natural(item.get("gpu")) or 0
        metrics, states = item.get("link_metrics"), item.get("link_status")
        if isinstance(metrics, Mapping) and metrics.get("link_type") == "XGMI":
            links = metrics.get("links")
            for link in links if isinstance(links, list) else ():
                other = natural(link.get("gpu")) if isinstance(link, Mapping) else None
                if other is not None:
                    traffic = "N/A" if link.get("read") == "N/A" else "read"
                    _direct(number, [other], [traffic], tables)
        if isinstance(states, list) and "SELF" in states:
            _states(number, numbers, [str(state) for state in states], tables)
        elif isinstance(states, list) and _STATES.issuperset(map(str, states)):
            devices.append((number, Device(ports=port_states(states))))
    return devices
