# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the amdgpu driver's own topology, /sys/class/kfd/kfd/topology/nodes.

It needs no ROCm installation and is what librocm_smi64 and amd-smi read themselves, so types,
hops and weights come out as theirs do (rocm_smi.cc).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....module_utils.kfd import XGMI, addresses, is_gpu, properties
from .. import problems
from ..observation import Device, Observation, Path
from .text import unique_id

NAME = "KFD"
# `cat /sys/class/drm/card*/device/xgmi_num_links`: a row per GPU, in the hive's order.
ROWS = "xgmi_num_links"
_ROW = re.compile(r"^ *((?:[0-9a-f]{2} +)+[0-9a-f]{2}) *$", re.MULTILINE)
_FILE = re.compile(
    r"(?:^|/)nodes/(\d{1,4})/(?:(io_links|p2p_links|mem_banks)/\d{1,4}/)?(properties|gpu_id)$"
)
_AMD = 0x1002
_TYPES = (2, XGMI)  # Source: kfd_crat.h, CRAT_IOLINK_TYPE_PCIEXPRESS


@dataclass(frozen=True)
class _Link:
    type: int
    to: int
    weight: int
    min_bandwidth: int
    max_bandwidth: int
    peer_to_peer: bool


@dataclass(frozen=True)
class _Node:
    """One KFD node: a CPU node, a GPU or a partition of one."""

    id: int
    properties: Mapping[str, int]
    gpu_id: int | None
    links: tuple[_Link, ...]
    memory_bytes: int

    @property
    def ends(self) -> list[tuple[int, bool]]:
        return [(link.to, link.peer_to_peer) for link in self.links]

    @property
    def is_gpu(self) -> bool:
        return is_gpu(self.properties)


def _nodes(files: Mapping[str, str]) -> dict[int, _Node]:
    own: dict[int, dict[str, int]] = {}
    gpu_ids: dict[int, int] = {}
    links: dict[int, list[_Link]] = defaultdict(list)
    memory: Counter[int] = Counter()
    for path in sorted(files):
        match = _FILE.search(path)
        if match is None:
            continue
        node, kind, name = int(match.group(1)), match.group(2), match.group(3)
        content = files[path]
        if name == "gpu_id":
            if content.strip().isdecimal():
                gpu_ids[node] = int(content)
            continue
        values = properties(content)
        if kind is None:
            own[node] = values
        elif kind == "mem_banks":
            # Heaps 1 and 2 are the GPU's own memory, visible and not.
            if values.get("heap_type") in (1, 2):
                memory[node] += values.get("size_in_bytes", 0)
        elif {"type", "node_to"} <= values.keys():
            links[node].append(
                _Link(
                    values["type"],
                    values["node_to"],
                    values.get("weight", 0),
                    values.get("min_bandwidth", 0),
                    values.get("max_bandwidth", 0),
                    kind == "p2p_links",
                )
            )
    # In a container the properties of a GPU that was not passed in read as empty.
    return {
        node: _Node(node, values, gpu_ids.get(node), tuple(links[node]), memory[node])
        for node, values in own.items()
        if values
    }


def holes(files: Mapping[str, str]) -> str | None:
    """Say what a dump of the tree lacks by its own account: nodes at the end of links, or links."""
    nodes = _nodes(files)
    twice = [str(node.id) for node in nodes.values() if len(set(node.ends)) < len(node.ends)]
    if twice:
        return f"two links of node {twice[0]} lead to one node"
    lost = {link.to for node in nodes.values() for link in node.links} - nodes.keys()
    lost -= hidden(files)
    damaged = [path for path, content in files.items() if _damaged(path, content)]
    strange = [path for path, content in files.items() if _of_another(path, content)]
    if strange:
        return f"{strange[0]} is a link of another node"
    if damaged:
        return f"{damaged[0]} has lines that are no properties"
    gpus = (node for node in nodes.values() if node.is_gpu)
    if any(link.type not in _TYPES for gpu in gpus for link in gpu.links):
        return "a GPU has a link that is neither PCIe nor xGMI"
    if any(not _is_node(node.properties) for node in nodes.values()):
        return "a node has neither CPUs nor a GPU"
    if lost:
        return f"links lead to {len(lost)} nodes that are not in it"
    short = [str(node.id) for node in nodes.values() if not _whole(node)]
    return f"not all is in it of node {', '.join(short[:4])}" if short else None


def _damaged(path: str, content: str) -> bool:
    if not path.endswith("properties"):
        return False
    lines = [line.split() for line in content.splitlines() if line.strip()]
    lines = [words for words in lines if words[0].isidentifier()]
    return len(properties(content)) < len(lines)


def _of_another(path: str, content: str) -> bool:
    link = re.search(r"nodes/(\d+)/\w+_links/\d+/properties$", path)
    values = properties(content)
    return link is not None and bool(values) and values.get("node_from") != int(link.group(1))


