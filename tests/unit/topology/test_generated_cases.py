# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the generator of outputs (tests/property/test_generated.py) found to be read wrongly."""

import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers import system
from tests.support.printers.formats import FORMATS, LINKS
from tests.support.printers.machine import Card, Machine, Wire

MESH = printers.mesh()
OTHER = Machine(tuple(Card(f"0000:{bus:02x}:00.0", bus - 7) for bus in range(7, 13)))
FORM = {form.name: form.show for form in FORMATS}


def codes(text):
    try:
        return [finding.code for finding in read(text, "t.txt").findings]
    except ApiaryError as refusal:
        return [finding.code for finding in refusal.findings]


def test_65535_mb_of_memory_are_memory():
    text = amd.static_text(MESH).replace("SIZE: 262128 MB", "SIZE: 65535 MB")
    assert {gpu.vram_bytes for gpu in read(text, "s.txt").gpus} == {65535 * 2**20}


@pytest.mark.parametrize(
    "name", ["lspci", "lspci -nn -PP", "KFD properties", "rocm_bandwidth_test"]
)
def test_lists_of_two_hosts_are_several(name):
    assert codes(FORM[name](MESH) + FORM[name](OTHER)) == ["TOPO-SEVERAL-OUTPUTS"]


@pytest.mark.parametrize("options", ["", "-D -nn", "-n"])
def test_the_bus_that_is_listed_twice_is_one(options):
    text = system.lspci(MESH, options)
    assert len(read(text + text, "t.txt").gpus) == 8


@pytest.mark.parametrize(
    ("old", "new"),
    [("65:", "6z:"), ("Processing acc", "Procexsing Acc"), ("65:00", "65;00")],
)
def test_a_row_of_a_gpu_that_is_damaged_is_no_gpu_less(old, new):
    text = re.sub(r"(?m)^(0000:65.*)$", lambda m: m[1].replace(old, new), system.lspci(MESH, "-D"))
    assert "TOPO-TRUNCATED" in codes(text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[text.index("simd_count 1216") :],
        lambda text: text.replace("location_id", "location id", 1),
        lambda text: re.sub(r"(?m)^(unique_id \d+)\n", r"\1\n\1\n", text, count=1),
        lambda text: text.replace("simd_count 1216", "simd_count 0", 1),
        lambda text: re.sub(r"(?m)^unique_id.*\n", "", text, count=1),
    ],
    ids=["begins inside a node", "a name", "a line twice", "no SIMDs", "a line less"],
)
def test_properties_of_nodes_that_are_not_whole_are_cut(damage):
    assert "TOPO-TRUNCATED" in codes(damage(FORM["KFD properties"](MESH)))


def test_a_tree_whose_lines_are_cut_is_cut():
    lines = FORM["KFD"](MESH).split("\n")
    assert "TOPO-TRUNCATED" in codes("\n".join(line[:28] for line in lines))


@pytest.mark.parametrize("lost", ["Agent 5 ", "  Device Type:             GPU"])
def test_an_agent_that_is_not_whole_is_no_gpu_less(lost):
    text = system.rocminfo(MESH)
    place = text.index(lost, text.index("Agent 5"))
    assert "TOPO-TRUNCATED" in codes(text[:place] + text[text.index("\n", place) :])


@pytest.mark.parametrize(
    ("name", "whole", "cut"),
    [
        ("rocm-smi identity", "0x1000000000000001", "0x1000000"),
        ("amd-smi 25 list -e", "GPU-1000000000000001", "GPU-10000000000000"),
        ("rocminfo", "GPU-1000000000000001", "GPU-100000000000000"),
    ],
)
def test_an_id_that_is_cut_is_none(name, whole, cut):
    text = FORM[name](MESH)
    assert whole in text
    ids = [gpu.unique_id for gpu in read(text.replace(whole, cut), "t.txt").gpus]
    assert ids.count(None) == 1
    assert len(ids) == 8


def test_a_bandwidth_that_is_cut_is_none():
    text = re.sub("50000-50000", "50000-50", printers.amd_smi_topology(MESH), count=2)
    assert read(text, "t.txt").links[0].bandwidth_mb_s == (50000, 50000)
    text = re.sub("50000-50000", "50000-50", printers.amd_smi_topology(MESH))
    assert read(text, "t.txt").links[0].bandwidth_mb_s is None


def test_rules_without_their_end_are_lines_that_are_cut():
    text = "\n".join(line[:64] for line in rocm.identity(MESH).split("\n"))
    assert "TOPO-TRUNCATED" in codes(text)


