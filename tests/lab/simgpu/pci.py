# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs as PCI devices, as the amdgpu driver's attributes and as DRM cards."""

from __future__ import annotations

import struct

from . import mi325x
from .machine import Machine
from .tree import Tree

DRIVER = "bus/pci/drivers/amdgpu"
BMC = "devices/pci0000:c0/0000:c0:05.0/0000:c2:00.0"
FIRST_HWMON = 2


def write_gpus(tree: Tree, machine: Machine) -> None:
    """Write every GPU on the bus; without the driver, no more than the bus knows."""
    for gpu in machine.present:
        _write_device(tree, machine, gpu)
        if not machine.faults.nodriver:
            _write_driver(tree, machine, gpu)
            _write_hwmon(tree, machine, gpu)
            _write_drm(tree, machine, gpu)
    if not machine.faults.nodriver:
        tree.write_all("module/amdgpu", mi325x.MODULE)
        tree.write("module/amdgpu/refcnt", len(machine.present))


def write_bmc(tree: Tree) -> None:
    """Write the display adapter of an ASPEED BMC, which on real servers owns card0."""
    tree.write_all(
        BMC, {"vendor": "0x1a03", "device": "0x2000", "class": "0x030000", "numa_node": 1}
    )
    tree.write(f"{BMC}/drm/card0/dev", f"{mi325x.DRM_MAJOR}:0")
    tree.link(f"{BMC}/drm/card0/device", BMC)
    tree.link("class/drm/card0", f"{BMC}/drm/card0")


def device_path(gpu: int) -> str:
    """Return the device's directory: a root port, a bridge, the GPU."""
    root = mi325x.BUSES[gpu] & 0xE0
    return f"devices/pci0000:{root:02x}/0000:{root:02x}:01.1/{mi325x.bdf(gpu)}"


def _write_device(tree: Tree, machine: Machine, gpu: int) -> None:
    device = device_path(gpu)
    node = machine.numa_node(gpu)
    bdf = mi325x.bdf(gpu)
    uevent = [
        "PCI_CLASS=120000",
        "PCI_ID=1002:74A5",
        "PCI_SUBSYS_ID=1002:74A5",
        f"PCI_SLOT_NAME={bdf}",
    ]
    if not machine.faults.nodriver:
        uevent.insert(0, "DRIVER=amdgpu")
    own: dict[str, object] = {
        "numa_node": node,
        "local_cpulist": machine.cpulist(node),
        "local_cpus": machine.cpumask(node),
        "current_link_width": machine.faults.linkwidth.get(gpu, 16),
        "irq": 200 + gpu,
        "uevent": "\n".join(uevent),
        "config": _config_space(),
    }
    tree.write_all(device, {**mi325x.PCI_ATTRIBUTES, **own})
    tree.link(f"bus/pci/devices/{bdf}", device)
    tree.link(f"{device}/subsystem", "bus/pci")


def _config_space() -> bytes:
    """Return the header that lspci reads: ids, command and status, class, subsystem."""
    space = bytearray(256)
    struct.pack_into("<HHHH", space, 0, mi325x.VENDOR_ID, mi325x.DEVICE_ID, 0x0406, 0x0010)
    struct.pack_into("<I", space, 8, mi325x.PCI_CLASS << 8)
    struct.pack_into("<B", space, 12, 0x10)
    struct.pack_into("<HH", space, 0x2C, mi325x.VENDOR_ID, mi325x.DEVICE_ID)
    return bytes(space)


def _write_driver(tree: Tree, machine: Machine, gpu: int) -> None:
    device = device_path(gpu)
    tree.link(f"{DRIVER}/{mi325x.bdf(gpu)}", device)
    tree.link(f"{device}/driver", DRIVER)
    serial = mi325x.unique_id(gpu)
    errors = {f"ras/{block}_err_count": "ue: 0\nce: 0" for block in mi325x.RAS_BLOCKS}
    errors["ras/umc_err_count"] = f"ue: {machine.faults.ue.get(gpu, 0)}\nce: 0"
    own: dict[str, object] = {
        "serial_number": f"6924420{400 + gpu:05d}",
        "unique_id": f"{serial:016x}",
        "mem_info_vram_total": machine.vram_bytes(gpu),
        "mem_info_vis_vram_total": machine.vram_bytes(gpu),
        "current_compute_partition": machine.faults.partition.get(gpu, "SPX"),
        "xgmi_device_id": serial,
        "xgmi_physical_id": gpu,
        **_xgmi(machine, gpu),
        **errors,
    }
    tree.write_all(device, {**mi325x.DRIVER_ATTRIBUTES, **own})


def _xgmi(machine: Machine, gpu: int) -> dict[str, object]:
    """Return links and hops to every GPU of the hive, itself included (0)."""
    peers = sorted(machine.present)
    joined = [machine.has_xgmi(gpu, peer) for peer in peers]
    return {
        "xgmi_num_links": " ".join("1" if link else "0" for link in joined),
        "xgmi_num_hops": " ".join("1" if link else "0" for link in joined),
    }


def _write_hwmon(tree: Tree, machine: Machine, gpu: int) -> None:
    number = FIRST_HWMON + machine.present.index(gpu)
    directory = f"{device_path(gpu)}/hwmon/hwmon{number}"
    # No two GPUs read alike, so that a mix-up shows.
    own = {
        "temp2_input": mi325x.IDLE_JUNCTION_MILLIDEGREES + 1000 * gpu,
        "temp3_input": mi325x.IDLE_MEMORY_MILLIDEGREES + 1000 * gpu,
        "power1_input": mi325x.IDLE_MICROWATTS + 1000000 * gpu,
        "power1_average": mi325x.IDLE_MICROWATTS + 1000000 * gpu,
    }
    tree.write_all(directory, {**mi325x.HWMON, **own})
    tree.link(f"class/hwmon/hwmon{number}", directory)


def _write_drm(tree: Tree, machine: Machine, gpu: int) -> None:
    device = device_path(gpu)
    card, render = machine.card(gpu), machine.render_minor(gpu)
    for name, minor in ((f"card{card}", card), (f"renderD{render}", render)):
        directory = f"{device}/drm/{name}"
        tree.write(f"{directory}/dev", f"{mi325x.DRM_MAJOR}:{minor}")
        tree.link(f"{directory}/device", device)
        tree.link(f"class/drm/{name}", directory)
