# SPDX-License-Identifier: GPL-3.0-or-later

"""Read rocm-smi's text: matrices, `GPU[i] : key: value` lines and the concise tables.

Formats: rocm_smi.py at every rocm-3.9 to rocm-6.2.2 tag and in ROCm/rocm-systems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...findings import Finding
from ...gpus import model_of
from .. import problems
from ..observation import Device, port_states
from . import marks
from .several import Tables, rows_differ
from .text import bus_address, hexadecimal, known, natural, partition_modes, unique_id, virtual

NAME = marks.ROCM_SMI
_BANNER, _END = "ROCm System Management Interface", "End of ROCm SMI Log"
_FIELD = re.compile(r"^\s*GPU\s*\[?(\d{1,4})\]?\s*:(.*)$")
_TITLE = re.compile(r"(={5,}) ?[^=]{1,200}(=*)$")
_COLON = re.compile(r":\s")
# A GPU that answers nothing is one all the same: `GPU[7] : Not supported on the given system`.
_MENTION = re.compile(r"^\s*(?:ERROR: )?GPU\s*\[?(\d{1,4})\]?\s*(?:XCP\[\d{1,4}\]\s*)?:")
_NEARLY = re.compile(r"^\s*\w{2,4}\[[^\]]{1,4}\]?\s{0,8}:|^\s*GPU\s?\[(?!\d{1,4}\])")
_DEGREES = re.compile(r"\d ?(?:%|°C|c )")
# A field whose GPU is not readable: `...  : PCI Bus: 0000:E1:00.0`.
_NAMELESS = re.compile(r"^\S{0,12}\s{0,8}:\s{1,4}([^:]{1,60}):\s")
_LABEL = re.compile(r"GPU(\d{1,4})")
_MATRIX_LINE = re.compile(
    r"^\s*GPU\d{1,4}(?:(?:\s+GPU\d{1,4})+|(?:\s+(?:\d+(?:-\d+)?|XGMI|PCIE|XXXX|N/A|True|False))+)\s*$"
)
_TABLES = {
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type between two gpus": "type",
    "link accessibility between two gpus": "access",
    "bandwidth": "bandwidth",
}
_PAIRS = " between two gpus"
# Of the concise tables' headers; what stands in brackets explains the word before it.
_COLUMNS = re.compile(
    r"GPU|Device|Node|IDs|Temp|Power|AvgPwr|Partitions|[SM]CLK|Fan|Perf|PwrCap|(?:VRAM|GPU)%"
)
_TEMPERATURE = re.compile(r"\d°?[cC]\s")
_FAILURE = re.compile(
    r"^(\w+(?:Error|Exception): .*|NOT_SUPPORTED: .*|ERROR: Cannot print .*"
    r"|(?:rocm-smi|rocm_smi\.py): error: .*)",
    re.MULTILINE,
)


def device(values: Mapping[str, Any]) -> Device:
    """Return a device from rocm-smi's keys, whose case and wording changed over versions.

    `Card Model` and `Card Series` are no identity: they hold a subsystem id or a name lookup. Of
    what its name calls a virtual function the model is the id of one, if there is such an id.
    """
    low = {str(key).strip().lower(): value for key, value in values.items()}
    compute, _memory = partition_modes(low.get("compute partition"))
    _compute, memory = partition_modes(low.get("memory partition"))
    guest, model = virtual(low.get("card series")), hexadecimal(low.get("card model"), 4)
    device_id = hexadecimal(low.get("device id") or low.get("gpu id"), 4)
    # --showmetrics: 1 is up, 0 down, 65535 (N/A) a port not in use.
    ports = re.findall(r"\d{1,5}|N/A", str(low.get("xgmi_link_status (up/down)", "")))
    return Device(
        bdf=bus_address(low.get("pci bus")),
        kfd_node=natural(low.get("node id")),
        kfd_id=natural(low.get("guid")),
        unique_id=unique_id(low.get("unique id")),
        device_id=device_id or (model if guest and model_of(model)[1] else None),
        virtual_function=guest,
        vram_bytes=natural(low.get("vram total memory (b)")) or None,
        compute_partition=compute,
        memory_partition=memory,
        numa_affinity=natural(low.get("(topology) numa affinity")),
        numa_node=natural(low.get("(topology) numa node")),
        ports=port_states(ports),
    )


def read(text: str, tables: Tables, subject: str) -> tuple[list[tuple[int, Device]], list[Finding]]:
    """Return the devices of rocm-smi's text and fill in the pair tables."""
    devices: list[tuple[int, Device]] = []
    findings: list[Finding] = []
    values: dict[int, dict[str, str]] = {}
    sizes: dict[str, int] = {}
    pairs: dict[str, set[tuple[int, int]]] = {}
    unread: list[str] = []
    rows: list[tuple[int, Device]] = []
    sections = _sections(text)
    for title, lines in sections:
        kind = _TABLES.get(title.lower())
        strange = _strange_columns(title, lines)
        unread += [f"the column '{name}'" for name in strange]
        if kind is None and title.lower().endswith(_PAIRS):
            unread.append(f"the table '{title}'")
        elif kind is not None or any(map(_MATRIX_LINE.match, lines)):
            shape = _read_matrix(kind, lines)
            devices += [(index, Device()) for index in range(shape.devices)]
            where = f"table '{title}'" if kind else "a table without its title"
            if shape.complaint:
                findings.append(problems.truncated(subject, f"{where}: {shape.complaint}"))
            elif kind and sizes.setdefault(kind, shape.devices) != shape.devices:
                other = f"the {kind} of {sizes[kind]} and also of {shape.devices} GPUs is in it"
                tables.difference = tables.difference or other
            elif kind and pairs.setdefault(kind, set(shape.cells)) != set(shape.cells):
                other = f"the {kind} of other GPUs each is in it twice"
                tables.difference = tables.difference or other
            if kind and (nonsense := tables.add_checked(kind, shape.cells)):
                findings.append(problems.unreadable_cells(subject, where, nonsense))
        else:
            rows += [parsed for line in lines if (parsed := _row(title, line, strange)) is not None]
        for line in lines:
            if mention := _MENTION.match(line):
                devices.append((int(mention.group(1)), Device()))
            if field := _field(line):
                index, key, value = field
                if values.setdefault(index, {}).setdefault(key, value) != value:
                    devices.append((index, device({key: value})))
    devices = [(index, device(fields)) for index, fields in values.items()] + rows + devices
    tables.difference = tables.difference or rows_differ(index for index, _device in rows)
    if any(_END not in output for output in text.split(_BANNER)[1:-1]):
        findings.append(problems.truncated(subject, "an output begins before another has ended"))
    damaged = [line for line in text.splitlines() if _damaged(line)]
    names = {name for fields in values.values() for name in fields}
    damaged += [
        match.group()
        for line in text.splitlines()
        if (match := _NAMELESS.match(line)) and not _MENTION.match(line)
        if match.group(1).strip() in names
    ]
    others = [own for title, own in sections if not title.lower().startswith("concise")]
    damaged += [line for own in others for line in own if _is_row(line)]
    # A number of more digits than any GPU has, rows that run together, one of a GPU that is none.
    damaged += [
        line
        for title, own in sections
        if title.lower().startswith("concise")
        for line in own
        if re.match(r"\s*(?:\d{5}|-\d)", line)
        or len(_TEMPERATURE.findall(line)) > 1
        # Before ROCm 6 that table has neither nodes nor rows that are read.
        or ("hardware" in title.lower() and "NODE" in "".join(own[:1]) and _UNREAD_ROW.match(line))
    ]
    if damaged:
        message = f"a line is damaged or not where it belongs: {damaged[0].strip()[:60]!r}"
        findings.append(problems.truncated(subject, message))
    if unread:
        findings.append(problems.unread(subject, unread))
    tables.difference = tables.difference or _sizes_differ(text)
    findings += _count_check(sections, devices, subject)
    if failure := _FAILURE.search(text):
        findings.append(problems.stopped(subject, NAME, failure.group(1), len(devices)))
    if _shortened(text):
        findings.append(problems.truncated(subject, "lines are cut at a terminal's width"))
    begun = _BANNER in text or any(title.lower() in _TABLES for title, _lines in sections)
    if begun and not marks.ended(NAME, text):
        findings.append(problems.no_end(subject, f"the line '{_END}'"))
    return devices, findings