@pytest.mark.parametrize("name", ["amd-smi 23 topology JSON", "amd-smi 26 partition JSON"])
def test_documents_of_other_sizes_are_of_two_hosts(name):
    assert codes(FORM[name](MESH) + FORM[name](OTHER)) == ["TOPO-SEVERAL-OUTPUTS"]


def test_two_boxes_in_one_are_several():
    mine, theirs = FORM["amd-smi 26 box"](MESH), FORM["amd-smi 26 box"](OTHER)
    lines = [line for line in theirs.split("\n") if re.match(r"\| (?:0000:|  \d )", line)]
    rows = mine.split("\n")
    place = next(n for n, line in enumerate(rows) if line.startswith("|   3 ")) + 1
    text = "\n".join([*rows[:place], *lines, *rows[place:]])
    assert codes(text) == ["TOPO-SEVERAL-OUTPUTS"]


def test_a_device_of_rocm_bandwidth_test_that_is_listed_twice_is_one():
    text = FORM["rocm_bandwidth_test"](MESH)
    line = next(line for line in text.split("\n") if line.startswith("Device: 5"))
    assert len(read(text.replace(line, f"{line}\n{line}"), "t.txt").gpus) == 8


def test_agents_whose_nodes_fall_are_not_whole():
    text = system.rocminfo(MESH)
    swapped = text.replace("Node:                    4 ", "Node:                    X ")
    swapped = swapped.replace("Node:                    5 ", "Node:                    4 ")
    assert "TOPO-TRUNCATED" in codes(swapped.replace("   X ", "   5 "))


def test_a_link_in_another_nodes_file_is_damage():
    text = FORM["KFD"](MESH)
    swapped = text.replace("nodes/3/io_links/1/", "nodes/x/io_links/1/")
    swapped = swapped.replace("nodes/5/io_links/1/", "nodes/3/io_links/1/")
    assert "TOPO-TRUNCATED" in codes(swapped.replace("nodes/x/", "nodes/5/"))


def test_a_bandwidth_without_its_least_is_none():
    text = re.sub(r"(?m)^min_bandwidth.*\n", "", FORM["KFD"](MESH))
    assert {link.bandwidth_mb_s for link in read(text, "t.txt").links} == {None}


def test_titles_that_changed_places_give_no_weight():
    text = printers.rocm_smi_topology(MESH)
    swapped = text.replace("Weight between", "X between").replace("Hops between", "Weight between")
    links = read(swapped.replace("X between", "Hops between"), "t.txt").links
    assert {(link.weight, link.hops) for link in links} == {(None, None)}


def test_tables_that_know_other_pairs_are_of_two_hosts():
    pcie = Machine(MESH.cards, lambda a, b: Wire("PCIE", 40, 2, (0, 0)))
    assert codes(rocm.bandwidth(MESH) + rocm.bandwidth(pcie)) == ["TOPO-SEVERAL-OUTPUTS"]


def test_one_gpu_on_two_numa_nodes_is_two():
    one = Machine((Card("0000:05:00.0", 0),))
    lines = FORM["rocm-smi numa"](one).split("\n")
    again = [line.replace(": 0", ": 1") for line in lines if "Numa Node:" in line]
    assert codes("\n".join([*lines[:4], *again, *lines[4:]])) == ["TOPO-SEVERAL-OUTPUTS"]


@pytest.mark.parametrize(
    "name", ["amd-smi 25 partition", "rocm-smi 5 concise", "rocm-smi 6.0 concise"]
)
def test_rows_of_two_hosts_in_one_table_are_several(name):
    mine, theirs = FORM[name](MESH).split("\n"), FORM[name](OTHER).split("\n")
    place = next(n for n, line in enumerate(mine) if re.match(r"3\s", line))
    rows = [line for line in theirs if re.match(r"\d\s", line)]
    text = "\n".join([*mine[:place], *rows, *mine[place:]])
    assert codes(text) == ["TOPO-SEVERAL-OUTPUTS"]


def test_an_output_that_begins_inside_another_is_cut():
    lines = FORM["rocm-smi metrics"](MESH).split("\n")
    assert "TOPO-TRUNCATED" in codes("\n".join([*lines[:9], *lines]))


def test_a_pair_before_the_first_gpu_is_no_gpu():
    text = amd.topology_linear(MESH)
    assert "TOPO-TRUNCATED" in codes(text.replace("GPU: 0\n", "", 1))


def test_an_id_of_pci_has_all_its_digits():
    text = printers.rocm_smi_json(MESH).replace("0x74a5", "0x74a")
    assert {gpu.device_id for gpu in read(text, "t.txt").gpus} == {None}


