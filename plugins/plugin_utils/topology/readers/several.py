# SPDX-License-Identifier: GPL-3.0-or-later

"""Several outputs of one tool as one, and whether each says one thing: two hosts contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...findings import Finding
from .. import problems
from ..observation import CELL_CHECKS, Device, Observation, merged, paths_from_cells, positions
from .text import json_documents, known


class Tables(dict[str, dict[tuple[int, int], str]]):
    """The cells of each kind of table; ``difference`` is how one of them is contradicted."""

    difference: str | None = None

    def add(self, kind: str, cells: Mapping[tuple[int, int], str]) -> None:
        """Add a table's cells; of two statements the earlier one stands."""
        before = self.setdefault(kind, {})
        for pair, cell in cells.items():
            old, new = known(before.get(pair)), known(cell)
            if old is None:
                before[pair] = cell
            elif new is not None and old.upper() != new.upper():
                message = f"the {kind} of GPU {pair[0]} and {pair[1]} is {old} and also {new}"
                self.difference = self.difference or message

    def add_checked(self, kind: str, cells: Mapping[tuple[int, int], str]) -> str | None:
        """Add the cells that a table of this kind may have; return one that it may not have.

        A bare 0 is what rocm-smi 5 prints as bandwidth between GPUs that only PCIe links.
        """
        values = {pair: value for pair, cell in cells.items() if (value := known(cell))}
        odd = {
            pair
            for pair, value in values.items()
            if CELL_CHECKS[kind](value) is None and (kind, value) not in _NO_BANDWIDTH
        }
        apart = {pair for pair in values if pair[0] != pair[1]}
        self.add(kind, {pair: values[pair] for pair in apart - odd})
        return next((values[pair] for pair in sorted(odd & apart)), None)


_NO_BANDWIDTH = (("bandwidth", "0"), ("bandwidth", "0-0"))
Devices = list[tuple[int, Device]]


@dataclass(frozen=True)
class Reader:
    """How a tool's outputs are read; within one tool a number means the same device in all.

    ``document`` and ``text`` fill in the tables of pairs; ``absence`` is why one lists no GPU.
    """

    name: str
    recognise: Callable[[Any], bool]
    document: Callable[[Any, Tables, str], tuple[Devices, list[Finding]]]
    text: Callable[[str, Tables, str], tuple[Devices, list[Finding]]]
    absence: Callable[[str, list[Any]], str | None]


@dataclass
class Outputs:
    """What several outputs of one tool say together, by the tool's own numbers."""

    name: str
    devices: Devices = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    findings: list[Finding] = field(default_factory=list)
    absence: str | None = None

    def listed(self) -> list[Device]:
        """Return each device that an output names, in the tool's order."""
        indices = {index for cells in self.tables.values() for pair in cells for index in pair}
        return merged([*self.devices, *((index, Device()) for index in sorted(indices))])

    def observation(self) -> Observation:
        """Return the devices and the paths between them, by position."""
        devices = self.listed()
        place = positions(devices)
        paths = tuple(
            replace(path, a=place[path.a], b=place[path.b])
            for path in paths_from_cells(self.tables)
        )
        absence = None if devices else self.absence
        return Observation(self.name, tuple(devices), paths, tuple(self.findings), absence)


def outputs(texts: Iterable[str], subject: str, reader: Reader, one_file: bool = False) -> Outputs:
    """Return what several outputs (clean) of one tool on one host say together.

    Of those in one file nothing but what they say shows that they are of one host.
    """
    result = Outputs(reader.name)
    listed: dict[frozenset[str], set[int]] = {}
    for text in texts:
        documents = [item for item in json_documents(text) if reader.recognise(item)]
        own = Tables()
        parsed: Devices = []
        for document in documents:
            part = Tables()
            devices, findings = reader.document(document, part, subject)
            parsed += devices
            result.findings += findings
            numbers = {index for index, _device in devices}
            if one_file and listed.setdefault(_shape(document), numbers) != numbers:
                message = f"one document has {len(numbers)} GPUs and another of its kind has not"
                own.difference = own.difference or message
            for kind, cells in part.items():
                own.add(kind, cells)
        if not documents:
            parsed, findings = reader.text(text, own, subject)
            result.findings += findings
        if difference := own.difference or restated(parsed):
            result.findings.append(problems.several(subject, difference))
        result.devices += parsed
        for kind, cells in own.items():
            result.tables.add(kind, cells)
        result.absence = result.absence or reader.absence(text, documents)
    # What two commands of evidence say differently is weighed elsewhere.
    if one_file and (difference := result.tables.difference or restated(result.devices)):
        result.findings.append(problems.several(subject, difference))
    return result


def _shape(document: Any) -> frozenset[str]:
    """Return the names in a document or its first entry: they show which command printed it."""
    first = document[0] if isinstance(document, list) and document else document
    return frozenset(first if isinstance(first, Mapping) else ())


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return the lists that these GPUs' rows are; one begins where numbers fall."""
    lists: list[list[int]] = []
    for number in numbers:
        if not lists or number <= lists[-1][-1]:
            lists.append([])
        lists[-1].append(number)
    return lists


def rows_differ(numbers: Iterable[int]) -> str | None:
    """Return how the lists differ that rows of these GPUs are."""
    lists = runs(numbers)
    if len({tuple(rows) for rows in lists}) < 2:
        return None
    return f"one list has {len(lists[0])} GPUs and another {len(lists[-1])}"


# What a GPU keeps while its host runs; everything else may change between two commands.
_IDENTITY = (
    "bdf",
    "unique_id",
    "uuid",
    "serial",
    "kfd_node",
    "kfd_id",
    "device_id",
    "numa_node",
    "numa_affinity",
)


def restated(devices: Iterable[tuple[int, Device]]) -> str | None:
    """Return which GPU is described as two different ones, if any is."""
    seen: dict[tuple[int, str], object] = {}
    for index, device in devices:
        for name in _IDENTITY:
            value = getattr(device, name)
            if value is not None and seen.setdefault((index, name), value) != value:
                return f"GPU {index} has {name} {seen[index, name]} and also {value}"
    return None
