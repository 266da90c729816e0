# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a picture of a host is made of: cards of GPUs with their names, colours and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Nic,
    NumaNode,
    Topology,
)

from apiary.host.marks import SEVERITIES, Note
from apiary.host.pairs import Members, board_of, boards, gigabits, node_number, runs

# Of each replica, in order; distinct with colour blindness (Okabe and Ito, the last two darker).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#5b4b49")
PAD = 14
MANY = 16  # GPUs; more of them stand in a grid without lines between them
CELLS_A_ROW = 8
ROW = 18
SMALL, LARGE = 11.0, 13.0  # px of type


@dataclass(frozen=True)
class Pill:
    """The numbers of the findings of one severity, marked on a GPU or a link."""

    text: str
    severity: str
    width: float
    numbers: tuple[int, ...]
    x: float = 0
    y: float = 0


@dataclass(frozen=True)
class Cell:
    """A partition, a square in the grid on its GPU; ``key`` is None for one that is not there."""

    key: str | None
    x: float
    y: float
    label: str
    owner: str
    colour: str | None
    healthy: bool
    hint: str


@dataclass(frozen=True)
class Card:
    """A GPU with its names in every numbering; ``board`` is empty for a place without one."""

    board: str
    key: str | None
    title: str
    note: str
    rows: tuple[str, ...]
    hint: str
    colour: str | None
    state: str
    width: float
    notes: Sequence[Note] = ()
    cells: tuple[Cell, ...] = ()
    left: bool = True
    x: float = 0
    y: float = 0

    @property
    def cell_width(self) -> float:
        return (self.width - 20) / CELLS_A_ROW - 4

    @property
    def text_height(self) -> float:
        return 38 + ROW * (len(self.rows) + bool(self.notes))

    @property
    def height(self) -> float:
        lines = -(-len(self.cells) // CELLS_A_ROW)
        return self.text_height + 36 * lines

    @property
    def pills(self) -> tuple[Pill, ...]:
        y = self.y + 26 + ROW * len(self.rows)
        return pills_of(self.notes, self.x + PAD, y)


@dataclass(frozen=True)
class Chip:
    """A network interface."""

    text: str
    hint: str
    up: bool
    x: float
    y: float


@dataclass(frozen=True)
class Host:
    """A host with all that a card shows beside its GPU."""

    topology: Topology
    owner: Mapping[str, int]
    placed: bool
    notes: Sequence[Note]
    marks: Mapping[str, Sequence[Note]]

    @property
    def many(self) -> bool:
        return len(boards(self.topology)) > MANY


def fit(text: str, room: float, size: float = SMALL, bold: bool = False) -> str:
    """Return a text that fits into so many px, cut in its middle."""
    count = int(room / (size * (0.70 if bold else 0.61)))
    if len(text) <= count:
        return text
    head = max(count - 1, 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (max(count - 1, 1) - head) :]}"


def text_width(text: str, size: float = SMALL, bold: bool = False) -> float:
    """Return about how many px a text takes, at most."""
    return len(text) * size * (0.70 if bold else 0.61)


def colour_of(number: int | None) -> str | None:
    """Return a replica's colour."""
    return None if number is None else COLOURS[number % len(COLOURS)]


def pills_of(notes: Sequence[Note], x: float, y: float) -> tuple[Pill, ...]:
    """Return one pill a severity, with the findings' numbers, side by side."""
    pills = []
    for severity in SEVERITIES:
        numbers = tuple(note.number for note in notes if note.finding.severity == severity)
        if numbers:
            text = runs(numbers) or ""
            pills.append(Pill(text, severity, text_width(text, bold=True) + 10, numbers, x, y))
            x += pills[-1].width + 4
    return tuple(pills)


def cpus_text(cpus: str, room: float) -> str:
    """Return a cpulist in so many px."""
    return fit(f"CPU{'' if cpus.isdecimal() else 's'} {cpus}", room)


def card_of(host: Host, board: str, members: Members, width: float, hive: str | None) -> Card:
    first, room = members[0][1], width - 2 * PAD
    owners = {host.owner.get(key) for key, _gpu in members}
    usable = all(gpu.healthy is not False for _key, gpu in members)
    note = _note(host, owners) if usable else "unusable"
    model = (first.model or ("AMD GPU" if first.bdf else "")) + " VF" * bool(first.virtual_function)
    domains = {(gpu.bdf or "0000")[:4] for gpu in host.topology.gpus}
    short = board[5:] if domains == {"0000"} and board[4:5] == ":" else board
    words = [*_names(members), *([f"hive {hive}"] if hive else [])]
    title = short
    if host.many:
        words, note = [*filter(None, [note]), *words], ""
    else:
        taken = text_width(note, bold=True) + 8 + text_width(f"{short}  ", LARGE, bold=True)
        title = f"{fit(model, room - taken, LARGE, bold=True)}  {short}".strip()
    return Card(
        board=board,
        key=None if len(members) > 1 else members[0][0],
        title=title,
        note=note,
        rows=tuple(fit(row, room) for row in _packed(words, room)) or ("no numbering known",),
        hint=_hint(members),
        colour=colour_of(next(iter(owners))) if len(owners) == 1 else None,
        state="used" if usable else "unusable",
        width=width,
        notes=host.marks.get(board, ()),
        cells=tuple(_cells(host, members, width)) if len(members) > 1 else (),
    )


