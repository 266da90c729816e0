# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The picture of a host: what is in it, where it stands, and that it is all there."""

import itertools
import re
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    Mark,
    Topology,
)
from hypothesis import given
from hypothesis import strategies as st

from apiary.host.pictures import topology_svg
from apiary.host.view import View, runs
from support.compact import compact
from support.examples import examples
from support.printers import machine as printers
from support.printers.machine import Machine, Wire
from support.topology.pictured import (
    BDFS,
    DRAWN,
    HALVES,
    cpx,
    cuts,
    finding,
    lost,
    noted,
    one_missing,
)
from support.topology.topologies import host, mi325x

SVG = "{http://www.w3.org/2000/svg}"


def two_hives(a, b):
    return Wire() if a.numa == b.numa else Wire("PCIE", 72, 3, (0, 0))


def pcie_only(a, b):
    return Wire("PCIE", 40, 2, (0, 0)) if a.numa == b.numa else Wire("PCIE", 72, 3, (0, 0))


def five_absent(a, b):
    return (
        Wire("PCIE", 40, 2, (0, 0)) if {BDFS.index(a.bdf), BDFS.index(b.bdf)} in ABSENT else Wire()
    )


ABSENT = [{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}]
MACHINES = {"mesh": lambda a, b: Wire(), "two_hives": two_hives, "pcie_only": pcie_only}


def parsed(svg):
    return ElementTree.fromstring(svg)  # noqa: S314 - our own picture


def words(svg):
    return ["".join(element.itertext()) for element in parsed(svg).iter(f"{SVG}text")]


def drawn(svg, kind):
    links = parsed(svg).find(f"{SVG}g[@id='links']")
    return [one for one in links if kind in one.get("class").split()]


def marked(svg, name):
    """What each board or link is marked with: its name to the numbers of findings."""
    return {
        element.get(name): element.get("data-findings").split()
        for element in parsed(svg).iter(f"{SVG}g")
        if element.get(name) and element.get("data-findings")
    }


def listed(svg):
    """The findings below the picture, by number."""
    return {
        element.get("data-finding"): " ".join(" ".join(element.itertext()).split())
        for element in parsed(svg).iter(f"{SVG}g")
        if element.get("data-finding")
    }


@pytest.mark.parametrize("name", MACHINES)
def test_a_topology_is_as_recorded(name, golden):
    machine = Machine(printers.mesh().cards, MACHINES[name])
    golden(f"topology/{name}.json", compact(dumps(from_evidence(printers.bundle(machine)))))


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_as_recorded(name, golden):
    golden(f"topology/{name}.svg", topology_svg(*DRAWN[name]))


@pytest.mark.parametrize("topology", [mi325x(), cpx(), Topology("empty")], ids=["8", "64", "0"])
def test_a_picture_needs_nothing_from_outside(topology):
    svg = topology_svg(topology)
    assert parsed(svg).get("width") == "900"
    assert not re.search(r'(?:href|src)=|url\(|@import|@font-face|"https?://(?!www\.w3\.org)', svg)


def test_a_picture_stands_on_its_own_sheet():
    # So it is legible on a dark page as well.
    first = next(parsed(topology_svg(mi325x())).iter(f"{SVG}rect"))
    assert first.get("class") == "sheet"
    assert ".sheet { fill: #ffffff;" in topology_svg(mi325x())


def test_every_gpu_is_named_in_every_numbering():
    gpu = replace(mi325x().gpus[0], card="card1", oam_id=5)
    text = words(topology_svg(replace(mi325x(), gpus=(gpu, *mi325x().gpus[1:]))))
    assert "0000:05:00.0 · OAM 5" in text
    assert "SMI 0 · HIP 0 · KFD 2" in text
    assert "renderD128 · card1" in text


def test_replicas_are_coloured_named_and_explained():
    svg = topology_svg(mi325x(), HALVES)
    assert words(svg).count("replica 0") == 4
    assert words(svg).count("replica 1") == 4
    assert "replica 0: CPUs 0-63, memory node 0" in words(svg)
    assert len(drawn(svg, "own")) == 12


def test_what_is_free_is_said_to_be():
    assert words(topology_svg(mi325x(), cuts(BDFS[:2]))).count("free") == 6


def test_links_are_drawn_by_type_and_hives_named():
    svg = topology_svg(DRAWN["interleaved"][0])
    assert (len(drawn(svg, "xgmi")), len(drawn(svg, "pcie"))) == (12, 16)
    assert [sum(f"hive {letter}" in text for text in words(svg)) for letter in "ABC"] == [4, 4, 0]


