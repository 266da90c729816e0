# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong or remarkable with a host once it is understood: fabric, NUMA, PCIe, partitions."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.pci import Slot, facts_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.problems import finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Topology,
    gpu_keys,
)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Return some names as prose, without the tail of a long list."""
    tail = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + tail


def check(topology: Topology, slots: Sequence[Slot] = (), whole: bool = True) -> list[Finding]:
    """Return the findings of one host; ``whole`` is False where only part of it is in view.

    A container or a cut capture shows part of a host: nothing is missed there.
    """
    keys = gpu_keys(topology.gpus)
    pairs = list(zip(keys, topology.gpus, strict=True))
    found = [
        *_identity(topology),
        *_unusable(topology.host, pairs),
        *_fabric(topology, pairs),
        *_numa(topology, pairs),
        *_partitions(topology.host, pairs),
        *_slots(topology.host, slots),
        *_memory(topology.host, pairs),
        *_guest(topology.host, pairs),
        *_models(topology.host, pairs),
        *_cores(topology),
    ]
    if whole:
        found += [*_board(topology.host, pairs, slots), *_partition_count(topology.host, pairs)]
    return found


def _identity(topology: Topology) -> Iterator[Finding]:
    nameless = [gpu for gpu in topology.gpus if gpu.bdf is None]
    if nameless:
        yield finding(
            "TOPO-NO-BDF",
            topology.host,
            f"{len(nameless)} GPUs are known by the tool's number only; their keys are GPU0 …",
        )


def _unusable(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    for key, gpu in pairs:
        if gpu.healthy is False:
            yield finding(
                "TOPO-GPU-UNUSABLE",
                host,
                f"GPU {key} ({gpu.model or 'unknown model'}) is on the PCI bus and the driver has "
                "no KFD node for it: no program can use it",
            )


def _fabric(topology: Topology, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    """Look at the groups that xGMI connects: inside one, every pair is linked by xGMI.

    That holds for MI250X too, whose indirect pairs the driver calls xGMI with a higher weight.
    """
    usable = [key for key, gpu in pairs if gpu.healthy is not False]
    types = {(link.a, link.b): link.type for link in topology.links}
    peers: dict[str, set[str]] = defaultdict(set)
    for (a, b), kind in types.items():
        if kind == "xgmi":
            peers[a].add(b)
            peers[b].add(a)
    hives = _connected(usable, peers)
    for hive in hives:
        absent = [
            f"{a} – {b}"
            for a, b in itertools.combinations(hive, 2)
            if types.get((min(a, b), max(a, b))) == "pcie"
        ]
        if absent:
            yield finding(
                "TOPO-XGMI-ABSENT",
                topology.host,
                f"{listed(absent)} {'is' if len(absent) == 1 else 'are'} linked by PCIe, in a "
                f"group of {len(hive)} GPUs that xGMI connects otherwise",
            )
    sizes = [len(hive) for hive in hives]
    if max(sizes, default=0) > 1:
        for hive in hives:
            known = any(types.get((min(p), max(p))) for key in hive for p in _others(key, usable))
            if len(hive) == 1 and known:
                yield finding(
                    "TOPO-XGMI-ISOLATED",
                    topology.host,
                    f"GPU {hive[0]} has no xGMI link, while {max(sizes)} others are connected",
                )
        if len({size for size in sizes if size > 1}) > 1:
            yield finding(
                "TOPO-XGMI-HIVES",
                topology.host,
                f"the xGMI groups have {listed([str(size) for size in sizes])} GPUs",
            )
    elif _all_pcie(pairs, types.values()):
        yield finding(
            "TOPO-XGMI-NONE",
            topology.host,
            f"{len(usable)} {pairs[0][1].model} have no xGMI link among them; their board has a "
            "full mesh",
        )


def _connected(keys: Sequence[str], peers: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the connected groups, each in the order of keys."""
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for key in keys:
        if key in grouped:
            continue
        group, queue = {key}, [key]
        while queue:
            new = (peers.get(queue.pop(), set()) & set(keys)) - group
            group |= new
            queue += new
        grouped |= group
        groups.append([other for other in keys if other in group])
    return groups