def hidden(files: Mapping[str, str]) -> set[int]:
    """Return the nodes whose properties read as empty: GPUs that this container was not given.

    A dump that is cut may end in one empty file, so the last counts only beside others.
    """
    matches = [(_FILE.search(path), path) for path, content in files.items() if not content.strip()]
    empty = [
        (int(match.group(1)), path)
        for match, path in matches
        if match and match.group(2) is None and match.group(3) == "properties"
    ]
    alone_at_the_end = [path for _node, path in empty] == list(files)[-1:]
    return set() if alone_at_the_end else {node for node, _path in empty}


def _whole(node: _Node) -> bool:
    """Say whether a node has the properties that all have, and the links that it counts."""
    required = {"simd_count", "location_id"} if node.gpu_id or node.is_gpu else {"simd_count"}
    links = sum(not link.peer_to_peer for link in node.links)
    return required <= node.properties.keys() and links >= node.properties.get("io_links_count", 0)


def present(files: Mapping[str, str]) -> bool:
    """Say whether the files hold a KFD topology at all."""
    return any(_FILE.search(path) for path in files)


def parse_bare(text: str, subject: str) -> Observation:
    """Return the GPUs of nodes' properties without their paths: `cat nodes/*/properties`.

    Which node each is, and the links, are not in them; a link's own file has no GPU at all.
    """
    blocks = re.split(r"^(?=cpu_cores_count )", text, flags=re.MULTILINE)
    findings = [problems.truncated(subject, lack)] if (lack := _bare_holes(blocks)) else []
    minors = Counter(values.get("drm_render_minor", 0) for values in map(properties, blocks))
    if minors.keys() - {0} and max(count for minor, count in minors.items() if minor) > 1:
        findings.append(problems.several(subject, "several GPUs have one render node"))
    nodes = [_Node(-1, values, None, (), 0) for block in blocks if (values := properties(block))]
    gpus = [node for node in nodes if node.is_gpu]
    identities = addresses((gpu.properties for gpu in gpus), frozenset())
    devices = tuple(
        replace(_device(gpu, identity, None, {}), kfd_node=None)
        for gpu, identity in zip(gpus, identities, strict=True)
    )
    return Observation(NAME, devices, findings=tuple(findings))


def _bare_holes(blocks: Sequence[str]) -> str | None:
    """Say what shows that blocks of properties are not all that the files held."""
    if "node_from" in blocks[0] and len(blocks) == 1:
        return None
    if blocks[0].strip():
        return "it begins inside the properties of a node"
    names = [[line.split(" ")[0] for line in block.splitlines() if line] for block in blocks[1:]]
    parsed = [properties(block) for block in blocks[1:]]
    if any(len(own) != len(values) for own, values in zip(names, parsed, strict=True)):
        return "a property stands twice in a node's, or is damaged"
    most = max((values.get("io_links_count", 0) for values in parsed), default=0)
    if most >= len(parsed) and not all(map(is_gpu, parsed)):
        return f"a node has {most} links to others, and {len(parsed)} nodes are in it"
    keys = {frozenset(values) for values in parsed if is_gpu(values)}
    if len(keys) > 1 or not all(map(_is_node, parsed)) or not all("location_id" in k for k in keys):
        return "the properties of some nodes are not whole"
    return None


def _is_node(values: Mapping[str, int]) -> bool:
    return is_gpu(values) or values.get("cpu_cores_count", 0) > 0


def parse(
    files: Mapping[str, str], numa_ids: Sequence[int] = (), functions: frozenset[str] = frozenset()
) -> Observation:
    """Return what the driver's topology says.

    ``numa_ids`` are the host's NUMA nodes (CPU node n is the n-th of them), ``functions`` the
    BDFs that exist on the PCI bus: a KFD node whose function isn't there is a partition.
    """
    nodes = _nodes(files)
    gpus = [nodes[key] for key in sorted(nodes) if nodes[key].is_gpu]
    cpus = [key for key in sorted(nodes) if nodes[key].properties.get("cpu_cores_count", 0) > 0]
    numa_of = {
        cpu: numa_ids[rank] if len(numa_ids) == len(cpus) else rank for rank, cpu in enumerate(cpus)
    }
    nearest = {gpu.id: _nearest_cpu(gpu, numa_of) for gpu in gpus}
    identities = dict(
        zip(
            (gpu.id for gpu in gpus),
            addresses((gpu.properties for gpu in gpus), functions),
            strict=True,
        )
    )
    devices = tuple(_device(gpu, identities[gpu.id], nearest[gpu.id], numa_of) for gpu in gpus)
    paths = tuple(_paths(gpus, nodes, nearest))
    absence = None
    if not gpus:
        absence = (
            "the amdgpu driver has no GPU that is readable here"
            if present(files)
            else "there is no /sys/class/kfd: the amdgpu driver is not loaded"
        )
    return Observation(NAME, devices, paths, absence=absence)


