# SPDX-License-Identifier: GPL-3.0-or-later

"""Say which device of one source is which of another: by KFD node or bus address, never by index.

rocm-smi and amd-smi number by BDF (up to ROCm 5.7 by DRM card), HIP by KFD node, DRM by its own
minors, and cgroups renumber them all (gpu-indices.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..findings import Finding
from . import problems
from .observation import Device, Observation
from .readers import amd_smi, kfd, lspci, rocm_smi

# Of output that is known to lack GPUs that the tool listed.
_CUT = ("TOPO-TRUNCATED", "TOPO-SELECTED")


@dataclass
class Entry:
    """One GPU of the host: what each source says of it, and where in the source's list."""

    bdf: str | None = None
    partition: int | None = None
    reported: dict[str, Device] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)

    def add(self, source: str, position: int, device: Device) -> None:
        """Record what a source says, and take the identity it gives where none is known yet."""
        self.reported[source], self.place[source] = device, position
        if self.bdf is None:
            self.bdf = device.bdf
        if self.partition is None:
            self.partition = device.partition

    def any(self, name: str) -> set[object]:
        """Return every value that sources give a field."""
        values = {getattr(device, name) for device in self.reported.values()}
        return values - {None}


def join(observations: Sequence[Observation], subject: str) -> tuple[list[Entry], list[Finding]]:
    """Return the host's GPUs from sources in order of trust, and what could not be matched."""
    entries: list[Entry] = []
    findings: list[Finding] = []
    seen_first = next((each for each in observations if each.devices), None)
    for observation in observations:
        if not observation.devices:
            continue
        # Only lspci lists the functions that there are.
        functions = observation.source == lspci.NAME
        devices = list(observation.devices) if functions else _normalised(observation.devices)
        if not entries:
            for position, device in enumerate(devices):
                entries.append(Entry())
                entries[-1].add(observation.source, position, device)
            continue
        first = next(iter(entries[0].reported))
        strangers: list[Device] = []
        moved: list[str] = []
        for position, device in enumerate(devices):
            entry = _match(device, devices, entries, observation.source)
            if entry is None:
                strangers.append(device)
                continue
            if device.bdf and entry.bdf and not any(_at_address(device, [entry])):
                moved.append(f"{entry.bdf}, {observation.source} says {device.bdf}")
            entry.add(observation.source, position, device)
        if moved:
            more = f" (and {len(moved) - 1} more GPUs)" if len(moved) > 1 else ""
            findings.append(
                problems.finding(
                    "TOPO-SOURCES-DISAGREE",
                    subject,
                    f"address{more}: {first} says {moved[0]}; {first}'s was taken",
                )
            )
        taken = {entry.bdf for entry in entries}
        if len(strangers) == len(devices) and _same_order(observation, seen_first, entries):
            for position, (device, entry) in enumerate(zip(devices, entries, strict=True)):
                entry.add(observation.source, position, device)
            findings.append(_by_number(observation.source, first, subject))
            continue
        nameless = [device for device in strangers if device.bdf is None or device.bdf in taken]
        named = [device for device in strangers if device not in nameless]
        if nameless or len(named) > len({device.bdf for device in named}):
            findings.append(
                problems.finding(
                    "TOPO-UNMATCHED",
                    subject,
                    f"{len(strangers)} of {len(devices)} devices of {observation.source} have "
                    f"nothing that says which of {first}'s {len(entries)} they are; what it says "
                    "of them is left out",
                )
            )
            continue
        for device in named:
            entries.append(Entry())
            entries[-1].add(observation.source, devices.index(device), device)
    findings += _number_partitions(entries, subject)
    entries.sort(key=order)
    return entries, findings


def _same_order(seen: Observation, first: Observation | None, entries: Sequence[Entry]) -> bool:
    """Return whether two tools number the same GPUs in the same order: both do it by address.

    rocm-smi does so since ROCm 6.0. Where both tell NUMA nodes, these have to agree.
    """
    if (
        first is None
        or {seen.source, first.source} != {amd_smi.NAME, rocm_smi.NAME}
        or not seen.by_address
    ):
        return False
    numbers = list(range(len(entries)))
    same = all(
        len(item.devices) == len(entries) and [device.index for device in item.devices] == numbers
        for item in (seen, first)
    )
    pairs = zip(seen.devices, first.devices, strict=False)
    nodes = [(a.numa_node, b.numa_node) for a, b in pairs]
    agree = all(None in pair or pair[0] == pair[1] for pair in nodes)
    return same and agree and first.by_address and not _identified(seen.devices, first.devices)


def _identified(devices: Sequence[Device], others: Sequence[Device]) -> bool:
    """Return whether both sources have values by which GPUs can be told apart."""
    names = ("bdf", "kfd_node", "kfd_id", "unique_id")
    both = [
        [any(getattr(each, name) for each in some) for name in names] for some in (devices, others)
    ]
    return any(map(all, zip(*both, strict=True)))


def _by_number(source: str, first: str, subject: str) -> Finding:
    message = f"{source}'s GPUs are taken for {first}'s by their numbers"
    return problems.finding("TOPO-BY-NUMBER", subject, message)


