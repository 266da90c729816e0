# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print a machine as amd-smi does, version by version, beside what printers.py has of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from ..printers.machine import Card, Machine, Wire, _bandwidth

WARNING = (
    "WARNING: User is missing the following required groups: render, video. "
    "Please add user to these groups."
)
LEGEND = (
    "\n\nLegend:\n  SELF = Current GPU\n  N/A = Not supported\n"
    "  U / D / X = Link is Up / Down / Disabled\n"
    "  Read / Write = GPU Metric Accumulated Read / Write\n"
)


def _blocks(machine: Machine, block: Callable[[int, Card], Sequence[str]]) -> str:
    """`GPU: n` with indented keys and an empty line after each."""
    lines: list[str] = []
    for index, card in enumerate(machine.cards):
        lines += [f"GPU: {index}", *(f"    {line}" for line in block(index, card)), ""]
    return "\n".join(lines) + "\n"


def _oam(index: int, card: Card) -> int:
    return 7 - index if card.oam is None else card.oam


def list_text(machine: Machine, kfd: bool = True, enumeration: bool = False) -> str:
    """`amd-smi list`: up to 6.2 address and UUID; since 6.3 KFD ids; with -e (6.4) every index."""

    def block(index: int, card: Card) -> list[str]:
        lines = [f"BDF: {card.function}", f"UUID: {index:02x}ff74a5-0000-1000-8000-000000000000"]
        node = machine.cpu_nodes + card.rank
        if kfd:
            lines += [
                f"KFD_ID: {5000 + card.rank}",
                f"NODE_ID: {node}",
                f"PARTITION_ID: {card.part}",
            ]
        if enumeration:
            lines += [f"RENDER: renderD{128 + card.rank}", f"CARD: card{card.rank}"]
            lines += [f"HSA_ID: {node}", f"HIP_ID: {card.rank}"]
            lines += [f"HIP_UUID: GPU-{card.unique_id:016x}", f"OAM_ID: {_oam(index, card)}"]
        return lines

    return _blocks(machine, block)


def list_without_groups(machine: Machine) -> str:
    """`amd-smi list` of a user outside render and video, ROCm 7."""
    return (
        WARNING
        + "\n"
        + _blocks(machine, lambda index, card: ["BDF: N/A", "UUID: N/A", "KFD_ID: N/A"])
    )


def static_text(machine: Machine, host_processor: bool = False) -> str:
    """`amd-smi static`: nested keys; a block of the CPU before them where amd_hsmp is loaded."""

    def block(index: int, card: Card) -> list[str]:
        return [
            "ASIC:",
            f"    MARKET_NAME: {card.name}",
            "    VENDOR_ID: 0x1002",
            f"    DEVICE_ID: 0x{card.device_id:04x}",
            f"    OAM_ID: {_oam(index, card)}",
            "BUS:",
            f"    BDF: {card.function}",
            "    MAX_PCIE_WIDTH: 16",
            "DRIVER:",
            "    NAME: amdgpu",
            "    VERSION: Linuxversion6.8.0-60-generic(buildd@lcy02-amd64-098)",
            "VRAM:",
            "    TYPE: HBM",
            f"    SIZE: {card.vram >> 20} MB",
            "NUMA:",
            f"    NODE: {card.numa}",
            f"    AFFINITY: {card.numa}",
            "    CPU AFFINITY:",
            "        CPU_LIST_0:",
            "            0xffffffffffffffff",
            "PARTITION:",
            f"    ACCELERATOR_PARTITION: {card.compute}",
            f"    MEMORY_PARTITION: {card.memory}",
            f"    PARTITION_ID: {card.part}",
        ]

    cpu = "CPU: 0\n    SMU:\n        FW_VERSION: 85.90.0\n\n" if host_processor else ""
    return cpu + _blocks(machine, block)


def static_json(machine: Machine, wrapped: bool = False, old: bool = False) -> str:
    """`amd-smi static --json`: a list (6.x) or `{"gpu_data": …}` (7.x), and older key names."""
    name = "compute_partition" if old else "accelerator_partition"
    entries = [
        {
            "gpu": index,
            "asic": {"device_id": f"0x{card.device_id:04x}", "oam_id": _oam(index, card)},
            "bus": {"bdf": card.function, "max_pcie_width": 16},
            "driver": {"name": "amdgpu", "version": "6.10.5"},
            "vram": {"type": "HBM", "size": {"value": card.vram >> 20, "unit": "MB"}},
            "numa": {"node": card.numa, "affinity": card.numa},
            "partition": {
                name: card.compute,
                "memory_partition": card.memory,
                "partition_id": card.part,
            },
        }
        for index, card in enumerate(machine.cards)
    ]
    document = {"cpu_data": [{"cpu": 0}], "gpu_data": entries} if wrapped else entries
    return json.dumps(document, indent=4) + "\n"


