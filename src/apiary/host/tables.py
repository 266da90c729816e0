# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as terminal tables: its GPUs in every numbering, what links them, its interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Gpu, Topology
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from apiary.host.marks import Note, broken_pairs, marks, notes
from apiary.host.pairs import (
    Kind,
    Members,
    Pair,
    best_pairs,
    boards,
    gigabits,
    hives,
    missing,
    node_number,
    ordered,
    runs,
    summary_of,
)
from apiary.host.shares import Shares

STYLES = ("blue", "yellow", "green", "magenta", "red", "cyan", "bright_blue", "bright_yellow")
LINKS: Mapping[Kind, str] = {
    "xgmi": "green",
    "far": "cyan",
    "pcie": "yellow",
    "unknown": "dim",
    "broken": "bold red",
}
LISTED = 6  # pairs of a kind that are named where the matrix doesn't fit


@dataclass(frozen=True)
class topology_table:  # noqa: N801 - called as a function, and rendered by its width
    """The host for a terminal, as wide as that is; partitions of one GPU share a row."""

    topology: Topology
    placement: Shares | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables that fit into the width."""
        topology = self.topology
        result = notes(topology, self.placement.findings if self.placement else ())
        pairs = best_pairs(topology, broken_pairs(result))
        of_board, _of_pair = marks(result, pairs)
        yield Text(topology.host, style="bold")
        yield Text(summary_of(topology, pairs))
        if topology.gpus:
            yield Text()
            yield _gpus(topology, self.placement, of_board)
        if pairs:
            yield Text()
            yield _links(topology, pairs, options.max_width)
        if topology.nics:
            yield Text()
            yield _nics(topology)
        if result:
            codes = ", ".join(f"{note.number}={note.finding.code}" for note in result)
            yield Text()
            yield Text(f"findings: {codes}")


def _grid() -> Table:
    return Table(header_style="bold", box=None, padding=(0, 1, 0, 0))


def _gpus(
    topology: Topology, placement: Shares | None, of_board: Mapping[str, Sequence[Note]]
) -> Table:
    """Return one row a GPU, without the columns that hold nothing or the same everywhere."""
    replicas = placement.replicas if placement else ()
    owner = {key: number for number, share in enumerate(replicas) for key in share.gpus}
    hive = hives(topology)
    result = boards(topology)
    split = len(result) < len(topology.gpus)
    prefix = "" if split else "renderD"
    rows = []
    styles: list[str | None] = []
    for board, members in result.items():
        gpus = [gpu for _key, gpu in members]
        row = _names(gpus, prefix)
        row["GPU"] = board
        row["part"] = runs([gpu.partition for gpu in gpus]) if split else None
        row["hive"] = hive.get(board)
        row["replica"] = _owners(members, owner) if placement else None
        row["state"] = "unusable" if any(gpu.healthy is False for gpu in gpus) else None
        row["finding"] = runs([note.number for note in of_board.get(board, ())])
        rows.append(row)
        owners = {owner.get(key) for key, _gpu in members}
        only = owners.pop() if len(owners) == 1 else None
        styles.append("dim" if row["state"] else None if only is None else STYLES[only % 8])
    # What all share stands in the line above the table.
    common = {n for n in ("model", "memory", "mode") if len({row[n] for row in rows}) == 1}
    for model, oam_id in missing(topology):
        row = {"GPU": "missing", "model": model, "OAM": runs([oam_id]), "state": "missing"}
        rows.append(row)
        styles.append("dim")
    columns = ["GPU", "part", "model", "NUMA", "SMI", "HIP", "KFD", "render", "card", "OAM"]
    columns += ["memory", "mode", "hive", "replica", "state", "finding"]
    always = {"GPU", "NUMA", "SMI", "HIP", "render"}
    shown = [
        name
        for name in columns
        if name in always or (name not in common and any(row.get(name) for row in rows))
    ]
    table = _grid()
    for name in shown:
        # What grows with the number of partitions may wrap, names never do.
        wraps = name in ("part", "SMI", "HIP", "KFD", "render", "card", "finding")
        right = name in ("NUMA", "SMI", "HIP", "KFD", "card", "OAM")
        table.add_column(
            # Ranges of render nodes take less room without the name on each.
            "renderD" if split and name == "render" else name,
            no_wrap=not wraps,
            overflow="fold",
            justify="right" if right else "left",
        )
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(row.get(name) or "–" for name in shown), style=style)
    return table


def _names(gpus: Sequence[Gpu], prefix: str) -> dict[str, str | None]:
    """Return what a GPU and its partitions are called and have; None where nobody knows."""
    first = gpus[0]
    modes = [mode for mode in (first.compute_partition, first.memory_partition) if mode]
    model = first.model or (f"id {first.device_id}" if first.device_id else None)
    return {
        "model": f"{model} VF" if model and first.virtual_function else model,
        "NUMA": runs(sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None})),
        "SMI": runs([gpu.smi_index for gpu in gpus]),
        "HIP": runs([gpu.hip_ordinal for gpu in gpus]),
        "KFD": runs([gpu.kfd_node for gpu in gpus]),
        "render": runs([node_number(gpu.render_node) for gpu in gpus], prefix),
        "card": runs([node_number(gpu.card) for gpu in gpus]),
        "OAM": runs([first.oam_id]),
        "memory": f"{first.vram_bytes / 2**30:.0f} GiB" if first.vram_bytes else None,
        "mode": "/".join(modes) or None,
    }


def _owners(members: Members, owner: Mapping[str, int]) -> str:
    """Return the replica of a GPU, or of each of its partitions: "0" or "0: 0-3"."""
    parts: dict[int | None, list[int | None]] = {}
    for key, gpu in members:
        parts.setdefault(owner.get(key), []).append(gpu.partition)
    names = {number: "free" if number is None else str(number) for number in parts}
    if len(parts) == 1:
        return next(iter(names.values()))
    return "\n".join(f"{names[number]}: {runs(which)}" for number, which in parts.items())


def _links(topology: Topology, pairs: Sequence[Pair], width: int) -> Group:
    """Return the matrix of the boards' links where it fits, else the kinds of link."""
    names = list(boards(topology))
    cells = {ordered(pair.a, pair.b): pair for pair in pairs}
    label = max(map(len, names)) + len(str(len(names))) + 2
    thin = min(
        (p.bandwidth_mb_s for p in pairs if p.kind == "xgmi" and p.bandwidth_mb_s), default=0
    )
    texts = {pair: pair.letter + _times(pair, thin) for pair in pairs}
    cell = max(map(len, texts.values())) + 1
    if label + cell * len(names) > width:
        return _kinds(pairs)
    table = _grid()
    table.add_column("link")
    for position in range(len(names)):
        table.add_column(str(position), justify="right", no_wrap=True)
    for position, name in enumerate(names):
        row = [Text(f"{position} {name}")]
        for other in names:
            pair = cells.get(ordered(name, other))
            row.append(
                Text(texts[pair], style=LINKS[pair.kind])
                if pair
                else Text("·" if other == name else "", style="dim")
            )
        table.add_row(*row)
    parallel = any("×" in text for text in texts.values())
    return Group(table, Text(_key(pairs) + ", ×n links in parallel, by bandwidth" * parallel))