def _sizes_differ(text: str) -> str | None:
    """Return how whole outputs in a text differ in their GPUs: each lists all of its host's."""
    counts: set[int] = set()
    for output in text.split(_BANNER)[1:]:
        lines = output.splitlines() if _END in output else []
        mentions = [_MENTION.match(line) or _LABEL.match(line) for line in lines]
        numbers = {int(match.group(1)) for match in mentions if match}
        counts |= {len(numbers)} if numbers else set()
    if len(counts) < 2:
        return None
    return f"one output lists {min(counts)} GPUs and another {max(counts)}"


def _shortened(text: str) -> bool:
    """Return whether the right half of all titles' rules is cut: it is as long as the left one.

    Where only some are, a page's author shortened them by hand.
    """
    halves = [
        match.groups() for line in text.splitlines() if (match := _TITLE.match(line.rstrip()))
    ]
    return bool(halves) and all(len(left) - len(right) > 1 for left, right in halves)


def _damaged(line: str) -> bool:
    """Return whether a line is nearly a rule, nearly begins with a GPU's number, or is two."""
    if line.count("=") > 20:
        return _rule(line) is None and _TITLE.match(line.rstrip()) is None
    mention = _MENTION.match(line)
    return _NEARLY.match(line) is not None if mention is None else line.count("GPU[") > 1