def _others(key: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((key, other) for other in keys if other != key)


def _all_pcie(pairs: Sequence[tuple[str, Gpu]], kinds: Collection[str | None]) -> bool:
    return (
        bool(kinds)
        and all(kind == "pcie" for kind in kinds)
        and all(facts_of(gpu.model).get("mesh") and not gpu.virtual_function for _key, gpu in pairs)
    )


def _numa(topology: Topology, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    nodes = {node.id for node in topology.numa_nodes}
    told = any(gpu.numa_node is not None for _key, gpu in pairs)
    unknown = [key for key, gpu in pairs if gpu.numa_node is None and gpu.healthy is not False]
    if unknown and (told or len(nodes) > 1):
        yield finding(
            "TOPO-NUMA-UNKNOWN",
            topology.host,
            f"no source gives the NUMA node of {listed(unknown)}",
        )
    stray = [key for key, gpu in pairs if nodes and gpu.numa_node not in {None, *nodes}]
    if stray:
        yield finding(
            "TOPO-NUMA-STRAY",
            topology.host,
            f"{listed(stray)} report a NUMA node that the host doesn't have",
        )
    counts = Counter(
        gpu.numa_node
        for _key, gpu in pairs
        if gpu.numa_node is not None and gpu.healthy is not False
    )
    if len(set(counts.values())) > 1:
        shares = listed([f"node {node}: {counts[node]}" for node in sorted(counts)], 8)
        yield finding(
            "TOPO-NUMA-IMBALANCE", topology.host, f"the GPUs are spread unevenly: {shares}"
        )


def _partitions(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    for name in ("compute_partition", "memory_partition"):
        modes: dict[str, list[str]] = defaultdict(list)
        for key, gpu in pairs:
            if getattr(gpu, name) is not None:
                modes[getattr(gpu, name)].append(key)
        if len(modes) > 1:
            shares = "; ".join(f"{mode}: {listed(keys)}" for mode, keys in sorted(modes.items()))
            yield finding("TOPO-PARTITION-MIXED", host, f"{name} differs: {shares}")
        elif name == "memory_partition" and modes and "NPS1" not in modes:
            mode = "".join(modes)  # there is just one
            yield finding("TOPO-MEMORY-PARTITION", host, f"the GPUs' memory is in mode {mode}")


def _partition_count(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    """Compare the partitions in view with those that the GPU's mode makes."""
    modes = knowledge("gpus.yml")["compute_partitions"]["entries"]
    groups: dict[str, list[Gpu]] = defaultdict(list)
    for _key, gpu in pairs:
        if gpu.bdf is not None and gpu.healthy is not False:
            groups[gpu.bdf].append(gpu)
    largest = max((len(group) for group in groups.values()), default=0)
    short = []
    for address, group in groups.items():
        mode = next((gpu.compute_partition for gpu in group if gpu.compute_partition), None)
        made = facts_of(group[0].model).get("xcds") if mode == "CPX" else modes.get(mode)
        wanted = made or (largest if largest > 1 and mode is None else None)
        if wanted is not None and len(group) != wanted:
            short.append(f"{address}: {len(group)} of {wanted}" + (f" ({mode})" if mode else ""))
    if short:
        yield finding("TOPO-PARTITION-COUNT", host, f"partitions in view: {listed(short)}")


def _board(host: str, pairs: Sequence[tuple[str, Gpu]], slots: Sequence[Slot]) -> Iterator[Finding]:
    """Compare the GPUs on the bus with the boards they come on; a guest has any number."""
    boards: Counter[str] = Counter()
    seen: set[str | None] = set()
    for _key, gpu in pairs:
        if gpu.model and not gpu.virtual_function and gpu.bdf not in seen:
            boards[gpu.model] += 1
            seen.add(gpu.bdf)
    for model, count in boards.items():
        mesh = facts_of(model).get("mesh")
        if slots and mesh and count % mesh:
            yield finding(
                "TOPO-GPU-MISSING",
                host,
                f"{count} {model} are on the PCI bus; their boards carry {mesh}",
            )


def _slots(host: str, slots: Sequence[Slot]) -> Iterator[Finding]:
    for slot in slots:
        width, widest = slot.link_width, slot.link_width_max
        speed, fastest = slot.link_speed, slot.link_speed_max
        if width and widest and width < widest:
            yield finding(
                "TOPO-PCIE-LINK",
                host,
                f"GPU {slot.bdf} trained its PCIe link at x{width}; it and its slot can x{widest}",
            )
        if speed and fastest and speed < fastest:
            yield finding(
                "TOPO-PCIE-LINK",
                host,
                f"GPU {slot.bdf} trained its PCIe link at {speed:g} GT/s; it and its slot can "
                f"{fastest:g} GT/s",
            )
        if slot.uncorrectable_errors:
            yield finding(
                "TOPO-MEMORY-ERRORS",
                host,
                f"GPU {slot.bdf} has had {slot.uncorrectable_errors} uncorrectable memory errors "
                "since the driver was loaded",
            )


def _memory(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    """Find the GPU whose memory is not what its model has, or what its neighbours have."""
    whole = [(key, gpu) for key, gpu in pairs if "#" not in key and gpu.vram_bytes]
    common = Counter((gpu.model, gpu.vram_bytes) for _key, gpu in whole)
    for key, gpu in whole:
        size, gib = gpu.vram_bytes or 0, facts_of(gpu.model).get("vram_gib")
        others = [count for (model, _size), count in common.items() if model == gpu.model]
        # The driver keeps a little for itself: 0.1 to 1 % on captures of MI210 to MI355X.
        if gib and abs(size - gib * 2**30) > gib * 2**30 // 20:
            yield finding(
                "TOPO-VRAM", host, f"GPU {key} has {size / 2**30:.1f} GiB; {gpu.model} has {gib}"
            )
        elif not gib and common[gpu.model, gpu.vram_bytes] * 2 < sum(others):
            yield finding("TOPO-VRAM", host, f"GPU {key} has {size / 2**30:.1f} GiB, others more")


def _guest(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    virtual = [key for key, gpu in pairs if gpu.virtual_function]
    if virtual:
        yield finding(
            "TOPO-VIRTUAL-FUNCTION",
            host,
            f"{listed(virtual)} are virtual functions: this is a guest, and physical links, link "
            "errors, partition modes and the other GPUs of the board are not known here",
        )


def _models(host: str, pairs: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    if len({(gpu.model, gpu.device_id) for _key, gpu in pairs if gpu.device_id}) > 1:
        models = sorted(
            {gpu.model or f"id {gpu.device_id}" for _key, gpu in pairs if gpu.device_id}
        )
        yield finding("TOPO-MIXED-MODELS", host, f"the host has {listed(models)}")


def _cores(topology: Topology) -> Iterator[Finding]:
    blind = [str(node.id) for node in topology.numa_nodes if node.cpus and not node.cores]
    if blind:
        yield finding(
            "TOPO-CORES-UNKNOWN",
            topology.host,
            f"which CPUs of NUMA node {listed(blind)} are SMT siblings is not known",
        )
