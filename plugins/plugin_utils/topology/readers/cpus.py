# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes, their CPUs, cores and distances, from sysfs, `numactl --hardware` and lscpu."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...findings import Finding
from ...numbers import format_cpulist, parse_cpulist
from .. import problems
from ..types import NumaNode

_NODE = re.compile(r"^/sys/devices/system/node/node(\d{1,4})/(cpulist|distance|meminfo)$")
_SIBLINGS = re.compile(r"^/sys/devices/system/cpu/cpu(\d{1,5})/topology/thread_siblings_list$")
_MEMORY = re.compile(r"MemTotal:\s*(\d{1,15}) kB")


def numa_nodes(
    files: Mapping[str, str], lscpu: str = "", told: Sequence[NumaNode] = ()
) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes in order of id: sysfs's, else numactl's, ``told``, else lscpu's.

    Cores come from lscpu's parsable output, else from
    sysfs; where neither tells of every CPU of a node its cores are unknown, because half of them
    is not a smaller node.
    """
    groups = lscpu_cores(lscpu) or _sysfs_cores(files)
    nodes = _sysfs_nodes(files) or {node.id: node for node in told} or _lscpu_nodes(lscpu)
    return tuple(
        replace(nodes[number], cores=_cores(_cpus(nodes[number].cpus), groups))
        for number in sorted(nodes)
    )


def _sysfs_nodes(files: Mapping[str, str]) -> dict[int, NumaNode]:
    attributes: dict[int, dict[str, str]] = defaultdict(dict)
    for path, content in files.items():
        match = _NODE.match(path)
        if match:
            attributes[int(match.group(1))][match.group(2)] = content
    nodes = {}
    for number, values in attributes.items():
        memory = _MEMORY.search(values.get("meminfo", ""))
        distances = values.get("distance", "").split()
        nodes[number] = NumaNode(
            id=number,
            cpus=format_cpulist(_cpus(values.get("cpulist", ""))),
            memory_bytes=int(memory.group(1)) * 1024 if memory else None,
            distances=tuple(int(word) for word in distances if word.isdecimal()),
        )
    return nodes


def disagreements(nodes: Sequence[NumaNode], told: Sequence[NumaNode]) -> list[str]:
    """Return each thing that numactl, ``told``, says otherwise than sysfs, whose nodes count."""
    ours, theirs = {node.id: node for node in nodes}, {node.id: node for node in told}
    messages = []
    if told and ours.keys() != theirs.keys():
        listed = [",".join(map(str, sorted(one))) for one in (ours, theirs)]
        messages.append(
            f"NUMA nodes: sysfs says {listed[0]}, numactl says {listed[1]}; {listed[0]} was taken"
        )
    for number in sorted(ours.keys() & theirs.keys()):
        for name in ("cpus", "memory_bytes", "distances"):
            one, other = getattr(ours[number], name), getattr(theirs[number], name)
            # numactl rounds to MiB.
            near = name == "memory_bytes" and one and other and abs(one - other) <= one // 100
            if one and other and one != other and not near:
                messages.append(
                    f"{name} of NUMA node {number}: sysfs says {one}, numactl says {other}; {one} "
                    "was taken"
                )
    return messages


def _lscpu_nodes(text: str) -> dict[int, NumaNode]:
    """Return the nodes that lscpu names; it has neither their memory nor their distances."""
    cpus: dict[int, list[int]] = defaultdict(list)
    for words in _lscpu_rows(text):
        if len(words) > 3 and words[3].isdecimal():
            cpus[int(words[3])].append(int(words[0]))
    return {number: NumaNode(number, format_cpulist(numbers)) for number, numbers in cpus.items()}


def lscpu_cores(text: str) -> list[tuple[int, ...]]:
    """Return the SMT siblings of each core from `lscpu --parse=CPU,CORE,SOCKET,NODE,ONLINE`."""
    cores: dict[tuple[str, str], list[int]] = defaultdict(list)
    for words in _lscpu_rows(text):
        # Core numbers are unique on the machine only with the socket's.
        cores[words[2], words[1]].append(int(words[0]))
    return [tuple(sorted(cpus)) for cpus in cores.values()]


def _lscpu_rows(text: str) -> Iterator[list[str]]:
    """Yield CPU, core, socket and more of each CPU that is online."""
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if line.startswith("#") or len(words) < 3 or not words[0].isdecimal():
            continue
        if len(words) < 5 or words[4] != "N":
            yield words


def _sysfs_cores(files: Mapping[str, str]) -> list[tuple[int, ...]]:
    cores = {
        _cpus(content)
        for path, content in files.items()
        if _SIBLINGS.match(path) and _cpus(content)
    }
    return sorted(cores)


def _cpus(text: str) -> tuple[int, ...]:
    try:
        return parse_cpulist(text)
    except ValueError:
        return ()


def _cores(cpus: tuple[int, ...], groups: list[tuple[int, ...]]) -> tuple[str, ...]:
    inside = set(cpus)
    cores = sorted(
        tuple(cpu for cpu in group if cpu in inside) for group in groups if inside & set(group)
    )
    if {cpu for core in cores for cpu in core} != inside:
        return ()
    return tuple(format_cpulist(core) for core in cores)


NUMACTL = "numactl"
_AVAILABLE = re.compile(r"^available: (\d{1,5}) nodes? \(([\d,-]+)\)", re.MULTILINE)
_CPUS = re.compile(r"^node (\d{1,4}) cpus:((?: +\d{1,5})*) *$", re.MULTILINE)
_SIZE = re.compile(r"^node (\d{1,4}) size: (\d{1,12}) ([MGk])B", re.MULTILINE)
_HEADER = re.compile(r"^node +((?:\d{1,4} +)*\d{1,4}) *$", re.MULTILINE)
_DISTANCES = re.compile(r"^ +(\d{1,4}): +((?:\d{1,3} +)*\d{1,3}) *$", re.MULTILINE)
_UNITS = {"k": 2**10, "M": 2**20, "G": 2**30}


def numactl_nodes(text: str, subject: str) -> tuple[tuple[NumaNode, ...], tuple[Finding, ...]]:
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
