# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold the sources against each other: one value per field, and a finding where they disagree."""

from __future__ import annotations

import typing
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..documents import knowledge
from ..findings import Finding
from ..gpus import gpu_facts, model_of
from . import problems
from .fabric import Fabric, fabric
from .join import Entry, absences, join, order
from .observation import Observation
from .paths import corrected, links, without_access
from .readers import amd_smi, kfd, pci, rocm_smi
from .types import Gpu, NumaNode, Topology, gpu_keys

_TOOLS = (amd_smi.NAME, rocm_smi.NAME)
_TRUST: Mapping[str, Sequence[str]] = knowledge("sources.yml")["fields"]
_NUMA: Sequence[Mapping[str, str]] = knowledge("sources.yml")["numa"]
# Of a partition these describe the whole GPU, except in KFD.
_OF_WHOLE_GPU = ("vram_bytes", "vram_used_bytes", "render_node", "card")

Reports = Sequence[tuple[str, object]]


class _Disagreements:
    """Collects who says what, so that eight GPUs make one finding and not eight."""

    def __init__(self) -> None:
        # (field, source taken, other source) -> (GPU, value taken, other value)
        self._cases: dict[tuple[str, str, str], list[tuple[str, object, object]]] = {}

    def note(self, field: str, gpu: str, reported: Reports) -> None:
        """Record every source whose value differs from the one that was taken, the first."""
        for source, value in reported[1:]:
            if not _same(field, reported[0][1], value):
                case = field, reported[0][0], source
                self._cases.setdefault(case, []).append((gpu, reported[0][1], value))

    def findings(self, subject: str) -> list[Finding]:
        """Return one finding per field and pair of sources."""
        result = []
        for (field, taken, other), cases in self._cases.items():
            gpu, value, different = cases[0]
            more = f" (and {len(cases) - 1} more GPUs)" if len(cases) > 1 else ""
            result.append(
                problems.finding(
                    "TOPO-SOURCES-DISAGREE",
                    subject,
                    f"{field} of {gpu}{more}: {taken} says {value}, {other} says {different}; "
                    f"{value} was taken",
                    parts=tuple((case[0],) for case in cases),
                )
            )
        return result


def _same(field: str, left: object, right: object) -> bool:
    if field == "vram_bytes" and isinstance(left, int) and isinstance(right, int):
        # Tools round to MiB, and firmware keeps some; a different memory size is far more.
        return abs(left - right) <= max(left, right) // 100
    return left == right


def reconcile(
    host: str,
    observations: Sequence[Observation],
    bus: Observation | None = None,
    nodes: tuple[NumaNode, ...] = (),
    sources: tuple[str, ...] = (),
    whole: bool = True,
    hidden: bool = False,
) -> tuple[Topology, Fabric]:
    """Return one topology of what several sources say, KFD first where it is among them.

    ``bus`` describes PCI functions: it fills in what the others leave out, for every partition
    of a function, and a GPU that only it has is one the driver cannot use. ``whole`` is False
    where a capture is known to be cut: ranks are then unknown. ``hidden`` is True in a container,
    which sees some of the host's GPUs and where ranks are among those. The fabric is what they
    say of the physical links.
    """
    observations, findings = _without_shared_nodes(observations, host)
    entries, more = join(observations, host)
    findings += more
    if entries and bus is not None:
        _add_bus(entries, bus)
    keys = gpu_keys(
        [Gpu(bdf=e.bdf, partition=e.partition or 0, smi_index=_index(e)) for e in entries]
    )
    ranks = _hip_ranks(entries) if whole else {}
    disagreements = _Disagreements()
    kfd_seen = any(kfd.NAME in entry.reported for entry in entries)
    guessed = _guessed_nodes(entries, [node.id for node in nodes if node.cpus])
    alone, unsure = _own_memory(entries)
    if unsure:
        message = f"what tools print as memory of the partitions of {', '.join(unsure)} may be the "
        findings.append(
            problems.finding("TOPO-PARTITION-VRAM", host, message + "whole GPU's; it is left out")
        )
    gpus = tuple(
        _gpu(
            entry,
            key,
            ranks.get(position),
            disagreements,
            kfd_seen,
            position in guessed,
            position in alone,
        )
        for position, (key, entry) in enumerate(zip(keys, entries, strict=True))
    )
    physical = fabric(entries, keys, observations)
    pairs, more = links(entries, keys, observations, host, physical.dead_links)
    models = {key: gpu.model for key, gpu in zip(keys, gpus, strict=True)}
    pairs, contradictions = corrected(pairs, physical, models, host)
    contradictions += without_access(entries, keys, observations, host)
    if whole and not hidden:
        findings += absences(entries, keys, observations, host)
    own = [finding for observation in observations for finding in observation.findings]
    topology = Topology(
        host=host,
        gpus=gpus,
        links=pairs,
        numa_nodes=nodes,
        sources=sources,
        findings=(*own, *findings, *disagreements.findings(host), *more, *contradictions),
    )
    return topology, physical


