# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what `rocminfo` prints: the GPU agents in ROCr's order."""

from __future__ import annotations

import re

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.observation import (
    Device,
    Observation,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.text import (
    natural,
    unique_id,
)

NAME = "rocminfo"
_AGENT = re.compile(r"^Agent \d+\s*$", re.MULTILINE)
# Two blanks: what is indented further belongs to a cache, a pool or an ISA.
_KEY = re.compile(r"^  ([A-Z][A-Za-z ]*):\s+(.*?)\s*$", re.MULTILINE)


def recognise(text: str) -> bool:
    """Say whether text (clean) was printed by rocminfo."""
    return bool(re.search(r"HSA System Attributes|ROCk module is NOT loaded", text))


def parse(text: str) -> Observation:
    """Return the GPU agents.

    BDFID has no PCI domain, so the address stays unknown: KFD node and UUID identify the GPU.
    """
    devices: list[Device] = []
    for block in _AGENT.split(text)[1:]:
        values = dict(reversed(_KEY.findall(block)))
        if values.get("Device Type") == "GPU":
            chip = re.search(r"\(0x([0-9a-f]{1,4})\)", values.get("Chip ID", ""))
            devices.append(
                Device(
                    index=len(devices),
                    kfd_node=natural(values.get("Node")),
                    unique_id=unique_id(values.get("Uuid")),
                    device_id=f"{int(chip.group(1), 16):04x}" if chip else None,
                )
            )
    absence = None
    if not devices and "NOT loaded" in text:
        absence = "the amdgpu driver is not loaded"
    return Observation(NAME, tuple(devices), absence=absence)
