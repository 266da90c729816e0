# SPDX-License-Identifier: GPL-3.0-or-later

"""How the GPUs are partitioned, and whether every partition is there."""

from __future__ import annotations

import re
from collections import defaultdict
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
