# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes, their CPUs and cores, from sysfs and lscpu."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from ansible_collections.apiary.instinct.plugins.plugin_utils.cpulist import (
    format_cpulist,
    parse_cpulist,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import NumaNode

_NODE = re.compile(r"^/sys/devices/system/node/node(\d{1,4})/(cpulist|distance|meminfo)$")
_SIBLINGS = re.compile(r"^/sys/devices/system/cpu/cpu(\d{1,5})/topology/thread_siblings_list$")
_MEMORY = re.compile(r"MemTotal:\s*(\d{1,15}) kB")


def numa_nodes(files: Mapping[str, str], lscpu: str = "") -> tuple[NumaNode, ...]:
    """Return the NUMA nodes in order of id.

    Cores come from lscpu's parsable output, else from sysfs; where neither tells of every CPU
    of a node its cores are unknown, because half of them is not a smaller node.
    """
    attributes: dict[int, dict[str, str]] = defaultdict(dict)
    for path, content in files.items():
        match = _NODE.match(path)
        if match:
            attributes[int(match.group(1))][match.group(2)] = content
    groups = lscpu_cores(lscpu) or _sysfs_cores(files)
    nodes = []
    for number in sorted(attributes):
        cpus = _cpus(attributes[number].get("cpulist", ""))
        memory = _MEMORY.search(attributes[number].get("meminfo", ""))
        distances = attributes[number].get("distance", "").split()
        nodes.append(
            NumaNode(
                id=number,
                cpus=format_cpulist(cpus),
                memory_bytes=int(memory.group(1)) * 1024 if memory else None,
                distances=tuple(int(word) for word in distances if word.isdecimal()),
                cores=_cores(cpus, groups),
            )
        )
    return tuple(nodes)


def lscpu_cores(text: str) -> list[tuple[int, ...]]:
    """Return the SMT siblings of each core from `lscpu --parse=CPU,CORE,SOCKET,NODE,ONLINE`."""
    cores: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if line.startswith("#") or len(words) < 3 or not words[0].isdecimal():
            continue
        if len(words) < 5 or words[4] != "N":
            # Core numbers are unique on the machine only with the socket's.
            cores[words[2], words[1]].append(int(words[0]))
    return [tuple(sorted(cpus)) for cpus in cores.values()]


def _sysfs_cores(files: Mapping[str, str]) -> list[tuple[int, ...]]:
    found = {
        _cpus(content)
        for path, content in files.items()
        if _SIBLINGS.match(path) and _cpus(content)
    }
    return sorted(found)


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
