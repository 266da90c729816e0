# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the AMD GPUs of `lspci`, plain or with -D, -nn, -n, -k, -v, -P or -PP (pciutils)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from ...findings import Finding
from ...gpus import model_of
from .. import problems
from ..observation import Device, Observation
from .text import bus_address, hexadecimal

NAME = "lspci"
_ROW = re.compile(
    r"^((?:[0-9a-f:]{2,13}\.[0-7]/)*[0-9a-f:]{2,13}\.[0-7])"  # a path of functions, or one
    r" (?:([A-Z3][\w ./-]*?)(?: \[([0-9a-f]{4})\])?|([0-9a-f]{4})): (\S.*)$",
    re.MULTILINE,
)
_AMD = re.compile(r"Advanced Micro Devices|AMD/ATI|\[1002:|^1002:")
_ADDRESS = re.compile(r"(?:(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:)?[01][0-9a-f]\.[0-7]")
# An address with the class that follows it, which may be glued to it.
_NEARLY = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7] ?(?:12|03|Pro|Dis|VGA|3D)")
# As pci.ids names classes 12xx and 03xx; the bridges and audio functions of a card are AMD's too.
_GPU_CLASSES = re.compile(r"Processing accelerators|(?:Display|VGA compatible|3D) controller")
_IDS = re.compile(r"(?:\[|^)1002:([0-9a-f]{4})\b|\bDevice ([0-9a-f]{4})\b")
# What the capture's own prompt line asked for: every row of the answer has that id.
_ASKED = re.compile(r"\blspci\b.{0,200} -d ?(?:0x)?1002:([0-9a-fA-F]{4})\b")
# A row has an Instinct GPU's id or name at its end; a subsystem's is indented.
_INSTINCT = re.compile(
    r"^(?:\S| *(?:12|03)[0-9a-f]{2}: ).*?"
    r"(?:\b1002:([0-9a-f]{4})\b|\bDevice ([0-9a-f]{4})\b|Instinct MI\d).*$",
    re.MULTILINE,
)
_ANY = "74a1"  # of a row that has the name and no id
# What -k adds below a device: the driver is missing where none is bound, modules where none fits.
_KERNEL = re.compile(r"^[ \t]+Kernel (?:driver in use: (\S+)|modules: )", re.MULTILINE)


def parse(texts: Iterable[str], subject: str) -> Observation:
    """Return the AMD GPUs on the bus.

    The id is that which lspci prints or was asked for; a name is none. Path elements without a
    bus number (-P) identify nothing. A GPU that another driver has is another's, and one without a
    driver is of no use.
    """
    devices: list[Device] = []
    findings: list[Finding] = []
    for text in texts:
        command = _ASKED.search(text)
        drivers = _drivers(text)
        findings += _unread(text, subject)
        for row, driver in zip(_ROW.finditer(text), drivers, strict=True):
            if not _gpu_row(row):
                continue
            *above, own = row.group(1).split("/")
            ids = _IDS.search(row.group(5))
            if driver is None and drivers[0] is not None:
                findings.append(problems.no_end(subject, f"the driver of {own}"))
            device = command.group(1) if command else ids and (ids.group(1) or ids.group(2))
            device_id = hexadecimal(device, 4)
            bridges = tuple(filter(None, map(bus_address, above)))
            devices.append(
                Device(
                    bdf=bus_address(own),
                    device_id=device_id,
                    virtual_function=model_of(device_id)[1],
                    driver=driver,
                    pci_path=bridges if bridges and len(bridges) == len(above) else None,
                )
            )
    return _bound(devices, findings, subject)


def _drivers(text: str) -> list[str | None]:
    """Return the driver of each row by -k, "" for none; None without -k and where it is cut."""
    rows = list(_ROW.finditer(text))
    if not _KERNEL.search(text):
        return [None] * len(rows)
    ends = [row.start() for row in rows[1:]] + [len(text)]
    parts = [text[row.end() : end] for row, end in zip(rows, ends, strict=True)]
    drivers: list[str | None] = ["".join(_KERNEL.findall(part)) for part in parts]
    return drivers if parts[-1].strip() or len(drivers) < 2 else [*drivers[:-1], None]


