# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts to draw: every board, fault and cut that a picture must show."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    Mark,
    Nic,
    NumaNode,
    Parts,
    Topology,
    gpu_keys,
)

from support.topology.topologies import MI325X_BUSES, bdf, host, interleaved_hives, mi325x

BDFS = tuple(bdf(bus) for bus in MI325X_BUSES)

# What a node with eight MI250X dies has in xgmi_num_links, and as weights (ROCm, 2022 on).
MI250X_LINKS = """
0 4 1 0 0 0 2 0
4 0 0 1 0 1 0 0
1 0 0 4 2 0 0 0
0 1 4 0 0 0 0 1
0 0 2 0 0 4 1 0
0 1 0 0 4 0 0 1
2 0 0 0 1 0 0 4
0 0 0 1 0 1 4 0
"""
MI250X_FAR = {(1, 7): 45, (3, 5): 45}


@dataclass(frozen=True)
class Cut:
    """One replica of a cut that nobody had to search for."""

    gpus: tuple[str, ...]
    cpus: str | None = None
    memory_nodes: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cuts:
    """A whole cut."""

    replicas: tuple[Cut, ...]
    findings: tuple[Finding, ...] = ()


def cuts(*sets: Sequence[str], findings: tuple[Finding, ...] = ()) -> Cuts:
    """Return replicas of these GPUs, each with 64 CPUs of its own."""
    return Cuts(
        tuple(
            Cut(tuple(keys), f"{64 * number}-{64 * number + 63}", (number % 2,))
            for number, keys in enumerate(sets)
        ),
        findings,
    )


HALVES = cuts(BDFS[:4], BDFS[4:])


def finding(code: str, message: str, severity: str = "warning") -> Finding:
    return Finding.from_fields(
        code=code,
        severity=severity,
        subject="gpu-001",
        message=message,
        remedy="look at it",
        source=None,
    )  # type: ignore[arg-type]


def noted(topology: Topology, *cases: tuple[Finding, Parts]) -> Topology:
    """Return the topology with findings about parts of it."""
    marks = (Mark(number, parts) for number, (_finding, parts) in enumerate(cases) if parts)
    return replace(topology, findings=tuple(case[0] for case in cases), marks=tuple(marks))


def two_hives() -> Topology:
    return host([range(4), range(4, 8)], [range(4), range(4, 8)])


def pcie_only() -> Topology:
    whole = mi325x()
    return replace(
        whole,
        links=tuple(Link(one.a, one.b, "pcie", 2, 40 if near(one) else 72) for one in whole.links),
    )


def near(link: Link) -> bool:
    """Say whether both ends are on one NUMA node."""
    return BDFS.index(link.a) // 4 == BDFS.index(link.b) // 4


def lost(topology: Topology, *pairs: tuple[int, int]) -> Topology:
    """Return a mesh some of whose links have become PCIe, with the finding that says so."""
    ends = {(BDFS[a], BDFS[b]) for a, b in pairs}
    named = ", ".join(f"{a} – {b}" for a, b in sorted(ends))
    links = (
        Link(one.a, one.b, "pcie", 2, 40) if (one.a, one.b) in ends else one
        for one in topology.links
    )
    note = finding(
        "TOPO-XGMI-ABSENT",
        f"{named} are linked by PCIe, in a group of 8 GPUs that xGMI connects otherwise",
    )
    return noted(replace(topology, links=tuple(links)), (note, tuple(sorted(ends))))


def one_missing() -> Topology:
    note = finding("TOPO-GPU-MISSING", "7 MI325X are on the PCI bus; their boards carry 8")
    return noted(mi325x([3]), (note, ()))


def one_unusable() -> Topology:
    """Return a host with a GPU that nobody can use, and findings of all kinds about others."""
    whole = mi325x()
    gpus = tuple(replace(gpu, healthy=gpu.bdf != BDFS[2]) for gpu in whole.gpus)
    notes = (
        (
            finding("TOPO-GPU-UNUSABLE", f"GPU {BDFS[2]} (MI325X) has no KFD node"),
            ((BDFS[2],),),
        ),
        (
            finding("TOPO-PCIE-LINK", f"GPU {BDFS[4]} trained its PCIe link at x8"),
            ((BDFS[4],),),
        ),
        (
            finding("TOPO-PCIE-LINK", f"GPU {BDFS[4]} trained its PCIe link at 16 GT/s"),
            ((BDFS[4],),),
        ),
        (
            finding("TOPO-ASYMMETRY", f"KFD: {BDFS[0]} – {BDFS[5]}: weight 15 one way and 30 back"),
            ((BDFS[0], BDFS[5]),),
        ),
        (finding("TOPO-XGMI-DOWN", f"GPU {BDFS[6]}: xGMI port 3 is down"), ((BDFS[6],),)),
        (finding("TOPO-TOOL-FAILED", "rocm-smi failed: it <hung> & was ended", "error"), ()),
        (finding("TOPO-INDEX-ORDER", "the tools number otherwise than HIP", "info"), ()),
    )
    links = tuple(one for one in whole.links if BDFS[2] not in (one.a, one.b))
    return noted(replace(whole, gpus=gpus, links=links), *notes)


