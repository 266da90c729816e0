# SPDX-License-Identifier: GPL-3.0-or-later

"""What one source says of a host, before sources are held against each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from ..evidence.types import too_large
from ..findings import Finding
from .readers.text import integer, known, natural
from .types import LinkType

LinkState = Literal["up", "degraded", "down"]
MOST_DEVICES = 1024
# rocm_smi.cc: hops are 1 to 4, and no way is lighter than the least ACPI distance.
MOST_HOPS, LEAST_WEIGHT = 8, 10


@dataclass(frozen=True)
class Device:
    """One GPU or partition as one source describes it; None where it doesn't say.

    ``index`` is the source's own number, ``numa_affinity`` what the PCI device reports and
    ``numa_node`` what the tool computed from the nearest CPU node. ``uuid`` is amd-smi's own.
    ``ports`` are the states of its xGMI ports: U, D or X (disabled). ``driver`` is the kernel's,
    "" where none is bound.
    ``hive_links`` and ``hive_hops`` have one number for each member of its hive, itself included,
    in the kernel's order.
    """

    index: int | None = None
    bdf: str | None = None
    partition: int | None = None
    kfd_node: int | None = None
    kfd_id: int | None = None
    hip_ordinal: int | None = None
    render_node: str | None = None
    card: str | None = None
    oam_id: int | None = None
    unique_id: str | None = None
    uuid: str | None = None
    serial: str | None = None
    device_id: str | None = None
    virtual_function: bool | None = None
    driver: str | None = None
    vram_bytes: int | None = None
    vram_used_bytes: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    numa_affinity: int | None = None
    numa_node: int | None = None
    pci_path: tuple[str, ...] | None = None
    ports: tuple[str, ...] | None = None
    hive_id: int | None = None
    hive_links: tuple[int, ...] | None = None
    hive_hops: tuple[int, ...] | None = None

    def filled(self, other: Device) -> Device:
        """Return this device with what it doesn't say taken from ``other``."""
        gaps = {
            item.name: getattr(other, item.name)
            for item in fields(self)
            if getattr(self, item.name) is None and getattr(other, item.name) is not None
        }
        return replace(self, **gaps) if gaps else self


@dataclass(frozen=True)
class Path:
    """A way from one device to another, by position in the observation; None is unknown.

    ``state`` is that of the direct xGMI links of the two: up, down, or some of them down;
    ``access`` whether one may read the other's memory (P2P).
    """

    a: int
    b: int
    type: LinkType | None = None
    hops: int | None = None
    weight: int | None = None
    bandwidth_mb_s: tuple[int, int] | None = None
    state: LinkState | None = None
    access: bool | None = None


@dataclass(frozen=True)
class Observation:
    """Everything one source says. ``absence`` is why it sees no GPUs, if it told.

    ``by_address`` is False where the tool numbers GPUs in another order than that of addresses.
    """

    source: str
    devices: tuple[Device, ...] = ()
    paths: tuple[Path, ...] = ()
    findings: tuple[Finding, ...] = ()
    absence: str | None = None
    by_address: bool = True

    def __post_init__(self) -> None:
        # What compares them is quadratic, and no host has a tenth of it.
        if len(self.devices) > MOST_DEVICES:
            what = f"{len(self.devices)} devices, expected at most {MOST_DEVICES}"
            raise too_large(self.source, what)


Cells = Mapping[tuple[int, int], str]


def paths_from_cells(tables: Mapping[str, Cells]) -> tuple[Path, ...]:
    """Return paths from the tables `type`, `hops`, `weight`, `bandwidth`, `status`, `access`.

    Cells are as printed; whatever isn't a value of its table is unknown, and so are weight 0,
    hops 0 and 255 and bandwidth 0-0 between different devices.
    """
    pairs = sorted({pair for cells in tables.values() for pair in cells if pair[0] != pair[1]})
    return tuple(
        Path(
            a,
            b,
            type=link_type(tables.get("type", {}).get((a, b))),
            hops=hops(tables.get("hops", {}).get((a, b))),
            weight=weight(tables.get("weight", {}).get((a, b))),
            bandwidth_mb_s=bandwidth(tables.get("bandwidth", {}).get((a, b))),
            state=link_state(tables.get("status", {}).get((a, b))),
            access=access(tables.get("access", {}).get((a, b))),
        )
        for a, b in pairs
    )


_LINK_TYPES: dict[str, LinkType] = {"XGMI": "xgmi", "PCIE": "pcie"}


def link_type(value: object) -> LinkType | None:
    """Return the link type of a cell."""
    text = (known(value) or "").upper()
    return _LINK_TYPES.get(text)


def hops(value: object) -> int | None:
    """Return the tools' abstract hop count of a cell; 0 and 255 between two devices say nothing."""
    number = natural(value)
    return number if number is not None and 0 < number <= MOST_HOPS else None


def access(value: object) -> bool | None:
    """Return whether a cell lets one GPU read the other's memory: ENABLED or True."""
    return {"ENABLED": True, "TRUE": True, "DISABLED": False, "FALSE": False}.get(
        (known(value) or "").upper()
    )


def weight(value: object) -> int | None:
    """Return the weight of a cell; 0 between two devices means that it was not reported."""
    number = natural(value) or 0
    return number if number >= LEAST_WEIGHT else None


def bandwidth(value: object) -> tuple[int, int] | None:
    """Return min and max in MB/s of a `50000-200000` cell; 0-0 is no value."""
    match = re.fullmatch(r"\s*(\d{1,9})-(\d{1,9})\s*", value) if isinstance(value, str) else None
    low, high = map(int, match.groups()) if match else (0, 0)
    # More at the least than at the most is a number that is cut.
    return (low, high) if 0 < high >= low else None


def link_state(value: object) -> LinkState | None:
    """Return the state in a `U`, `D` or `U/D` cell; X is a link that is not in use."""
    states = set(value.strip().split("/")) if isinstance(value, str) else set()
    if not states & {"U", "D"} or not states <= {"U", "D", "X"}:
        return None
    return "up" if "D" not in states else "degraded" if "U" in states else "down"


PORT_STATES = {"1": "U", "U": "U", "0": "D", "D": "D"}


def port_states(values: Iterable[object]) -> tuple[str, ...] | None:
    """Return U, D or X of each xGMI port, from letters or from the metrics' 1, 0 and 65535."""
    states = tuple(PORT_STATES.get(str(value).strip().upper(), "X") for value in values)
    return states or None


CELL_CHECKS: Mapping[str, Callable[[object], object]] = {
    "type": link_type,
    "hops": integer,
    "weight": integer,
    "bandwidth": bandwidth,
    "access": access,
}


def merged(devices: Iterable[tuple[int, Device]]) -> list[Device]:
    """Return one device per index, in order; of two statements the earlier one stands."""
    by_index: dict[int, Device] = {}
    for index, device in devices:
        by_index[index] = by_index[index].filled(device) if index in by_index else device
    return [replace(by_index[index], index=index) for index in sorted(by_index)]


def positions(devices: Sequence[Device]) -> dict[int, int]:
    """Return where each of a tool's own indices is in its list."""
    return {device.index: place for place, device in enumerate(devices) if device.index is not None}
