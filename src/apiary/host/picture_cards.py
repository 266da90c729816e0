# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is written on the GPUs, partitions and network interfaces of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Nic,
    NumaNode,
    Topology,
)

from apiary.host.marks import SEVERITIES, Note
from apiary.host.pairs import Members, board_of, boards, gigabits, node_number, runs

# Of each replica, in order; distinct with colour blindness (Okabe and Ito, the last two darker).
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8c7a00",
    "#5b4b49",
)
SMALL, LARGE = 11.0, 13.0  # px of type
PARTITIONS_A_ROW = 8
NARROW = 200  # px of a card that has no room for two columns of words
ROW = 18.0


@dataclass(frozen=True)
class Pill:
    """The numbers of the findings of one severity that are about one GPU or link."""

    text: str
    severity: str
    width: float
    x: float = 0
    y: float = 0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A partition, drawn as a small square on its GPU; ``x`` and ``y`` count from the card's.

    ``key`` is None for the place of one that is not there.
    """

    key: str | None
    x: float
    y: float
    width: float
    label: str
    owner: str
    colour: str | None
    healthy: bool
    hint: str


@dataclass
class Card:
    """A GPU: a rounded box with its names in every numbering; ``key`` of None is an empty place."""

    board: str
    key: str | None
    title: str
    note: str
    hive: str
    rows: tuple[str, ...]
    hint: str
    colour: str | None
    state: str
    width: float
    height: float
    pills: tuple[Pill, ...] = ()
    cells: tuple[Cell, ...] = ()
    left: bool = True
    x: float = 0
    y: float = 0
    root: str | None = None

    @property
    def cell_height(self) -> float:
        return 32 if any(cell.owner for cell in self.cells) else 20


@dataclass
class Chip:
    """A network interface."""

    text: str
    hint: str
    up: bool
    width: float
    root: str | None
    x: float = 0
    y: float = 0


@dataclass(frozen=True)
class Look:
    """What a card needs to know beside its GPU."""

    topology: Topology
    hive: Mapping[str, str]
    owner: Mapping[str, int]
    placed: bool
    found: Sequence[Note] = ()
    marks: Mapping[str, Sequence[Note]] = field(default_factory=dict)

    def has(self, code: str) -> bool:
        """Say whether a finding is among those of the host."""
        return any(note.finding.code == code for note in self.found)


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


def pills_of(notes: Sequence[Note]) -> tuple[Pill, ...]:
    """Return one pill a severity, with the findings' numbers."""
    pills = []
    for severity in SEVERITIES:
        numbers = tuple(note.number for note in notes if note.finding.severity == severity)
        if numbers:
            text = runs(numbers) or ""
            pills.append(Pill(text, severity, text_width(text, bold=True) + 10, numbers=numbers))
    return tuple(pills)


def card(look: Look, board: str, members: Members, width: float) -> Card:
    """Return the card of a board, without its place; a narrow one has its words in more rows."""
    first, room = members[0][1], width - 28
    narrow = width < NARROW
    owners = [look.owner.get(key) for key, _gpu in members]
    number = owners[0] if len(set(owners)) == 1 else None
    usable = all(gpu.healthy is not False for _key, gpu in members)
    note = _note(look, owners) if usable else "unusable"
    hive = f"hive {look.hive[board]}" if board in look.hive else ""
    model = (first.model or ("AMD GPU" if first.bdf else "")) + " VF" * bool(first.virtual_function)
    short = _short(board, look.topology)
    tools, files = _names(members)
    if narrow:
        rows = _packed([*tools, *files, *filter(None, (note, hive))], room)
        note = hive = model = ""
    else:
        anybody = any(_names([pair])[1] for pair in look.topology.by_key.items())
        rows = (" · ".join(tools), *([" · ".join(files)] if anybody else []))
    rows = rows if any(rows) else ("no numbering known", *rows[1:])
    left = room - text_width(note, bold=True) - 8 - text_width(f"{short}  ", LARGE, bold=True)
    title = f"{fit(model, left, LARGE, bold=True)}  {short}".strip() if model else short
    beside = text_width(hive) + 8
    rows = tuple(fit(row, room - (0 if n else beside)) for n, row in enumerate(rows))
    pills = pills_of(look.marks.get(board, ()))
    needed = sum(pill.width + 4 for pill in pills)
    if pills and text_width(rows[-1]) + needed + (beside if hive and len(rows) == 1 else 0) > room:
        rows = (*rows, "")
    made = Card(
        board=board,
        key=None if len(members) > 1 else members[0][0],
        title=title,
        note=note,
        hive=hive,
        rows=rows,
        hint=hint(members),
        colour=colour_of(number),
        state="used" if usable else "unusable",
        width=width,
        height=38 + ROW * len(rows),
        pills=pills,
        root=first.pci_path[0] if first.pci_path else None,
    )
    return _with_cells(made, look, members) if len(members) > 1 else made


