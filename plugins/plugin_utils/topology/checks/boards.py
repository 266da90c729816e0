# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs are there: on the bus, for the driver, as their board has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...findings import Finding
from ...gpus import gpu_facts
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
