# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""rocm-smi's text and JSON."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Link

from tests.support.printers import machine as printers


def codes(topology):
    return [finding.code for finding in topology.findings]


def errors(topology):
    return [finding.code for finding in topology.findings if finding.severity == "error"]


def frame(title, *lines):
    titles = ("ROCm System Management Interface", title, "", "End of ROCm SMI Log")
    banner, heading, rule, end = (f" {text} ".center(90, "=") for text in titles)
    return "\n".join(["", "", banner, heading, *lines, rule.replace(" ", "="), end, ""])


def test_showtopo_gives_every_pair_and_numa_node():
    topology = read(printers.rocm_smi_topology(printers.mesh()), "showtopo.txt")
    assert len(topology.links) == 28
    assert topology.link("GPU0", "GPU7") == Link("GPU0", "GPU7", "xgmi", 1, 15)
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [gpu.smi_index for gpu in topology.gpus] == list(range(8))
    assert codes(topology) == ["TOPO-NO-BDF"]


def test_json_joins_addresses_and_links_by_the_tools_own_index():
    topology = read(printers.rocm_smi_json(printers.mesh()), "all.json")
    first = topology.by_key["0000:05:00.0"]
    assert (first.device_id, first.model, first.smi_index) == ("74a5", "MI325X", 0)
    assert first.unique_id == "1000000000000001"
    assert first.vram_bytes == 274861129728
    assert topology.link("0000:05:00.0", "0000:26:00.0").weight == 15
    assert codes(topology) == []


def test_cards_in_any_order_come_in_bus_order():
    document = {
        "card0": {"PCI Bus": "0000:63:00.0", "GPU ID": "0x738c"},
        "card3": {"PCI Bus": "0000:03:00.0", "GPU ID": "0x738c"},
    }
    topology = read(json.dumps(document), "cards.json")
    assert [(gpu.bdf, gpu.smi_index) for gpu in topology.gpus] == [
        ("0000:03:00.0", 3),
        ("0000:63:00.0", 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "GPU[0]\t\t: Device ID: \t\t0x74a5",
        "GPU[0]          : GPU ID:          0x74a5",
        "GPU 0          : Device ID: 0x74a5",
    ],
)
def test_the_model_comes_from_the_device_id(line):
    (gpu,) = read(frame("ID", line), "id.txt").gpus
    assert (gpu.model, gpu.virtual_function) == ("MI325X", False)


def test_a_virtual_function_is_known_by_its_id():
    topology = read(frame("ID", "GPU[0]\t\t: Device ID: 0x74b9"), "id.txt")
    assert (topology.gpus[0].model, topology.gpus[0].virtual_function) == ("MI325X", True)
    assert "TOPO-VIRTUAL-FUNCTION" in codes(topology)


def test_names_are_no_identity():
    lines = ("GPU[0]\t\t: Card Series: \t\tAMD Instinct MI325X", "GPU[0]\t\t: Card Model: 0x74a5")
    assert read(frame("Product Info", *lines), "name.txt").gpus[0].model is None


CONCISE = """
===== ROCm System Management Interface =====
=============== Concise Info ===============
{}
============================================
============ End of ROCm SMI Log ===========
"""


def test_concise_table_ranks_hip_by_kfd_node():
    nodes = (3, 5, 4, 2, 7, 9, 8, 6)
    rows = [
        f"{i}       {node}     0x75a3,   2101{i}  44.0°C      257.0W    NPS1, SPX, 0        None"
        for i, node in enumerate(nodes)
    ]
    topology = read(CONCISE.format("\n".join(rows)), "summary.txt")
    assert [gpu.hip_ordinal for gpu in topology.gpus] == [1, 3, 2, 0, 5, 7, 6, 4]
    assert {gpu.model for gpu in topology.gpus} == {"MI355X"}
    assert {gpu.memory_partition for gpu in topology.gpus} == {"NPS1"}


