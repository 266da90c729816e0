# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether one output says one thing: two hosts in one file contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..observation import Device
from .text import known

Tables = dict[str, dict[tuple[int, int], str]]

# What a GPU keeps while its host runs; everything else may change between two commands.
_IDENTITY = ("bdf", "unique_id", "kfd_node", "kfd_id", "device_id")


def restated(devices: Iterable[tuple[int, Device]]) -> str | None:
    """Return which GPU is described as two different ones, if any is."""
    seen: dict[tuple[int, str], object] = {}
    for index, device in devices:
        for field in _IDENTITY:
            value = getattr(device, field)
            if value is not None and seen.setdefault((index, field), value) != value:
                return f"GPU {index} has {field} {seen[index, field]} and also {value}"
    return None


def contradicted(tables: Tables, kind: str, cells: Mapping[tuple[int, int], str]) -> str | None:
    """Add a table's cells to ``tables``; return how it differs from an earlier one of its kind."""
    message: str | None = None
    before = tables.setdefault(kind, {})
    for pair, cell in cells.items():
        old, new = known(before.get(pair)), known(cell)
        if old is None:
            before[pair] = cell
        elif new is not None and old.upper() != new.upper() and message is None:
            message = f"the {kind} of GPU {pair[0]} and {pair[1]} is {old} and also {new}"
    return message