def topology_linear(machine: Machine) -> str:
    """`amd-smi topology`, ROCm 6.0: a list per GPU instead of tables."""
    tables: tuple[tuple[str, Callable[[Wire], object], object], ...] = (
        ("LINK_ACCESSIBILITY", lambda wire: "True", "True"),
        ("WEIGHT", lambda wire: wire.weight, 0),
        ("HOPS", lambda wire: wire.hops, 0),
        ("LINK_TYPE", lambda wire: wire.type, "SELF"),
        ("NUMA_BANDWIDTH", _bandwidth, "N/A"),
    )

    def block(index: int, card: Card) -> list[str]:
        lines = []
        for title, cell, own in tables:
            lines.append(f"{title}:")
            for other, peer in enumerate(machine.cards):
                value = own if other == index else cell(machine.wire(card, peer))
                lines.append(f"    GPU_{other}: {value}")
        return lines

    return _blocks(machine, block)


States = Mapping[tuple[int, int], str]


def _ports(machine: Machine, index: int, states: States) -> list[str]:
    """One port for each other GPU, in order, and an eighth that is not in use."""
    others = [other for other in range(len(machine.cards)) if other != index]
    return [states.get((index, other), "U") for other in others] + ["X"]


def _linked(machine: Machine, a: int, b: int) -> bool:
    return a != b and machine.wire(machine.cards[a], machine.cards[b]).type == "XGMI"


def xgmi_text(machine: Machine, states: States | None = None, by_address: bool = False) -> str:
    """`amd-smi xgmi`: metrics (6.1: columns by address, and nothing else), ports and links (7.1).

    ``states`` has the state of a pair's link where it isn't up.
    """
    cards = range(len(machine.cards))
    names = [machine.cards[i].bdf if by_address else f"GPU{i}" for i in cards]
    lines = ["LINK METRIC TABLE:"]
    lines.append(
        " " * 7
        + "bdf".ljust(14)
        + "bit_rate  max_bandwidth  link_type  "
        + "".join(name.ljust(13) for name in names)
    )
    for i in cards:
        kind = "XGMI" if any(_linked(machine, i, j) for j in cards) else "N/A"
        lines.append(f"{f'GPU{i}':<7}{machine.cards[i].bdf:<14}32 Gb/s   512 Gb/s       {kind}")
        for title in (" Read", " Write"):
            cells = ["1.5 KB" if _linked(machine, i, j) else "N/A" for j in cards]
            lines.append(title.ljust(57) + "".join(cell.ljust(13) for cell in cells))
    if by_address:
        return "\n".join(lines) + "\n\n"
    given = states or {}
    lines += ["", "GPU LINK PORT STATUS:", "       bdf           port_num            "]
    for i in cards:
        ports = "".join(state.ljust(5) for state in _ports(machine, i, given))
        lines.append(f"{f'GPU{i}':<7}{machine.cards[i].bdf:<14}{ports}".rstrip())
    header = " " * 8 + "bdf".ljust(15) + "".join(f"GPU{i}".ljust(14) for i in cards)
    lines += ["", "XGMI LINK STATUS:", header]
    for i in cards:
        row = "".join(cell.ljust(14) for cell in link_states(machine, i, given))
        lines.append(f"GPU{i}\t{machine.cards[i].bdf:<15}{row}".rstrip())
    return "\n".join(lines) + "\n" + LEGEND


def link_states(machine: Machine, index: int, states: States) -> list[str]:
    """The cells of a GPU's row of XGMI LINK STATUS."""
    return [
        "SELF"
        if other == index
        else states.get((index, other), "U")
        if _linked(machine, index, other)
        else "N/A"
        for other in range(len(machine.cards))
    ]


