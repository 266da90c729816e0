# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide once what a text is: whose outputs are in it, of which host, and what was typed.

Everything after it reads the lines of one Output, and nothing asks again whose they are.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..evidence.types import check_size
from ..findings import ApiaryError
from . import problems
from .checks import listed
from .readers import amd_smi, kfd, marks, rocm_smi
from .readers.marks import Command, Line, command, plain
from .readers.text import DamagedJsonError, json_spans

_CSV = re.compile(r"(?:device|gpu|gpu_id|name),[\w ().,/%#:-]+$", re.IGNORECASE)
_CSV_ROW = re.compile(r"[\w.:-]{1,64},")
# `gpu-001 | CHANGED | rc=0 >>` of Ansible's ad hoc commands, `ok: [gpu-001] =>` of its playbooks.
_ANSIBLE = re.compile(
    r"([\w.-]{1,253}) \| [A-Z]{2,12}!? (?:\| rc=-?\d+ )?(?:>>|=>)"
    r"|(?:ok|changed|failed|fatal): \[([\w.-]{1,253})\]"
)
# `--- gpu-002`, `==== gpu-002 ====`, or a name between rules, as dshbak and `clush -b` write it.
_HEADING = re.compile(r"[-=#*>]{1,100}+ ?+((?=[^\d\s]*\d)[A-Za-z][\w.-]{0,252}) ?[-=#*<:]{0,100}$")
_RULE = re.compile(r"-{4,200}$")
_NAME = re.compile(r"[A-Za-z][\w.,\[\]-]{0,252}$")
_DOCUMENTS = ((marks.ROCM_SMI, rocm_smi.recognise_json), (marks.AMD_SMI, amd_smi.recognise_json))


@dataclass(frozen=True)
class Output:
    """What one tool printed in a text, without the prefixes of its lines.

    ``ended`` is whether the tool's last line is there; lists of some tools have none.
    """

    tool: str
    form: Literal["text", "json"]
    lines: tuple[Line, ...]

    @property
    def ended(self) -> bool:
        return self.form == "json" or marks.ended(self.tool, self.text)

    @property
    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)


@dataclass(frozen=True)
class Recognition:
    """What a text is: one of our own documents, or outputs of tools, one for each tool and form.

    ``lines`` are all of the text's, of which ``Line.number`` is the place in it.
    """

    lines: tuple[Line, ...]
    document: Mapping[str, Any] | None = None
    outputs: tuple[Output, ...] = ()
    commands: tuple[Command, ...] = ()
    host: str | None = None

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(output.tool for output in self.outputs))

    def texts(self, tool: str) -> list[str]:
        """Return what a tool printed, its documents before its text."""
        return [output.text for output in self.outputs if output.tool == tool]


@dataclass
class _Found:
    """What is known while lines are gone through."""

    lines: dict[tuple[str, Literal["text", "json"]], list[Line]] = field(default_factory=dict)
    marked: dict[str, int] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    hosts: dict[str, None] = field(default_factory=dict)
    headings: dict[str, set[str]] = field(default_factory=dict)


def recognise(text: str, name: str) -> Recognition:
    """Return what a text is.

    Raises ApiaryError with one finding: TOPO-UNRECOGNISED where it is, in part or whole, of a tool
    that isn't read, TOPO-SEVERAL-OUTPUTS of several hosts, TOPO-DAMAGED-JSON, TOPO-CSV or
    PROBE-SIZE.
    """
    check_size(len(text), name)
    lines = plain(text)
    tasks = tuple(dict.fromkeys(line.label for line in lines if line.label is not None))
    if tasks:
        raise ApiaryError(problems.several(name, f"the output of {listed(tasks)} is in it"))
    documents = _documents(lines, name)
    ours = [item for _span, item in documents if _is_ours(item)]
    if len(ours) == 1:
        return Recognition(lines, ours[0])
    if not documents and _is_csv(lines):
        raise ApiaryError(problems.finding("TOPO-CSV", name, "the output is comma-separated"))
    found = _Found()
    _go_through(lines, documents, found)
    _refuse_others(found, name)
    outputs = tuple(
        Output(tool, form, tuple(own)) for (tool, form), own in sorted(found.lines.items())
    )
    host = next(iter(found.hosts), None)
    return Recognition(lines, None, outputs, tuple(found.commands), host)


Span = tuple[int, int]


