# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of this host as the kernel shows them, and those that this process may open."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from .problems import RefusalError

_KFD = "sys/class/kfd/kfd"
_PCI = "sys/bus/pci/devices"


class Gpu(NamedTuple):
    """One KFD node: its number orders HIP's ordinals; identifiers are None where not told."""

    node: int
    render: str
    gpu_id: int | None = None
    unique_id: int | None = None


def read(path: str) -> str:
    """Return a file's text without its last newline, empty where it can't be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""


def gpus_of_host(root: str = "/") -> dict[str, Gpu]:
    """Return {gpu key: Gpu} of every AMD GPU the kernel serves.

    The key is the BDF, with #partition where several KFD nodes share one (partition modes).
    Source: KFD topology ``domain``, ``location_id`` = bus<<8|dev<<3|fn, ``drm_render_minor``.
    """
    base = os.path.join(root, _KFD, "topology/nodes")
    nodes: dict[str, list[tuple[int, Gpu]]] = {}
    try:
        numbers = sorted(int(name) for name in os.listdir(base) if name.isdigit())
    except OSError:
        return {}
    for number in numbers:
        node = os.path.join(base, str(number))
        properties = dict(
            line.split(None, 1)
            for line in read(os.path.join(node, "properties")).splitlines()
            if " " in line
        )
        # A GPU that the device policy hides reads as empty: it is not this process's to see.
        if int(properties.get("simd_count", 0)) == 0 or "drm_render_minor" not in properties:
            continue
        location, domain = int(properties.get("location_id", 0)), int(properties.get("domain", 0))
        slot = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
        gpu_id = read(os.path.join(node, "gpu_id"))
        gpu = Gpu(
            node=number,
            render=f"renderD{properties['drm_render_minor']}",
            gpu_id=int(gpu_id) if gpu_id.isdigit() else None,
            unique_id=int(properties["unique_id"]) if "unique_id" in properties else None,
        )
        nodes.setdefault(slot, []).append((location & 7, gpu))
    keyed: dict[str, Gpu] = {}
    for slot, shares in nodes.items():
        for function, gpu in shares:
            # Partitions of one GPU carry their id in the function bits; its own function is 0.
            key = f"{slot}.0#{function}" if len(shares) > 1 else f"{slot}.{function}"
            keyed[key] = gpu
    return keyed


def permitted(render: str, root: str = "/") -> bool:
    """Say whether this process may open a render node; what isn't there, it may not.

    Any failure but a refusal of rights is the driver's and says that the device was reached.
    """
    try:
        os.close(os.open(os.path.join(root, "dev/dri", render), os.O_RDWR | os.O_CLOEXEC))
    except OSError as failure:
        return failure.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT)
    return True


def present(wanted: tuple[str, ...], root: str = "/") -> dict[str, Gpu]:
    """Return the GPUs of the host; raises REPLICA-DRIVER or REPLICA-GPU-MISSING."""
    host = gpus_of_host(root)
    on_bus = os.path.join(root, _PCI)
    missing = [
        key
        for key in wanted
        if key not in host and not os.path.exists(os.path.join(on_bus, key.split("#")[0]))
    ]
    if missing:
        raise RefusalError(
            "REPLICA-GPU-MISSING",
            f"planned GPU {', '.join(missing)} is not there; "
            f"the host has {', '.join(sorted(host)) or 'no GPUs'}",
            "check the GPU (dmesg, lspci), then run the site playbook again to plan without it",
        )
    if wanted and not os.path.isdir(os.path.join(root, _KFD)):
        raise RefusalError(
            "REPLICA-DRIVER",
            "the amdgpu driver serves no GPU (no /sys/class/kfd)",
            "load it: modprobe amdgpu, and see dmesg for what it says",
        )
    return host


def visible_devices(wanted: tuple[str, ...], root: str = "/") -> list[str]:
    """Return the keys that this process may open in HIP's order: ordinal 0 is the first.

    KFD hides GPUs whose render node may not be opened, and HIP numbers what is left in KFD node
    order from 0. Raises RefusalError when the device policy gives more, or fewer, than planned.
    Source: ROCr amd_filter_device.cpp and the kernel's kfd_devcgroup_check_permission.
    """
    host = present(wanted, root)
    nodes = [os.path.join(root, "dev/dri", host[key].render) for key in wanted if key in host]
    absent = [path for path in nodes if not os.path.exists(path)]
    if absent:
        raise RefusalError(
            "REPLICA-NO-DEVICE",
            f"{', '.join(absent)} does not exist",
            "check that udev runs and the amdgpu driver is loaded: ls -l /dev/dri",
        )
    seen = {key for key, gpu in host.items() if permitted(gpu.render, root)}
    denied = sorted(set(wanted) - seen)
    if denied:
        raise RefusalError(
            "REPLICA-GPU-DENIED",
            f"may not open the render node of planned GPU {', '.join(denied)}",
            "check the unit's DeviceAllow= lines, /dev/dri/by-path and the render group",
        )
    foreign = sorted(seen - set(wanted))
    if foreign:
        raise RefusalError(
            "REPLICA-NOT-ISOLATED",
            f"may open GPUs of others: {', '.join(foreign)}; "
            f"expected only {', '.join(sorted(wanted))}",
            "the device policy is not in effect: check DevicePolicy=closed and the device cgroup",
        )
    return sorted(seen, key=lambda key: host[key].node)


def device_file(key: str, name: str, root: str = "/") -> str:
    """Return what a file of a GPU's PCI device says."""
    return read(os.path.join(root, _PCI, key.split("#")[0], name))


def used_bytes(key: str, root: str = "/") -> int | None:
    """Return the VRAM in use; None where untold, or where partitions share what is told."""
    text = device_file(key, "mem_info_vram_used", root)
    return int(text) if text.isdigit() and "#" not in key else None


def holders(root: str = "/") -> dict[int, set[int]]:
    """Return {process: ids of the GPUs it has memory on}; KFD tells everybody (sysfs kfd/proc)."""
    base = os.path.join(root, _KFD, "proc")
    found: dict[int, set[int]] = {}
    try:
        processes = [name for name in os.listdir(base) if name.isdigit()]
    except OSError:
        return {}
    for name in processes:
        try:
            entries = os.listdir(os.path.join(base, name))
        except OSError:
            continue
        found[int(name)] = {
            int(entry[len("vram_") :])
            for entry in entries
            if entry.startswith("vram_") and entry[len("vram_") :].isdigit()
        }
    return found
