# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the GPUs sit among the NUMA nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...findings import Finding
from ...gpus import gpu_facts
from .view import View, addresses, listed


def unknown(view: View) -> Iterator[Finding]:
    """Find GPUs without a node; on a host with one node that is no news."""
    reported = any(gpu.numa_node is not None for gpu in view.gpus.values())
    nameless = addresses(key for key, gpu in view.usable.items() if gpu.numa_node is None)
    if nameless and (reported or len(view.topology.numa_nodes) > 1):
        message = f"no source gives the NUMA node of {listed(nameless)}"
        yield view.finding("TOPO-NUMA-UNKNOWN", message, *((name,) for name in nameless))


def stray(view: View) -> Iterator[Finding]:
    """Find GPUs that name a node which the kernel doesn't list."""
    nodes = {node.id for node in view.topology.numa_nodes}
    strays = addresses(key for key, gpu in view.gpus.items() if gpu.numa_node not in {None, *nodes})
    if nodes and strays:
        yield view.finding(
            "TOPO-NUMA-STRAY",
            f"{listed(strays)} report a NUMA node that the host doesn't have",
            *((name,) for name in strays),
        )


def spread(view: View) -> Iterator[Finding]:
    """Find GPUs that are spread unevenly though their number allows an even spread.

    Seven GPUs of a board of eight are uneven too; what is wrong then is the eighth.
    """
    gpus = [group[0] for group in view.by_address.values()]
    placed = [gpu.numa_node for gpu in gpus if gpu.numa_node is not None]
    nodes = {node.id for node in view.topology.numa_nodes}
    counts = Counter(node for node in placed if node in nodes or not nodes)
    physical = {gpu.model for gpu in gpus if not gpu.virtual_function}
    for mesh in filter(None, (gpu_facts(model).links.mesh for model in physical)):
        if len(gpus) % mesh:
            return
        if len(counts) == 1:  # a full board hangs off every socket
            counts.update({node.id: 0 for node in view.topology.numa_nodes if node.cpus})
    values = list(counts.values())
    if values and max(values) - min(values) > (1 if sum(values) % len(values) else 0):
        shares = listed([f"node {node}: {count}" for node, count in sorted(counts.items())], 8)
        yield view.finding("TOPO-NUMA-IMBALANCE", f"the GPUs are spread unevenly: {shares}")


def cores(view: View) -> Iterator[Finding]:
    """Find nodes whose CPUs cannot be told apart into cores."""
    blind = [str(node.id) for node in view.topology.numa_nodes if node.cpus and not node.cores]
    if blind:
        yield view.finding(
            "TOPO-CORES-UNKNOWN",
            f"which CPUs of NUMA node {listed(blind)} are SMT siblings is not known",
        )


def sizes(view: View) -> Iterator[Finding]:
    """Find the GPU whose memory is not what its model has, or what its neighbours have."""
    whole = {key: gpu for key, gpu in view.gpus.items() if "#" not in key and gpu.vram_bytes}
    common = Counter((gpu.model, gpu.vram_bytes) for gpu in whole.values())
    for key, gpu in whole.items():
        size, gib = gpu.vram_bytes or 0, gpu_facts(gpu.model).memory.gib
        others = [count for (model, _size), count in common.items() if model == gpu.model]
        # The driver keeps a little for itself: 0.1 to 1 % on captures of MI210 to MI355X.
        if gib and abs(size - gib * 2**30) > gib * 2**30 // 20:
            message = f"GPU {key} has {size / 2**30:.1f} GiB; {gpu.model} has {gib}"
            yield view.finding("TOPO-VRAM", message, (key,))
        elif not gib and common[gpu.model, gpu.vram_bytes] * 2 < sum(others):
            message = f"GPU {key} has {size / 2**30:.1f} GiB, others more"
            yield view.finding("TOPO-VRAM", message, (key,))


def errors(view: View) -> Iterator[Finding]:
    """Find GPUs that have had uncorrectable errors."""
    for slot in view.slots:
        if slot.uncorrectable_errors:
            yield view.finding(
                "TOPO-MEMORY-ERRORS",
                f"GPU {slot.bdf} has had {slot.uncorrectable_errors} uncorrectable memory errors "
                "since the driver was loaded",
                (slot.bdf,),
            )
