# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print a machine as rocm-smi does, layout by layout, beside what printers.py has of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..printers.machine import WIDTH, Card, Machine, _matrix, _title

LOW_POWER = (
    "\nWARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n"
)


def frame(*sections: tuple[str, Sequence[str]], width: int = WIDTH) -> str:
    """What stands around every text output: empty lines, banner, rules, end."""
    lines = ["", "", " ROCm System Management Interface ".center(width, "=")]
    for title, body in sections:
        lines += [f" {title} ".center(width, "="), *body, "=" * width]
    return "\n".join([*lines, " End of ROCm SMI Log ".center(width, "="), ""])


def fields(machine: Machine, *keys: str) -> list[str]:
    """`GPU[i]\\t\\t: key: value` of each card and key."""
    return [
        f"GPU[{i}]\t\t: {key}: {_values(machine, i)[key]}"
        for i in range(len(machine.cards))
        for key in keys
    ]


def _values(machine: Machine, index: int) -> Mapping[str, str]:
    card = machine.cards[index]
    return {
        "Device ID": f"0x{card.device_id:04x}",
        "GPU ID": f"0x{card.device_id:04x}",
        "Unique ID": f"0x{card.unique_id:x}",
        "PCI Bus": card.bdf.upper(),
        "Card series": f"\t\t{card.name}",
        "Node ID": f"\t\t{machine.cpu_nodes + card.rank}",
        "GUID": f"\t\t{5000 + card.rank}",
        "VRAM Total Memory (B)": str(card.vram),
        "(Topology) Numa Node": str(card.numa),
        "(Topology) Numa Affinity": str(card.numa),
    }


def identity(machine: Machine, old: bool = False) -> str:
    """`--showbus --showid --showuniqueid --showproductname`, 5.x keys or those since 6.1.1."""
    product = ("Card series",) if old else ("Card series", "Node ID", "GUID")
    return frame(
        ("ID", fields(machine, "GPU ID" if old else "Device ID")),
        ("Unique ID", fields(machine, "Unique ID")),
        ("PCI Bus ID", fields(machine, "PCI Bus")),
        ("Product Info", fields(machine, *product)),
    )


def one_table(machine: Machine, kind: str) -> str:
    """`--showtopotype` and the like: one table and no empty line behind it."""
    cell = {
        "Link Type": (lambda wire: wire.type, "0"),
        "Weight": (lambda wire: wire.weight, "0"),
        "Hops": (lambda wire: wire.hops, "0"),
    }[kind]
    title, *rows = _matrix(f"{kind} between two GPUs", machine, *cell)[:-1]
    return frame((title.strip("= "), rows))


def bandwidth(machine: Machine) -> str:
    """`--shownodesbw`: 0-0 where two GPUs have no direct link."""

    def cell(wire: Any) -> str:
        low, high = wire.bandwidth
        return "N/A" if wire.type == "PCIE" else f"{low}-{high}"

    _heading, *rows = _matrix("Bandwidth", machine, cell, "N/A")[:-1]
    notes = [
        "Format: min-max; Units: mps",
        '"0-0" min-max bandwidth indicates devices are not connected directly',
    ]
    return frame(("Bandwidth", [*rows, *notes]))


def metrics(machine: Machine, ports: Mapping[int, Sequence[str]], as_json: bool = False) -> str:
    """`--showmetrics` (6.4): of hundreds of keys, the ports; 65535 is N/A."""
    key = "xgmi_link_status (Up/Down)"
    values = {i: str(list(ports.get(i, ["1"] * 7 + ["N/A"]))) for i in range(len(machine.cards))}
    if as_json:
        return json.dumps({f"card{i}": {key: value} for i, value in values.items()}) + "\n"
    lines = []
    for i, value in values.items():
        lines += [f"GPU[{i}]\t\t: vram_max_bandwidth (GB/s): 6000", f"GPU[{i}]\t\t: {key}: {value}"]
        lines.append(f"GPU[{i}] XCP[0]\t: xcp_stats.gfx_busy_inst (%): ['0', 'N/A']")
    return frame(("GPU Metrics", lines))


def concise(machine: Machine, layout: str) -> str:
    """`rocm-smi` without options, in its four layouts."""
    rows = {"4.x": _row_4, "5.7": _row_57, "6.0": _row_60, "6.1.1": _row_611}[layout]
    header = {
        "4.x": "GPU  Temp   AvgPwr  SCLK    MCLK     Fan   Perf  PwrCap  VRAM%  GPU%",
        "5.7": "GPU  Temp (DieEdge)  AvgPwr  SCLK    MCLK     Fan  Perf  PwrCap  VRAM%  GPU%",
        "6.0": "Device  [Model : Revision]    Temp        Power     Partitions      SCLK",
        "6.1.1": "Device  Node  IDs              Temp        Power     Partitions          SCLK",
    }[layout]
    body = [header]
    if layout in ("6.0", "6.1.1"):
        second = {"6.0": "        Name (20 chars)       (Junction)  (Socket)  (Mem, Compute)"}
        body.append("\x1b[3m" + second.get(layout, "              (DID,     GUID)") + "\x1b[0m")
        body.append("=" * WIDTH)
    for index, card in enumerate(machine.cards):
        body += rows(machine, index, card)
    return frame(("Concise Info", body))


def _row_4(machine: Machine, index: int, card: Card) -> list[str]:
    return [f"{index}    35.0c  30.0W   925Mhz  1200Mhz  0%    auto  290.0W    0%   0%"]


def _row_57(machine: Machine, index: int, card: Card) -> list[str]:
    return [f"{index}    35.0c           N/A     800Mhz  1600Mhz  0%   auto  0.0W      0%   0%"]


def _row_60(machine: Machine, index: int, card: Card) -> list[str]:
    return [
        f"{index}       [0x74a1 : 0x00]       35.0°C      140.0W    {card.memory}, {card.compute}"
        "       132Mhz",
        f"        {card.name[:20]}",
    ]


def _row_611(machine: Machine, index: int, card: Card) -> list[str]:
    node = machine.cpu_nodes + card.rank
    return [
        f"{index}       {node}     0x{card.device_id:04x},   {5000 + card.rank}    35.0Â°C  139.0W"
        f"    {card.memory}, {card.compute}, {card.part}        None   900Mhz  0%   auto"
        "  1000.0W  0%     0%"
    ]


def hardware(machine: Machine, partitions: int = 1) -> str:
    """`--showhw` (6.1.1): the one table with BUS and PARTITION ID."""
    lines = [
        "GPU  NODE  DID     GUID   GFX VER  GFX RAS  SDMA RAS  UMC RAS   VBIOS  BUS  PARTITION ID"
    ]
    number = 0
    for card in machine.cards:
        for part in range(partitions):
            node = machine.cpu_nodes + card.rank * partitions + part
            lines.append(
                f"{number:<5}{node:<6}0x{card.device_id:04x}  {6000 + node}   gfx942   ENABLED  "
                f"ENABLED   ENABLED   N/A    {card.bdf.upper()}  {part}"
            )
            number += 1
    return frame(("Concise Hardware Info", lines), width=100)


def bus_of_partitions(machine: Machine, partitions: int) -> str:
    """`--showbus` before 6.1.1 in a partition mode: every partition has its GPU's address."""
    lines = []
    for card in machine.cards:
        for _part in range(partitions):
            lines.append(f"GPU[{len(lines)}]\t\t: PCI Bus: {card.bdf.upper()}")
    return frame(("PCI Bus ID", lines))


def title(text: str) -> str:
    """A section's title line."""
    return _title(text)
