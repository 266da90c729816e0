# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the PCI bus below /sys: AMD GPUs, DRM nodes, network interfaces; GPUs whose probe failed."""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...findings import Finding
from ...gpus import model_of
from .. import problems
from ..observation import Device, Observation
from ..types import Nic
from .text import bus_address, hexadecimal, natural, partition_modes, unique_id

NAME = "PCI sysfs"
_DEVICE = re.compile(r"^/sys/bus/pci/devices/([^/]+)(?:/(.+))?$")
_DRM = re.compile(r"^/sys/class/drm/(card\d+|renderD\d+)$")
_FUNCTION = re.compile(r"/([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])(?=/|$)")
_IN_PATH = re.compile(_FUNCTION.pattern + "/drm/")
# Processing accelerators and display controllers; bridges and network cards are kept beside them.
_GPU_CLASSES = ("0x12", "0x03")


@dataclass(frozen=True)
class Bridge:
    """A PCI bridge above a GPU; its link's current width and speed are those of what is below."""

    bdf: str
    device_id: str | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    link_speed: float | None = None
    link_speed_max: float | None = None


@dataclass(frozen=True)
class Slot:
    """What the bus says of one GPU beside its identity; None where it doesn't.

    ``bridges`` are those above it, root port first; ``device_id`` of one is `vendor:device`.
    ``numa_node`` is what the device itself reports, None being -1.
    """

    bdf: str
    driver: str | None
    link_width: int | None
    link_width_max: int | None
    link_speed: float | None
    link_speed_max: float | None
    uncorrectable_errors: int | None
    bridges: tuple[Bridge, ...] = ()
    numa_node: int | None = None


def parse(files: Mapping[str, str], links: Mapping[str, str]) -> tuple[Observation, list[Slot]]:
    """Return the GPUs on the bus, in BDF order, with their DRM nodes."""
    attributes: dict[str, dict[str, str]] = defaultdict(dict)
    targets: dict[str, dict[str, str]] = defaultdict(dict)
    for mapping, into in ((files, attributes), (links, targets)):
        for path, value in mapping.items():
            match = _DEVICE.match(path)
            address = bus_address(match.group(1)) if match else None
            if match and address:
                into[address][match.group(2) or ""] = value
    drm = _drm_nodes(links)
    devices, slots = [], []
    for address in sorted(attributes):
        values, pointed = attributes[address], targets[address]
        if "device" not in values or not values.get("class", "0x12").startswith(_GPU_CLASSES):
            continue
        above = functions_in(pointed.get("", ""))[:-1]
        devices.append(_device(address, values, pointed, drm.get(address, {}), above))
        slots.append(_slot(address, values, pointed, _bridges(above, attributes)))
    absence = None if devices else "there is no AMD GPU on the PCI bus"
    return Observation(NAME, tuple(devices), absence=absence), slots


def functions_in(target: str) -> tuple[str, ...]:
    """Return the PCI functions on a device's path in sysfs, root port first."""
    addresses = (bus_address(address) for address in _FUNCTION.findall(target))
    return tuple(address for address in addresses if address)


def _bridges(
    above: tuple[str, ...], attributes: Mapping[str, Mapping[str, str]]
) -> tuple[Bridge, ...]:
    return tuple(
        _bridge(address, attributes[address]) for address in above if address in attributes
    )


def _bridge(address: str, values: Mapping[str, str]) -> Bridge:
    ids = [hexadecimal(values.get(name), 4) for name in ("vendor", "device")]
    return Bridge(address, ":".join(filter(None, ids)) or None, *_link(values))