@pytest.mark.parametrize(
    "row",
    [
        "0    31.0c  43.0W   800Mhz  1600Mhz  0%   auto  300.0W    0%   0%",
        "0    35.0c           N/A     800Mhz  1600Mhz  0%   auto  0.0W      0%   0%",
        "0       [0x74a1 : 0x00]       45.0°C      173.0W    NPS1, SPX       132Mhz  900Mhz",
        "0       2     0x74a1,   28851  45.0Â°C      137.0W    NPS1, SPX, 0        123Mhz  900Mhz",
        "0       2     N/A,      28851  N/A         N/A       N/A, N/A, 1         N/A     N/A",
    ],
)
def test_every_concise_layout_counts(row):
    assert len(read(CONCISE.format(row), "summary.txt").gpus) == 1


def test_partitions_of_showhw_share_an_address():
    rows = [
        f"{i}    {4 + i}     0x74a0  387{i}   gfx942   ENABLED  ENABLED   DISABLED  N/A    "
        f"0000:01:00.0  {i}"
        for i in range(3)
    ]
    text = frame("Concise Hardware Info", "GPU  NODE  DID     GUID   GFX VER  …", *rows)
    topology = read(text, "hw.txt")
    assert list(topology.by_key) == [f"0000:01:00.0#{i}" for i in range(3)]


def test_devices_with_one_address_stay_apart():
    lines = [f"GPU[{i}]\t\t: PCI Bus: 0000:01:00.1" for i in range(4)]
    topology = read(frame("PCI Bus ID", *lines), "bus.txt")
    assert list(topology.by_key) == [f"0000:01:00.1#{i}" for i in range(4)]
    assert "TOPO-BDF-SHARED" in codes(topology)


def test_weight_zero_between_xgmi_peers_is_unknown():
    machine = printers.Machine(printers.mesh().cards, lambda a, b: printers.Wire(weight=0))
    topology = read(printers.rocm_smi_topology(machine), "topo.txt")
    assert {(link.type, link.weight) for link in topology.links} == {("xgmi", None)}


@pytest.mark.parametrize("rows", range(1, 8))
def test_a_matrix_without_its_last_rows_is_an_error_and_no_smaller_node(rows):
    lines = printers.rocm_smi_topology(printers.mesh()).splitlines()
    start = next(i for i, line in enumerate(lines) if "Weight" in line)
    topology = read("\n".join(lines[: start + 2 + rows]), "topo.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in errors(topology)


def test_a_matrix_without_its_header_is_an_error():
    lines = printers.rocm_smi_topology(printers.mesh()).splitlines()
    start = next(i for i, line in enumerate(lines) if "Weight" in line)
    topology = read("\n".join(lines[start + 4 :]), "topo.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in errors(topology)


def test_a_matrix_of_whole_rows_still_needs_its_header():
    lines = printers.rocm_smi_topology(printers.mesh()).splitlines()
    start = next(i for i, line in enumerate(lines) if "Weight" in line)
    topology = read("\n".join(lines[: start + 1] + lines[start + 2 :]), "topo.txt")
    assert "TOPO-TRUNCATED" in errors(topology)


@pytest.mark.parametrize(
    ("one_way", "link", "told"),
    [
        (printers.Wire("PCIE", 40, 2), ("pcie", 40), "type xgmi one way and pcie the other"),
        (printers.Wire(weight=30), ("xgmi", 30), "weight 15 one way and 30 the other"),
    ],
)
def test_of_two_directions_the_worse_one_counts(one_way, link, told):
    def wire(a, b):
        return one_way if (a.bdf[5:7], b.bdf[5:7]) == ("26", "05") else printers.Wire()

    machine = printers.Machine(printers.mesh().cards, wire)
    topology = read(printers.rocm_smi_topology(machine), "topo.txt")
    found = topology.link("GPU0", "GPU1")
    assert (found.type, found.weight) == link
    (finding,) = [one for one in topology.findings if one.code == "TOPO-ASYMMETRY"]
    assert told in finding.message
    assert "GPU0 – GPU1" in finding.message


def test_a_cut_numa_section_is_an_error():
    text = printers.rocm_smi_topology(printers.mesh())
    topology = read(text[: text.index("GPU[3]")], "topo.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in errors(topology)


def test_link_types_under_the_wrong_title_are_not_weights():
    text = printers.rocm_smi_topology(printers.mesh())
    swapped = text.replace("Weight between", "x").replace("Link Type between", "Weight between")
    topology = read(swapped, "topo.txt")
    assert {link.weight for link in topology.links} == {None}
    assert "TOPO-CELLS" in codes(topology)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "cat: /sys/module/amdgpu/initstate: No such file or directory\n"
            "ERROR:root:Driver not initialized (amdgpu not found in modules)\n",
            "driver is not loaded",
        ),
        ("ERROR:root:ROCm SMI returned 8 (the expected value is 0)\n", "failed to start"),
        ("WARNING: No AMD GPUs specified\n" + CONCISE.format(""), "sees no GPU"),
    ],
)
def test_no_gpus_comes_with_the_reason(printed, reason):
    topology = read(printed, "none.txt")
    assert topology.gpus == ()
    (finding,) = [one for one in topology.findings if one.severity == "error"]
    assert finding.code == "TOPO-NO-GPUS"
    assert reason in finding.message


