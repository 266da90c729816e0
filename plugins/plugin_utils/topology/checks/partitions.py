# SPDX-License-Identifier: GPL-3.0-or-later

"""How the GPUs are partitioned, whether all partitions are there, on which NUMA nodes they sit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...findings import Finding
from ...gpus import gpu_facts
from .view import View, addresses, listed

# What DRM has of cards, and of render nodes, before its minors became dynamic.
_DRM_MINORS = 64


def modes(view: View) -> Iterator[Finding]:
    """Find GPUs that are in different modes."""
    for name in ("compute_partition", "memory_partition"):
        by_mode = _by_mode(view, name)
        if len(by_mode) > 1:
            shares = "; ".join(
                f"{mode}: {listed(addresses(keys))}" for mode, keys in sorted(by_mode.items())
            )
            yield view.finding("TOPO-PARTITION-MIXED", f"{name} differs: {shares}")


def memory_mode(view: View) -> Iterator[Finding]:
    """Tell of memory that is divided, and what a device then reports of it."""
    for mode, keys in sorted(_by_mode(view, "memory_partition").items()):
        domains = re.fullmatch(r"NPS([2-9])", mode)
        if domains:
            whose = f"of {listed(addresses(keys))} " if len(keys) < len(view.gpus) else ""
            yield view.finding(
                "TOPO-MEMORY-PARTITION",
                f"the GPUs' memory {whose}is in mode {mode}: {domains.group(1)} domains a GPU"
                + _shares(view, keys, int(domains.group(1))),
            )


def _shares(view: View, keys: Sequence[str], domains: int) -> str:
    """Return how many partitions share a domain, and the memory that one reports.

    Partitions that share a domain have their part of it: eight in CPX mode have 1/8 each,
    whether the memory is in one domain or in four.
    """
    gpus = [view.gpus[key] for key in keys]
    counts = {len(view.by_address.get(gpu.bdf or "", ())) for gpu in gpus}
    sizes = {gpu.vram_bytes for gpu in gpus}
    models = {gpu_facts(gpu.model).memory.gib for gpu in gpus}
    text = ""
    parts = counts.pop() if len(counts) == 1 else 0
    if parts > domains and parts % domains == 0:
        text = f", {parts // domains} of its {parts} partitions to each"
    size = sizes.pop() if len(sizes) == 1 else None
    if size:
        whole = models.pop() if len(models) == 1 else None
        of_whole = f" of its GPU's {whole}" if whole else ""
        text += f"; a device reports {size / 2**30:.0f} GiB{of_whole}"
    return text


def _by_mode(view: View, name: str) -> Mapping[str, list[str]]:
    by_mode: dict[str, list[str]] = defaultdict(list)
    for key, gpu in view.gpus.items():
        if getattr(gpu, name) is not None:
            by_mode[getattr(gpu, name)].append(key)
    return by_mode


def missing(view: View) -> Iterator[Finding]:
    """Compare the partitions in view with those that each GPU's mode makes."""
    largest = max((len(group) for group in view.by_address.values()), default=0)
    short: dict[str, str] = {}
    wanted_in_all = 0
    for address, group in view.by_address.items():
        mode = next((gpu.compute_partition for gpu in group if gpu.compute_partition), None)
        expected = gpu_facts(group[0].model).partitions_in(mode)
        if expected is None and largest > 1 and mode is None:
            expected = largest
        wanted_in_all += expected or len(group)
        if expected is not None and len(group) != expected:
            short[address] = f"{len(group)} of {expected}" + (f" ({mode})" if mode else "")
    if short:
        devices = sum(map(len, view.by_address.values()))
        yield view.finding(
            "TOPO-PARTITION-COUNT",
            f"partitions in view: {listed([': '.join(each) for each in short.items()])}"
            + _out_of_minors(devices, wanted_in_all),
            *((address,) for address in short),
        )


def _out_of_minors(devices: int, wanted: int) -> str:
    """Return the likely cause, where the numbers are those of a kernel that ran out of minors."""
    if not 0 < _DRM_MINORS - devices <= 2 or wanted < _DRM_MINORS:
        return ""
    return (
        f"; {devices} of {wanted} devices is what {_DRM_MINORS} DRM minors give when a display "
        "adapter, most often the BMC's (ast), holds one"
    )


def node_unknown(view: View) -> Iterator[Finding]:
    """Find GPUs without a node; on a host with one node that is no news."""
    reported = any(gpu.numa_node is not None for gpu in view.gpus.values())
    nameless = addresses(key for key, gpu in view.usable.items() if gpu.numa_node is None)
    if nameless and (reported or len(view.topology.numa_nodes) > 1):
        message = f"no source gives the NUMA node of {listed(nameless)}"
        yield view.finding("TOPO-NUMA-UNKNOWN", message, *((name,) for name in nameless))


def node_stray(view: View) -> Iterator[Finding]:
    """Find GPUs that name a node which the kernel doesn't list."""
    nodes = {node.id for node in view.topology.numa_nodes}
    strays = addresses(key for key, gpu in view.gpus.items() if gpu.numa_node not in {None, *nodes})
    if nodes and strays:
        yield view.finding(
            "TOPO-NUMA-STRAY",
            f"{listed(strays)} report a NUMA node that the host doesn't have",
            *((name,) for name in strays),
        )


def node_spread(view: View) -> Iterator[Finding]:
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


def node_cores(view: View) -> Iterator[Finding]:
    """Find nodes whose CPUs cannot be told apart into cores."""
    blind = [str(node.id) for node in view.topology.numa_nodes if node.cpus and not node.cores]
    if blind:
        yield view.finding(
            "TOPO-CORES-UNKNOWN",
            f"which CPUs of NUMA node {listed(blind)} are SMT siblings is not known",
        )


def node_sizes(view: View) -> Iterator[Finding]:
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


def node_errors(view: View) -> Iterator[Finding]:
    """Find GPUs that have had uncorrectable errors."""
    for slot in view.slots:
        if slot.uncorrectable_errors:
            yield view.finding(
                "TOPO-MEMORY-ERRORS",
                f"GPU {slot.bdf} has had {slot.uncorrectable_errors} uncorrectable memory errors "
                "since the driver was loaded",
                (slot.bdf,),
            )
