# SPDX-License-Identifier: GPL-3.0-or-later

"""Read `numactl --hardware` (-H): NUMA nodes with their CPUs, memory and distances."""

from __future__ import annotations

import re

from ...findings import Finding
from ...numbers import format_cpulist
from .. import problems
from ..types import NumaNode

NAME = "numactl"
_AVAILABLE = re.compile(r"^available: (\d{1,5}) nodes? \(([\d,-]+)\)", re.MULTILINE)
_CPUS = re.compile(r"^node (\d{1,4}) cpus:((?: +\d{1,5})*) *$", re.MULTILINE)
_SIZE = re.compile(r"^node (\d{1,4}) size: (\d{1,12}) ([MGk])B", re.MULTILINE)
_HEADER = re.compile(r"^node +((?:\d{1,4} +)*\d{1,4}) *$", re.MULTILINE)
_DISTANCES = re.compile(r"^ +(\d{1,4}): +((?:\d{1,3} +)*\d{1,3}) *$", re.MULTILINE)
_UNITS = {"k": 2**10, "M": 2**20, "G": 2**30}


def parse(text: str, subject: str) -> tuple[tuple[NumaNode, ...], tuple[Finding, ...]]:
    """Return the nodes in order of id, and a finding where the output is cut.

    Sizes are printed in whole MiB and called MB; cores are not in it.
    """
    cpus = {int(node): tuple(map(int, words.split())) for node, words in _CPUS.findall(text)}
    sizes = {int(node): int(size) * _UNITS[unit] for node, size, unit in _SIZE.findall(text)}
    header = _HEADER.search(text)
    columns = tuple(map(int, header.group(1).split())) if header else ()
    rows = {
        int(node): tuple(map(int, words.split()))
        for node, words in (_DISTANCES.findall(text, header.end()) if header else ())
    }
    # A node's distance to itself is 10 by ACPI; anything else is half a number.
    whole = {
        node: row
        for node, row in rows.items()
        if len(row) == len(columns) and dict(zip(columns, row, strict=True)).get(node) == 10
    }
    nodes = tuple(
        NumaNode(
            id=node,
            cpus=format_cpulist(cpus.get(node, ())),
            memory_bytes=sizes.get(node),
            distances=whole.get(node, ()),
        )
        for node in sorted(cpus.keys() | sizes.keys())
    )
    available = _AVAILABLE.search(text)
    announced = int(available.group(1)) if available else None
    findings: tuple[Finding, ...] = ()
    if nodes and (announced != len(nodes) or cpus.keys() != sizes.keys()):
        expected = "an unknown number of" if announced is None else str(announced)
        message = f"numactl's output describes {len(nodes)} of {expected} nodes"
        findings = (problems.truncated(subject, message),)
    elif nodes and any(not node.distances for node in nodes):
        findings = (problems.truncated(subject, "the node distances are not whole"),)
    return nodes, findings