def test_indirect_and_parallel_links_look_otherwise():
    svg = topology_svg(DRAWN["mi250x"][0])
    assert (len(drawn(svg, "xgmi")), len(drawn(svg, "far"))) == (12, 16)
    widths = Counter(one.get("style").removeprefix("stroke-width: ") for one in drawn(svg, "xgmi"))
    assert widths == {"1.3": 6, "2.6": 2, "5.2": 4}
    assert "wider: more links in parallel, up to 50, 100, 200 GB/s" in words(svg)


def test_a_way_out_of_a_partition_is_no_detour_for_its_weight():
    parts = cpx(8).gpus
    whole = tuple(gpu for gpu in mi325x().gpus if gpu.bdf != BDFS[0])
    mixed = Topology("h", (*parts, *whole))
    links = tuple(
        Link(a, b, "xgmi", weight=41 if "#" in a else 15)
        for a, b in itertools.combinations(mixed.by_key, 2)
    )
    svg = topology_svg(replace(mixed, links=links))
    assert (len(drawn(svg, "xgmi")), len(drawn(svg, "far"))) == (28, 0)


def test_what_nobody_knows_is_drawn_as_unknown():
    some = replace(mi325x(), links=(*mi325x().links[:20], replace(mi325x().links[20], type=None)))
    svg = topology_svg(some)
    assert (len(drawn(svg, "xgmi")), len(drawn(svg, "unknown"))) == (20, 8)
    none = topology_svg(replace(some, links=()))
    assert drawn(none, "link") == []
    assert any("links not known" in text for text in words(none))


def test_a_lost_link_is_drawn_as_broken_and_marked_once():
    svg = topology_svg(lost(mi325x(), (1, 3)))
    assert len(drawn(svg, "broken")) == 1
    assert marked(svg, "data-link") == {f"{BDFS[1]} {BDFS[3]}": ["1"]}
    assert marked(svg, "data-board") == {}


def test_links_that_a_message_does_not_list_are_marked_as_well():
    bundle = printers.bundle(Machine(printers.mesh().cards, five_absent))
    topology = from_evidence(bundle)
    (absent,) = [one for one in topology.findings if one.code == "TOPO-XGMI-ABSENT"]
    assert " and 1 more are linked by PCIe" in absent.message
    svg = topology_svg(topology)
    assert len(marked(svg, "data-link")) == len(drawn(svg, "broken")) == 5


def test_a_link_that_is_down_and_still_xgmi_is_broken():
    down = finding("TOPO-XGMI-DOWN", "part of an xGMI link is down")
    svg = topology_svg(noted(mi325x(), (down, ((BDFS[2], BDFS[6]),))))
    (line,) = drawn(svg, "broken")
    assert "xGMI link lost or down, now xGMI, weight 15" in line[0].text


def test_a_missing_gpu_is_an_empty_place_on_the_side_that_lacks_it():
    svg = topology_svg(one_missing())
    (place,) = parsed(svg).findall(f"{SVG}g[@class='missing']")
    rectangle = place.find(f"{SVG}rect")
    assert float(rectangle.get("x")) < 450
    assert "missing" in words(svg)
    assert place.get("data-findings") == "1"


def test_the_board_tells_the_place_of_a_missing_gpu():
    ids = [0, 1, 2, 4, 5, 6, 7]
    gpus = tuple(
        replace(gpu, oam_id=number) for gpu, number in zip(one_missing().gpus, ids, strict=True)
    )
    assert "not on the PCI bus · OAM 3" in words(topology_svg(replace(one_missing(), gpus=gpus)))


def test_no_place_is_empty_where_nothing_is_said_to_be_missing():
    assert "missing" not in topology_svg(mi325x([3])).split("</style>")[1]


def test_sixty_four_partitions_are_eight_gpus():
    svg = topology_svg(cpx(), cuts(*(list(cpx().by_key)[8 * n : 8 * n + 8] for n in range(8))))
    assert int(parsed(svg).get("height")) < 800
    assert len(drawn(svg, "xgmi")) == 28
    assert any("SMI 8-15 · HIP 8-15 · KFD 10-17" in text for text in words(svg))
    assert [words(svg).count(f"replica {n}") for n in range(8)] == [1] * 8
    assert words(svg).count("r7") == 8