def _is_row(line: str) -> bool:
    old = _DEGREES.search(line) and _CONCISE_OLD.match(line)
    return bool(old or _CONCISE.match(line) or _HARDWARE.match(line))


def _rule(line: str) -> str | None:
    """Return the title in a rule of `=`, which may be empty; None for another line."""
    rule = line.rstrip()
    return rule.strip("=").strip() if len(rule) > 1 and rule[0] == rule[-1] == "=" else None


def _field(line: str) -> tuple[int, str, str] | None:
    """Return the GPU, name and value of a line like `GPU[0] : Temperature: 40`."""
    match = _FIELD.match(line)
    name, *value = _COLON.split(match.group(2), 1) if match else ("",)
    return (int(match.group(1)), name.strip(), value[0].strip()) if match and value else None


def closed(text: str) -> bool:
    """Say whether a section is closed by the rule or the title behind it, or by its last row."""
    listed = False
    for line in text.splitlines():
        if _rule(line) is not None:
            if listed:
                return True
        elif _MENTION.match(line) or re.match(r"^\s*\d{1,4}\s+\S", line):
            listed = True
    sections = [(_TABLES.get(title.lower()), lines) for title, lines in _sections(text)]
    shapes = [_read_matrix(kind, lines) for kind, lines in sections if kind]
    return any(shape.devices and not shape.complaint for shape in shapes)


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return titles and the lines below them."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        title = _rule(line)
        if title:
            sections.append((title, []))
        elif title is None:
            sections[-1][1].append(line)
    return sections


class _Shape:
    """How many devices a matrix is about, what is wrong with it, and its cells as printed."""

    def __init__(self) -> None:
        self.devices = 0
        self.complaint: str | None = None
        self.cells: dict[tuple[int, int], str] = {}


def _read_matrix(kind: str | None, lines: Sequence[str]) -> _Shape:
    """Read one matrix; it has cells only where it is certain which GPUs they are about."""
    shape = _Shape()
    header: list[int] | None = None
    rows: dict[int, list[str]] = {}
    disorder: str | None = None
    for line in lines:
        words = line.split()
        labels = [_LABEL.fullmatch(word) for word in words]
        numbers = [int(match.group(1)) for match in labels if match]
        if words and all(labels) and (len(words) > 1 or header is None):
            if header is not None or rows:
                disorder = (
                    disorder or "it has a second header: lines are wrapped or a title is lost"
                )
            header = [*(header or []), *numbers]
        elif words and labels[0]:
            if numbers[0] in rows:
                disorder = disorder or f"GPU{numbers[0]} has two rows"
            rows[numbers[0]] = words[1:]
    columns = header if header is not None else list(range(max(map(len, rows.values()), default=0)))
    expected = sorted({*columns, *rows})
    shape.devices = max(expected, default=-1) + 1
    missing = [f"GPU{index}" for index in expected if index not in rows]
    beyond = [f"GPU{index}" for index in expected if index not in columns]
    short = [f"GPU{index}" for index, row in rows.items() if len(row) < len(columns)]
    long = [f"GPU{index}" for index, row in rows.items() if len(row) > len(columns)]
    if disorder is None and header is None:
        shape.complaint = "the header line is missing"
    elif disorder is None and (beyond or long):
        disorder = f"{', '.join(beyond or long)} has no column: lines are cut or wrapped"
    elif missing:
        shape.complaint = f"{len(rows)} of {len(columns)} rows, without {', '.join(missing)}"
    elif short:
        shape.complaint = f"cells are missing in {', '.join(short)}"
    if kind is None or disorder is not None:
        shape.complaint = f"{disorder or 'what it is about is not known'}; its cells are unknown"
        return shape
    shape.cells = {
        (a, b): cell
        for a, row in rows.items()
        for b, cell in zip(columns, row, strict=False)
        if known(cell)
    }
    return shape


