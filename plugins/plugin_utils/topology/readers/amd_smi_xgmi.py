# SPDX-License-Identifier: GPL-3.0-or-later

"""Read `amd-smi xgmi`: which GPUs have a direct xGMI link, and the state of ports and links.

Formats: subcommands/xgmi.py in ROCm/rocm-systems; ROCm 6.1 prints the metrics only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...findings import Finding
from .. import problems
from ..observation import Device, port_states
from .text import bus_address, natural

Tables = dict[str, dict[tuple[int, int], str]]

TITLES = re.compile(
    r"^\s*(LINK METRIC TABLE|GPU LINK PORT STATUS|XGMI LINK STATUS)(?: TABLE)?:?\s*$"
)
_ROW = re.compile(
    r"^\s*GPU(\d{1,4})\s+((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d|N/A)\s+(\S.*)$"
)
_COLUMN = re.compile(r"GPU\d{1,4}|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_TRAFFIC = re.compile(r"N/A|\d{1,20}(?:\.\d{1,6})? ?[KMGTPE]?B\b")
_STATES = frozenset(("U", "D", "X", "N/A"))


def read(
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
        match = TITLES.match(line)
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


def read_json(items: Sequence[Mapping[str, Any]], tables: Tables) -> list[tuple[int, Device]]:
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