def test_the_partition_that_is_not_there_has_an_empty_place():
    svg = topology_svg(cpx(63), cuts(list(cpx(63).by_key)))
    assert words(svg).count("r0") == 63
    assert words(svg).count("–") == 1
    assert marked(svg, "data-board") == {BDFS[7]: ["1"]}


def test_interfaces_stand_in_their_node_in_the_order_of_their_root_ports():
    svg = topology_svg(DRAWN["nics"][0])
    chips = [text for text in words(svg) if text.startswith(("mlx5", "eno"))]
    assert chips[:2] == ["mlx5_0 · 400 Gb/s", "mlx5_1 · 400 Gb/s"]
    assert chips.count("mlx5_5 · down") == 1
    assert sorted(chips)[0] == "eno1 · 25 Gb/s"
    assert len(chips) == 9
    assert svg.count("behind the PCIe root port") == 8


def test_many_gpus_are_a_grid_without_lines():
    svg = topology_svg(DRAWN["many"][0])
    assert drawn(svg, "link") == []
    assert any(text.endswith("not drawn") for text in words(svg))
    assert len(marked(svg, "data-board")) == 2


def test_findings_are_marked_where_they_belong_the_worst_first():
    svg = topology_svg(DRAWN["one_unusable"][0])
    assert listed(svg)["1"].find("TOPO-TOOL-FAILED") > 0
    assert marked(svg, "data-board") == {
        BDFS[2]: ["2"],
        BDFS[4]: ["3", "4"],
        BDFS[6]: ["6"],
    }
    assert marked(svg, "data-link") == {f"{BDFS[0]} {BDFS[5]}": ["5"]}


@pytest.mark.parametrize("parts", [(), tuple((name,) for name in BDFS), (("0000:ff:00.0",),)])
def test_a_finding_about_the_host_or_all_of_it_marks_none(parts):
    svg = topology_svg(noted(mi325x(), (finding("TOPO-VRAM", f"GPU {BDFS[0]} is odd"), parts)))
    assert marked(svg, "data-board") == {}
    assert "1" in listed(svg)


def test_a_mark_without_its_finding_is_passed_over():
    svg = topology_svg(replace(mi325x(), marks=(Mark(3, ((BDFS[0],),)),)))
    assert marked(svg, "data-board") == {}


def test_a_topology_document_keeps_what_its_findings_are_about():
    again = read(dumps(DRAWN["one_unusable"][0]), "gpu-001.json")
    assert topology_svg(again) == topology_svg(DRAWN["one_unusable"][0])


def test_the_findings_of_a_placement_are_listed_as_well():
    shared = finding("PLACE-CPUS-SHARED", f"GPU {BDFS[1]} shares its CPUs")
    assert (
        "PLACE-CPUS-SHARED"
        in listed(topology_svg(mi325x(), cuts(BDFS[:2], findings=(shared,))))["1"]
    )


def test_text_from_the_host_is_escaped():
    svg = topology_svg(replace(mi325x(), host="<script>&"))
    assert "<script>" not in svg
    assert "<script>&" in words(svg)


def test_a_picture_in_words():
    description = parsed(topology_svg(lost(mi325x(), (1, 3)), HALVES)).find(f"{SVG}desc").text
    assert "8 × MI325X" in description
    assert f"replica 0: {' '.join(BDFS[:4])}" in description
    assert "TOPO-XGMI-ABSENT" in description


def test_the_same_host_is_the_same_picture():
    assert topology_svg(*DRAWN["nics"]) == topology_svg(*DRAWN["nics"])


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0, 1, 2, 3], "0-3"),
        ([128, 136, 137], "128,136-137"),
        ([3, 2, 1], "3,2,1"),
        ([0, None, 2], "0,?,2"),
        ([None, None], None),
        ([], None),
    ],
)
def test_numbers_keep_their_order(numbers, text):
    assert runs(numbers) == text


def cards(svg):
    """The rectangle of each GPU, and of each empty place."""
    rectangles = [
        element
        for element in parsed(svg).iter(f"{SVG}rect")
        if (element.get("class") or "").split()[:1] in (["card"], ["cell"])
    ]
    for kind in ("card", "cell"):
        yield [
            tuple(float(one.get(name)) for name in ("x", "y", "width", "height"))
            for one in rectangles
            if one.get("class").split()[0] == kind
        ]


def apart(a, b, gap=3):
    return any(
        first[axis] + first[axis + 2] + gap <= second[axis]
        for axis in (0, 1)
        for first, second in ((a, b), (b, a))
    )


