# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs as PCI devices, as the amdgpu driver's attributes and as DRM cards."""

from __future__ import annotations

import struct

from . import mi325x
from .bridges import bridges, device_path, write_bridges
from .machine import Device, Machine
from .tree import Tree

DRIVER = "bus/pci/drivers/amdgpu"
BMC = "devices/pci0000:c0/0000:c0:05.0/0000:c9:00.0"
FIRST_HWMON = 2


def write_gpus(tree: Tree, machine: Machine) -> None:
    """Write every GPU on the bus; without the driver, no more than the bus knows."""
    for gpu in machine.present:
        _write_device(tree, machine, gpu)
        if not machine.faults.vf:  # a guest's GPUs hang off its own bus
            write_bridges(tree, machine, gpu)
        if not machine.faults.nodriver:
            _write_driver(tree, machine, gpu)
            _write_hwmon(tree, machine, gpu)
    if not machine.faults.nodriver:
        for device in machine.cards:
            _write_drm(tree, machine, device)
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


def _write_device(tree: Tree, machine: Machine, gpu: int) -> None:
    device = device_path(machine, gpu)
    node = machine.numa_node(gpu)
    bdf = mi325x.bdf(gpu)
    pci_id = f"{mi325x.VENDOR_ID:04X}:{machine.device_id:04X}"
    uevent = [
        "PCI_CLASS=120000",
        f"PCI_ID={pci_id}",
        f"PCI_SUBSYS_ID={pci_id}",
        f"PCI_SLOT_NAME={bdf}",
    ]
    if not machine.faults.nodriver:
        uevent.insert(0, "DRIVER=amdgpu")
    link = bridges(machine, gpu)[-1]
    own: dict[str, object] = {
        "device": f"{machine.device_id:#06x}",
        "subsystem_device": f"{machine.device_id:#06x}",
        "modalias": f"pci:v{mi325x.VENDOR_ID:08X}d{machine.device_id:08X}"
        f"sv{mi325x.VENDOR_ID:08X}sd{machine.device_id:08X}bc12sc00i00",
        "numa_node": node,
        "local_cpulist": machine.cpulist(node),
        "local_cpus": machine.cpumask(node),
        # Of a virtual function the registers read as zero.
        "current_link_width": 0 if machine.faults.vf else link.width,
        "current_link_speed": "Unknown" if machine.faults.vf else link.speed,
        "irq": 200 + gpu,
        "uevent": "\n".join(uevent),
        "config": _config_space(machine.device_id),
    }
    tree.write_all(device, {**mi325x.PCI_ATTRIBUTES, **own})
    tree.link(f"bus/pci/devices/{bdf}", device)
    tree.link(f"{device}/subsystem", "bus/pci")


def _config_space(device_id: int) -> bytes:
    """Return the header that lspci reads: ids, command and status, class, subsystem."""
    space = bytearray(256)
    struct.pack_into("<HHHH", space, 0, mi325x.VENDOR_ID, device_id, 0x0406, 0x0010)
    struct.pack_into("<I", space, 8, mi325x.PCI_CLASS << 8)
    struct.pack_into("<B", space, 12, 0x10)
    struct.pack_into("<HH", space, 0x2C, mi325x.VENDOR_ID, device_id)
    return bytes(space)


def _write_driver(tree: Tree, machine: Machine, gpu: int) -> None:
    device = device_path(machine, gpu)
    tree.link(f"{DRIVER}/{mi325x.bdf(gpu)}", device)
    tree.link(f"{device}/driver", DRIVER)
    virtual = machine.faults.vf
    serial = mi325x.unique_id(gpu, virtual)
    own: dict[str, object] = {
        "product_name": mi325x.VF_PRODUCT_NAME if virtual else mi325x.PRODUCT_NAME,
        "serial_number": f"6924420{400 + gpu:05d}",
        "unique_id": f"{serial:016x}",
        "mem_info_vram_total": machine.vram_bytes(gpu),
        "mem_info_vis_vram_total": machine.vram_bytes(gpu),
        "xgmi_device_id": serial,
    }
    if not virtual:
        own.update(mi325x.PHYSICAL_ATTRIBUTES)
        own.update(_physical(machine, gpu))
    tree.write_all(device, {**mi325x.DRIVER_ATTRIBUTES, **own})


def _physical(machine: Machine, gpu: int) -> dict[str, object]:
    """Return what only the physical function tells: partition modes, xGMI links, errors."""
    # One column a GPU of the hive, itself included (0), in the order of their probing.
    joined = [int(gpu != peer and machine.has_xgmi(gpu, peer)) for peer in machine.present]
    links = " ".join(f"{number:02x}" for number in joined)
    # The driver weighs 15 a hop, so a way with another weight has another number of them.
    weights = (machine.faults.weight.get((gpu, peer), 15) for peer in machine.present)
    ways = zip(joined, weights, strict=True)
    hops = " ".join(f"{link * max(weight // 15, 1):02x}" for link, weight in ways)
    return {
        **{f"ras/{block}_err_count": "ue: 0\nce: 0" for block in mi325x.RAS_BLOCKS},
        "ras/umc_err_count": f"ue: {machine.faults.ue.get(gpu, 0)}\nce: 0",
        "current_compute_partition": machine.faults.partition.get(gpu, "SPX"),
        "current_memory_partition": machine.faults.memory.get(gpu, "NPS1"),
        "xgmi_physical_id": gpu,
        "xgmi_num_links": links,
        "xgmi_num_hops": hops,
    }


def _write_hwmon(tree: Tree, machine: Machine, gpu: int) -> None:
    number = FIRST_HWMON + machine.present.index(gpu)
    directory = f"{device_path(machine, gpu)}/hwmon/hwmon{number}"
    # No two GPUs read alike, so that a mix-up shows.
    own = {
        "temp2_input": mi325x.IDLE_JUNCTION_MILLIDEGREES + 1000 * gpu,
        "temp3_input": mi325x.IDLE_MEMORY_MILLIDEGREES + 1000 * gpu,
        "power1_input": mi325x.IDLE_MICROWATTS + 1000000 * gpu,
        "power1_average": mi325x.IDLE_MICROWATTS + 1000000 * gpu,
    }
    tree.write_all(directory, {**mi325x.HWMON, **own})
    tree.link(f"class/hwmon/hwmon{number}", directory)


def _write_drm(tree: Tree, machine: Machine, device: Device) -> None:
    """Write card and render node; those of later partitions hang off platform devices."""
    parent = device_path(machine, device.gpu)
    card, render = machine.cards[device], machine.render_minors[device]
    if device.partition:
        secondary = [other for other in machine.cards if other.partition]
        parent = f"devices/platform/amdgpu_xcp.{secondary.index(device)}"
        tree.write_all(parent, {"modalias": "platform:amdgpu_xcp", "driver_override": "(null)"})
    for name, minor in ((f"card{card}", card), (f"renderD{render}", render)):
        directory = f"{parent}/drm/{name}"
        tree.write(f"{directory}/dev", f"{mi325x.DRM_MAJOR}:{minor}")
        tree.link(f"{directory}/device", parent)
        tree.link(f"class/drm/{name}", directory)