def test_a_version_is_no_statement_on_gpus():
    printed = "ROCM-SMI version: 2.0.0+8e78352\nROCM-SMI-LIB version: 6.0.0\n"
    assert codes(read(printed, "version.txt")) == ["TOPO-NO-GPU-DATA"]


def test_error_lines_among_the_data_are_not_data():
    text = printers.rocm_smi_topology(printers.mesh()).replace(
        "       GPU0",
        "get_link_weight_topology, Not supported on the given system\n"
        "ERROR: GPU[1]\t: Cannot read Link Weight: Not supported on this machine\n       GPU0",
        1,
    )
    assert len(read(text, "topo.txt").gpus) == 8


def test_output_that_begins_and_does_not_end_is_cut():
    whole = frame("PCI Bus ID", *(f"GPU[{i}]\t\t: PCI Bus: 0000:0{i}:00.0" for i in range(4)))
    assert codes(read(whole, "bus.txt")) == []
    topology = read(whole[: whole.index("GPU[2]")], "bus.txt")
    assert errors(topology) == ["TOPO-TRUNCATED"]


def test_an_excerpt_without_banner_and_end_is_none_that_was_cut():
    text = printers.rocm_smi_topology(printers.mesh())
    excerpt = text[text.index("=== Hops") : text.index("==== End of")]
    assert codes(read(excerpt, "topo.txt")) == ["TOPO-NO-END", "TOPO-NO-BDF"]


@pytest.mark.parametrize("last", ["matrix", "rule"])
def test_what_is_closed_before_the_end_proves_the_rest(last):
    if last == "matrix":
        text = printers.rocm_smi_topology(printers.mesh())
        text = text[: text.index("Numa Nodes") - 40].rstrip("=\n")
    else:
        text = frame("PCI Bus ID", "GPU[0]\t\t: PCI Bus: 0000:01:00.0")
        text = text[: text.index(" End of")].rstrip("=\n") + "\n" + "=" * 90 + "\n"
    topology = read(text, "topo.txt")
    assert "TOPO-NO-END" in codes(topology)
    assert errors(topology) == []


def test_the_hardware_table_before_rocm_6_refuses_nothing():
    # As showAllConciseHw() of rocm-smi 5.2.3, Debian's, prints it.
    rows = [
        "GPU  DID   GFX RAS  SDMA RAS  UMC RAS  VBIOS           BUS",
        "0    740f  ENABLED  ENABLED   ENABLED  113-D67301-063  0000:63:00.0",
        "1    740f  ENABLED  ENABLED   ENABLED  113-D67301-063  0000:43:00.0",
    ]
    buses = ["GPU[0]\t\t: PCI Bus: 0000:63:00.0", "GPU[1]\t\t: PCI Bus: 0000:43:00.0"]
    rule, title = "=" * 90, " PCI Bus ID ".center(90, "=")
    text = frame("Concise Hardware Info", *rows, rule, title, *buses)
    topology = read(text, "hw.txt")
    assert list(topology.by_key) == ["0000:43:00.0", "0000:63:00.0"]
    assert errors(topology) == []
