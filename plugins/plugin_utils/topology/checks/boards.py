# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs are there: on the bus, for the driver, as their board has them; their PCIe links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...findings import Finding
from ...gpus import gpu_facts
from ..readers.pci import Bridge, Slot
from ..types import Gpu
from .view import View, listed


def nameless(view: View) -> Iterator[Finding]:
    """Find GPUs that have no address."""
    count = sum(gpu.bdf is None for gpu in view.gpus.values())
    if count:
        yield view.finding(
            "TOPO-NO-BDF",
            f"{count} GPUs are known by the tool's number only; their keys are GPU0 …",
        )


def unusable(view: View) -> Iterator[Finding]:
    """Find GPUs that the bus has and the driver has not."""
    # lspci knows nothing of KFD.
    bare = {
        key
        for finding in view.topology.findings
        if finding.code == "TOPO-NO-DRIVER"
        for part in finding.parts
        for key in part
    }
    for key, gpu in view.gpus.items():
        if gpu.healthy is False and key not in bare:
            yield view.finding(
                "TOPO-GPU-UNUSABLE",
                f"GPU {key} ({gpu.model or 'unknown model'}) is on the PCI bus and the driver has "
                "no KFD node for it: no program can use it",
                (key,),
            )


def missing(view: View) -> Iterator[Finding]:
    """Compare the GPUs on the bus with the boards they come on; a guest has any number."""
    if not view.slots:
        return
    # Handed to a guest, they are still on the bus.
    handed_on = sum(slot.driver not in (None, "amdgpu") for slot in view.slots)
    for model, (count, carried) in incomplete(view.gpus.values()).items():
        if (count + handed_on) % carried:
            yield view.finding(
                "TOPO-GPU-MISSING",
                f"{count} {model} are on the PCI bus; their boards carry {carried}"
                + (_short_side(view) if count == carried - 1 else ""),
            )


def incomplete(gpus: Iterable[Gpu]) -> dict[str, tuple[int, int]]:
    """Return how many GPUs of a model there are and its board carries, unless boards are full."""
    functions = {gpu.bdf: gpu.model for gpu in gpus if gpu.model and not gpu.virtual_function}
    boards = {}
    for model, count in Counter(functions.values()).items():
        facts = gpu_facts(model)
        carried = facts.links.mesh or facts.dies
        if count % carried:
            boards[model] = (count, carried)
    return boards


def _short_side(view: View) -> str:
    """Return which NUMA node lacks the one GPU that is missing, where the others tell."""
    nodes = Counter(group[0].numa_node for group in view.by_address.values())
    counts = sorted(nodes.values())
    if None in nodes or len(counts) < 2 or counts[0] != counts[1] - 1:
        return ""
    short = min(nodes, key=lambda node: nodes[node])
    return f"; NUMA node {short} has one less than the others"


def guest(view: View) -> Iterator[Finding]:
    """Say what nobody can know inside a guest."""
    virtual = [key for key, gpu in view.gpus.items() if gpu.virtual_function]
    if virtual:
        yield view.finding(
            "TOPO-VIRTUAL-FUNCTION",
            f"{listed(virtual)} are virtual functions: this is a guest. Not knowable here: whether "
            "GPUs of the board are missing or others', the state and errors of physical xGMI "
            "links (a guest reads every port as off), PCIe width and speed, memory errors, and "
            "partition modes; NUMA nodes and CPUs are the hypervisor's",
        )


def models(view: View) -> Iterator[Finding]:
    """Find GPUs of several kinds."""
    kinds = {
        gpu.model or f"id {gpu.device_id}"
        for gpu in view.gpus.values()
        if gpu.model or gpu.device_id
    }
    if len(kinds) > 1:
        yield view.finding("TOPO-MIXED-MODELS", f"the host has {listed(sorted(kinds))}")


def order(view: View) -> Iterator[Finding]:
    """Tell that the tools number GPUs otherwise than HIP does."""
    numbers = {
        gpu.smi_index: gpu.hip_ordinal
        for gpu in view.usable.values()
        if gpu.smi_index is not None and gpu.hip_ordinal is not None
    }
    if any(smi != hip for smi, hip in numbers.items()) and len(numbers) == len(view.usable):
        hip = " ".join(str(numbers[smi]) for smi in sorted(numbers))
        yield view.finding(
            "TOPO-INDEX-ORDER",
            f"what rocm-smi and amd-smi number {min(numbers)} to {max(numbers)} is, in that order, "
            f"{hip} to HIP",
        )


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


def slots(view: View) -> Iterator[Finding]:
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