def _unread(text: str, subject: str) -> list[Finding]:
    """Return a finding where a line names an Instinct GPU and is no row of one."""
    rows = list(_ROW.finditer(text))
    whole = [_ADDRESS.fullmatch(word) for row in rows for word in row.group(1).split("/")]
    domains = [row.group(1).count(":") for row in rows]
    above = text[: rows[0].start()] if rows else ""
    if _KERNEL.search(above) or not all(whole) or (domains[1:] and domains[0] < min(domains[1:])):
        return [problems.truncated(subject, "the first line or an address is cut")]
    read = {row.start() for row in rows if _gpu_row(row)}
    lost = [row.group() for row in rows if _is_damaged(row)]
    lines = text.splitlines()
    lost += [line for line in lines if _NEARLY.match(line) and not _ROW.match(line)]
    lost += [
        match.group().strip()
        for match in _INSTINCT.finditer(text)
        if match.start() not in read
        and "lspci" not in match.group()  # the command, which may ask for an id
        and model_of(match.group(1) or match.group(2) or _ANY)[0]
    ]
    if not lost:
        return []
    message = f"{len(lost)} lines that may be of a GPU are damaged: {lost[0][:60]!r}"
    return [problems.truncated(subject, message)]


def _bound(devices: list[Device], findings: list[Finding], subject: str) -> Observation:
    """Return the GPUs with findings on those that amdgpu does not drive; others' are left out."""
    devices, disorder = _in_order(devices)
    if disorder:
        findings.append(problems.several(subject, f"lspci sorts by address, and {disorder}"))
    others = [device for device in devices if device.driver not in (None, "", "amdgpu")]
    if others:
        message = f"GPU {others[0].bdf} is bound to {others[0].driver}"
        message += f", {len(others) - 1} more too" if len(others) > 1 else ""
        findings.append(problems.finding("TOPO-GPU-LEFT-OUT", subject, message))
    retained = [device for device in devices if device not in others]
    bare = [device for device in retained if device.driver == ""]
    if bare:
        more = f" and {len(bare) - 1} more GPUs have" if len(bare) > 1 else " has"
        message = f"{bare[0].bdf}{more} no driver in use"
        parts = tuple((device.bdf,) for device in bare if device.bdf)
        findings.append(problems.finding("TOPO-NO-DRIVER", subject, message, parts=parts))
    absence = None if devices else "lspci lists no AMD GPU"
    if devices and len(bare) == len(retained):
        absence = f"{len(devices)} AMD GPUs are on the PCI bus, none of them bound to amdgpu"
        retained = []
    return Observation(NAME, tuple(retained), findings=tuple(findings), absence=absence)


def _in_order(devices: Sequence[Device]) -> tuple[list[Device], str | None]:
    """Return the GPUs without those listed again, and where the order of addresses breaks."""
    # Rows without an address (-P) identify nothing.
    rows = {(device, device.bdf or place): device for place, device in enumerate(devices)}
    distinct = list(rows.values())
    for before, after in itertools.pairwise(distinct):
        if before.bdf and after.bdf and before.bdf >= after.bdf:
            return distinct, f"{after.bdf} follows {before.bdf}"
    return distinct, None


def _gpu_row(row: re.Match[str]) -> bool:
    """Say whether a row is one of an AMD GPU."""
    _path, name, in_brackets, bare, rest = (group or "" for group in row.groups())
    return bool(_AMD.search(rest)) and _is_gpu(name, in_brackets or bare)


def _is_damaged(row: re.Match[str]) -> bool:
    """Say whether a row of a device such as GPUs are lacks its ids though lspci prints ids."""
    _path, name, in_brackets, bare, rest = (group or "" for group in row.groups())
    ids = r"[0-9a-f]{4}:[0-9a-f]{4}\b" if bare else r"\[[0-9a-f]{4}:[0-9a-f]{4}\]"
    if _NEARLY.search(rest):
        return True
    return bool(in_brackets or bare) and _is_gpu(name, bare) and not re.search(ids, rest)


def _is_gpu(name: str, class_id: str) -> bool:
    return bool(_GPU_CLASSES.fullmatch(name)) or class_id.startswith(("12", "03"))