# Any cell may be None, N/A, n/a or Unsupported, and blanks may be squeezed on the way.
_CONCISE = re.compile(
    r"^\s*(\d{1,4})\s+(\d{1,4}|[A-Za-z/]+)\s+(0x[0-9a-fA-F]{4}|[A-Za-z/]+),\s+(\d+|[A-Za-z/]+)\s"
)
# With columns that are not known between the number and the ids.
_CONCISE_WIDE = re.compile(
    r"^\s*(\d{1,4})\s{1,40}(?:\S.{0,80}?\s{1,40})?(\d{1,4}|[A-Za-z/]{1,20})\s{1,40}"
    r"(0x[0-9a-fA-F]{4}|[A-Za-z/]{1,20}),\s{1,40}(\d{1,9}|[A-Za-z/]{1,20})\s"
)
_CONCISE_OLD = re.compile(r"^\s*(\d{1,4})(?:\s+\S+){6,}\s*$")
_MODES = re.compile(r"(NPS\d|N/A), ([A-Z]PX|N/A)(?:, (\d+|N/A))?\s")
_HARDWARE = re.compile(r"^\s*(\d{1,4})\s+(\d{1,4})\s+(0x[0-9a-fA-F]{4}|N/A)\s+(\d+)\s+gfx\S+\s")
_UNREAD_ROW = re.compile(rf"(?!{_HARDWARE.pattern})\s*\d{{1,4}}\s+\S")


def _strange_columns(title: str, lines: Sequence[str]) -> list[str]:
    """Return the columns of a concise table that are not known."""
    if title.lower() != "concise info":
        return []
    headers = (line for line in lines if line.split()[:1] in (["GPU"], ["Device"]))
    words = re.sub(r"[(\[][^][()]{0,60}[)\]]", " ", next(headers, "")).split()
    return [word for word in words if not _COLUMNS.fullmatch(word)]


def _row(title: str, line: str, strange: Sequence[str]) -> tuple[int, Device] | None:
    """Return the device of a row of the concise tables, by their shape rather than by offsets."""
    if title.lower().startswith("concise hardware"):
        match = _HARDWARE.match(line)
        if match is None:
            return None
        last = line.split()[-1]
        return int(match.group(1)), Device(
            kfd_node=natural(match.group(2)),
            device_id=hexadecimal(match.group(3), 4),
            kfd_id=natural(match.group(4)),
            bdf=bus_address(line),
            partition=natural(last),
        )
    if title.lower() != "concise info":
        return None
    match = (_CONCISE_WIDE if strange else _CONCISE).match(line)
    modes = _MODES.search(line)
    compute, memory = partition_modes(modes.group(0)) if modes else (None, None)
    partition = natural(modes.group(3)) if modes else None
    if match:
        return int(match.group(1)), Device(
            kfd_node=natural(match.group(2)),
            device_id=hexadecimal(match.group(3), 4),
            kfd_id=natural(match.group(4)),
            compute_partition=compute,
            memory_partition=memory,
            # Partition id 0 is printed for every device that has no partitions, too.
            partition=partition,
        )
    match = _CONCISE_OLD.match(line)
    if match is None:
        return None
    return int(match.group(1)), Device(compute_partition=compute, memory_partition=memory)


def _count_check(
    sections: Sequence[tuple[str, list[str]]], devices: Sequence[tuple[int, Device]], subject: str
) -> list[Finding]:
    """Return a finding for each section that lists some GPUs and not all of them."""
    count = len({index for index, _device in devices})
    findings = []
    for title, lines in sections:
        if title.lower() not in ("numa nodes", "pci bus id", "id", "product info", "unique id"):
            continue
        seen = {int(match.group(1)) for line in lines if (match := _MENTION.match(line))}
        if len(seen) < count:
            findings.append(
                problems.truncated(subject, f"section '{title}' lists {len(seen)} of {count} GPUs")
            )
    return findings
