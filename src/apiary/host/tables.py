# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as terminal tables: its GPUs in every numbering, what links them, its interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from apiary.host.view import Board, Kind, Pair, View, gigabits, runs

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
    placement: Placement | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables that fit into the width."""
        view = View(self.topology, self.placement)
        yield Text(view.topology.host, style="bold")
        yield Text(view.summary)
        if view.boards:
            yield Text()
            yield _gpus(view)
        if view.pairs:
            yield Text()
            yield _links(view, options.max_width)
        if view.topology.nics:
            yield Text()
            yield _nics(view)
        if view.findings:
            codes = enumerate((finding.code for finding in view.findings), 1)
            yield Text()
            yield Text(f"findings: {', '.join(f'{number}={code}' for number, code in codes)}")


def _grid() -> Table:
    return Table(header_style="bold", box=None, padding=(0, 1, 0, 0))


def _gpus(view: View) -> Table:
    """Return one row a GPU, without the columns that hold nothing or the same everywhere."""
    boards = list(view.boards.values())
    split = any(len(board.devices) > 1 for board in boards)
    rows = [_row(view, board) for board in boards]
    # What all share stands in the line above the table.
    common = {name for name in ("model", "memory", "mode") if len({r[name] for r in rows}) == 1}
    rows += [_row(view, board) for board in view.missing]
    for row in rows:
        if row["renderD"] and not split:
            row["renderD"] = f"renderD{row['renderD']}"
    always = {"GPU", "NUMA", "SMI", "HIP", "renderD"}
    shown = [
        name
        for name in rows[0]
        if name in always or (name not in common and any(row[name] for row in rows))
    ]
    table = _grid()
    for name in shown:
        # What grows with the number of partitions may wrap, names never do.
        wraps = name in ("part", "SMI", "HIP", "KFD", "renderD", "card", "finding")
        right = name in ("NUMA", "SMI", "HIP", "KFD", "card", "OAM")
        justify: Literal["left", "right"] = "right" if right else "left"
        # Ranges of render nodes take less room without the name on each.
        title = "render" if name == "renderD" and not split else name
        table.add_column(title, no_wrap=not wraps, overflow="fold", justify=justify)
    for row, board in zip(rows, [*boards, *view.missing], strict=True):
        owner = view.sole_owner(board)
        style = "dim" if row["state"] else None if owner is None else STYLES[owner % len(STYLES)]
        table.add_row(*(row[name] or "–" for name in shown), style=style)
    return table


def _row(view: View, board: Board) -> dict[str, str | None]:
    """Return what a GPU and its partitions are called and have; None where nobody knows."""
    nodes = {gpu.numa_node for gpu in board.gpus if gpu.numa_node is not None}
    return {
        "GPU": board.name,
        "part": runs([number for number, key in view.partitions(board) if key]),
        "model": board.model,
        "NUMA": runs(sorted(nodes)),
        **board.numbers,
        "memory": board.memory,
        "mode": board.mode,
        "hive": view.hives.get(board.name),
        "replica": _owners(view, board) if view.placement and not board.missing else None,
        "state": board.state if board.state != "used" else None,
        "finding": runs(view.marks.get((board.name,), ())),
    }


def _owners(view: View, board: Board) -> str:
    """Return the replica of a GPU, or of each of its partitions: "0" or "0: 0-3"."""
    parts: dict[int | None, list[int]] = {}
    for key, gpu in board.devices.items():
        parts.setdefault(view.owner.get(key), []).append(gpu.partition)
    names = {number: "free" if number is None else str(number) for number in parts}
    if len(parts) == 1:
        return next(iter(names.values()))
    return "\n".join(f"{names[number]}: {runs(which)}" for number, which in parts.items())


def _links(view: View, width: int) -> Group:
    """Return the matrix of the boards' links where it fits, else the kinds of link."""
    names = list(view.boards)
    widths = [pair.bandwidth_mb_s for pair in view.pairs if pair.kind == "xgmi"]
    thin = min(filter(None, widths), default=0)
    texts = {pair.ends: _letter(pair) + _times(pair, thin) for pair in view.pairs}
    styles = {pair.ends: LINKS[pair.kind] for pair in view.pairs}
    label = max(map(len, names)) + len(str(len(names))) + 2
    cell = max(map(len, texts.values())) + 1
    if label + cell * len(names) > width:
        return _kinds(view.pairs)
    table = _grid()
    table.add_column("link")
    for position in range(len(names)):
        table.add_column(str(position), justify="right", no_wrap=True)
    for position, name in enumerate(names):
        row = [Text(f"{position} {name}")]
        for other in names:
            ends = (min(name, other), max(name, other))
            empty = "·" if other == name else ""
            row.append(Text(texts.get(ends, empty), style=styles.get(ends, "dim")))
        table.add_row(*row)
    parallel = any("×" in text for text in texts.values())
    return Group(table, Text(_key(view.pairs) + ", ×n links in parallel, by bandwidth" * parallel))


def _letter(pair: Pair) -> str:
    """Return what stands for the pair: X15 and the like, with ! where it is broken."""
    letter = {"xgmi": "X", "pcie": "P", None: "?"}[pair.type]
    return f"{letter}{pair.weight or ''}{'!' if pair.kind == 'broken' else ''}"


def _times(pair: Pair, thin: int) -> str:
    """Return "×4" for four times the bandwidth of the narrowest direct link."""
    if pair.kind != "xgmi" or not thin or not pair.bandwidth_mb_s or pair.bandwidth_mb_s == thin:
        return ""
    return f"×{pair.bandwidth_mb_s / thin:.2g}"


def _key(pairs: Sequence[Pair]) -> str:
    words = {"X": "X xGMI", "P": "P PCIe", "?": "? unknown"}
    letters = {_letter(pair)[0] for pair in pairs}
    parts = [text for letter, text in words.items() if letter in letters]
    parts += ["with its weight"] if any(pair.weight for pair in pairs) else []
    parts += ["! not the xGMI it should be"] if any(p.kind == "broken" for p in pairs) else []
    return ", ".join(parts)


def _kinds(pairs: Sequence[Pair]) -> Group:
    """Return how many pairs have which link, and which they are unless they are most."""
    matches: dict[tuple[str, Kind], list[Pair]] = {}
    for pair in pairs:
        matches.setdefault((_letter(pair), pair.kind), []).append(pair)
    table = _grid()
    table.add_column("link", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    table.add_column("which", overflow="fold")
    most = max(map(len, matches.values()))
    for (letter, kind), mine in sorted(matches.items(), key=lambda item: -len(item[1])):
        which = ", ".join(" – ".join(pair.ends) for pair in mine[:LISTED])
        which += f" and {len(mine) - LISTED} more" if len(mine) > LISTED else ""
        if len(mine) == most:
            which = "all others" if len(matches) > 1 else "all"
        table.add_row(Text(letter, style=LINKS[kind]), f"{len(mine):,}", which)
    return Group(table, Text(_key(pairs)))


def _nics(view: View) -> Table:
    """Return one row a network interface, with the GPUs behind the same PCIe root port."""
    table = _grid()
    for name in ("NIC", "RDMA", "address", "NUMA", "speed", "behind one root port with"):
        table.add_column(name, no_wrap=name != "behind one root port with", overflow="fold")
    for nic in view.topology.nics:
        table.add_row(
            nic.name,
            nic.rdma_device or "–",
            nic.bdf,
            "–" if nic.numa_node is None else str(nic.numa_node),
            "down" if nic.up is False else gigabits(nic.speed_mb_s) or "–",
            " ".join(view.near(nic)) or "–",
        )
    return table
