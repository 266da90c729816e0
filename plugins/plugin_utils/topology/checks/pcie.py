# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the PCIe links of the GPUs have trained at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...findings import Finding
from ..readers.pci import Bridge, Slot
from .view import View, listed


class _Wire(NamedTuple):
    """One PCIe link: what hangs on it, and its upper end where that is in view."""

    lower: Slot | Bridge
    upper: Bridge | None

    @property
    def shortfall(self) -> tuple[str, str] | None:
        """Return what the link has trained at and what both its ends could, if that is more."""
        ends = [end for end in self if end is not None]
        now, best = [], []
        for current, largest, form in (
            ("link_width", "link_width_max", "x{:g}"),
            ("link_speed", "link_speed_max", "{:g} GT/s"),
        ):
            # A port's state is that of the link below it, a device's that of the link above.
            states = [value for end in ends if (value := getattr(end, current))]
            limits = [value for end in ends if (value := getattr(end, largest))]
            if states and limits and min(states) < min(limits):
                now.append(form.format(min(states)))
                best.append(form.format(min(limits)))
        return (" and ".join(now), " and ".join(best)) if now else None


def links(view: View) -> Iterator[Finding]:
    """Find links that are narrower or slower than both their ends allow.

    Only Instinct GPUs keep theirs at full speed when idle. What a virtual function and the
    bridges of a guest report is made up.
    """
    below: dict[_Wire, list[str]] = {}
    instinct: set[str] = set()
    for slot in view.slots:
        gpus = [gpu for gpu in view.gpus.values() if gpu.bdf == slot.bdf]
        if not gpus or any(gpu.virtual_function for gpu in gpus):
            continue
        instinct |= {slot.bdf for gpu in gpus if gpu.model}
        for wire in _wires(slot):
            below.setdefault(wire, []).append(slot.bdf)
    for wire, gpus_below in below.items():
        shortfall = wire.shortfall
        if shortfall:
            idle = not instinct.intersection(gpus_below)
            yield view.finding(
                "TOPO-PCIE-LINK-IDLE" if idle else "TOPO-PCIE-LINK",
                _message(wire, gpus_below, *shortfall),
                *((bdf,) for bdf in gpus_below),
            )


def _wires(slot: Slot) -> Iterator[_Wire]:
    """Yield the links above a GPU, its own first.

    Going up, a link joins a device and the port above it, the next one a switch's upper port
    and the port above that: between the two ports of one switch there is none.
    """
    above = list(reversed(slot.bridges))
    yield _Wire(slot, above[0] if above else None)
    for lower, upper in zip(above[1::2], above[2::2], strict=False):
        yield _Wire(lower, upper)


def _message(wire: _Wire, gpus: list[str], now: str, best: str) -> str:
    if isinstance(wire.lower, Slot):
        able = "it and its slot can" if wire.upper else "it can"
        return f"GPU {gpus[0]} trained its PCIe link at {now}; {able} {best}"
    upper = wire.upper.bdf if wire.upper else "?"
    whom = "GPU" if len(gpus) == 1 else "GPUs"
    return (
        f"the PCIe link {upper} – {wire.lower.bdf}, above {whom} {listed(gpus)}, trained at {now}; "
        f"both ends can {best}"
    )
