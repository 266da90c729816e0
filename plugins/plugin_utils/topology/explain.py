# SPDX-License-Identifier: GPL-3.0-or-later

"""Say which lines of a capture gave which fact: those that are not known without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from ..findings import ApiaryError
from .checks import listed
from .read import captured
from .readers.marks import Line
from .recognise import recognise
from .types import Topology

# Characters that are read again in all; of longer texts several lines are explained together.
_BUDGET, _FEWEST = 2_000_000, 24
_SCALAR = re.compile(r'(:\s*)(?:"[^"]*"|-?\d[\d.]*|true|false)(,?\s*)$')
_NAME = re.compile(r"\s*(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|[A-Za-z_\[\]]+\d{0,4}\]?)")
# These follow from others.
_DERIVED = ("model", "virtual_function", "a", "b")
Role = Literal["fact", "check", "repeat", "nothing"]
_Facts = Mapping[tuple[str, str], object]


@dataclass(frozen=True)
class ExplainedLines:
    """Lines ``first`` to ``last`` of the file, and what they gave.

    ``role``: "fact": ``facts`` are from them; "repeat": another line says the same; "check": the
    output is refused without them or has other findings; "nothing": they are not understood, or
    carry nothing that a topology is made of.
    """

    first: int
    last: int
    role: Role
    facts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Reading:
    """A topology, and where in the capture it comes from."""

    topology: Topology
    lines: tuple[ExplainedLines, ...]


def explain(text: str, name: str) -> Reading | None:
    """Return what the lines of a capture gave; None of a document, which has no lines to explain.

    Each line is left out in turn, and of JSON its value, or has another value: what is then unknown
    or different came from it.
    """
    recognised = recognise(text, name)
    if recognised.document is not None:
        return None
    topology = captured(recognised, name)
    json_lines = {
        line.number for out in recognised.outputs if out.form == "json" for line in out.lines
    }
    lines = recognised.lines
    size = -(-len(lines) // max(_FEWEST, _BUDGET // max(len(text), 1)))
    groups = [lines[place : place + size] for place in range(0, len(lines), size)]
    groups = [group for group in groups if any(re.search(r"\w", line.text) for line in group)]

    def changed(group: Sequence[Line], change: Callable[[Line, bool], str]) -> Topology | None:
        numbers = {line.number for line in group}
        texts = (
            change(line, line.number in json_lines) if line.number in numbers else line.text
            for line in lines
        )
        try:
            return captured(recognise("\n".join(texts) + "\n", name), name)
        except ApiaryError:
            return None

    result = []
    for group in groups:
        role, facts = _given(topology, changed(group, _left_out))
        if not facts:
            # What another line says as well is not lost; another value in this one is seen.
            effect, facts = _given(topology, changed(group, _altered))
            role = "fact" if facts and role == "check" else role
            role = "repeat" if role == "nothing" and effect != "nothing" else role
        first, last = group[0].number, group[-1].number
        result.append(ExplainedLines(first, last, role, facts, group[0].text.strip()[:80]))
    return Reading(topology, tuple(result))


def _left_out(line: Line, is_json: bool) -> str:
    return _SCALAR.sub(r"\1null\2", line.text) if is_json else ""


def _altered(line: Line, _is_json: bool) -> str:
    """Return a line with other numbers and link types, but for the name that it begins with."""
    name = _NAME.match(line.text)
    start = name.end() if name else 0
    other = re.sub(r"\d", lambda digit: str((int(digit.group()) + 1) % 10), line.text[start:])
    return line.text[:start] + other.replace("XGMI", "PCIE")


def _facts(topology: Topology) -> _Facts:
    """Return every value by whose it is and its name; GPUs go by number where all have one."""
    numbered = all(gpu.smi_index is not None for gpu in topology.gpus)
    names = {
        key: f"GPU {gpu.smi_index}" if numbered else f"GPU {key}"
        for key, gpu in topology.by_key.items()
    }
    parts = [(names[key], asdict(gpu)) for key, gpu in topology.by_key.items()]
    parts += [
        (" – ".join(sorted((names[link.a], names[link.b]))), asdict(link))
        for link in topology.links
    ]
    parts += [(f"NUMA node {node.id}", asdict(node)) for node in topology.numa_nodes]
    return {
        (whose, field): value
        for whose, values in parts
        for field, value in values.items()
        if value not in (None, (), "") and field not in _DERIVED
    }


def _given(whole: Topology, rest: Topology | None) -> tuple[Role, tuple[str, ...]]:
    """Return what is lost where lines are left out, and the words for it."""
    if rest is None:
        return "check", ()
    before, after = _facts(whole), _facts(rest)
    lost: dict[str, list[str]] = {}
    for (whose, field), value in before.items():
        if after.get((whose, field)) != value:
            lost.setdefault(field, []).append(whose)
    facts = tuple(
        f"{field.replace('_', ' ')} of {listed(names, 2)}" for field, names in lost.items()
    )
    if facts:
        return "fact", facts
    return ("nothing" if rest.findings == whole.findings else "check"), ()