@st.composite
def hosts(draw):
    """Any host that the types allow, with findings about its parts and some of it placed."""
    gpus = []
    named = draw(st.booleans())
    for number in range(draw(st.integers(0, 20))):
        node = draw(st.sampled_from([None, 0, 1, 5]))
        for partition in range(draw(st.sampled_from([1, 1, 1, 3, 8]))) if named else [0]:
            gpus.append(
                Gpu(
                    f"000{number % 2}:{number:02x}:00.0" if named else None,
                    partition,
                    draw(st.sampled_from([None, "MI325X", "AMD Radeon RX 7900 XTX of a kind"])),
                    smi_index=len(gpus),
                    hip_ordinal=draw(st.none() | st.integers(0, 99)),
                    render_node=draw(st.none() | st.just(f"renderD{128 + len(gpus)}")),
                    numa_node=node,
                    healthy=draw(st.sampled_from([None, True, True, False])),
                )
            )
    topology = Topology("a-host-with-a-name-that-is-longer-than-any-sheet-is-wide" * 2, tuple(gpus))
    topology = replace(topology, gpus=tuple(sorted(gpus, key=lambda g: (g.bdf or "", g.partition))))
    keys = list(topology.by_key)
    pairs = list(itertools.combinations(sorted(keys), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=40)) if pairs else []
    links = tuple(
        Link(
            a,
            b,
            draw(st.sampled_from(["xgmi", "pcie", None])),
            weight=draw(st.sampled_from([None, 15, 30, 72])),
        )
        for a, b in chosen
    )
    notes = []
    for number in range(draw(st.integers(0, 6)) if len(View(topology).boards) > 2 else 0):
        code = draw(st.sampled_from(["TOPO-VRAM", "TOPO-XGMI-DOWN", "TOPO-ASYMMETRY"]))
        a, b = draw(st.sampled_from(pairs))
        parts = draw(st.sampled_from([((a,),), ((a, b),), ()]))
        about = " – ".join(parts[0]) if parts else "the host"
        severity = draw(st.sampled_from(["error", "warning", "info"]))
        notes.append((finding(code, f"{about}: case {number}", severity), parts))
    owned = draw(st.lists(st.sampled_from(keys), unique=True, max_size=12)) if keys else []
    placed = cuts(owned[:4], owned[4:]) if draw(st.booleans()) else None
    return noted(replace(topology, links=links), *notes), placed


@examples(0.6)
@given(hosts())
def test_everything_is_there_once_and_nothing_covers_another(case):
    topology, placed = case
    svg = topology_svg(topology, placed)
    found = [element.get("data-gpu") for element in parsed(svg).iter() if element.get("data-gpu")]
    assert sorted(found) == sorted(topology.by_key)
    below = listed(svg)
    assert len(below) == len(topology.findings)
    on_boards, on_links = marked(svg, "data-board"), marked(svg, "data-link")
    many = len(View(topology).boards) > 16
    for note in topology.findings:
        (number,) = [n for n, text in below.items() if f"{note.code} {note.message}" in text]
        subject, _colon, _case = note.message.rpartition(": ")
        names = sorted({name.split("#")[0] for name in subject.split(" – ")})
        lines = [ends for ends, numbers in on_links.items() if number in numbers]
        spots = [board for board, numbers in on_boards.items() if number in numbers]
        if subject == "the host":
            assert (lines, spots) == ([], [])
        elif len(names) == 1 or many or not topology.links:
            assert (lines, sorted(spots)) == ([], names)
        else:
            # A pair with an unusable end has no line unless something links it.
            assert (lines, spots) == ([" ".join(names)], []) or sorted(spots) == names
    height = float(parsed(svg).get("height"))
    for rectangles in cards(svg):
        assert all(apart(a, b) for a, b in itertools.combinations(rectangles, 2))
        assert all(
            x >= 0 and y >= 0 and x + w <= 900 and y + h <= height for x, y, w, h in rectangles
        )
    for element in parsed(svg).iter(f"{SVG}text"):
        if element.get("class") not in ("note", "part") and element.get("x"):
            wide = {"host": 14, "summary": 7.4, "head": 9.1}.get(element.get("class"), 6.8)
            assert float(element.get("x")) + wide * len("".join(element.itertext())) <= 905
        assert 0 < float(element.get("y")) <= height


def test_a_large_host_is_no_large_file():
    assert len(topology_svg(cpx())) < 60_000
    assert len(topology_svg(host([range(64)], [range(64)]))) < 60_000
