# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the generator of outputs (tests/property/test_generated.py) found to be read wrongly."""

import re

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
    for form in FORMATS:
        table = form.facts & LINKS or re.search("xgmi|access", form.name)
        listed = "TOPO-OPEN-LIST" in codes(form.show(MESH))
        assert listed is not bool(table), form.name
