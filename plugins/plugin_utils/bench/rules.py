# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol's numbers, from knowledge/bench/protocol.yml; a short lab run may replace some."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from ..documents import knowledge
from ..findings import error

_SECTIONS = ("requests", "warmup", "heal", "saturation", "slo", "open", "stress", "soak")


@dataclass(frozen=True)
class Rules:
    """How many requests, repeats and levels; what each means stands in the file.

    Raises BENCH-RULES where one is below the file's floor: a level would be all ramp and no steady
    state, or a phase would go on at the same load.
    """

    requests_per_concurrency: int
    requests_least: int
    baseline_requests: int
    open_seconds: float
    open_room: float
    warmup_concurrency: int
    warmup_agree: float
    warmup_most: int
    heal_factor: int
    heal_times: int
    heal_codes: tuple[str, ...]
    gain: float
    gain_times: int
    gain_step: float
    queue_share: float
    kv_usage: float
    resolution: float
    band: float
    edge_repeats: int
    search_levels: int
    grow: float
    hinted_grow: float
    first_rate: float
    ladder: int
    open_shares: tuple[float, ...]
    stress_most: int
    soak_windows: int
    soak_drift: float

    def __post_init__(self) -> None:
        """Refuse what would make every level meaningless, or a phase endless."""
        floors = knowledge("bench/protocol.yml")["floors"]
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, (int, float)):
                continue
            floor = floors.get(item.name, 0)
            # Written so that NaN is refused as well.
            if not floor <= value < math.inf:
                raise error(
                    "BENCH-RULES", item.name, f"{value:g}, expected a number of at least {floor:g}"
                )


def rules(**changes: Any) -> Rules:
    """Return the protocol's numbers, with ``changes`` of them."""
    names, known = {field.name for field in fields(Rules)}, knowledge("bench/protocol.yml")
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for section in _SECTIONS
        for name, value in known[section].items()
        if name in names
    }
    return Rules(**values | changes)