def _without_shared_nodes(
    observations: Sequence[Observation], subject: str
) -> tuple[list[Observation], list[Finding]]:
    """Return what sources say without KFD nodes that several devices have, and findings on these.

    Each GPU and each partition has a node of its own; amd-smi's stand-in for rocm-smi prints NUMA
    nodes where it finds none. Where the kernel's are known, the others are held against them.
    """
    if any(seen.source == kfd.NAME and seen.devices for seen in observations):
        return list(observations), []
    result, findings = [], []
    for seen in observations:
        counts = Counter(device.kfd_node for device in seen.devices)
        shared = [node for node, count in counts.items() if count > 1 and node is not None]
        if shared:
            message = (
                f"{seen.source} prints KFD node {shared[0]} for {counts[shared[0]]} GPUs: which "
                "node each has, and its HIP ordinal by that, is not known"
            )
            findings.append(problems.finding("TOPO-KFD-NODE-SHARED", subject, message))
            devices = tuple(replace(device, kfd_node=None) for device in seen.devices)
            seen = replace(seen, devices=devices)
        result.append(seen)
    return result, findings


def _index(entry: Entry) -> int | None:
    reported = _reported(entry, [("index", source) for source in _TRUST["smi_index"]])
    value = reported[0][1] if reported else None
    return value if isinstance(value, int) else None


def _add_bus(entries: list[Entry], bus: Observation) -> None:
    """Give each function's description to its GPUs, and add the GPUs that only the bus has."""
    addresses = {entry.bdf for entry in entries}
    for position, device in enumerate(bus.devices):
        if device.bdf not in addresses:
            entries.append(Entry(bdf=device.bdf))
        for entry in entries:
            if entry.bdf == device.bdf:
                entry.add(bus.source, position, device)
    entries.sort(key=order)


def _hip_ranks(entries: Sequence[Entry]) -> dict[int, int]:
    """Return each entry's rank of KFD node, where the KFD node of every GPU is known.

    ROCr lists the GPU nodes in view by node id and HIP takes its order; amd-smi prints node id
    minus the smallest one, which is the same only while no node between is hidden.
    """
    numbered: dict[int, int] = {}
    kfd_seen = any(kfd.NAME in entry.reported for entry in entries)
    for position, entry in enumerate(entries):
        trusted = (kfd.NAME,) if kfd_seen else _TRUST["kfd_node"]
        reported = _reported(entry, [("kfd_node", source) for source in trusted])
        if reported and isinstance(reported[0][1], int):
            numbered[position] = reported[0][1]
        elif not kfd_seen and set(entry.reported) - {pci.NAME}:
            return {}
    if len(set(numbered.values())) < len(numbered):
        return {}  # of two sources
    ordered = sorted(numbered, key=lambda position: numbered[position])
    return {position: rank for rank, position in enumerate(ordered)}


def _reported(entry: Entry, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, object]]:
    """Return (source, value) for each source that gives one, in the order wanted."""
    values = []
    for name, source in wanted:
        device = entry.reported.get(source)
        value = getattr(device, name) if device is not None else None
        if value is not None:
            values.append((source, value))
    return values