def test_a_list_says_that_nothing_shows_its_end():
    # Of a whole board lspci shows that it is one.
    few = Machine(tuple(replace(card, rank=place) for place, card in enumerate(MESH.cards[:6])))
    for form in FORMATS:
        closed = "JSON" in form.name or re.match("rocm|amd-smi 26.* box|rocminfo", form.name)
        table = form.facts & LINKS or re.search("xgmi|access", form.name)
        listed = "TOPO-OPEN-LIST" in codes(form.show(few))
        assert listed is not bool(closed or table), form.name
    assert codes(system.lspci(MESH)) == []


def _swapped(text, line, other):
    """The text with two lines exchanged, each the first of its kind behind the other's place."""
    lines = text.split("\n")
    a, b = lines.index(line), lines.index(other)
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def _without(text, *words):
    return "\n".join(line for line in text.split("\n") if not any(word in line for word in words))


def _first_of(text, line):
    return text[: text.index(line) + len(line)]


LIST = amd.list_text(MESH)
TYPE = "  Device Type:             GPU   \n"
BOX = amd.box(MESH)
TREE = FORM["KFD"](MESH)
LINK = re.search("==> nodes/2/io_links/1/properties <==\n(?:.+\n)+", TREE)[0]
DAMAGED = {
    "the head of a block stands inside another": _swapped(LIST, "GPU: 1", "    KFD_ID: 5001"),
    "the heads of two blocks are exchanged": _swapped(LIST, "GPU: 0", "GPU: 1"),
    "the head of a block is another word": LIST.replace("\nGPU: 1\n", "\nPGPU: 1\n"),
    "the head of a block is none": LIST.replace("\nGPU: 1\n", "\nG U: 1\n"),
    "the head of a block has no number": LIST.replace("\nGPU: 1\n", "\nGPU:\n"),
    "a block is unreadable": "GPU: 0\n" + re.sub("[A-Z]{2}", "}", LIST.split("\n", 1)[1]),
    "a box lacks a second row": BOX.split("|   0 ")[0] + BOX,
    "a second box begins inside": BOX + "|   0 " + amd.box(OTHER).split("|   0 ")[1],
    "tables of two hosts": FORM["amd-smi 26 topology"](Machine(MESH.cards[:1]))
    + FORM["amd-smi 26 topology"](MESH),
    "a link lacks its address": FORM["amd-smi 25 topology JSON"](MESH).replace(
        '"bdf": "0000:26:00.0",\n                "weight"', '"weight"', 1
    ),
    "an entry lacks its number": _without(FORM["amd-smi 25 list -e JSON"](MESH), '"gpu": 3'),
    "a name stands twice": FORM["amd-smi 25 list -e JSON"](MESH).replace(
        '"kfd_id": 5001', '"kfd_id": 5000,\n        "kfd_id": 5001'
    ),
    "a row of partitions is damaged": FORM["amd-smi 24 xgmi"](MESH).replace(
        "GPU7   00", "GPU7   0{"
    ),
    "rows are fewer than columns": _without(
        FORM["amd-smi 26 xgmi"](MESH), "STATUS", "GPU7   0", "GPU7\t"
    ),
    "an agent has no type": system.rocminfo(MESH)
    .replace(TYPE, "", 1)
    .replace(TYPE, f"{TYPE}{TYPE}", 1),
    "an address is cut": system.lspci(MESH, "-D -n")[3:],
    "a row stands behind the end": FORM["rocm-smi hardware"](MESH)
    + "7    9     0x74a5  6007   gfx942   ENABLED  ENABLED   ENABLED   N/A    0000:F5:00.0  0\n",
    "a row stands before its title": "7    35.0c  30.0W   925Mhz  1200Mhz  0%    auto  0%   0%\n"
    + FORM["rocm-smi 4 concise"](MESH),
    "a title is damaged": FORM["rocm-smi bus"](MESH)
    .replace("= PCI Bus ID =", "= VCI Bus ID =x")
    .replace("=\nGPU[0]", "x\nGPU[0]"),
    "a GPU's label is damaged": FORM["rocm-smi 5 identity"](MESH).replace("GPU[7]", "CPU[7]"),
    "a vendor is damaged": system.lspci(MESH, "-D -n").replace("1002:74a5", "1w02:74a5", 1),
    "a list begins inside a device": system.lspci(MESH).join(
        ["\tKernel driver in use: amdgpu\n", ""]
    ),
    "an address lacks its middle": system.lspci(MESH)
    .replace("0000:05:00.0", "0000:05", 1)
    .replace("0000:26:00.0", "0000:2600.0"),
    "a row lacks its number": re.sub("(?m)^7 ", "- ", FORM["amd-smi 25 partition"](MESH)),
    "a row lacks its mode": FORM["amd-smi 25 partition"](MESH).replace("SPX", "-1", 1),
    "a block goes on in another": LIST.replace(
        "    PARTITION_ID: 0\n\nGPU: 7\n    BDF: 0000:e5:00.0\n", ""
    ),
    "an output ends twice": FORM["rocm-smi 6.0 concise"](MESH).replace(
        "\n3 ", "\n==== End of ROCm SMI Log ====\n3 "
    ),
    "an address is lost": system.lspci(MESH, "-D -n").replace("0000:05:00.0", ""),
    "an agent is of no type": system.rocminfo(MESH).replace(TYPE, TYPE.replace("   ", " q ", 1), 1),
    "a field has no GPU": FORM["rocm-smi bus"](MESH).replace("GPU[7]", "..."),
    "a row is glued to its class": system.lspci(MESH, "-D -n").replace(
        "05:00.0 1200", "05:00.01200"
    ),
    "two rows are one": system.lspci(MESH, "-D -n").replace("\n0000:26", "_0000:26"),
    "a row has no ids": system.lspci(MESH, "-D -n").replace("1002:74a5", "", 1),
    "links of two hosts": FORM["amd-smi 26 xgmi"](Machine(MESH.cards[:3]))
    + FORM["amd-smi 26 xgmi"](Machine(MESH.cards[:4])),
    "two links lead to one node": TREE + LINK.replace("io_links/1", "io_links/9"),
    "a link is of no type of GPUs": TREE.replace("type 11", "type 1", 1),
    "a file's name is cut": TREE.replace("/properties <==", "/pro<=="),
    "an address is none of a bus": FORM["KFD properties"](MESH).replace(
        "domain 0", "domain " + "9" * 30, 1
    ),
    "the properties lack nodes": _first_of(
        FORM["KFD properties"](MESH), "unique_id 1152921504606846976\n"
    ),
    "a row's number has more digits": re.sub(
        r"(?m)^7 ", "7" * 30 + " ", FORM["rocm-smi 4 concise"](MESH)
    ),
    "two rows run together": re.sub(
        r"(?m)^(6 .*)\n(7 )", r"\1p\2", FORM["rocm-smi 4 concise"](MESH)
    ),
    "a row's number is below zero": FORM["rocm-smi concise"](MESH).replace("\n7  ", "\n-7 "),
    "two lines of GPUs run together": FORM["rocm-smi bus"](MESH).replace(
        "\nGPU[7]\t\t: PCI Bus", "GPU[7]\t\t: PCI Bs"
    ),
    "a row's target is damaged": FORM["rocm-smi hardware"](MESH)[::-1].replace("xfg", "fg", 1)[
        ::-1
    ],
    "the head of an agent is gone": re.sub(
        r"(?m)^  Uuid: +GPU.*\n(?s:.*?)(?=^  Node: )", "", FORM["rocminfo"](MESH), count=1
    ),
    "the table has no head and half of its rows": re.sub(
        r"(?m)^( +bdf .*|GPU[4-7] .*)\n", "", FORM["amd-smi 24 xgmi"](MESH)
    ),
    "devices are not in their order": re.sub(
        r"(?m)^(Device: 1, .*\n)((?:.*\n){9})", r"\2\1", FORM["rocm_bandwidth_test"](MESH)
    ),
    "a GPU is in two entries": re.sub(
        r'(?m)^( +)"partition": \{\n',
        r'\1"x": 1},{"gpu": 3, \g<0>',
        FORM["amd-smi 23 static JSON"](MESH),
        count=4,
    ),
    "the properties are cut": _first_of(FORM["KFD properties"](MESH), "simd_count 1216"),
}


def test_a_partition_whose_number_is_unknown_is_one_all_the_same():
    text = re.sub(
        r"(?m)^1 .*$", lambda row: row[0][:24] + "XXXX  XXXX", FORM["amd-smi 25 partition"](MESH)
    )
    assert len(read(text, "p.txt").gpus) == 8


def test_json_of_which_a_line_begins_elsewhere_is_damaged():
    lines = FORM["amd-smi 26 partition JSON"](MESH).split("\n")
    places = [place for place, line in enumerate(lines) if line == "        {"]
    lines[1], lines[places[5]] = lines[places[5]], lines[1]
    assert codes("\n".join(lines)) == ["TOPO-DAMAGED-JSON"]


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_is_damaged_in_its_structure_is_refused(damage):
    refusals = {"TOPO-TRUNCATED", "TOPO-SEVERAL-OUTPUTS", "TOPO-DAMAGED-JSON"}
    assert refusals & set(codes(DAMAGED[damage]))
