# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every form of amd-smi's commands, 23.x to 26.x, alone: what it says is what is read."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers.machine import Machine, Wire

MESH = printers.mesh()
ADDRESSES = [card.bdf for card in MESH.cards]
RANKS = [card.rank for card in MESH.cards]
TWO_HIVES = Machine(
    MESH.cards,
    lambda a, b: Wire() if a.numa == b.numa else Wire("PCIE", 72, 3, (0, 0)),
)


def codes(topology):
    return [finding.code for finding in topology.findings]


def fields(topology, *names):
    return [tuple(getattr(gpu, name) for name in names) for gpu in topology.gpus]


@pytest.mark.parametrize("newer", [{}, {"enumeration": True}])
def test_list_text(newer):
    topology = read(amd.list_text(MESH, **newer), "list.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
    if newer:
        assert fields(topology, "render_node", "card", "oam_id")[0] == ("renderD129", "card1", 7)


def test_list_text_before_6_3_has_no_kfd_node_and_so_no_ordinal():
    topology = read(amd.list_text(MESH, kfd=False), "list.txt")
    assert fields(topology, "kfd_node", "hip_ordinal") == [(None, None)] * 8


def test_a_user_outside_the_groups_is_told_and_eight_gpus_stay_eight():
    topology = read(amd.list_without_groups(MESH), "list.txt")
    assert fields(topology, "bdf", "kfd_node") == [(None, None)] * 8
    (message,) = [one.message for one in topology.findings if one.code == "TOPO-TOOL-FAILED"]
    assert "groups render and video" in message


STATICS = {
    "text": amd.static_text(MESH),
    "text beside CPUs": amd.static_text(MESH, host_processor=True),
    "6.x": amd.static_json(MESH),
    "6.x, older key": amd.static_json(MESH, old=True),
    "7.x": amd.static_json(MESH, wrapped=True),
}


@pytest.mark.parametrize("form", STATICS)
def test_static(form):
    topology = read(STATICS[form], "static.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert set(
        fields(topology, "model", "compute_partition", "memory_partition", "vram_bytes")
    ) == {("MI325X", "SPX", "NPS1", MESH.cards[0].vram)}
    assert [gpu.numa_node for gpu in topology.gpus] == [card.numa for card in MESH.cards]


def test_an_empty_gpu_data_is_no_gpu():
    topology = read('{"gpu_data": []}', "static.json")
    assert codes(topology) == ["TOPO-NO-GPUS"]


def test_the_linear_topology_of_6_0():
    topology = read(amd.topology_linear(TWO_HIVES), "topology.txt")
    links = {(link.type, link.hops, link.weight) for link in topology.links}
    assert links == {("xgmi", 1, 15), ("pcie", 3, 72)}
    assert len(topology.links) == 28
    assert codes(topology).count("TOPO-CELLS") == 0


def test_a_linear_topology_that_is_cut_is_no_smaller_host():
    text = amd.topology_linear(TWO_HIVES)
    topology = read(text[: text.index("GPU: 5")], "topology.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in codes(topology)


def test_cells_that_are_an_error_are_unknown():
    text = amd.topology_linear(MESH).replace("GPU_3: XGMI", "GPU_3: AMDSMI_STATUS_INVAL")
    topology = read(text, "topology.txt")
    assert "TOPO-CELLS" in codes(topology)
    assert topology.link("GPU0", "GPU3").type == "xgmi"  # the other direction has it


def test_partitions_that_share_an_address_stay_apart_in_a_table():
    cards = tuple(card for card in MESH.cards[:2] for _part in range(4))
    topology = read(printers.amd_smi_topology(Machine(cards)), "topology.txt")
    assert len(topology.gpus) == 8
    assert len(topology.links) == 16  # the printer calls equal cards SELF
    assert "TOPO-BDF-SHARED" in codes(topology)
    assert "TOPO-TRUNCATED" not in codes(topology)


def test_6_1_xgmi_metrics_tell_who_is_linked():
    topology = read(amd.xgmi_text(TWO_HIVES, by_address=True), "xgmi.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert {link.type for link in topology.links} == {"xgmi"}
    assert len(topology.links) == 12


XGMI = {"text": amd.xgmi_text, "JSON": amd.xgmi_json}


@pytest.mark.parametrize("form", XGMI)
def test_links_that_are_all_up_raise_nothing(form):
    topology = read(XGMI[form](MESH), "xgmi.txt")
    assert {link.type for link in topology.links} == {"xgmi"}
    assert len(topology.links) == 28
    assert "TOPO-XGMI-DOWN" not in codes(topology)


@pytest.mark.parametrize("form", XGMI)
def test_a_link_that_is_down_is_told_and_pcie_is_what_remains(form):
    topology = read(XGMI[form](MESH, {(0, 3): "D", (3, 0): "D"}), "xgmi.txt")
    told = [one.message for one in topology.findings if one.code == "TOPO-XGMI-DOWN"]
    assert any(ADDRESSES[0] in text for text in told)
    assert any(ADDRESSES[3] in text for text in told)
    assert topology.link(ADDRESSES[0], ADDRESSES[3]).type == "pcie"
    assert topology.link(ADDRESSES[0], ADDRESSES[1]).type == "xgmi"


@pytest.mark.parametrize("form", XGMI)
def test_one_of_several_links_down_leaves_the_pair_linked(form):
    topology = read(XGMI[form](MESH, {(0, 3): "U/D", (3, 0): "D/U"}), "xgmi.txt")
    assert "TOPO-XGMI-DOWN" in codes(topology)
    assert topology.link(ADDRESSES[0], ADDRESSES[3]).type == "xgmi"


@pytest.mark.parametrize("state", ["D", "X", "N/A"])
@pytest.mark.parametrize("form", XGMI)
def test_a_guest_that_sees_no_port_up_has_no_broken_fabric(form, state):
    states = {(a, b): state for a in range(8) for b in range(8)}
    topology = read(XGMI[form](MESH, states), "xgmi.txt")
    assert "TOPO-XGMI-DOWN" not in codes(topology)
    assert {link.type for link in topology.links} == {"xgmi"}


def test_a_link_that_is_down_outweighs_the_kernels_tree():
    bundle = printers.bundle(MESH)
    text = amd.xgmi_json(MESH, {(0, 3): "D", (3, 0): "D"})
    bundle["commands"]["amd_smi_xgmi"] = printers.command(text, "amd-smi", "xgmi", "--json")
    topology = from_evidence(bundle)
    assert topology.link(ADDRESSES[0], ADDRESSES[3]).type == "pcie"
    assert topology.link(ADDRESSES[0], ADDRESSES[3]).weight is None
    assert "TOPO-XGMI-DOWN" in codes(topology)


def test_the_run_together_sentinel_is_no_link():
    text = amd.xgmi_text(Machine(MESH.cards[:2], lambda a, b: Wire("PCIE", 40, 2, (0, 0))))
    text = text.replace("32 Gb/s   512 Gb/s       N/A", "65535 Gb/s4294967295 Gb/sN/A")
    assert "65535 Gb/s4294967295 Gb/sN/A" in text
    topology = read(text, "xgmi.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES[:2]
    assert topology.links == ()


def test_xgmi_that_is_cut_is_no_smaller_host():
    text = amd.xgmi_text(MESH)
    topology = read(text[: text.index("GPU5   0000:a6:00.0  32")], "xgmi.txt")
    assert "TOPO-TRUNCATED" in codes(topology)


@pytest.mark.parametrize("old", [False, True])
def test_partition_ids(old):
    topology = read(amd.partition_text(64, 8, old), "partition.txt")
    assert [gpu.partition for gpu in topology.gpus] == list(range(8)) * 8
    assert set(fields(topology, "compute_partition", "memory_partition")) == {("CPX", "NPS1")}


@pytest.mark.parametrize("one_document", [True, False])
def test_partition_json(one_document):
    topology = read(amd.partition_json(MESH, one_document), "partition.json")
    assert set(fields(topology, "compute_partition", "memory_partition")) == {("SPX", "NPS1")}
    assert len(topology.gpus) == 8


def test_the_box():
    topology = read(amd.box(MESH), "amd-smi.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert fields(topology, "hip_ordinal", "oam_id") == [
        (rank, 7 - index) for index, rank in enumerate(RANKS)
    ]
    assert {gpu.compute_partition for gpu in topology.gpus} == {"SPX"}


@pytest.mark.parametrize(
    ("platform", "virtual"),
    [("Linux Baremetal", False), ("Linux Guest", True), ("Linux Guest (Passthr", None)],
)
def test_the_box_says_whether_it_is_in_a_guest(platform, virtual):
    text = amd.box(MESH).replace("Linux Baremetal     ", f"{platform:<20}")
    assert {gpu.virtual_function for gpu in read(text, "t").gpus} == {virtual}


def test_the_box_without_addresses_has_all_gpus():
    topology = read(amd.box(MESH, bus=False), "amd-smi.txt")
    assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
    assert "TOPO-NO-BDF" in codes(topology)


@pytest.mark.parametrize(
    "end",
    ["|   5       7", "| 0000:a6:00.0", "|   4  "],
)
def test_s07_a_box_that_is_cut_is_an_error(end):
    text = amd.box(MESH)
    assert "TOPO-TRUNCATED" in codes(read(text[: text.index(end)], "amd-smi.txt"))


def test_a_box_that_ends_at_its_last_rule_has_all_gpus():
    text = amd.box(MESH)
    topology = read(text[: text.index("| Processes:")], "amd-smi.txt")
    assert len(topology.gpus) == 8
    assert not {"TOPO-TRUNCATED", "TOPO-NO-END"} & set(codes(topology))


def test_the_default_view_as_json():
    topology = read(amd.box_json(MESH), "amd-smi.json")
    assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
    assert topology.gpus[0].oam_id == 7


@pytest.mark.parametrize(
    "text",
    [
        '{"error": "Command \'topology\' is invalid", "code": -3}',
        "amdsmi_cli_exceptions.AmdSmiInvalidCommandException: {'error': 'x', 'code': -1}\n",
        "Command 'topologie' is invalid. Run 'amd-smi -h' for more info. Error code: -2\n",
        "usage: amd-smi [-h]  ...\namd-smi: error: unrecognized arguments: -e\n",
        "OSError: [Errno 24] Too many open files\n$ amd-smi list\n",
        "amdsmi.amdsmi_exception.AmdSmiLibraryException: Error code:\n\t10 | AMDSMI_STATUS_NO_PERM"
        " - Permission Denied\n",
    ],
)
def test_a_refusal_is_told_and_is_no_host_without_gpus(text):
    topology = read(text, "amd-smi.txt")
    assert codes(topology) == ["TOPO-TOOL-FAILED", "TOPO-NO-GPU-DATA"]


def test_too_many_open_files_after_some_gpus_is_a_cut_list():
    text = amd.list_text(MESH)
    text = text[: text.index("GPU: 5")] + "OSError: [Errno 24] Too many open files\n"
    topology = read(text, "list.txt")
    assert "TOPO-TRUNCATED" in codes(topology)
    assert {gpu.hip_ordinal for gpu in topology.gpus} == {None}


def test_numbers_that_skip_a_gpu_are_a_cut_list():
    text = amd.list_text(MESH)
    first, second = text.index("GPU: 3"), text.index("GPU: 5")
    topology = read(text[:first] + text[second:], "list.txt")
    (finding,) = [one for one in topology.findings if one.code == "TOPO-TRUNCATED"]
    assert "GPU 3, 4" in finding.message


def test_fewer_gpus_than_were_asked_for_are_a_cut_list():
    text = "$ amd-smi list -g 0 1 2\n" + amd.list_text(Machine(MESH.cards[:2]))
    assert "TOPO-TRUNCATED" in codes(read(text, "list.txt"))


@pytest.mark.parametrize(
    "command",
    ["amd-smi list -g 0", "sudo amd-smi static --asic | head -20", "amd-smi list --gpu=0"],
)
def test_what_was_selected_is_not_the_host(command):
    machine = Machine(MESH.cards[:1])
    topology = read(f"root@gpu-001:~# {command}\n{amd.list_text(machine)}", "list.txt")
    assert "TOPO-SELECTED" in codes(topology)
    assert topology.gpus[0].hip_ordinal is None


def test_csv_is_refused_with_what_to_do():
    from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

    for text in (
        "gpu,gpu_bdf,gpu_uuid\r\n0,0000:05:00.0,abff74a5-0000-1000-8000-000000000000\r\n",
        "\n\ndevice,Device ID,PCI Bus\ncard0,0x74a5,0000:05:00.0\n",
    ):
        with pytest.raises(ApiaryError) as refusal:
            read(text, "list.csv")
        (finding,) = refusal.value.findings
        assert finding.code == "TOPO-CSV"
        assert "--json" in finding.remedy


def test_json_around_which_a_user_is_warned():
    text = amd.WARNING + "\n" + json.dumps([{"gpu": 0, "bdf": "N/A"}])
    assert "TOPO-TOOL-FAILED" in codes(read(text, "list.json"))