def _device(
    gpu: _Node,
    identity: tuple[str | None, int | None],
    cpu: _Link | None,
    numa_of: Mapping[int, int],
) -> Device:
    values = gpu.properties
    minor, unique = values.get("drm_render_minor", 0), values.get("unique_id", 0)
    return Device(
        bdf=identity[0],
        partition=identity[1],
        kfd_node=gpu.id,
        kfd_id=gpu.gpu_id or None,
        render_node=f"renderD{minor}" if minor else None,
        unique_id=unique_id(f"{unique:x}"),
        device_id=f"{values['device_id']:04x}"
        if values.get("device_id") and values.get("vendor_id", _AMD) == _AMD
        else None,
        vram_bytes=gpu.memory_bytes or None,
        hive_id=values.get("hive_id") or None,
        numa_node=None if cpu is None else numa_of[cpu.to],
    )


def _nearest_cpu(gpu: _Node, cpus: Mapping[int, int]) -> _Link | None:
    """Return the GPU's own link to a CPU node; the lightest, where it has several."""
    own = [link for link in gpu.links if link.to in cpus and not link.peer_to_peer]
    return min(own, key=lambda link: (link.weight, link.to), default=None)


def _paths(
    gpus: Sequence[_Node], nodes: Mapping[int, _Node], nearest: Mapping[int, _Link | None]
) -> Iterator[Path]:
    """Yield type, hops, weight and bandwidth between GPUs, as rocm_smi.cc works them out."""
    place = {gpu.id: position for position, gpu in enumerate(gpus)}
    joints = {
        (node.id, link.to): link.weight
        for node in nodes.values()
        if not node.is_gpu
        for link in node.links
        if not link.peer_to_peer
    }
    for a in gpus:
        xgmi = {link.to: link for link in a.links if link.type == XGMI and not link.peer_to_peer}
        peers = {link.to: link for link in a.links if link.peer_to_peer}
        for b in gpus:
            ends = place[a.id], place[b.id]
            here, there = nearest[a.id], nearest[b.id]
            if a is b:
                continue
            if b.id in xgmi:
                link = xgmi[b.id]
                yield Path(*ends, "xgmi", 1, link.weight or None, _bandwidth(link))
            elif here is None or there is None:
                yield Path(*ends, "pcie")
            else:
                # The kernel writes no link at all where xGMI is missing; the way is then PCIe.
                hops, weight = _by_cpu(here, there, joints)
                peer = peers.get(b.id)
                weight = (peer.weight if peer else 0) or weight
                yield Path(*ends, "pcie", hops, weight, _bandwidth(peer))


def _by_cpu(
    here: _Link, there: _Link, joints: Mapping[tuple[int, int], int]
) -> tuple[int, int | None]:
    """Return hops and weight of the way over one or two CPU nodes."""
    if here.to == there.to:
        return 2, here.weight + there.weight
    joint = joints.get((here.to, there.to))
    return (4, None) if joint is None else (3, here.weight + there.weight + joint)


def _bandwidth(link: _Link | None) -> tuple[int, int] | None:
    if link is None or not link.max_bandwidth or not link.min_bandwidth:
        return None
    return link.min_bandwidth, link.max_bandwidth


def recognise_rows(text: str) -> bool:
    """Say whether text (clean) is rows of two-digit numbers, beside a prompt at most."""
    lines = [line for line in text.splitlines() if line.strip() and "xgmi_num" not in line]
    return len(lines) > 1 and all(_ROW.match(line) for line in lines)


def parse_rows(text: str, subject: str) -> Observation:
    """Return the GPUs of one hive, by what each prints: all are connected by xGMI.

    Directly where links are counted. Rows of several hives have no names, so nothing says which of
    them belong together.
    """
    rows = [tuple(int(word, 16) for word in row.split()) for row in _ROW.findall(text)]
    count = len(rows)
    if {len(row) for row in rows} != {count} or any(rows[place][place] for place in range(count)):
        lengths = ", ".join(sorted({str(len(row)) for row in rows}))
        message = f"{count} rows of {lengths} numbers are not the links of one whole hive"
        return Observation(ROWS, findings=(problems.truncated(subject, message),))
    hops = [_hops(rows, own) for own in range(count)]
    devices = tuple(
        Device(index=place, hive_links=rows[place], hive_hops=hops[place]) for place in range(count)
    )
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    return Observation(ROWS, devices, tuple(Path(a, b, type="xgmi") for a, b in pairs))


def _hops(rows: Sequence[Sequence[int]], own: int) -> tuple[int, ...]:
    """Return how many links the shortest way to each member takes; len(rows) where none leads."""
    hops = {own: 0}
    edge = [own]
    while edge:
        steps = {peer: hops[a] + 1 for a in edge for peer, links in enumerate(rows[a]) if links}
        edge = [peer for peer in steps if peer not in hops]
        hops |= {peer: steps[peer] for peer in edge}
    return tuple(hops.get(place, len(rows)) for place in range(len(rows)))