def xgmi_json(machine: Machine, states: States | None = None) -> str:
    """`amd-smi xgmi --json`, ROCm 7.1: three lists, of which the first is in a list of its own."""
    given = states or {}
    metrics, ports, links = [], [], []
    for i, card in enumerate(machine.cards):
        head = {"gpu": i, "bdf": card.bdf}
        peers = [
            {
                "gpu": j,
                "bdf": peer.bdf,
                "read": {"value": 1, "unit": "KB"} if _linked(machine, i, j) else "N/A",
                "write": {"value": 1, "unit": "KB"} if _linked(machine, i, j) else "N/A",
            }
            for j, peer in enumerate(machine.cards)
        ]
        kind = "XGMI" if any(_linked(machine, i, j) for j in range(len(machine.cards))) else "N/A"
        rate = {"value": 32, "unit": "Gb/s"}
        metrics.append(
            {**head, "link_metrics": {"bit_rate": rate, "link_type": kind, "links": peers}}
        )
        ports.append({**head, "link_status": _ports(machine, i, given)})
        links.append({**head, "link_status": link_states(machine, i, given)})
    document = {"xgmi_metric": [metrics], "link_port_status": ports, "link_status": links}
    return json.dumps(document, indent=4) + "\n"


def partition_text(count: int, per_gpu: int, old: bool = False) -> str:
    """`amd-smi partition --current` in CPX; up to 6.3 the first partition lists all ids."""
    header = "GPU_ID  MEMORY  ACCELERATOR_TYPE  ACCELERATOR_PROFILE_INDEX  PARTITION_ID"
    lines = ["CURRENT_PARTITION:", header]
    for index in range(count):
        own = index % per_gpu
        every = ",".join(map(str, range(per_gpu)))
        identity = (every if own == 0 else "N/A") if old else str(own)
        lines.append(f"{index:<8}NPS1    CPX               3                          {identity}")
    return "\n".join(lines) + "\n"


def partition_json(machine: Machine, one_document: bool = True) -> str:
    """`amd-smi partition --json`: one document since 7.0, before it several and a legend."""
    current = [
        {
            "gpu_id": index,
            "memory": "NPS1",
            "accelerator_type": "SPX",
            "accelerator_profile_index": 0,
            "partition_id": "0",
        }
        for index in range(len(machine.cards))
    ]
    memory = [
        {"gpu_id": i, "memory_partition_caps": "NPS1,NPS4", "current_memory_partition": "NPS1"}
        for i in range(len(machine.cards))
    ]
    profiles = [
        {"gpu_id": i, "profile_index": 0, "accelerator_type": "SPX*", "partition_id": "0"}
        for i in range(len(machine.cards))
    ]
    if one_document:
        document = {
            "current_partition": current,
            "memory_partition": memory,
            "partition_profiles": profiles,
        }
        return json.dumps(document, indent=4) + "\n"
    texts = [json.dumps(part, indent=4) for part in (current, memory, profiles)]
    return "\n".join([*texts, "", "Legend:", "  * = Current mode", ""])


def box(machine: Machine, bus: bool = True) -> str:
    """A bare `amd-smi`, ROCm 7."""
    rule = "+------------------------------------------------------------------------------+"
    line = "|-------------------------------------+----------------------------------------|"
    lines = [
        rule,
        "| AMD-SMI            26.2.2+97f5574fe2                                         |",
        "| amdgpu Version:    6.16.13                                                   |",
        "| Platform:          Linux Baremetal                                           |",
        line,
        "| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |",
        "| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |",
    ]
    for index, card in enumerate(machine.cards):
        address = card.function if bus else "N/A"
        lines += [
            line,
            f"| {address:<12.12} {card.name:>22.22} | 0 %      35 °C   0         139 W |",
            f"| {index:>3}  {card.rank:>6}  {_oam(index, card):>6}        "
            f"{card.compute}/{card.memory} | 0 %        N/A            284/262128 MB |",
        ]
    lines += [
        "+-------------------------------------+----------------------------------------+",
        rule,
        "| Processes:                                                                   |",
        "|  GPU      PID  Process Name     GTT_MEM  VRAM_MEM  MEM_USAGE   CU %     SDMA |",
        "|==============================================================================|",
        "|    0   250235  python3.12        7.9 MB    3.8 GB     4.1 GB   N/A         0 |",
        rule,
    ]
    return "\n".join(lines) + "\n"


def box_json(machine: Machine) -> str:
    """A bare `amd-smi --json`, ROCm 7."""
    gpus = [
        {
            "gpu_id": index,
            "partition_mode": f"{card.compute}/{card.memory}",
            "market_name": card.name,
            "oam_id": _oam(index, card),
            "bdf": card.function,
            "hip_id": card.rank,
        }
        for index, card in enumerate(machine.cards)
    ]
    versions = {"amd-smi": "26.2.2+97f5574fe2"}
    return json.dumps([{"version_info": versions, "gpu_info_list": gpus, "processes": []}]) + "\n"
