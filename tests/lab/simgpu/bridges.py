# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCIe bridges above a GPU, and the links between them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from . import mi325x
from .machine import Machine
from .tree import Tree


class Bridge(NamedTuple):
    """One port; width and speed are those that its own link has trained at."""

    bdf: str
    ids: tuple[int, int]
    primary: int
    secondary: int
    width: int = mi325x.LINK_WIDTH
    speed: str = mi325x.LINK_SPEED


def bridges(machine: Machine, gpu: int) -> list[Bridge]:
    """Return the ports from the root down.

    Links join root port and switch, switch and board, and inside the GPU its two ports; a port
    and the one below it that share a link train alike.
    """
    bus = mi325x.BUSES[gpu]
    root, faults = bus & 0xE0, machine.faults
    slot = faults.slotwidth.get(gpu, mi325x.LINK_WIDTH)
    width = faults.linkwidth.get(gpu, mi325x.LINK_WIDTH)
    speed = f"{faults.linkspeed[gpu]:.1f} GT/s PCIe" if gpu in faults.linkspeed else None
    outer, inner = mi325x.GPU_PORTS
    return [
        Bridge(f"0000:{root:02x}:01.1", mi325x.ROOT_PORT, root, root + 1),
        Bridge(f"0000:{root + 1:02x}:00.0", mi325x.SWITCH_PORT, root + 1, root + 2),
        Bridge(f"0000:{root + 2:02x}:00.0", mi325x.SWITCH_PORT, root + 2, bus - 2, slot),
        Bridge(f"0000:{bus - 2:02x}:00.0", outer, bus - 2, bus - 1, slot),
        Bridge(f"0000:{bus - 1:02x}:00.0", inner, bus - 1, bus, width, speed or mi325x.LINK_SPEED),
    ]


def device_path(machine: Machine, gpu: int) -> str:
    """Return the GPU's directory, below those of its bridges; a guest's sits on the root bus."""
    root, bdf = mi325x.BUSES[gpu] & 0xE0, mi325x.bdf(gpu)
    above = [] if machine.faults.vf else [bridge.bdf for bridge in bridges(machine, gpu)]
    return "/".join([f"devices/pci0000:{root:02x}", *above, bdf])


def write_bridges(tree: Tree, machine: Machine, gpu: int) -> None:
    """Write the bridges above a GPU as PCI devices."""
    path = f"devices/pci0000:{mi325x.BUSES[gpu] & 0xE0:02x}"
    node = machine.numa_node(gpu)
    for bridge in bridges(machine, gpu):
        path = f"{path}/{bridge.bdf}"
        vendor, device = bridge.ids
        tree.write_all(
            path,
            {
                "vendor": f"{vendor:#06x}",
                "device": f"{device:#06x}",
                "class": f"{mi325x.BRIDGE_CLASS:#08x}",
                "numa_node": node,
                "current_link_speed": bridge.speed,
                "current_link_width": bridge.width,
                "max_link_speed": mi325x.LINK_SPEED,
                "max_link_width": mi325x.LINK_WIDTH,
                "irq": 0,
                "resource": mi325x.PCI_ATTRIBUTES["resource"],
                "config": _config_space(bridge, last=mi325x.BUSES[gpu]),
            },
        )
        tree.link(f"bus/pci/devices/{bridge.bdf}", path)
        tree.link(f"{path}/subsystem", "bus/pci")


def _config_space(bridge: Bridge, last: int) -> bytes:
    """Return the header of a PCI-to-PCI bridge: ids, class, the buses it joins, the last below."""
    space = bytearray(256)
    struct.pack_into("<HHHH", space, 0, *bridge.ids, 0x0406, 0x0010)
    struct.pack_into("<I", space, 8, mi325x.BRIDGE_CLASS << 8)
    struct.pack_into("<BBB", space, 12, 0x10, 0, 1)
    struct.pack_into("<BBB", space, 0x18, bridge.primary, bridge.secondary, last)
    return bytes(space)
