# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read amd-smi's text: pair tables, `KEY: value` blocks, the tables per GPU and the box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology import problems
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.observation import (
    CELL_CHECKS,
    Device,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.text import (
    bus_address,
    hexadecimal,
    known,
    natural,
    partition_modes,
    unique_id,
)

# ROCm 7 prints no empty line between tables, so only titles divide them.
_TABLE = re.compile(r"^\s*([A-Z][A-Z -]*) TABLE:\s*$")
_TABLES = {
    "WEIGHT": "weight",
    "HOPS": "hops",
    "LINK TYPE": "type",
    "NUMA BW": "bandwidth",
}
_PAIR_TABLES = re.compile(r"ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE|ATOMICS|DMA|BI-DIRECTIONAL")
_BLOCK = re.compile(r"^GPU:\s*(\d{1,4})\s*$")
_KEY = re.compile(r"^\s+([A-Z][A-Z0-9_ ]*):\s*(.*?)\s*$")
_BOX_BUS = re.compile(r"^\|\s*([0-9a-fA-F]{4,8}:\S+)\s+.*\|.*\|\s*$")
_BOX_IDS = re.compile(r"^\|\s*(\d{1,4})\s+(\d{1,4}|N/A)\s+(\d{1,4}|N/A)\s+(\S+)\s*\|")
_PARTITION_ROW = re.compile(
    r"^\s*(\d{1,4})\s+(NPS\d|N/A)\s+([A-Z]PX|N/A)\s+(?:\d+|N/A)\s+(\S+)\s*$"
)
_XGMI_ROW = re.compile(
    r"^GPU(\d{1,4})\s+((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\s+(.*)$"
)
_TITLES = re.compile(
    r"^\s*(?:LINK METRIC|GPU LINK PORT STATUS|XGMI LINK STATUS"
    r"|CURRENT_PARTITION|(?:ACCELERATOR|MEMORY|COMPUTE)_PARTITION_\w+):?",
    re.MULTILINE,
)
_FAILURE = re.compile(
    r"(AMDSMI_STATUS_\w+ - .*|^\w*Error: .*|\w+ requires sudo/root permissions)", re.MULTILINE
)

Tables = dict[str, dict[tuple[int, int], str]]


def recognise(text: str) -> bool:
    """Say whether text (clean) has one of amd-smi's shapes."""
    return bool(
        _TITLES.search(text)
        or any(_TABLE.match(line) or _BLOCK.match(line) for line in text.splitlines())
    )


def read(text: str, tables: Tables, subject: str) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Return the devices of one text output and fill in the pair tables."""
    devices: list[tuple[int, Device]] = []
    findings: list[Finding] = []
    lines = text.splitlines()
    for title, body in _tables(lines):
        found, more = _pair_table(title, body, tables, subject)
        devices += found
        findings += more
    blocks = _blocks(lines)
    devices += [(index, _block_device(values)) for index, values in blocks]
    lost = blocks[-2][1].keys() - blocks[-1][1].keys() if len(blocks) > 1 else set()
    if lost:
        findings.append(problems.no_end(subject, f"{', '.join(sorted(lost))} of the last GPU"))
    devices += _box(lines)
    devices += _rows(lines)
    findings += _link_status(lines, subject)
    failure = _FAILURE.search(text)
    if failure and devices:
        # An exception ends the listing; the GPUs after it are missing, not absent.
        message = f"amd-smi stopped after {len(devices)} GPUs: {failure.group(1)}"
        findings.append(problems.truncated(subject, message))
    elif failure:
        findings.append(problems.tool_failed(subject, "amd-smi", failure.group(1)))
    return devices, findings


def _tables(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    title, body = "", list[str]()
    for line in [*lines, "END TABLE:"]:
        match = _TABLE.match(line)
        if match:
            if _PAIR_TABLES.match(title):
                yield title, body
            title, body = match.group(1), []
        else:
            body.append(line)


def _pair_table(
    title: str, lines: Sequence[str], tables: Tables, subject: str
) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Read one table; the number of a GPU is the place of its BDF in the header."""
    header: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in lines:
        words = line.split()
        addresses = [bus_address(word) for word in words]
        if words and not header and all(addresses):
            header = [address for address in addresses if address]
        elif words and addresses[0] and header:
            rows[addresses[0]] = words[1:]
        elif rows and line.strip():
            break  # the legend
    kind = _TABLES.get(title)
    nonsense: str | None = None
    number = {address: index for index, address in enumerate(header)}
    for address, row in rows.items():
        for column, cell in zip(header, row, strict=False):
            if kind is None or address == column or address not in number:
                continue
            value = known(cell)
            if value is not None and CELL_CHECKS[kind](value) is None and value != "0-0":
                nonsense = value
            elif value is not None:
                tables.setdefault(kind, {})[number[address], number[column]] = cell
    findings = []
    full = sum(len(row) >= len(header) for row in rows.values())
    if not header or full < len(header):
        findings.append(
            problems.truncated(subject, f"table '{title}': {full} of {len(header)} rows are whole")
        )
    if nonsense:
        findings.append(problems.unreadable_cells(subject, f"table '{title}'", nonsense))
    return [(index, Device(bdf=address)) for address, index in number.items()], findings


def _blocks(lines: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the `GPU: n` blocks of list, list -e and static: the first value of each key."""
    blocks: list[tuple[int, dict[str, str]]] = []
    for line in lines:
        start = _BLOCK.match(line)
        pair = _KEY.match(line)
        if start:
            blocks.append((int(start.group(1)), {}))
        elif pair and blocks:
            blocks[-1][1].setdefault(pair.group(1).strip(), pair.group(2))
    return blocks


def _block_device(values: dict[str, str]) -> Device:
    compute, _memory = partition_modes(
        values.get("ACCELERATOR_PARTITION", values.get("COMPUTE_PARTITION"))
    )
    _compute, memory = partition_modes(values.get("MEMORY_PARTITION"))
    render, card = known(values.get("RENDER")), known(values.get("CARD"))
    size = re.fullmatch(r"(\d{1,12}) MB", values.get("SIZE", ""))
    # `set` prints the same keys with a sentence behind them.
    settled = not any("uccessfully" in value for value in values.values())
    return Device(
        bdf=bus_address(values.get("BDF")),
        partition=natural(values.get("PARTITION_ID")),
        kfd_node=natural(values.get("NODE_ID")),
        kfd_id=natural(values.get("KFD_ID")),
        hip_ordinal=natural(values.get("HIP_ID")),
        render_node=render if render and re.fullmatch(r"renderD\d+", render) else None,
        card=card if card and re.fullmatch(r"card\d+", card) else None,
        oam_id=natural(values.get("OAM_ID")),
        unique_id=unique_id(values.get("HIP_UUID")),
        device_id=hexadecimal(values.get("DEVICE_ID"), 4),
        vram_bytes=int(size.group(1)) * 2**20 if size else None,
        compute_partition=compute if settled else None,
        memory_partition=memory if settled else None,
        numa_affinity=natural(values.get("AFFINITY")),
        numa_node=natural(values.get("NODE")),
    )


def _box(lines: Sequence[str]) -> list[tuple[int, Device]]:
    """Read the box of a bare `amd-smi`; only what its fixed width cannot cut."""
    devices: list[tuple[int, Device]] = []
    address: str | None = None
    for line in lines:
        bus, ids = _BOX_BUS.match(line), _BOX_IDS.match(line)
        if bus and bus_address(bus.group(1)):
            address = bus_address(bus.group(1))
        elif ids and address:
            compute, memory = partition_modes(ids.group(4))
            devices.append(
                (
                    int(ids.group(1)),
                    Device(
                        bdf=address,
                        hip_ordinal=natural(ids.group(2)),
                        oam_id=natural(ids.group(3)),
                        compute_partition=compute,
                        memory_partition=memory,
                    ),
                )
            )
            address = None
    return devices


def _rows(lines: Sequence[str]) -> list[tuple[int, Device]]:
    """Read the rows of `partition --current` and of `xgmi`."""
    devices: list[tuple[int, Device]] = []
    for line in lines:
        row, link = _PARTITION_ROW.match(line), _XGMI_ROW.match(line)
        if row:
            compute, memory = partition_modes(f"{row.group(2)} {row.group(3)}")
            # Up to 6.3 the first partition lists all ids and the others have N/A.
            identity = natural(row.group(4))
            devices.append(
                (
                    int(row.group(1)),
                    Device(partition=identity, compute_partition=compute, memory_partition=memory),
                )
            )
        elif link:
            devices.append((int(link.group(1)), Device(bdf=bus_address(link.group(2)))))
    return devices


def _link_status(lines: Sequence[str], subject: str) -> list[Finding]:
    """Return a finding for each GPU with an xGMI port that is down; X is a port not in use."""
    findings = []
    for line in lines:
        match = _XGMI_ROW.match(line)
        ports = match.group(3).split() if match else []
        # All ports off is what a virtual function and a GPU without xGMI print.
        if match and len(ports) > 1 and set(ports) <= {"U", "D", "X"} and "U" in ports:
            down = [str(number) for number, port in enumerate(ports) if port == "D"]
            if down:
                findings.append(
                    problems.finding(
                        "TOPO-XGMI-DOWN",
                        subject,
                        f"GPU {match.group(2)}: xGMI port {', '.join(down)} is down",
                    )
                )
    return findings