def empty_card(model: str, oam_id: int | None, width: float, notes: Sequence[Note]) -> Card:
    """Return the place of a GPU that the board has and the bus hasn't."""
    row = "place on the board not known" if oam_id is None else f"OAM {oam_id} of the board"
    hint = f"{model}: {row}; it is not on the PCI bus"
    rows = (fit(row, width - 2 * PAD), "not on the PCI bus")
    return Card("", None, f"{model}  missing", "", rows, hint, None, "missing", width, notes)


def chip_of(nic: Nic, host: Host, x: float, y: float) -> Chip:
    speed = gigabits(nic.speed_mb_s) or ""
    names = [nic.rdma_device, nic.name] if nic.rdma_device else [nic.name]
    down = "down" if nic.up is False else ""
    shown = " · ".join(part for part in (names[0], down or speed) if part)
    root = (nic.pci_path or (None,))[0]
    near = [gpu.bdf for gpu in host.topology.gpus if root and (gpu.pci_path or "?")[0] == root]
    beside = f"behind the PCIe root port {root} with {' '.join(map(str, near))}" if near else ""
    hint = ", ".join(filter(None, ("NIC", *names, nic.bdf, speed, down, beside)))
    return Chip(fit(shown or "", 121), hint, nic.up is not False, x, y)


def _hint(members: Members) -> str:
    """Return a GPU in one line: address, memory, id."""
    first = members[0][1]
    parts = [board_of(members[0][0])]
    if first.vram_bytes:
        each = " each" if len(members) > 1 else ""
        parts.append(f"{first.vram_bytes / 2**30:.0f} GiB{each}")
    if first.unique_id:
        parts.append(f"GPU-{first.unique_id}")
    return ", ".join(parts)


def node_text(node: NumaNode | None, room: float) -> str:
    """Return the CPUs and the memory of a NUMA node."""
    if node is None:
        return ""
    memory = ""
    if node.memory_bytes:
        gib = node.memory_bytes / 2**30
        memory = f" · {gib / 1024:.1f} TiB" if gib >= 1024 else f" · {gib:.0f} GiB"
    cpus = cpus_text(node.cpus, room - text_width(memory)) if node.cpus else "no CPUs"
    return cpus + memory


def _note(host: Host, owners: set[int | None]) -> str:
    if not host.placed:
        return ""
    used = {owner for owner in owners if owner is not None}
    if not used:
        return "free"
    if len(owners) == 1:
        return f"replica {next(iter(used))}"
    return f"r{min(used)} and free" if len(used) == 1 else f"{len(used)} replicas"


def _names(members: Members) -> list[str]:
    """Return what tools and device files call a GPU; partitions are ranges, in order."""
    gpus = [gpu for _key, gpu in members]
    names = (
        runs([gpu.smi_index for gpu in gpus], "SMI "),
        runs([gpu.hip_ordinal for gpu in gpus], "HIP "),
        runs([gpu.kfd_node for gpu in gpus], "KFD "),
        runs([node_number(gpu.render_node) for gpu in gpus], "renderD"),
        runs([node_number(gpu.card) for gpu in gpus], "card"),
        runs([gpus[0].oam_id], "OAM "),
    )
    return [name for name in names if name]


def _packed(words: Sequence[str], room: float) -> list[str]:
    """Return rows of as many words as fit into each."""
    rows: list[str] = []
    for word in words:
        longer = f"{rows[-1]} · {word}" if rows else word
        if rows and text_width(longer) <= room:
            rows[-1] = longer
        else:
            rows.append(word)
    return rows


def _cells(host: Host, members: Members, width: float) -> Iterator[Cell]:
    """Yield the partitions of a GPU; the place of one that a finding misses stays empty."""
    present: dict[int, tuple[str, Gpu]] = {gpu.partition: (key, gpu) for key, gpu in members}
    numbers = set(present)
    if any(note.finding.code == "TOPO-PARTITION-COUNT" for note in host.notes):
        numbers |= set(range(max(len(gpus) for gpus in boards(host.topology).values())))
    for position, partition in enumerate(sorted(numbers)):
        key, gpu = present.get(partition, (None, None))
        number = host.owner.get(key) if key else None
        owner = "–" if key is None else "free" if number is None else f"r{number}"
        row, column = divmod(position, CELLS_A_ROW)
        yield Cell(
            key=key,
            x=10 + column * (width - 20) / CELLS_A_ROW,
            y=row * 36 - 4,
            label=str(partition),
            owner=owner if host.placed else "",
            colour=colour_of(number),
            healthy=gpu is not None and gpu.healthy is not False,
            hint=_cell_hint(key, gpu) if key and gpu else f"partition {partition} is not there",
        )


def _cell_hint(key: str, gpu: Gpu) -> str:
    numbers = (("SMI", gpu.smi_index), ("HIP", gpu.hip_ordinal), ("KFD", gpu.kfd_node))
    parts = [f"{name} {value}" for name, value in numbers if value is not None]
    return ", ".join(filter(None, (key, *parts, gpu.render_node)))
