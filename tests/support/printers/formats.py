# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every output that is read, by tool and version: what prints it, and which facts it has."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..printers import amd_smi as amd
from ..printers import machine as base
from ..printers import rocm_smi as rocm
from ..printers import system
from ..printers.hosts import random_host
from ..printers.machine import Machine

LINKS = frozenset(("type", "weight", "hops", "bandwidth"))


@dataclass(frozen=True)
class Format:
    """An output and its facts.

    Facts are names of fields of Gpu and of Link; ``partitions`` says whether it tells the
    partitions of a GPU apart, ``kernel_order`` that it lists GPUs as the kernel does, ``domains``
    whether its addresses have a domain.
    """

    name: str
    show: Callable[[Machine], str]
    facts: frozenset[str]
    partitions: bool = False
    kernel_order: bool = False
    domains: bool = True

    def host(self, rng: random.Random) -> Machine:
        """A random host that this output can describe."""
        split = self.partitions and rng.random() < 0.3
        return random_host(rng, split, domains=self.domains)


def _of(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _width(text: str, width: int) -> str:
    """The text with its rules as wide as another version draws them."""
    return re.sub(
        r"(?m)^=+ (.+?) =+$", lambda m: f" {m.group(1)} ".center(width, "="), text
    ).replace("=" * base.WIDTH, "=" * width)


def _topology_7(machine: Machine) -> str:
    """ROCm 7: an empty line below the banner, and the warning of low power before all."""
    banner, rest = base.rocm_smi_topology(machine).split("Interface ", 1)
    end, rest = rest.split("\n", 1)
    return f"{rocm.LOW_POWER}{banner}Interface {end}\n\n{rest}"


def _both(machine: Machine) -> str:
    """`rocm-smi --showid --showbus --showuniqueid --showproductname --showtopo`."""
    identity = rocm.identity(machine).split("\n")
    topology = base.rocm_smi_topology(machine).split("\n")
    return "\n".join(identity[:-2] + topology[3:])


def _access(machine: Machine) -> str:
    count = range(len(machine.cards))
    rows = [" " * 7 + "".join(f"{f'GPU{i}':<12} " for i in count)]
    rows += [f"{f'GPU{i}':<6} " + "".join(f"{'True':<12} " for _j in count) for i in count]
    return rocm.frame(("Link accessibility between two GPUs", rows))


def _numa(machine: Machine) -> str:
    keys = ("(Topology) Numa Node", "(Topology) Numa Affinity")
    return rocm.frame(("Numa Nodes", rocm.fields(machine, *keys)))


def _bus(machine: Machine) -> str:
    return rocm.bus_of_partitions(machine, 1)


def _json_5(machine: Machine) -> str:
    return base.rocm_smi_json(machine).replace('"Device ID"', '"GPU ID"')


def _json_identity(machine: Machine) -> str:
    """`--showid --showproductname --json` since 6.1.1: no address, a KFD node."""
    cards = {
        f"card{i}": {
            "Device Name": card.name,
            "Device ID": f"0x{card.device_id:04x}",
            "Device Rev": "0x00",
            "Subsystem ID": f"0x{card.device_id:04x}",
            "GUID": str(5000 + card.rank),
            "Card Series": card.name,
            "Card Model": f"0x{card.device_id:04x}",
            "Card SKU": "N/A",
            "Node ID": str(machine.cpu_nodes + card.rank),
            "GFX Version": "gfx942",
        }
        for i, card in enumerate(machine.cards)
    }
    return "\n" + json.dumps({**cards, "system": {"Driver version": "6.16.13"}}) + "\n"


def _tables_63(machine: Machine, blank_lines: bool = True) -> str:
    """`amd-smi topology` since ROCm 6.3: four further tables and the whole legend."""
    text, _legend = base.amd_smi_topology(machine, blank_lines).split("\n\nLegend:")
    header = " " * 13 + " ".join(f"{card.function:<12}" for card in machine.cards)
    lines = [text.rstrip()] + [""] * blank_lines
    for title, cell in (("ATOMICS", "64,32"), ("DMA", "T"), ("BI-DIRECTIONAL", "T")):
        lines += [f"{title} TABLE:", header]
        for a in machine.cards:
            cells = ["SELF" if a is b else cell for b in machine.cards]
            lines.append(f"{a.function:<12} " + " ".join(f"{one:<12}" for one in cells))
        lines += [""] * blank_lines
    legend = (
        "SELF = Current GPU",
        "ENABLED / DISABLED = Link is enabled or disabled",
        "N/A = Not supported",
        "T/F = True / False",
        "C/NC = Coherant / Non-Coherant io links",
        "64,32 = 64 bit and 32 bit atomic support",
        "<BW from>-<BW to>",
    )
    return "\n".join([*lines, "", "", "Legend:", *(f" {line}" for line in legend), ""])


def _topology_json_63(machine: Machine) -> str:
    document = json.loads(base.amd_smi_topology_json(machine))
    for entry in document:
        for link in entry["links"]:
            own = link["gpu"] == entry["gpu"]
            link |= {
                "coherent": "SELF" if own else "C",
                "atomics": "SELF" if own else "64,32",
                "dma": "SELF" if own else "T",
                "bi_dir": "SELF" if own else "T",
            }
    return json.dumps(document, indent=4) + "\n"


def _static_7(machine: Machine) -> str:
    """`amd-smi static`, ROCm 7: no partition, and the firmware's name."""
    text = re.sub(r"(?m)^ +PARTITION:\n(?: {8}.*\n)+", "", amd.static_text(machine, True))
    return re.sub(
        r"(?m)^( +)PARTITION_ID.*\n",
        "",
        text.replace("    DRIVER:", "    IFWI:\n        NAME: N/A\n    DRIVER:"),
    )


def _list_json_63(machine: Machine) -> str:
    """`amd-smi list --json`, ROCm 6.3."""
    names = ("gpu", "bdf", "uuid", "kfd_id", "node_id", "partition_id")
    document = json.loads(base.amd_smi_list_json(machine))
    return json.dumps([{name: entry[name] for name in names} for entry in document]) + "\n"


def _list_json_23(machine: Machine) -> str:
    document = json.loads(base.amd_smi_list_json(machine))
    return json.dumps(
        [{name: entry[name] for name in ("gpu", "bdf", "uuid")} for entry in document]
    )


def _current(machine: Machine) -> str:
    """`amd-smi partition --current` since 6.4."""
    lines = [
        "CURRENT_PARTITION:",
        "GPU_ID  MEMORY  ACCELERATOR_TYPE  ACCELERATOR_PROFILE_INDEX  PARTITION_ID",
    ]
    for index, card in enumerate(machine.cards):
        lines.append(f"{index:<8}{card.memory:<8}{card.compute:<18}{0:<27}{card.part}")
    return "\n".join(lines) + "\n"


def _box_72(machine: Machine) -> str:
    """A bare `amd-smi` since ROCm 7.2: versions in one row, and one of the VBIOS."""
    lines = amd.box(machine).split("\n")
    rule = lines[0]
    head = [
        "",
        rule,
        "| AMD-SMI 26.2.2+97f5574fe2    amdgpu version: 6.16.13  ROCm version: 7.2.4    |",
        "| VBIOS version: 00123529                                                      |",
        "| Platform: Linux Baremetal                                                    |",
    ]
    return "\n".join(head + lines[4:])


def _flat(machine: Machine) -> str:
    """`head -n -0 nodes/*/… ` of the KFD tree."""
    return "".join(
        f"==> {path.removeprefix('/sys/class/kfd/kfd/topology/')} <==\n{text}\n"
        for path, text in base.kfd_files(machine).items()
    )


def _bare(machine: Machine) -> str:
    """`cat /sys/class/kfd/kfd/topology/nodes/*/properties`."""
    files = base.kfd_files(machine)
    nodes = [*range(machine.cpu_nodes), *sorted(machine.cpu_nodes + c.rank for c in machine.cards)]
    return "".join(files[f"/sys/class/kfd/kfd/topology/nodes/{n}/properties"] for n in nodes)


def _lspci(options: str) -> Callable[[Machine], str]:
    return lambda machine: system.lspci(machine, options)


def _lspci_k(machine: Machine) -> str:
    lines = []
    for row in system.lspci(machine, "-D -nn").splitlines():
        lines += [row, "\tSubsystem: Advanced Micro Devices, Inc. [AMD/ATI] Device [1002:0c34]"]
        lines += ["\tKernel driver in use: amdgpu", "\tKernel modules: amdgpu"]
    return "\n".join(lines) + "\n"


def _metrics(machine: Machine) -> str:
    return rocm.metrics(machine, {})


def _concise(layout: str) -> Callable[[Machine], str]:
    return lambda machine: rocm.concise(machine, layout)


def _table(kind: str) -> Callable[[Machine], str]:
    return lambda machine: rocm.one_table(machine, kind)


def _hardware(machine: Machine) -> str:
    """`rocm-smi --showhw` with the partitions that there are."""
    rows = [
        "GPU  NODE  DID     GUID   GFX VER  GFX RAS  SDMA RAS  UMC RAS   VBIOS  BUS  PARTITION ID"
    ]
    rows += [
        f"{number:<5}{machine.cpu_nodes + card.rank:<6}0x{card.device_id:04x}  {6000 + card.rank}"
        f"   gfx942   ENABLED  ENABLED   ENABLED   N/A    {card.bdf.upper()}  {card.part}"
        for number, card in enumerate(machine.cards)
    ]
    return rocm.frame(("Concise Hardware Info", rows), width=100)


TOPOLOGY = "smi_index numa_node type weight hops"
IDENTITY = "smi_index bdf unique_id device_id"
LIST = "smi_index bdf kfd_node hip_ordinal partition"
STATIC = "smi_index bdf device_id oam_id vram_bytes numa_node"
MODES = "compute_partition memory_partition"

FORMATS = (
    Format("rocm-smi 4 topology", lambda m: _width(base.rocm_smi_topology(m), 80), _of(TOPOLOGY)),
    Format("rocm-smi 5 topology", lambda m: _width(base.rocm_smi_topology(m), 84), _of(TOPOLOGY)),
    Format("rocm-smi 6 topology", base.rocm_smi_topology, _of(TOPOLOGY)),
    Format("rocm-smi 7 topology", _topology_7, _of(TOPOLOGY)),
    Format("rocm-smi weights", _table("Weight"), _of("smi_index weight")),
    Format("rocm-smi hops", _table("Hops"), _of("smi_index hops")),
    Format("rocm-smi types", _table("Link Type"), _of("smi_index type")),
    Format("rocm-smi bandwidth", rocm.bandwidth, _of("smi_index bandwidth")),
    Format("rocm-smi access", _access, _of("smi_index")),
    Format("rocm-smi numa", _numa, _of("smi_index numa_node")),
    Format("rocm-smi bus", _bus, _of("smi_index bdf")),
    Format("rocm-smi 5 identity", lambda m: rocm.identity(m, old=True), _of(IDENTITY)),
    Format("rocm-smi identity", rocm.identity, _of(IDENTITY + " kfd_node hip_ordinal")),
    Format("rocm-smi all", _both, _of(f"{IDENTITY} {TOPOLOGY} kfd_node hip_ordinal")),
    Format("rocm-smi metrics", _metrics, _of("smi_index")),
    Format("rocm-smi 4 concise", _concise("4.x"), _of("smi_index")),
    Format("rocm-smi 5 concise", _concise("5.7"), _of("smi_index")),
    Format("rocm-smi 6.0 concise", _concise("6.0"), _of("smi_index " + MODES)),
    Format(
        "rocm-smi concise",
        _concise("6.1.1"),
        _of("smi_index kfd_node hip_ordinal device_id partition " + MODES),
        partitions=True,
    ),
    Format(
        "rocm-smi hardware",
        _hardware,
        _of("smi_index kfd_node hip_ordinal device_id bdf partition"),
        partitions=True,
    ),
    Format("rocm-smi JSON", base.rocm_smi_json, _of(f"{IDENTITY} {TOPOLOGY} vram_bytes")),
    Format("rocm-smi 5 JSON", _json_5, _of(f"{IDENTITY} {TOPOLOGY} vram_bytes")),
    Format(
        "rocm-smi identity JSON", _json_identity, _of("smi_index device_id kfd_node hip_ordinal")
    ),
    Format("amd-smi 23 list", lambda m: amd.list_text(m, kfd=False), _of("smi_index bdf")),
    Format("amd-smi 24.7 list", amd.list_text, _of(LIST), partitions=True),
    Format(
        "amd-smi 25 list -e",
        lambda m: amd.list_text(m, enumeration=True),
        _of(LIST + " render_node card unique_id oam_id"),
        partitions=True,
    ),
    Format("amd-smi 23 list JSON", _list_json_23, _of("smi_index bdf")),
    Format("amd-smi 24.7 list JSON", _list_json_63, _of(LIST), partitions=True),
    Format(
        "amd-smi 25 list -e JSON",
        base.amd_smi_list_json,
        _of(LIST + " render_node card unique_id"),
        partitions=True,
    ),
    Format("amd-smi 24 static", amd.static_text, _of(f"{STATIC} {MODES} partition"), True),
    Format("amd-smi 26 static", _static_7, _of(STATIC)),
    Format("amd-smi 24 static JSON", amd.static_json, _of(f"{STATIC} {MODES} partition"), True),
    Format(
        "amd-smi 23 static JSON",
        lambda m: amd.static_json(m, old=True),
        _of(f"{STATIC} {MODES} partition"),
        True,
    ),
    Format(
        "amd-smi 26 static JSON",
        lambda m: amd.static_json(m, wrapped=True),
        _of(f"{STATIC} {MODES} partition"),
        True,
    ),
    Format("amd-smi 23 topology", amd.topology_linear, LINKS | _of("smi_index")),
    Format("amd-smi 24 topology", base.amd_smi_topology, LINKS | _of("smi_index bdf")),
    Format("amd-smi 24.7 topology", _tables_63, LINKS | _of("smi_index bdf")),
    Format(
        "amd-smi 26 topology",
        lambda m: _tables_63(m, blank_lines=False),
        LINKS | _of("smi_index bdf"),
    ),
    Format(
        "amd-smi 23 topology JSON",
        lambda m: base.amd_smi_topology_json(m, old=True),
        LINKS | _of("smi_index"),
    ),
    Format("amd-smi 24 topology JSON", base.amd_smi_topology_json, LINKS | _of("smi_index bdf")),
    Format("amd-smi 25 topology JSON", _topology_json_63, LINKS | _of("smi_index bdf")),
    Format("amd-smi 24 xgmi", lambda m: amd.xgmi_text(m, by_address=True), _of("smi_index bdf")),
    Format("amd-smi 26 xgmi", amd.xgmi_text, _of("smi_index bdf")),
    Format("amd-smi 26 xgmi JSON", amd.xgmi_json, _of("smi_index bdf")),
    Format("amd-smi 25 partition", _current, _of(f"smi_index partition {MODES}"), True),
    Format("amd-smi 26 partition JSON", amd.partition_json, _of(f"smi_index partition {MODES}")),
    Format(
        "amd-smi 25 partition JSON",
        lambda m: amd.partition_json(m, one_document=False),
        _of(f"smi_index partition {MODES}"),
    ),
    Format("amd-smi 26 box", amd.box, _of(f"smi_index bdf hip_ordinal oam_id {MODES}")),
    Format("amd-smi 26.2 box", _box_72, _of(f"smi_index bdf hip_ordinal oam_id {MODES}")),
    Format("amd-smi 26 box JSON", amd.box_json, _of(f"smi_index bdf hip_ordinal oam_id {MODES}")),
    Format(
        "rocminfo",
        system.rocminfo,
        _of("kfd_node hip_ordinal unique_id device_id"),
        kernel_order=True,
    ),
    Format("lspci", _lspci(""), _of("bdf device_id")),
    Format("lspci -n", _lspci("-D -n"), _of("bdf device_id")),
    Format("lspci -nn -PP", _lspci("-D -nn -PP"), _of("bdf device_id")),
    Format("lspci -nnk", _lspci_k, _of("bdf device_id")),
    Format(
        "KFD",
        _flat,
        LINKS
        | _of("bdf kfd_node hip_ordinal unique_id device_id vram_bytes render_node")
        | _of("numa_node partition"),
        partitions=True,
    ),
    Format("KFD properties", _bare, _of("bdf unique_id device_id render_node partition"), True),
    Format(
        "rocm_bandwidth_test",
        system.bandwidth_test,
        _of("bdf unique_id numa_node weight hip_ordinal"),
        kernel_order=True,
        domains=False,
    ),
)
