# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples of power and clock to one line a GPU."""

from __future__ import annotations

from statistics import fmean

from .raw import Raw
from .types import GpuUse


def gpus_of(raw: Raw) -> tuple[GpuUse, ...]:
    """Return power (W) and clock (MHz) of each GPU during a level, by BDF."""
    used = []
    for key in sorted({sample.key for sample in raw.gpus}):
        own = [sample for sample in raw.gpus if sample.key == key]
        power = [sample.power_w for sample in own if sample.power_w is not None]
        clock = [sample.clock_mhz for sample in own if sample.clock_mhz is not None]
        used.append(
            GpuUse(
                key,
                power_w_mean=fmean(power) if power else None,
                power_w_max=max(power, default=None),
                clock_mhz_mean=fmean(clock) if clock else None,
                clock_mhz_min=min(clock, default=None),
            )
        )
    return tuple(used)