def _guessed_nodes(entries: Sequence[Entry], homes: Sequence[int]) -> set[int]:
    """Return the positions of the GPUs whose NUMA node the kernel made up; ``homes`` have CPUs.

    It counts a device that reports no node to the first one. That is true where there is no
    other, and where tools compute different nodes for such devices they know more than PCI does
    (ROCm#4965). Who computes a node and is a tool prints the affinity beside it.
    """
    if len(homes) == 1:
        return set()
    tellers = {pci.NAME, amd_smi.NAME, rocm_smi.NAME}
    silent = {
        position
        for position, entry in enumerate(entries)
        if tellers & entry.reported.keys() and not entry.any("numa_affinity")
    }
    if any(entry.any("numa_affinity") for entry in entries):
        return silent
    computed = set[object]().union(*(entry.any("numa_node") for entry in entries))
    return silent if homes and computed <= {min(homes)} else set()


def _own_memory(entries: Sequence[Entry]) -> tuple[set[int], list[str]]:
    """Return the positions of partitions whose memory tools print as their own, and doubtful GPUs.

    Some repeat that of the whole GPU for each of its partitions; those together have no more.
    """
    own: set[int] = set()
    unsure: list[str] = []
    places: dict[str, list[int]] = defaultdict(list)
    for position, entry in enumerate(entries):
        places[entry.bdf or ""].append(position)
    for address, group in places.items():
        members = [entries[position] for position in group]
        if not address or len(group) < 2 or any(kfd.NAME in each.reported for each in members):
            continue
        sizes = [_reported(each, [("vram_bytes", tool) for tool in _TOOLS]) for each in members]
        values = [int(str(size[0][1])) for size in sizes if size]
        models = {model_of(str(name))[0] for each in members for name in each.any("device_id")}
        whole = gpu_facts(models.pop()).memory.gib if len(models) == 1 else None
        if whole and len(values) == len(group) and sum(values) <= whole * 2**30 * 1.01:
            own |= set(group)
        elif values:
            unsure.append(address)
    return own, unsure


def _gpu(
    entry: Entry,
    key: str,
    rank: int | None,
    disagreements: _Disagreements,
    kfd_seen: bool,
    guessed: bool,
    own_memory: bool,
) -> Gpu:
    partitioned = "#" in key or bool(entry.partition)
    values: dict[str, object] = {}
    for name, trusted in _TRUST.items():
        attribute = "index" if name == "smi_index" else name
        fields = [(attribute, source) for source in trusted]
        if partitioned and name in _OF_WHOLE_GPU:
            # What the bus says describes the whole GPU; its tools often repeat that.
            fields = [(attribute, kfd.NAME), (attribute, amd_smi.NAME)]
            if name == "vram_bytes":
                fields = [
                    (attribute, source) for source in (kfd.NAME, *(_TOOLS if own_memory else ()))
                ]
        reported = _reported(entry, fields)
        if name == "hip_ordinal" and rank is not None:
            reported = [("the rank of its KFD node", rank), *reported]
        if reported:
            disagreements.note(name, key, reported)
            values[name] = reported[0][1]
    numa = [
        (f"{source} {label}", value)
        for name, label, source in ((item["field"], item["label"], item["tool"]) for item in _NUMA)
        for _source, value in _reported(entry, [(name, source)])
        if not (guessed and name == "numa_node")
    ]
    if numa:
        disagreements.note("numa_node", key, numa)
        values["numa_node"] = numa[0][1]
    driven = "" not in {device.driver for device in entry.reported.values()}
    model, virtual = model_of(typing.cast("str | None", values.get("device_id")))
    virtual = typing.cast("bool | None", values.pop("virtual_function", virtual))
    return Gpu(
        bdf=entry.bdf,
        partition=entry.partition or 0,
        model=model,
        virtual_function=virtual,
        healthy=(kfd.NAME in entry.reported) if kfd_seen else None if driven else False,
        **values,  # type: ignore[arg-type]  # each by its name
    )
