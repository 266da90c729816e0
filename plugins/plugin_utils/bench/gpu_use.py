# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples of power and clock to one line a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from .raw import GpuSample, Raw
from .types import GpuUse


def gpus_of(raw: Raw) -> tuple[GpuUse, ...]:
    """Return power (W) and clock (MHz) of each GPU during a level, by BDF."""
    by_key: dict[str, list[GpuSample]] = {}
    for sample in raw.gpus:
        by_key.setdefault(sample.key, []).append(sample)
    return tuple(_use(key, by_key[key]) for key in sorted(by_key))


def _use(key: str, samples: Sequence[GpuSample]) -> GpuUse:
    power = [sample.power_w for sample in samples if sample.power_w is not None]
    clock = [sample.clock_mhz for sample in samples if sample.clock_mhz is not None]
    return GpuUse(
        key,
        power_w_mean=fmean(power) if power else None,
        power_w_max=max(power, default=None),
        clock_mhz_mean=fmean(clock) if clock else None,
        clock_mhz_min=min(clock, default=None),
    )