def absences(
    entries: Sequence[Entry], keys: Sequence[str], observations: Sequence[Observation], subject: str
) -> list[Finding]:
    """Return who leaves out GPUs that others list; of the driver, TOPO-GPU-UNUSABLE tells.

    A source that has one device at an address lists GPUs and not their partitions, as rocm-smi
    before 6.1.1 does; one of whose devices some have no match says nothing of the others.
    """
    listing = {
        observation.source: [entry for entry in entries if observation.source in entry.reported]
        for observation in observations
        if observation.devices
    }
    whole = {
        observation.source
        for observation in observations
        if observation.devices
        and observation.source != kfd.NAME
        and len(listing[observation.source]) == len(observation.devices)
        and not any(finding.code in _CUT for finding in observation.findings)
    }
    cases: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for entry, key in zip(entries, keys, strict=True):
        having = tuple(source for source in listing if source in entry.reported)
        lacking = tuple(
            source
            for source, own in listing.items()
            if source in whole and source not in having and not _stands_for(own, entry)
        )
        if having and lacking:
            cases[having, lacking].append(key)
    return [
        problems.finding(
            "TOPO-SOURCES-DISAGREE",
            subject,
            f"GPU {missing[0]}"
            + (f" and {len(missing) - 1} more GPUs" if len(missing) > 1 else "")
            + f": {' and '.join(having)} {'lists' if len(having) == 1 else 'list'} "
            f"{'it' if len(missing) == 1 else 'them'}, "
            f"{' and '.join(lacking)} {'does' if len(lacking) == 1 else 'do'} not",
            parts=tuple((key,) for key in missing),
        )
        for (having, lacking), missing in cases.items()
    ]


def _stands_for(listed: Sequence[Entry], entry: Entry) -> bool:
    """Say whether a source's one device at an address is there for all that share it."""
    shared = Counter(other.bdf for other in listed)
    return entry.bdf is not None and shared[entry.bdf] == max(shared.values()) == 1


def order(entry: Entry) -> tuple[bool, str, int]:
    """Return the sort key of BDF order; what has no BDF stays in its tool's order, last."""
    return entry.bdf is None, entry.bdf or "", (entry.partition or 0) if entry.bdf else 0


def _normalised(devices: Sequence[Device]) -> list[Device]:
    """Return partitions under the address of their GPU: the function bits hold the partition id.

    An Instinct GPU is function 0, so another function beside it is a partition (ROCm#4261).
    """
    counts = Counter(device.bdf for device in devices)
    # What old tools print of many partitions repeats addresses, and then tells nothing.
    addresses = {bdf for bdf, count in counts.items() if bdf is not None and count == 1}
    partitioned = {bdf[:-1] for bdf in addresses if not bdf.endswith("0")}
    result = []
    for device in devices:
        board, function = (device.bdf or "")[:-1], int((device.bdf or "0")[-1])
        alone = device.partition is None and device.bdf in addresses and f"{board}0" in addresses
        if function and (device.partition == function or alone):
            device = replace(device, bdf=f"{board}0", partition=function)
        elif alone and board in partitioned:
            device = replace(device, partition=0)
        result.append(device)
    return result


def _match(
    device: Device, siblings: Sequence[Device], entries: Sequence[Entry], source: str
) -> Entry | None:
    for name in ("bdf", "kfd_node", "kfd_id", "unique_id"):
        value = getattr(device, name)
        if value is None:
            continue
        if name == "bdf":
            matches = list(_at_address(device, entries))
        elif Counter(getattr(other, name) for other in siblings)[value] > 1:
            continue
        else:
            matches = [entry for entry in entries if entry.any(name) == {value}]
        matches = [entry for entry in matches if source not in entry.reported]
        if len(matches) > 1 and name == "bdf" and _alone(device, siblings):
            # Before 6.1.1 rocm-smi lists a partitioned GPU once, which is its first partition.
            matches = [entry for entry in matches if entry.partition == 0]
        if len(matches) == 1:
            return matches[0]
    return None


def _alone(device: Device, siblings: Sequence[Device]) -> bool:
    """Say whether a device has no partition id and an address to itself."""
    return device.partition is None and sum(other.bdf == device.bdf for other in siblings) == 1


def _at_address(device: Device, entries: Sequence[Entry]) -> Iterator[Entry]:
    address = device.bdf or ""
    for entry in entries:
        unsure = None in (device.partition, entry.partition)
        same = entry.bdf == address and (unsure or device.partition == entry.partition)
        if same or (entry.partition and f"{(entry.bdf or '')[:-1]}{entry.partition}" == address):
            yield entry


def _number_partitions(entries: Sequence[Entry], subject: str) -> list[Finding]:
    """Give devices that share an address distinct partitions, so that none swallows another."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.bdf is not None:
            groups[entry.bdf].append(entry)
    unsure = []
    for address, group in groups.items():
        if len(group) > 1 and len({entry.partition for entry in group} - {None}) < len(group):
            unsure.append(address)
            for number, entry in enumerate(group):
                entry.partition = number
    if not unsure:
        return []
    return [
        problems.finding(
            "TOPO-BDF-SHARED",
            subject,
            f"several devices have the address {', '.join(unsure)} and no partition id; they are "
            "numbered in the order listed",
        )
    ]
