# SPDX-License-Identifier: GPL-3.0-or-later

"""Read amd-smi's text: pair tables, `KEY: value` blocks, the tables per GPU and the box."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...documents import knowledge
from ...findings import Finding
from .. import problems
from ..observation import Device
from . import amd_smi_rows, marks
from .several import Tables, runs
from .text import bus_address, hexadecimal, known, natural, partition_modes, unique_id, virtual

# ROCm 7 prints no empty line between tables, so only titles divide them.
_TABLE = re.compile(r"^\s*([A-Z][\w /&()-]{0,60})[ _]TABLE:\s*$")
_TABLES = {
    "ACCESS": "access",
    "WEIGHT": "weight",
    "HOPS": "hops",
    "LINK TYPE": "type",
    "NUMA BW": "bandwidth",
}
_PAIR_TABLES = re.compile(r"ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE|ATOMICS|DMA|BI-DIRECTIONAL")
_OTHER_TABLES = ("LINK METRIC", "END")
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_BLOCK = re.compile(r"^GPU:\s*(\d{1,4})\s*$")
_KEY = re.compile(r"^\s+([A-Z][A-Z0-9_ ]*):(.*)$")
# `CPU: 0`, `NIC: 0`: what is below belongs to no GPU.
_OTHER_BLOCK = re.compile(r"^[A-Z][A-Z0-9_]{0,30}: *+\d{0,4}\s*+$")
_STRANGE_HEAD = re.compile(r"^(?!(?:CPU|NIC|GPU|SWITCH|HIVE):)\w{2,8}: *+\d{1,4}\s*+$|^GPU:\s*+$")
# Where a line is no key with its value: a status is a value of what a GPU lacks.
_FAILURE = re.compile(
    r"(?:\s*\d{1,4} \| *)?(AMDSMI_STATUS_\w{1,60} - .*)|(amdsmi_cli_exceptions\.\w{1,60}: .*)"
    r"|(\w{0,60}Error: .*)|(.{0,200} Error code: -?\d+)|(amd-smi: error: .*)"
    r"|.{0,200}?(\b\w{1,60} requires sudo/root permissions)"
)
# Tables per pair in the list per GPU that ROCm 6.0 prints, by the keys of its JSON.
_LINEAR: Mapping[str, str] = knowledge("outputs.yml")["tools"][marks.AMD_SMI]["pairs"]


def read(text: str, tables: Tables, subject: str) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Return the devices of one text output and fill in the pair tables."""
    devices: list[tuple[int, Device]] = []
    findings: list[Finding] = []
    lines = text.splitlines()
    unread: list[str] = []
    own: list[str | None] | None = None
    for title, body in _tables(lines):
        if not _PAIR_TABLES.match(title):
            header = next((line for line in body if _is_header(line)), None)
            if title and title not in _OTHER_TABLES:
                unread.append(f"the table '{title}'")
            elif header:
                message = f"a table of {len(header.split())} GPUs is without its title"
                findings.append(problems.truncated(subject, message))
            continue
        matches, more = _pair_table(title, body, tables, subject)
        addresses = [device.bdf for _index, device in matches]
        if own is not None and addresses != own:
            tables.difference = f"tables of {len(own)} and of {len(addresses)} other GPUs are in it"
        own = addresses
        devices += matches
        findings += more
    blocks = _blocks(lines)
    devices += [(index, _block_device(values)) for index, values in blocks]
    if lost := _lost(blocks):
        findings.append(problems.no_end(subject, f"{', '.join(sorted(lost))} of the last GPU"))
    if strange := _unlike(blocks) or _headless(lines):
        findings.append(problems.truncated(subject, strange))
    findings += _linear_tables(lines, tables, subject)
    devices += amd_smi_rows.box(lines, subject, findings)
    devices += amd_smi_rows.partitions(lines, subject, findings)
    matches, more = amd_smi_rows.xgmi(lines, tables, subject)
    devices += matches
    findings += more
    if unread:
        findings.append(problems.unread(subject, unread))
    failures = (_FAILURE.match(line) for line in lines if not _KEY.match(line))
    if failure := next(filter(None, failures), None):
        message = failure.group(failure.lastindex or 0).strip()
        findings.append(problems.stopped(subject, "amd-smi", message, len(devices)))
    return devices, findings


def _lost(blocks: Sequence[tuple[int, dict[str, str]]]) -> set[str]:
    """Return the keys that all GPUs but the last have; processes are some GPUs' only."""
    if len(blocks) < 2 or any("PROCESS_INFO" in values for _index, values in blocks):
        return set()
    common = set.intersection(*(set(values) for _index, values in blocks[:-1]))
    return common - blocks[-1][1].keys()


