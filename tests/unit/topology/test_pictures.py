# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The picture and the table of a host."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.search import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    Topology,
)
from rich.console import Console

from apiary.pictures import topology_svg, topology_table
from tests.support import printers
from tests.support.printers import Machine, Wire

SVG = "{http://www.w3.org/2000/svg}"


def two_hives(a, b):
    return Wire() if a.numa == b.numa else Wire("PCIE", 72, 3, (0, 0))


def pcie_only(a, b):
    return Wire("PCIE", 40, 2, (0, 0)) if a.numa == b.numa else Wire("PCIE", 72, 3, (0, 0))


def lost_link(a, b):
    return Wire("PCIE", 40, 2, (0, 0)) if {a.rank, b.rank} == {1, 3} else Wire()


def host(wire=lambda a, b: Wire()):
    return from_evidence(printers.bundle(Machine(printers.mesh().cards, wire)))


def partitions():
    gpus = tuple(
        Gpu(f"0000:{bus:02x}:00.0", part, model="MI300X", numa_node=number // 4, healthy=True)
        for number, bus in enumerate((0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5))
        for part in range(8)
    )
    keys = list(Topology("h", gpus).by_key)
    links = tuple(Link(a, b, "xgmi", 1, 15) for a in keys for b in keys if a < b)
    return Topology("h", gpus, links)


def parsed(svg):
    return ElementTree.fromstring(svg)  # noqa: S314 - our own picture


def words(svg):
    return [element.text for element in parsed(svg).iter(f"{SVG}text")]


def drawn(svg, kind):
    links = parsed(svg).find(f"{SVG}g[@id='links']")
    return [one for one in links if kind in one.get("class").split()]


MACHINES = {"mesh": lambda a, b: Wire(), "two_hives": two_hives, "pcie_only": pcie_only}


@pytest.mark.parametrize("name", MACHINES)
def test_topology_and_picture_are_as_recorded(name, golden):
    topology = host(MACHINES[name])
    golden(f"topology/{name}.json", dumps(topology))
    golden(f"topology/{name}.svg", topology_svg(topology, place(topology, 4, 2)))


@pytest.mark.parametrize("topology", [host(), partitions(), Topology("empty")], ids="864")
def test_a_picture_needs_nothing_from_outside(topology):
    svg = topology_svg(topology)
    assert parsed(svg).get("width") == "900"
    assert not re.search(r'(?:href|src)=|url\(|@import|@font-face|"https?://(?!www\.w3\.org)', svg)


def test_every_gpu_is_named_in_every_numbering():
    text = words(topology_svg(host()))
    assert "MI325X  05:00.0" in text
    assert "SMI 0 · HIP 1 · KFD 3 · renderD129" in text


def test_replicas_are_coloured_and_explained():
    topology = host()
    svg = topology_svg(topology, place(topology, 4, 2))
    assert words(svg).count("replica 0") == 4
    assert words(svg).count("replica 1") == 4
    assert "replica 0: CPUs 0-63, memory node 0" in words(svg)
    assert len(drawn(svg, "own")) == 12


def test_what_is_free_is_said_to_be():
    topology = host()
    assert words(topology_svg(topology, place(topology, 2, 1))).count("free") == 6


def test_links_are_drawn_by_type():
    svg = topology_svg(host(two_hives))
    assert (len(drawn(svg, "xgmi")), len(drawn(svg, "pcie"))) == (12, 16)


def test_a_lost_link_stands_out_and_its_gpus_are_marked():
    svg = topology_svg(host(lost_link))
    assert len(drawn(svg, "broken")) == 1
    assert words(svg).count("!") == 2
    assert "PCIe where xGMI is expected" in words(svg)


def test_sixty_four_partitions_are_eight_gpus():
    svg = topology_svg(partitions())
    height = int(parsed(svg).get("height"))
    assert height < 700
    assert len(drawn(svg, "xgmi")) == 28
    assert words(svg).count("8 partitions") == 8


def test_a_finding_does_not_mark_a_gpu_with_a_longer_number():
    finding = Finding("X", "warning", "h", "GPU1 is odd", "look")
    gpus = tuple(Gpu(None, smi_index=number) for number in range(12))
    assert words(topology_svg(Topology("h", gpus, findings=(finding,)))).count("!") == 1


def test_text_from_the_host_is_escaped():
    svg = topology_svg(replace(host(), host="<script>&"))
    assert "<script>" not in svg
    assert "<script>&" in words(svg)


def test_the_same_host_is_the_same_picture():
    assert topology_svg(host(two_hives)) == topology_svg(host(two_hives))


def printed(topology, placement=None):
    console = Console(width=80, no_color=True, file=io.StringIO())
    console.print(topology_table(topology, placement))
    return console.file.getvalue()


def test_the_table_has_every_numbering_and_link():
    topology = host(two_hives)
    text = printed(topology, place(topology, 4, 2))
    row = next(line for line in text.splitlines() if "0000:05:00.0" in line)
    assert row.replace("256 GiB", "256GiB").split() == [
        *("0000:05:00.0", "MI325X", "0", "0", "1", "3", "renderD129", "256GiB", "SPX/NPS1", "0"),
    ]
    assert "0 0000:05:00.0   · X15 X15 X15 P72 P72 P72 P72" in text


def test_the_link_table_of_partitions_stays_small():
    assert len(printed(partitions()).splitlines()) < 64 + 20
