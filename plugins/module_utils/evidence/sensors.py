# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power and clock of this host's GPUs from sysfs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

SYSFS = Path("/sys/class/drm")
Reading = dict[str, Any]


def cards(root: Path = SYSFS) -> list[tuple[str, Path]]:
    """Return PCI address and sensor directory of each AMD GPU, in the order of addresses."""
    found: dict[str, Path] = {}
    for card in root.glob("card[0-9]*"):
        if "-" in card.name:  # a connector
            continue
        device = card / "device"
        for sensors in device.glob("hwmon/hwmon*"):
            if _text(sensors / "name") == "amdgpu":
                found[device.resolve().name] = sensors
    return sorted(found.items())


def readings(known: list[tuple[str, Path]]) -> list[Reading]:
    """Return power (W) and clock (MHz) of each card; None where a sensor does not tell.

    Files and units: kernel documentation, gpu/amdgpu/thermal: microwatts and hertz.
    """
    found = []
    for key, sensors in known:
        power = _number(sensors / "power1_average")
        power = _number(sensors / "power1_input") if power is None else power
        clock = _number(sensors / "freq1_input")
        if power is not None or clock is not None:
            found.append(
                {
                    "key": key,
                    "power_w": None if power is None else power / 1e6,
                    "clock_mhz": None if clock is None else clock / 1e6,
                }
            )
    return found


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def _number(path: Path) -> float | None:
    with contextlib.suppress(ValueError):
        return float(_text(path))
    return None
