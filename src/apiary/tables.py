# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as two terminal tables: its GPUs in every numbering, and what links them."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Gpu, Topology
from rich.console import Group
from rich.table import Table
from rich.text import Text

from apiary.pairs import best_pairs, boards

STYLES = ("blue", "yellow", "green", "magenta", "red", "cyan", "bright_blue", "bright_yellow")


def topology_table(topology: Topology, placement: Placement | None = None) -> Group:
    """Return the host for a terminal; partitions of one GPU share a row of the link table."""
    owner = {
        key: number
        for number, share in enumerate(placement.replicas if placement else ())
        for key in share.gpus
    }
    parts = [_gpus(topology, owner, placement is not None)]
    if topology.links:
        parts.append(_links(topology))
    return Group(*parts)


def _gpus(topology: Topology, owner: dict[str, int], placed: bool) -> Table:
    """Return one row per GPU, narrow enough for 80 columns."""
    table = Table(
        title=topology.host,
        title_justify="left",
        header_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for name in ("GPU", "model", "NUMA", "SMI", "HIP", "KFD", "render", "memory", "mode"):
        right = name in ("NUMA", "SMI", "HIP", "KFD")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    # A column that says "healthy" eight times is no news.
    if placed or any(gpu.healthy is False for gpu in topology.gpus):
        table.add_column("replica" if placed else "state", no_wrap=True)
    for key, gpu in topology.by_key.items():
        number = owner.get(key)
        last = "unusable" if gpu.healthy is False else ""
        if placed and not last:
            last = "free" if number is None else str(number)
        row = [key, *(_text(value) for value in _values(gpu)), last]
        style = None if number is None else STYLES[number % len(STYLES)]
        table.add_row(*row[: len(table.columns)], style="dim" if gpu.healthy is False else style)
    return table


def _values(gpu: Gpu) -> tuple[object, ...]:
    memory = f"{gpu.vram_bytes / 2**30:.0f} GiB" if gpu.vram_bytes else None
    modes = [mode for mode in (gpu.compute_partition, gpu.memory_partition) if mode]
    return (
        gpu.model or (f"id {gpu.device_id}" if gpu.device_id else None),
        gpu.numa_node,
        gpu.smi_index,
        gpu.hip_ordinal,
        gpu.kfd_node,
        gpu.render_node,
        memory,
        "/".join(modes) or None,
    )


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _links(topology: Topology) -> Table:
    """Return the link matrix of the boards: X for xGMI, P for PCIe, with the reported weight."""
    names = list(boards(topology))
    pairs = {(pair.a, pair.b): pair for pair in best_pairs(topology)}
    table = Table(
        title="links: X xGMI, P PCIe, with weight",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("")
    for position in range(len(names)):
        table.add_column(str(position), justify="right")
    for position, name in enumerate(names):
        cells = [Text("·", style="dim") if other == name else Text("?") for other in names]
        for column, other in enumerate(names):
            pair = pairs.get((min(name, other), max(name, other)))
            if pair is not None:
                letter = {"xgmi": "X", "pcie": "P", None: "?"}[pair.type]
                style = {"xgmi": "green", "pcie": "red", None: "dim"}[pair.type]
                cells[column] = Text(f"{letter}{pair.weight or ''}", style=style)
        table.add_row(Text(f"{position} {name}"), *cells)
    return table