def _unlike(blocks: Sequence[tuple[int, dict[str, str]]]) -> str | None:
    """Return how blocks differ: each listing begins at GPU 0, and each block with the same key."""
    lists = runs(index for index, _values in blocks)
    sizes = sorted(map(len, lists))
    if len({tuple(numbers) for numbers in lists}) > 1:
        return f"one listing has {sizes[-1]} GPUs and another {sizes[0]}, or their order is lost"
    own = iter(blocks)
    for numbers in lists:
        first = {next(iter(next(own)[1]), "nothing"): number for number in numbers}
        if len(first) > 1 or "nothing" in first:
            heads = ", ".join(f"GPU {number}: {key}" for key, number in first.items())
            return f"GPUs begin with different lines ({heads})"
    return None


def _tables(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    title, body = "", list[str]()
    for line in [*lines, "END TABLE:"]:
        match = _TABLE.match(line)
        if match:
            yield title, body
            title, body = match.group(1).replace("_", " "), []
        else:
            body.append(line)


def _is_header(line: str) -> bool:
    """Say whether a line is the header of a table of pairs of several GPUs."""
    words = line.split()
    return len(words) > 1 and all(map(bus_address, words))


def _pair_table(
    title: str, lines: Sequence[str], tables: Tables, subject: str
) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Read one table; the number of a GPU is its place in the header.

    Old tools give all partitions of a GPU one address: where addresses repeat, rows count.
    """
    header: list[str] = []
    rows: list[tuple[str, list[str]]] = []
    disorder: str | None = None
    for line in lines:
        words = line.split()
        addresses = [bus_address(word) for word in words]
        if words and not header and all(addresses):
            header = [address for address in addresses if address]
        elif header and _is_header(line):
            disorder = "it has a second header: lines are wrapped or a title is lost"
        elif words and addresses[0] and header:
            rows.append((addresses[0], words[1:]))
        elif rows and line.strip():
            break  # the legend
    kind = _TABLES.get(title)
    nonsense: str | None = None
    unique = len(set(header)) == len(header)
    places = [address for address, _row in rows]
    if any(len(row) > len(header) for _address, row in rows):
        disorder = disorder or "a row is longer than the header: lines are cut or wrapped"
    elif unique and (len(set(places)) < len(places) or set(places) - set(header)):
        disorder = disorder or "a GPU has two rows or no column"
    elif len(rows) > len(header):
        disorder = disorder or f"it has {len(rows)} rows for {len(header)} columns"
    if disorder:
        message = f"table '{title}': {disorder}; its cells are unknown"
        numbers = enumerate(dict.fromkeys([*header, *places]) if unique else header)
        devices = [(number, Device(bdf=address)) for number, address in numbers]
        return devices, [problems.truncated(subject, message)]
    full: set[int] = set()
    for place, (address, row) in enumerate(rows):
        number = header.index(address) if unique else place
        if len(row) >= len(header):
            full.add(number)
        if kind is not None:
            cells = {(number, column): cell for column, cell in enumerate(row[: len(header)])}
            nonsense = tables.add_checked(kind, cells) or nonsense
    findings = []
    if not header or len(full) < len(header):
        message = f"table '{title}': {len(full)} of {len(header)} rows are whole"
        findings.append(problems.truncated(subject, message))
    if nonsense:
        findings.append(problems.unreadable_cells(subject, f"table '{title}'", nonsense))
    return [(number, Device(bdf=address)) for number, address in enumerate(header)], findings


def _margin(text: str) -> int:
    return len(text) - len(text.lstrip())


def _headless(lines: Sequence[str]) -> str | None:
    """Return what shows that the line `GPU: n` above a block is lost, or lines of one are.

    GPUs list processes alike, and masks of CPUs stand alone in their lines.
    """
    names: list[str] = []
    inside = False
    strange = 0
    for line in lines:
        if _BLOCK.match(line):
            names, inside = [], True
        elif _STRANGE_HEAD.match(line) and inside:
            return f"'{line.strip()}' is the head of no GPU"
        elif _OTHER_BLOCK.match(line):
            inside = False
        elif inside and line.strip():
            name = line.split(":")[0].rstrip()
            if name in names and "PROCESS_INFO" not in name:
                return f"a GPU has {name.strip()} twice"
            if not names or _margin(name) == _margin(names[0]):
                names.append(name)
            strange += 1 if _KEY.match(line) is None else -1
    return "most lines below GPUs are damaged" if strange > 0 else None


def _blocks(lines: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the `GPU: n` blocks of list, list -e and static: the first value of each key."""
    blocks: list[tuple[int, dict[str, str]]] = []
    inside = False
    for line in lines:
        start = _BLOCK.match(line)
        pair = _KEY.match(line)
        if start:
            blocks.append((int(start.group(1)), {}))
            inside = True
        elif _OTHER_BLOCK.match(line):
            inside = False
        elif pair and inside:
            blocks[-1][1].setdefault(pair.group(1).strip(), pair.group(2).strip())
    return blocks


def _block_device(values: dict[str, str]) -> Device:
    """Return the device of a block, whose keys are those of JSON without its sections."""
    low: dict[str, Any] = {key.lower(): value for key, value in values.items()}
    # `set` prints the modes' keys with a sentence behind them.
    settled = not any("uccessfully" in value for value in values.values())
    sections = {name: low for name in ("asic", "bus", "numa", "vram")}
    parsed = device({**low, **sections, "partition": low if settled else {}})
    return replace(parsed, partition=natural(values.get("PARTITION_ID")))


def section(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = item.get(name)
    return value if isinstance(value, Mapping) else {}


def device(item: Mapping[str, Any]) -> Device:
    """Return one entry of `list`, `topology`, `static`, `partition` or the default view."""
    asic, bus, numa = (section(item, name) for name in ("asic", "bus", "numa"))
    partition, vram = section(item, "partition"), section(item, "vram")
    render, card = known(item.get("render")), known(item.get("card"))
    compute, memory = partition_modes(item.get("partition_mode"))
    for value in (
        partition.get("accelerator_partition", partition.get("compute_partition")),
        item.get("accelerator_type"),
    ):
        compute = compute or partition_modes(value)[0]
    for value in (
        partition.get("memory_partition"),
        item.get("current_memory_partition"),
        item.get("memory"),
    ):
        memory = memory or partition_modes(value)[1]
    return Device(
        bdf=bus_address(item.get("bdf")) or bus_address(bus.get("bdf")),
        kfd_node=natural(item.get("node_id")),
        kfd_id=natural(item.get("kfd_id")),
        hip_ordinal=natural(item.get("hip_id")),
        render_node=render if render and re.fullmatch(r"renderD\d+", render) else None,
        card=card if card and re.fullmatch(r"card\d+", card) else None,
        oam_id=natural(item.get("oam_id", asic.get("oam_id"))),
        unique_id=unique_id(item.get("hip_uuid")),
        uuid=_uuid(item.get("uuid")),
        serial=hexadecimal(asic.get("asic_serial"), 16),
        device_id=hexadecimal(asic.get("device_id"), 4),
        virtual_function=virtual(asic.get("market_name")),
        vram_bytes=_bytes(vram.get("size")),
        compute_partition=compute,
        memory_partition=memory,
        numa_affinity=natural(numa.get("affinity")),
        numa_node=natural(numa.get("node")),
    )


def _uuid(value: Any) -> str | None:
    """Return amd-smi's own UUID, which is made of the serial number where the GPU has one."""
    text = known(value)
    return text.lower() if text and re.fullmatch(r"[0-9a-fA-F-]{36}", text) else None


def _bytes(size: Any) -> int | None:
    """Return bytes of `{"value": 196592, "unit": "MB"}` or of "196592 MB" (both are MiB)."""
    if isinstance(size, Mapping):
        size = f"{size.get('value')} {size.get('unit')}"
    match = re.fullmatch(r"\s*(\d{1,12})\s*([KMG]?B)\s*", size) if isinstance(size, str) else None
    if match is None:
        return None
    return int(match.group(1)) * _UNITS[match.group(2)] or None  # 65535 MB is an MI250X's, no code


def _linear_tables(lines: Sequence[str], tables: Tables, subject: str) -> list[Finding]:
    """Read the pairs that ROCm 6.0 lists under each GPU: `WEIGHT:`, then `GPU_1: 15`."""
    index, kind = -1, None
    seen: Counter[int] = Counter()
    # By title and by how often the output is there.
    rows: dict[tuple[str, int], dict[int, list[tuple[int, str]]]] = {}
    for line in lines:
        start, pair = _BLOCK.match(line), _KEY.match(line)
        if start:
            index, kind = int(start.group(1)), None
            seen[index] += 1
        elif pair and not pair.group(2).strip():
            kind = _LINEAR.get(pair.group(1).strip().lower())
        elif pair and kind and (other := re.fullmatch(r"GPU_(\d{1,4})", pair.group(1))):
            row = rows.setdefault((kind, seen[index]), {}).setdefault(index, [])
            row.append((int(other.group(1)), pair.group(2)))
    lists = [row for cells in rows.values() for row in cells.values()]
    if any(-1 in cells for cells in rows.values()) or any(
        len(dict(row)) < len(row) for row in lists
    ):
        message = "a GPU lists a pair twice under one title; the cells of all pairs are unknown"
        return [problems.truncated(subject, message)]
    count = max(map(len, lists), default=0)
    findings = []
    if sum(len(row) == count for row in lists) < len(rows) * count:
        findings.append(problems.truncated(subject, f"not all of {count} GPUs list all pairs"))
    nonsense = None
    for (kind, _time), cells in rows.items():
        pairs = {(a, b): cell for a, row in cells.items() for b, cell in row}
        nonsense = tables.add_checked(kind, pairs) or nonsense
    if nonsense:
        findings.append(problems.unreadable_cells(subject, "the topology", nonsense))
    return findings