def _documents(lines: Sequence[Line], name: str) -> list[tuple[Span, Any]]:
    """Return each JSON document with the places of its first line and of the one after it."""
    starts = [0, *itertools.accumulate(len(line.text) + 1 for line in lines)]
    text = "".join(f"{line.text}\n" for line in lines)
    try:
        return [
            ((bisect_right(starts, start) - 1, bisect_right(starts, end - 1)), document)
            for start, end, document in json_spans(text)
        ]
    except DamagedJsonError as problem:
        message = f"JSON begins and is cut or malformed: {problem}"
        raise ApiaryError(problems.finding("TOPO-DAMAGED-JSON", name, message)) from problem


def _is_ours(document: Any) -> bool:
    return isinstance(document, Mapping) and str(document.get("schema", "")).startswith("apiary.")


def _is_csv(lines: Sequence[Line]) -> bool:
    first = [line.text.strip() for line in lines[:6]]
    return any(_CSV.match(head) and _CSV_ROW.match(row) for head, row in itertools.pairwise(first))


def _go_through(
    lines: Sequence[Line], documents: Iterable[tuple[Span, Any]], found: _Found
) -> None:
    """Give each line to the tool that printed it: a tool's text goes on until another's mark."""
    spans = iter([*documents, ((len(lines), len(lines) + 1), None)])
    (begin, end), document = next(spans)
    tool: str | None = None
    heading: str | None = None
    waiting: list[Line] = []
    for place, line in enumerate(lines):
        while place >= end:
            (begin, end), document = next(spans)
        if begin <= place < end:
            own = next((tool for tool, is_its in _DOCUMENTS if is_its(document)), None)
            own = own or line.tool
            if own is not None:
                found.lines.setdefault((own, "json"), []).append(line)
                found.marked.setdefault(own, line.number)
            continue
        typed = command(line)
        if typed is not None:
            found.commands.append(typed)
            tool = None
            if typed.host is not None:
                found.hosts[typed.host] = None
        named, certain = _host_in(lines, place)
        if named is not None:
            heading = named
            if certain:
                found.hosts[named] = None
        mark = line.tool if named is None else None
        if mark is not None:
            tool = mark
            found.marked.setdefault(mark, line.number)
            if heading is not None:
                found.headings.setdefault(heading, set()).add(mark)
        if tool is None:
            waiting.append(line)
        else:
            found.lines.setdefault((tool, "text"), []).extend([*waiting, line])
            waiting = []
    _settle(waiting, found)


def _settle(waiting: list[Line], found: _Found) -> None:
    """Give what no mark follows to the tool before it, or to the one whose name was typed."""
    text = "".join(f"{line.text}\n" for line in waiting)
    if found.lines:
        last = next(reversed(found.lines))
        found.lines[last].extend(waiting)
    elif kfd.recognise_rows(text):
        found.lines[marks.XGMI_SYSFS, "text"] = waiting
    elif found.commands:
        tools = (
            tool for tool in (marks.ROCM_SMI, marks.AMD_SMI) if tool in found.commands[-1].text
        )
        if tool := next(tools, None):
            found.lines[tool, "text"] = waiting


def _host_in(lines: Sequence[Line], place: int) -> tuple[str | None, bool]:
    """Return the name of a host that a line heads the output of, and whether it can't be else."""
    text = lines[place].text.strip()
    if ansible := _ANSIBLE.match(text):
        return ansible.group(1) or ansible.group(2), True
    if place and lines[place - 1].text.startswith("----") and _NAME.match(text):
        around = [line.text.strip() for line in lines[place - 1 : place + 2 : 2]]
        if len(around) == 2 and all(map(_RULE.match, around)):
            return text, True
    heading = _HEADING.match(text)
    return (heading.group(1), False) if heading else (None, False)


def _refuse_others(found: _Found, name: str) -> None:
    """Refuse what is not of one host, or not of tools that are read."""
    common = set[str]()
    for tools in found.headings.values():
        if common & tools:
            found.hosts |= dict.fromkeys(found.headings)
        common |= tools
    if len(found.hosts) > 1:
        message = f"the output of {listed(list(found.hosts))} is in it"
        raise ApiaryError(problems.several(name, message))
    foreign = next(filter(marks.foreign, found.marked), None)
    if foreign is not None:
        where = (
            f"what is from line {found.marked[foreign]} on"
            if found.lines.keys() - {(foreign, "text"), (foreign, "json")}
            else "this output"
        )
        raise ApiaryError(problems.unrecognised(name, f"{where} is {foreign}"))
    if not found.lines:
        message = (
            "this is neither evidence nor a topology nor the output of rocm-smi, amd-smi, "
            "rocminfo, rocm_bandwidth_test, numactl or lspci"
        )
        raise ApiaryError(problems.unrecognised(name, message))
