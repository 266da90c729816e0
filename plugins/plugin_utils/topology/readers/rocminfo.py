# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `rocminfo` prints: the GPU agents in ROCr's order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...findings import Finding
from .. import problems
from ..observation import Device, Observation
from . import marks
from .text import natural, unique_id

NAME = "rocminfo"
_END = "*** Done ***"
_AGENT = re.compile(r"^Agent (\d{1,4})\s*$", re.MULTILINE)
_KIND = re.compile(r"^  Device Type: +(?:CPU|GPU|DSP|AIE)\s*$", re.MULTILINE)
# Two blanks: what is indented further belongs to a cache, a pool or an ISA.
_KEY = re.compile(r"^  ([A-Z][A-Za-z ]*):[ \t]+(.*)$", re.MULTILINE)


def version(text: str) -> str | None:
    """Return that of the HSA runtime, which rocminfo prints in place of its own."""
    match = re.search(r"^Runtime Version: +(\S+)", text, re.MULTILINE)
    return f"(HSA runtime {match.group(1)})" if match else None


def parse(texts: Iterable[str], subject: str) -> Observation:
    """Return the GPU agents; HIP numbers them in this order.

    BDFID has no PCI domain, so the address stays unknown: KFD node and UUID identify the GPU.
    """
    findings: list[Finding] = []
    text = "\n".join(texts)
    outputs = [part for part in re.split(r"(?=HSA System Attributes)", text) if _AGENT.search(part)]
    if any(part.count(_END) == 0 for part in outputs):
        findings.append(problems.no_end(subject, f"the line '{_END}'"))
    parsed = [_devices(part, not findings) for part in outputs]
    devices = parsed[0] if parsed else []
    if any(other != devices for other in parsed):
        message = f"{len(parsed)} outputs of {NAME} describe other GPUs each"
        findings.append(problems.several(subject, message))
    for part in outputs:
        numbers = [int(number) for number in _AGENT.findall(part)]
        kinds = [block for block in _AGENT.split(part)[2::2] if len(_KIND.findall(block)) == 1]
        nodes = [int(node) for node in re.findall(r"(?m)^  Node: +(\d{1,4})\b", part)]
        # ROCr goes by node; where one agent has a Uuid, each has.
        uuids = len(re.findall(r"(?m)^  Uuid: ", part)) or len(numbers)
        whole = len(kinds) == len(numbers) == uuids and nodes == sorted(nodes)
        if numbers != list(range(1, len(numbers) + 1)) or not whole:
            message = f"{len(kinds)} agents of {max(numbers)} are whole"
            findings.append(problems.truncated(subject, message))
    # A tool that was never run says nothing.
    silence = "rocminfo lists no GPU" if text.strip() else None
    absence = None if devices else marks.why_absent(NAME, text) or silence
    return Observation(NAME, tuple(devices), findings=tuple(findings), absence=absence)


def _devices(text: str, whole: bool) -> list[Device]:
    devices: list[Device] = []
    for block in _AGENT.split(text)[2::2]:
        values = {key: value.strip() for key, value in reversed(_KEY.findall(block))}
        if values.get("Device Type") == "GPU":
            chip = re.search(r"\(0x([0-9a-f]{1,4})\)", values.get("Chip ID", ""))
            devices.append(
                Device(
                    index=len(devices),
                    hip_ordinal=len(devices) if whole else None,
                    kfd_node=natural(values.get("Node")),
                    unique_id=unique_id(values.get("Uuid")),
                    device_id=f"{int(chip.group(1), 16):04x}" if chip else None,
                )
            )
    return devices