def _drm_nodes(links: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return card and render node per BDF; partitions hang off a platform device instead."""
    nodes: dict[str, dict[str, str]] = defaultdict(dict)
    for path, target in links.items():
        name, address = _DRM.match(path), _IN_PATH.search(target)
        normal = bus_address(address.group(1)) if address else None
        if name and normal:
            kind = "card" if name.group(1).startswith("card") else "render"
            nodes[normal].setdefault(kind, name.group(1))
    return nodes


def _device(
    address: str,
    values: Mapping[str, str],
    pointed: Mapping[str, str],
    drm: Mapping[str, str],
    above: tuple[str, ...],
) -> Device:
    device_id = hexadecimal(values.get("device"), 4)
    _model, virtual = model_of(device_id)
    compute, _memory = partition_modes(values.get("current_compute_partition"))
    _compute, memory = partition_modes(values.get("current_memory_partition"))
    return Device(
        bdf=address,
        render_node=drm.get("render"),
        card=drm.get("card"),
        unique_id=unique_id(values.get("unique_id")),
        device_id=device_id,
        virtual_function=True if "physfn" in pointed else virtual,
        vram_bytes=natural(values.get("mem_info_vram_total")) or None,
        vram_used_bytes=natural(values.get("mem_info_vram_used")),
        compute_partition=compute,
        memory_partition=memory,
        numa_affinity=natural(values.get("numa_node")),
        pci_path=above or None,
        hive_id=natural(values.get("xgmi_hive_info/xgmi_hive_id")) or None,
        hive_links=_row(values.get("xgmi_num_links")),
        hive_hops=_row(values.get("xgmi_num_hops")),
    )


def _row(value: str | None) -> tuple[int, ...] | None:
    """Return the numbers of `00 04 01 …`: one for each member of the hive."""
    words = (value or "").split()
    if not words or not all(re.fullmatch("[0-9a-fA-F]{2}", word) for word in words):
        return None
    return tuple(int(word, 16) for word in words)


def _slot(
    address: str, values: Mapping[str, str], pointed: Mapping[str, str], bridges: tuple[Bridge, ...]
) -> Slot:
    driver = pointed.get("driver")
    width, widest, speed, fastest = _link(values)
    errors = re.search(r"ue:\s*(\d{1,12})", values.get("ras/umc_err_count", ""))
    return Slot(
        bdf=address,
        driver=driver.rsplit("/", 1)[-1] if driver else None,
        link_width=width,
        link_width_max=widest,
        link_speed=speed,
        link_speed_max=fastest,
        uncorrectable_errors=int(errors.group(1)) if errors else None,
        bridges=bridges,
        numa_node=natural(values.get("numa_node")),
    )


def _link(values: Mapping[str, str]) -> tuple[int | None, int | None, float | None, float | None]:
    """Return a link's width, widest width, speed and highest speed."""
    return (
        _width(values.get("current_link_width")),
        _width(values.get("max_link_width")),
        _speed(values.get("current_link_speed")),
        _speed(values.get("max_link_speed")),
    )


def _width(value: str | None) -> int | None:
    """Return lanes; 0 and 255 are what the kernel shows of a link it could not read."""
    number = natural(value)
    return None if number in (0, 255) else number


def _speed(value: str | None) -> float | None:
    """Return GT/s of "32.0 GT/s PCIe"."""
    match = re.match(r"\s*(\d{1,3}(?:\.\d+)?) GT/s", value or "")
    return float(match.group(1)) if match else None


_INTERFACE = re.compile(r"^/sys/class/(net|infiniband)/([^/]+)$")
_STATES = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}


def nics(files: Mapping[str, str], links: Mapping[str, str]) -> tuple[Nic, ...]:
    """Return the physical interfaces in BDF order.

    What has no PCI function (bridges, bonds), a virtual function of a card in view and what
    hangs off USB is left out. An RDMA device without an interface stands for itself.
    """
    by_nic: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    paths: dict[str, tuple[str, ...]] = {}
    for path, target in sorted(links.items()):
        match = _INTERFACE.match(path)
        functions = functions_in(target)
        if not match or not functions or "/usb" in target or f"{path}/device/physfn" in links:
            continue
        by_nic[functions[-1]][match.group(1)].append(match.group(2))
        paths[functions[-1]] = functions[:-1]
    return tuple(nic for bdf in sorted(by_nic) for nic in _at(bdf, by_nic[bdf], paths[bdf], files))


def _at(
    bdf: str, names: Mapping[str, list[str]], path: tuple[str, ...], files: Mapping[str, str]
) -> Iterator[Nic]:
    """Yield the interfaces of one PCI function."""
    rdma = names["infiniband"][0] if names["infiniband"] else None
    for name in names["net"] or names["infiniband"]:
        base = f"/sys/class/{'net' if names['net'] else 'infiniband'}/{name}"
        speed = natural(files.get(f"{base}/speed"))
        rate, active = _port(rdma, files)
        up = _STATES.get(files.get(f"{base}/operstate", "").strip())
        yield Nic(
            name=name,
            bdf=bdf,
            numa_node=natural(files.get(f"{base}/device/numa_node")),
            rdma_device=rdma,
            speed_mb_s=speed // 8 if speed else rate,
            up=active if up is None else up,
            pci_path=path,
        )


def _port(name: str | None, files: Mapping[str, str]) -> tuple[int | None, bool | None]:
    """Return MB/s and whether it is active, of an RDMA device's first port."""
    base = f"/sys/class/infiniband/{name}/ports/1"
    rate = re.match(r"(\d{1,5})(?:\.\d+)? Gb/sec", files.get(f"{base}/rate", ""))
    state = re.match(r"\d: ([A-Z]+)", files.get(f"{base}/state", ""))
    return (
        int(rate.group(1)) * 1000 // 8 if rate else None,
        state.group(1) == "ACTIVE" if state else None,
    )


# Linux drivers/base/dd.c, up to 6.10 and since.
_FAILED = re.compile(
    r"amdgpu: probe of ([0-9a-f:.]{7,16}) failed with error -(\d{1,4})\b"
    r"|amdgpu ([0-9a-f:.]{7,16}): probe with driver amdgpu failed with error -(\d{1,4})\b"
)


def failed_probes(text: str, subject: str) -> list[Finding]:
    """Return a finding for each error with which probes failed, and on which GPUs."""
    failed: dict[int, list[str]] = {}
    for old, number, new, other in _FAILED.findall(text):
        address, code = bus_address(old or new), int(number or other)
        if address and address not in failed.setdefault(code, []):
            failed[code].append(address)
    return [
        problems.finding(
            "TOPO-PROBE-FAILED",
            subject,
            f"amdgpu could not bring up {gpus[0]}"
            + (f" and {len(gpus) - 1} more GPUs" if len(gpus) > 1 else "")
            + f": its probe failed with error -{code} ({errno.errorcode.get(code, 'unknown')})",
            parts=tuple((address,) for address in gpus),
        )
        for code, gpus in failed.items()
        if gpus
    ]