def mi250x() -> Topology:
    """Return eight dies with 1, 2 and 4 links, indirect pairs, four NUMA nodes and four NICs."""
    counts = [[int(word) for word in row.split()] for row in MI250X_LINKS.strip().splitlines()]
    addresses = [bdf(bus) for bus in (0xC1, 0xC6, 0xC9, 0xCE, 0xD1, 0xD6, 0xD9, 0xDE)]
    nodes = (3, 3, 1, 1, 0, 0, 2, 2)
    gpus = tuple(
        Gpu(
            address,
            model="MI250X",
            smi_index=number,
            kfd_node=4 + number,
            hip_ordinal=number,
            render_node=f"renderD{128 + number}",
            card=f"card{number}",
            numa_node=nodes[number],
            vram_bytes=64 << 30,
            healthy=True,
        )
        for number, address in enumerate(addresses)
    )
    links = []
    for (a, here), (b, there) in itertools.combinations(enumerate(addresses), 2):
        count = counts[a][b]
        weight = 15 if count else MI250X_FAR.get((a, b), 30)
        width = (50000, 50000 * count) if count else None
        links.append(Link(here, there, "xgmi", 1, weight, width))
    numa = tuple(NumaNode(node, f"{16 * node}-{16 * node + 15}", 128 << 30) for node in range(4))
    nics = tuple(
        Nic(f"hsn{number}", bdf(0xE1 + number), nodes[2 * number], f"cxi{number}", 25000, True)
        for number in range(4)
    )
    return Topology("nid001", gpus, tuple(links), numa, nics)


def cpx(present: int = 64) -> Topology:
    """Return eight MI300X as up to 64 partitions; what is short of 64 has a finding."""
    gpus = []
    for number in range(present):
        board = number // 8
        gpus.append(
            Gpu(
                BDFS[board],
                number % 8,
                "MI300X",
                smi_index=number,
                kfd_node=2 + number,
                hip_ordinal=number,
                render_node=f"renderD{128 + number}",
                card=f"card{number}",
                oam_id=board,
                numa_node=board // 4,
                vram_bytes=24 << 30,
                compute_partition="CPX",
                memory_partition="NPS1",
                healthy=True,
            )
        )
    keys = gpu_keys(gpus)
    links = tuple(
        Link(*sorted((a, b)), "xgmi", 1, 13 if a[:12] == b[:12] else 41)
        for a, b in itertools.combinations(keys, 2)
    )
    short = finding("TOPO-PARTITION-COUNT", f"partitions in view: {BDFS[7]}: 7 of 8 (CPX)")
    topology = Topology("gpu-cpx", tuple(gpus), links, mi325x().numa_nodes)
    return noted(topology, (short, ((BDFS[7],),))) if present == 63 else topology


def with_nics() -> Topology:
    """Return a host with two GPUs and two interfaces at each PCIe root port, and one interface."""
    ports = [f"0000:{number // 2 * 0x20:02x}:01.1" for number in range(8)]
    whole = mi325x()
    gpus = tuple(
        replace(gpu, pci_path=(port,), oam_id=number, card=f"card{number}")
        for number, (gpu, port) in enumerate(zip(whole.gpus, ports, strict=True))
    )
    nics = [
        Nic(
            f"enp{number}s0",
            f"0000:{0x10 + number:02x}:00.0",
            number // 4,
            f"mlx5_{number}",
            50000,
            number != 5,
            (port,),
        )
        for number, port in enumerate(ports)
    ]
    nics.append(Nic("eno1", "0000:f1:00.0", 0, None, 3125, True, ("0000:f0:01.1",)))
    return replace(whole, gpus=gpus, nics=tuple(nics))


def many() -> Topology:
    """Return 24 GPUs in two groups, of which one link is lost: too many for lines."""
    whole = host([range(20), range(20, 24)], [range(12), range(12, 24)])
    first = whole.links[3]
    note = finding("TOPO-XGMI-ABSENT", f"{first.a} – {first.b} is linked by PCIe")
    links = tuple(replace(one, type="pcie") if one == first else one for one in whole.links)
    return noted(replace(whole, links=links), (note, ((first.a, first.b),)))


# Name: the host and the cut that colours it.
DRAWN = {
    "mesh": (mi325x(), HALVES),
    "two_hives": (two_hives(), HALVES),
    "interleaved": (
        interleaved_hives(),
        cuts([BDFS[n] for n in (0, 2, 3, 7)], [BDFS[n] for n in (1, 4, 5, 6)]),
    ),
    "mi250x": (mi250x(), cuts(list(mi250x().by_key)[:2])),
    "pcie_only": (pcie_only(), None),
    "lost_links": (lost(mi325x(), (0, 2), (1, 5)), HALVES),
    "one_missing": (one_missing(), cuts(BDFS[4:])),
    "one_unusable": (one_unusable(), cuts(BDFS[:2])),
    "cpx_63": (
        cpx(63),
        cuts(*(list(cpx(63).by_key)[4 * n : 4 * n + 4] for n in range(15))),
    ),
    "nics": (with_nics(), HALVES),
    "many": (many(), cuts(BDFS[:4])),
}
