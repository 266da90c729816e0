# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `rocm_bandwidth_test` prints: agents in ROCr's order and the kernel's link weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...findings import Finding
from .. import problems
from ..observation import Device, Observation, Path, weight
from .text import bus_address, natural, unique_id

NAME = "rocm_bandwidth_test"
_DEVICE = re.compile(r"^ *Device: (\d{1,4}), ++[^,\n]*+(?:, +(GPU-\w+))?(?:, +(\S+))? *$", re.M)
_TITLE = "Inter-Device Numa Distance"
_HEADER = re.compile(r"^ *D/D((?: +\d{1,4})+) *$", re.MULTILINE)
_ROW = re.compile(r"^ *(\d{1,4})((?: +(?:\d{1,5}|N/A))+) *$")


def parse(text: str, subject: str) -> Observation:
    """Return the GPUs and the weights between them; a link's type is not printed.

    Addresses have no PCI domain. A GPU's NUMA node is the place, among the CPUs, of the one it
    has the lightest way to.
    """
    agents = list(dict.fromkeys(match.groups() for match in _DEVICE.finditer(text)))
    cpus = [int(number) for number, uuid, bus in agents if not uuid and not bus]
    gpus = [agent for agent in agents if agent[1] or agent[2]]
    rows, findings = _distances(text, subject)
    if len({agent[0] for agent in agents}) < len({*agents}):
        findings.append(problems.several(subject, "a device's number is that of two"))
    numbers = list(dict.fromkeys(int(agent[0]) for agent in agents))
    if numbers != sorted(numbers):
        findings.append(problems.truncated(subject, "the devices are not in their order"))
    place = {int(agent[0]): position for position, agent in enumerate(gpus)}
    devices = tuple(
        Device(
            index=position,
            bdf=_address(bus),
            hip_ordinal=position,
            unique_id=unique_id(uuid),
            numa_node=_nearest(cpus, rows.get(int(number), {})),
        )
        for position, (number, uuid, bus) in enumerate(gpus)
    )
    paths = tuple(
        Path(place[a], place[b], weight=weight(cell))
        for a, row in rows.items()
        for b, cell in row.items()
        if a in place and b in place and a != b
    )
    absence = None if devices else "rocm_bandwidth_test lists no GPU"
    return Observation(NAME, devices, paths, tuple(findings), absence)


def _address(text: str | None) -> str | None:
    """Return the address of `c9:0.0`, whose numbers are not padded."""
    match = re.fullmatch(r"([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", text or "")
    return bus_address("{:0>2}:{:0>2}.{}".format(*match.groups())) if match else None


def _nearest(cpus: Sequence[int], row: Mapping[int, str]) -> int | None:
    ways = [(natural(row.get(cpu)) or None, place) for place, cpu in enumerate(cpus)]
    measured = [(distance, place) for distance, place in ways if distance]
    least = min(measured, default=(0, 0))[0]
    lightest = [place for distance, place in measured if distance == least]
    return lightest[0] if len(lightest) == 1 else None


def _distances(text: str, subject: str) -> tuple[dict[int, dict[int, str]], list[Finding]]:
    columns: list[int] = []
    rows: dict[int, dict[int, str]] = {}
    for line in _section(text):
        header, row = _HEADER.match(line), _ROW.match(line)
        if header:
            columns = [int(word) for word in header.group(1).split()]
        elif row and columns:
            cells = row.group(2).split()
            if len(cells) == len(columns):
                rows[int(row.group(1))] = dict(zip(columns, cells, strict=True))
    # Every table has all agents, and so has the list before them.
    listed = {int(match.group(1)) for match in _DEVICE.finditer(text)}
    expected = {int(word) for header in _HEADER.findall(text) for word in header.split()} | listed
    lacking = set(range(max(expected, default=-1) + 1)) - (listed & rows.keys())
    if not lacking:
        return rows, []
    message = (
        f"{len(lacking)} of {len(expected | lacking)} devices are not in the list and '{_TITLE}'"
    )
    return rows, [problems.truncated(subject, message)]


def _section(text: str) -> Iterator[str]:
    """Yield the lines of the table of distances, up to the next title."""
    inside = False
    for line in text.splitlines():
        title = re.match(r" *[A-Z][\w-]+ [A-Za-z]", line)
        if title:
            inside = _TITLE in line
        elif inside:
            yield line
