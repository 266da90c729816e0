# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the AMD GPUs on the PCI bus and their DRM nodes, /sys/bus/pci and /sys/class/drm."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.observation import (
    Device,
    Observation,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.text import (
    bus_address,
    hexadecimal,
    natural,
    partition_modes,
    unique_id,
)

NAME = "PCI sysfs"
_DEVICE = re.compile(r"^/sys/bus/pci/devices/([^/]+)(?:/(.+))?$")
_DRM = re.compile(r"^/sys/class/drm/(card\d+|renderD\d+)$")
_IN_PATH = re.compile(r"/([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])/drm/")


@dataclass(frozen=True)
class Slot:
    """What the bus says of one GPU beside its identity; None where it doesn't."""

    bdf: str
    driver: str | None
    link_width: int | None
    link_width_max: int | None
    link_speed: float | None
    link_speed_max: float | None
    uncorrectable_errors: int | None


@cache
def model_of(device_id: str | None) -> tuple[str | None, bool | None]:
    """Return model and whether the id is a virtual function's; by device id, never by name."""
    for name, facts in knowledge("gpus.yml")["models"].items():
        if device_id in facts["devices"]:
            return name, False
        if device_id in facts["virtual_functions"]:
            return name, True
    return None, None


def facts_of(model: str | None) -> Mapping[str, Any]:
    """Return what knowledge has on a model, or nothing."""
    facts: Mapping[str, Any] = knowledge("gpus.yml")["models"].get(model, {})
    return facts


def parse(files: Mapping[str, str], links: Mapping[str, str]) -> tuple[Observation, list[Slot]]:
    """Return the GPUs on the bus, in BDF order, with their DRM nodes."""
    attributes: dict[str, dict[str, str]] = defaultdict(dict)
    targets: dict[str, dict[str, str]] = defaultdict(dict)
    for mapping, into in ((files, attributes), (links, targets)):
        for path, value in mapping.items():
            match = _DEVICE.match(path)
            address = bus_address(match.group(1)) if match else None
            if match and address:
                into[address][match.group(2) or ""] = value
    drm = _drm_nodes(links)
    devices, slots = [], []
    for address in sorted(attributes):
        values, pointed = attributes[address], targets[address]
        if "device" not in values:
            continue
        devices.append(_device(address, values, pointed, drm.get(address, {})))
        slots.append(_slot(address, values, pointed))
    absence = None if devices else "there is no AMD GPU on the PCI bus"
    return Observation(NAME, tuple(devices), absence=absence), slots


def _drm_nodes(links: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return card and render node per BDF; partitions hang off a platform device instead."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, target in links.items():
        name, address = _DRM.match(path), _IN_PATH.search(target)
        normal = bus_address(address.group(1)) if address else None
        if name and normal:
            kind = "card" if name.group(1).startswith("card") else "render"
            found[normal].setdefault(kind, name.group(1))
    return found


def _device(
    address: str, values: Mapping[str, str], pointed: Mapping[str, str], drm: Mapping[str, str]
) -> Device:
    device_id = hexadecimal(values.get("device"), 4)
    _model, virtual = model_of(device_id)
    compute, _memory = partition_modes(values.get("current_compute_partition"))
    _compute, memory = partition_modes(values.get("current_memory_partition"))
    return Device(
        bdf=address,
        render_node=drm.get("render"),
        card=drm.get("card"),
        unique_id=unique_id(values.get("unique_id")),
        device_id=device_id,
        virtual_function=True if "physfn" in pointed else virtual,
        vram_bytes=natural(values.get("mem_info_vram_total")) or None,
        compute_partition=compute,
        memory_partition=memory,
        numa_affinity=natural(values.get("numa_node")),
    )


def _slot(address: str, values: Mapping[str, str], pointed: Mapping[str, str]) -> Slot:
    driver = pointed.get("driver")
    errors = re.search(r"ue:\s*(\d{1,12})", values.get("ras/umc_err_count", ""))
    return Slot(
        bdf=address,
        driver=driver.rsplit("/", 1)[-1] if driver else None,
        # 0 and 255 are what the kernel shows of a link it could not read.
        link_width=_width(values.get("current_link_width")),
        link_width_max=_width(values.get("max_link_width")),
        link_speed=_speed(values.get("current_link_speed")),
        link_speed_max=_speed(values.get("max_link_speed")),
        uncorrectable_errors=int(errors.group(1)) if errors else None,
    )


def _width(value: str | None) -> int | None:
    number = natural(value)
    return None if number in (0, 255) else number


def _speed(value: str | None) -> float | None:
    """Return GT/s of "32.0 GT/s PCIe"."""
    match = re.match(r"\s*(\d{1,3}(?:\.\d+)?) GT/s", value or "")
    return float(match.group(1)) if match else None
