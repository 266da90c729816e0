# SPDX-License-Identifier: GPL-3.0-or-later

"""The amdgpu driver's own topology, /sys/class/kfd/kfd/topology/nodes, as all that reads it does.

The controller reads captured files; programs on hosts read their own tree and carry this text in
themselves (plugin_utils/host/program.py). Standard library, Python 3.9, no import but these.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

KFD = "sys/class/kfd/kfd"
NODES = f"{KFD}/topology/nodes"
FUNCTIONS = "sys/bus/pci/devices"
_DIGITS = 20  # of 64 bits
XGMI = 11  # Source: Linux drivers/gpu/drm/amd/amdkfd/kfd_crat.h, CRAT_IOLINK_TYPE_XGMI


class KfdGpu(NamedTuple):
    """A KFD node that is a GPU or a partition of one.

    ``bdf`` is its PCI function, None where the driver gives none; ``partition`` its number, None
    where the node is a whole GPU. ``node`` orders HIP's ordinals. ``render_minor`` is 0 and the
    ids are None where the driver gives none.
    """

    bdf: str | None
    partition: int | None
    node: int
    properties: Mapping[str, int]
    gpu_id: int | None = None

    @property
    def key(self) -> str:
        """The name of the GPU everywhere: its BDF, with #partition where several share one."""
        return f"{self.bdf}" if self.partition is None else f"{self.bdf}#{self.partition}"

    @property
    def render(self) -> str:
        """The name of its DRM render node, such as renderD128; empty where there is none."""
        minor = self.properties.get("drm_render_minor", 0)
        return f"renderD{minor}" if minor > 0 else ""

    @property
    def unique_id(self) -> int | None:
        """What the driver calls the board's own number, None where it gives none."""
        return self.properties.get("unique_id")


def read(*parts: str) -> str:
    """Return a file's text without its end of line, empty where it can't be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def properties(text: str) -> dict[str, int]:
    """Return `name number` lines; a value may need 64 bits, so none is treated as missing."""
    pairs = (line.split() for line in text.splitlines())
    return {
        words[0]: int(words[1])
        for words in pairs
        if len(words) == 2 and words[1].isdecimal() and len(words[1]) <= _DIGITS
    }


def is_gpu(values: Mapping[str, int]) -> bool:
    """Return whether a node computes; CPUs are nodes as well, and a hidden GPU reads as empty."""
    return values.get("simd_count", 0) > 0


def addresses(
    nodes: Iterable[Mapping[str, int]], functions: Container[str]
) -> list[tuple[str | None, int | None]]:
    """Return BDF and partition of each node, by its properties.

    ``functions`` are the BDFs that are on the PCI bus: a node whose function isn't there is a
    partition. Source: KFD topology ``domain``, ``location_id`` = bus<<8|dev<<3|fn; of a partition
    the function bits are its number.
    """
    listed = list(nodes)
    shared = Counter(_slot(one) for one in listed)
    result: list[tuple[str | None, int | None]] = []
    for one in listed:
        domain, slot, unique = _slot(one)
        function = one.get("location_id", 0) & 7
        if not one.get("location_id"):
            result.append((None, None))
            continue
        address = f"{domain:04x}:{slot >> 5:02x}:{slot & 31:02x}"
        split = shared[domain, slot, unique] > 1 and unique != 0
        absent = f"{address}.{function}" not in functions and f"{address}.0" in functions
        if split or absent:
            result.append((f"{address}.0", function))
        else:
            result.append((f"{address}.{function}", None))
    return result


def _slot(one: Mapping[str, int]) -> tuple[int, int, int]:
    location = (one.get("location_id", 0) >> 3) & 0x1FFF
    return one.get("domain", 0), location, one.get("unique_id", 0)


def served_gpus(root: str = "/") -> list[KfdGpu]:
    """Return every GPU and partition that the driver serves on this host, in node order."""
    base = os.path.join(root, NODES)
    numbers = sorted(int(name) for name in listing(base) if name.isdigit())
    nodes = {number: properties(read(base, str(number), "properties")) for number in numbers}
    serving = {number: values for number, values in nodes.items() if is_gpu(values)}
    functions = frozenset(listing(os.path.join(root, FUNCTIONS)))
    found = []
    for (number, values), (bdf, partition) in zip(
        serving.items(), addresses(serving.values(), functions)
    ):
        gpu_id = read(base, str(number), "gpu_id")
        number_of = int(gpu_id) if gpu_id.isdigit() else None
        found.append(KfdGpu(bdf, partition, number, values, number_of))
    return found


def listing(path: str) -> list[str]:
    """Return the names in a directory, none where it can't be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def xgmi_peers(node: int, root: str = "/") -> set[int]:
    """Return the nodes that a node has an xGMI link to."""
    base = os.path.join(root, NODES, str(node), "io_links")
    links = (properties(read(base, name, "properties")) for name in listing(base))
    return {link["node_to"] for link in links if link.get("type") == XGMI and "node_to" in link}