def empty_card(model: str, oam_id: int | None, width: float, notes: Sequence[Note]) -> Card:
    """Return the place of a GPU that the board has and the bus hasn't."""
    row = "place on the board not known" if oam_id is None else f"OAM {oam_id} of the board"
    return Card(
        board="",
        key=None,
        title=f"{model}  missing",
        note="",
        hive="",
        rows=(fit(row, width - 28), "not on the PCI bus"),
        hint=f"{model}: {row}; it is not on the PCI bus",
        colour=None,
        state="missing",
        width=width,
        height=38 + ROW * 2,
        pills=pills_of(notes),
    )


def chip(nic: Nic, width: float) -> Chip:
    """Return a network interface, without its place."""
    speed = gigabits(nic.speed_mb_s) or ""
    names = [nic.rdma_device, nic.name] if nic.rdma_device else [nic.name]
    down = "down" if nic.up is False else ""
    shown = " · ".join(part for part in (names[0], down or speed) if part)
    words = ["NIC", *names, nic.bdf, speed, down]
    hint_ = ", ".join(word for word in words if word)
    return Chip(
        fit(shown, width - 12), hint_, nic.up is not False, width, (nic.pci_path or (None,))[0]
    )


def hint(members: Members) -> str:
    """Return a GPU in one line: address, memory, id."""
    first = members[0][1]
    parts = [board_of(members[0][0])]
    if first.vram_bytes:
        each = " each" if len(members) > 1 else ""
        parts.append(f"{first.vram_bytes / 2**30:.0f} GiB{each}")
    if first.unique_id:
        parts.append(f"GPU-{first.unique_id}")
    return ", ".join(parts)


def cpus_text(cpus: str, room: float) -> str:
    """Return a cpulist in so many px."""
    return fit(f"CPU{'' if cpus.isdecimal() else 's'} {cpus}", room)


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


def _note(look: Look, owners: Sequence[int | None]) -> str:
    if not look.placed:
        return ""
    if set(owners) == {None}:
        return "free"
    if len(set(owners)) == 1:
        return f"replica {owners[0]}"
    used = {owner for owner in owners if owner is not None}
    return f"r{min(used)} and free" if len(used) == 1 else f"{len(used)} replicas"


def _names(members: Members) -> tuple[list[str], list[str]]:
    """Return what tools and what device files call a GPU; partitions are ranges, in order."""
    gpus = [gpu for _key, gpu in members]
    tools = (
        runs([gpu.smi_index for gpu in gpus], "SMI "),
        runs([gpu.hip_ordinal for gpu in gpus], "HIP "),
        runs([gpu.kfd_node for gpu in gpus], "KFD "),
    )
    files = (
        runs([node_number(gpu.render_node) for gpu in gpus], "renderD"),
        runs([node_number(gpu.card) for gpu in gpus], "card"),
        runs([gpus[0].oam_id], "OAM "),
    )
    return [name for name in tools if name], [name for name in files if name]


def _packed(words: Sequence[str], room: float) -> tuple[str, ...]:
    """Return rows of as many words as fit into each."""
    rows: list[str] = []
    for word in words:
        longer = f"{rows[-1]} · {word}" if rows else word
        if rows and text_width(longer) <= room:
            rows[-1] = longer
        else:
            rows.append(word)
    return tuple(rows)


def _with_cells(made: Card, look: Look, members: Members) -> Card:
    """Give a partitioned GPU its squares, below its text."""
    step = (made.width - 20) / PARTITIONS_A_ROW
    top = made.height - 4
    tall = 36 if look.placed else 24
    known: dict[int, tuple[str, Gpu]] = {gpu.partition: (key, gpu) for key, gpu in members}
    if look.has("TOPO-PARTITION-COUNT"):
        # The place of a partition that is not there stays empty.
        most = max(len(gpus) for gpus in boards(look.topology).values())
        numbers = sorted({*range(most), *known}) if len(members) < most else sorted(known)
    else:
        numbers = sorted(known)
    cells = []
    for position, partition in enumerate(numbers):
        key, gpu = known.get(partition, (None, None))
        number = look.owner.get(key) if key else None
        row, column = divmod(position, PARTITIONS_A_ROW)
        cells.append(
            Cell(
                key=key,
                x=10 + column * step,
                y=top + row * tall,
                width=step - 4,
                label=str(partition),
                owner=_owner(look, key, number),
                colour=colour_of(number),
                healthy=gpu is not None and gpu.healthy is not False,
                hint=_cell_hint(key, gpu) if key and gpu else f"partition {partition} is not there",
            )
        )
    made.cells = tuple(cells)
    made.height = top + -(-len(cells) // PARTITIONS_A_ROW) * tall + 4
    return made


def _owner(look: Look, key: str | None, number: int | None) -> str:
    if not look.placed:
        return ""
    return "–" if key is None else "free" if number is None else f"r{number}"


def _cell_hint(key: str, gpu: Gpu) -> str:
    numbers = (("SMI", gpu.smi_index), ("HIP", gpu.hip_ordinal), ("KFD", gpu.kfd_node))
    parts = [f"{name} {value}" for name, value in numbers if value is not None]
    return ", ".join(filter(None, (key, *parts, gpu.render_node)))


def _short(board: str, topology: Topology) -> str:
    """Return the address without its domain where the host has only domain 0000."""
    domains = {(gpu.bdf or "0000")[:4] for gpu in topology.gpus}
    return board[5:] if domains == {"0000"} and board[4:5] == ":" else board