def _times(pair: Pair, thin: int) -> str:
    """Return "×4" for four times the bandwidth of the narrowest direct link."""
    if pair.kind != "xgmi" or not thin or not pair.bandwidth_mb_s or pair.bandwidth_mb_s == thin:
        return ""
    return f"×{pair.bandwidth_mb_s / thin:.2g}"


def _key(pairs: Sequence[Pair]) -> str:
    words = {"X": "X xGMI", "P": "P PCIe", "?": "? unknown"}
    letters = {pair.letter[0] for pair in pairs}
    parts = [text for letter, text in words.items() if letter in letters]
    parts += ["with its weight"] if any(pair.weight for pair in pairs) else []
    parts += ["! not the xGMI it should be"] if any(p.kind == "broken" for p in pairs) else []
    return ", ".join(parts)


def _kinds(pairs: Sequence[Pair]) -> Group:
    """Return how many pairs have which link, and which they are unless they are most."""
    matches: dict[tuple[str, Kind], list[Pair]] = {}
    for pair in pairs:
        matches.setdefault((pair.letter, pair.kind), []).append(pair)
    table = _grid()
    table.add_column("link", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    table.add_column("which", overflow="fold")
    most = max(map(len, matches.values()))
    for (letter, kind), mine in sorted(matches.items(), key=lambda item: -len(item[1])):
        which = ", ".join(f"{pair.a} – {pair.b}" for pair in mine[:LISTED])
        which += f" and {len(mine) - LISTED} more" if len(mine) > LISTED else ""
        if len(mine) == most:
            which = "all others" if len(matches) > 1 else "all"
        table.add_row(Text(letter, style=LINKS[kind]), f"{len(mine):,}", which)
    return Group(table, Text(_key(pairs)))


def _nics(topology: Topology) -> Table:
    """Return one row a network interface, with the GPUs behind the same PCIe root port."""
    table = _grid()
    for name in ("NIC", "RDMA", "address", "NUMA", "speed", "behind one root port with"):
        table.add_column(name, no_wrap=name != "behind one root port with", overflow="fold")
    result = boards(topology)
    for nic in topology.nics:
        speed = gigabits(nic.speed_mb_s) or "–"
        near = [
            board
            for board, members in result.items()
            if nic.pci_path and members[0][1].pci_path[:1] == nic.pci_path[:1]
        ]
        table.add_row(
            nic.name,
            nic.rdma_device or "–",
            nic.bdf,
            "–" if nic.numa_node is None else str(nic.numa_node),
            "down" if nic.up is False else speed,
            " ".join(near) or "–",
        )
    return table
