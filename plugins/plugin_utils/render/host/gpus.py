# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of this host as the kernel shows them, and those that this process may open."""

from __future__ import annotations

import errno
import os

from ....module_utils.kfd import FUNCTIONS, KFD, KfdGpu, listing, read, served_gpus
from .context import replica_error


def gpus_of_host(root: str = "/") -> dict[str, KfdGpu]:
    """Return {gpu key: GPU} of every AMD GPU the kernel serves, with a render node."""
    return {gpu.key: gpu for gpu in served_gpus(root) if gpu.bdf and gpu.render}


def permitted(render: str, root: str = "/") -> bool:
    """Say whether this process may open a render node; what isn't there, it may not.

    Any failure but a refusal of rights is the driver's and says that the device was reached.
    """
    try:
        os.close(os.open(os.path.join(root, "dev/dri", render), os.O_RDWR | os.O_CLOEXEC))
    except OSError as failure:
        return failure.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT)
    return True


def present(wanted: tuple[str, ...], root: str = "/") -> dict[str, KfdGpu]:
    """Return the GPUs of the host; raises REPLICA-DRIVER or REPLICA-GPU-MISSING."""
    host = gpus_of_host(root)
    on_bus = os.path.join(root, FUNCTIONS)
    missing = [
        key
        for key in wanted
        if key not in host and not os.path.exists(os.path.join(on_bus, key.split("#")[0]))
    ]
    if missing:
        raise replica_error(
            "REPLICA-GPU-MISSING",
            f"planned GPU {', '.join(missing)} is not there; "
            f"the host has {', '.join(sorted(host)) or 'no GPUs'}",
        )
    if wanted and not os.path.isdir(os.path.join(root, KFD)):
        raise replica_error("REPLICA-DRIVER", "the amdgpu driver serves no GPU (no /sys/class/kfd)")
    return host


def visible_devices(wanted: tuple[str, ...], root: str = "/") -> list[str]:
    """Return the keys that this process may open in HIP's order: ordinal 0 is the first.

    KFD hides GPUs whose render node may not be opened, and HIP numbers what is left in KFD node
    order from 0. Raises ApiaryError when the device policy gives more, or fewer, than planned.
    Source: ROCr amd_filter_device.cpp and the kernel's kfd_devcgroup_check_permission.
    """
    host = present(wanted, root)
    nodes = [os.path.join(root, "dev/dri", host[key].render) for key in wanted if key in host]
    absent = [path for path in nodes if not os.path.exists(path)]
    if absent:
        raise replica_error("REPLICA-NO-DEVICE", f"{', '.join(absent)} does not exist")
    seen = {key for key, gpu in host.items() if permitted(gpu.render, root)}
    denied = sorted(set(wanted) - seen)
    if denied:
        raise replica_error(
            "REPLICA-GPU-DENIED", f"may not open the render node of planned GPU {', '.join(denied)}"
        )
    foreign = sorted(seen - set(wanted))
    if foreign:
        raise replica_error(
            "REPLICA-NOT-ISOLATED",
            f"may open GPUs of others: {', '.join(foreign)}; "
            f"expected only {', '.join(sorted(wanted))}",
        )
    return sorted(seen, key=lambda key: host[key].node)


def device_file(key: str, name: str, root: str = "/") -> str:
    """Return what a file of a GPU's PCI device says."""
    return read(os.path.join(root, FUNCTIONS, key.split("#")[0], name))


def used_bytes(key: str, root: str = "/") -> int | None:
    """Return the VRAM in use; None where untold, or where partitions share what is told."""
    text = device_file(key, "mem_info_vram_used", root)
    return int(text) if text.isdigit() and "#" not in key else None


def holders(root: str = "/") -> dict[int, set[int]]:
    """Return {process: ids of the GPUs it has memory on}; KFD tells everybody (sysfs kfd/proc)."""
    base = os.path.join(root, KFD, "proc")
    held: dict[int, set[int]] = {}
    for name in listing(base):
        if name.isdigit():
            held[int(name)] = {
                int(entry[len("vram_") :])
                for entry in listing(os.path.join(base, name))
                if entry.startswith("vram_") and entry[len("vram_") :].isdigit()
            }
    return held
