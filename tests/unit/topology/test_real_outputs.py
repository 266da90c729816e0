# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a review of real outputs found read wrongly (S), refused wrongly (R) or unhelpful."""

import dataclasses
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers import system
from tests.support.printers.machine import Machine, Wire, command

MESH = printers.mesh()
TOPOLOGY = printers.rocm_smi_topology(MESH)
LIST = amd.list_text(MESH)
HIVES = Machine(MESH.cards, lambda a, b: Wire() if a.numa == b.numa else Wire("PCIE", 72, 3))

AMD = "Advanced Micro Devices, Inc. [AMD/ATI]"


def codes(topology, severity=None):
    return [one.code for one in topology.findings if severity in (None, one.severity)]


def refusal(text):
    with pytest.raises(ApiaryError) as refused:
        read(text, "t.txt")
    (finding,) = refused.value.findings
    return finding


def message(topology, code):
    (finding,) = [one for one in topology.findings if one.code == code]
    return finding.message


@pytest.mark.parametrize("end", ["---- snipped ----\n", "[6 GPUs omitted]\n", "<snip>\n", ""])
def test_s03_a_printed_hip_id_proves_as_many_gpus(end):
    text = "".join(
        f"GPU: {index}\n    BDF: {bdf}\n    HIP_ID: {hip}\n\n"
        for index, bdf, hip in ((0, "0000:05:00.0", 7), (1, "0000:26:00.0", 6))
    )
    topology = read(text + end, "t.txt")
    assert "TOPO-TRUNCATED" in codes(topology, "error")
    assert any("8 GPUs; 2 are" in one.message for one in topology.findings)


def test_s03_a_printed_partition_proves_those_before_it():
    text = "GPU: 0\n    BDF: 0000:05:00.0\n    PARTITION_ID: 3\n"
    assert "TOPO-TRUNCATED" in codes(read(text, "t.txt"), "error")
    assert "TOPO-TRUNCATED" not in codes(read(text.replace("3\n", "0\n"), "t.txt"))


def test_s04_lists_that_differ_in_their_uuids_are_two_hosts():
    other = re.sub(r"(UUID: )..", r"\1ab", LIST)
    finding = refusal(LIST + other)
    assert finding.code == "TOPO-SEVERAL-OUTPUTS"
    assert "uuid" in finding.message


def test_s04_whole_outputs_of_other_sizes_are_two_hosts():
    four = rocm.bus_of_partitions(Machine(MESH.cards[:4]), 1)
    assert refusal(TOPOLOGY + four).code == "TOPO-SEVERAL-OUTPUTS"
    assert len(read(TOPOLOGY + rocm.bus_of_partitions(MESH, 1), "t.txt").links) == 28


def test_s04_text_and_json_of_two_hosts_are_two():
    other = LIST.replace("0000:05:00.0", "0000:06:00.0")
    text = printers.amd_smi_topology_json(MESH) + "\n$ amd-smi list\n" + other
    assert refusal(text).code == "TOPO-SEVERAL-OUTPUTS"


def test_counts_of_listings_have_to_agree():
    cut = amd.static_text(MESH)
    text = LIST + "$ amd-smi static\n" + cut[: cut.index("GPU: 5")]
    assert "TOPO-TRUNCATED" in codes(read(text, "t.txt"), "error")


def bus(*addresses):
    lines = [f"GPU[{place}]\t\t: PCI Bus: {bdf}" for place, bdf in enumerate(addresses)]
    return rocm.frame(("PCI Bus ID", lines))


def test_s05_functions_of_one_gpu_are_its_partitions():
    topology = read(bus("0000:01:00.0", "0000:01:00.1", "0000:01:00.2", "0001:01:00.0"), "t.txt")
    identities = [(gpu.bdf, gpu.partition) for gpu in topology.gpus]
    assert identities == [(f"0000:01:00.{0}", part) for part in range(3)] + [("0001:01:00.0", 0)]


def test_s05_functions_that_repeat_tell_nothing():
    topology = read(bus("0000:01:00.0", "0000:01:00.1", "0000:01:00.1"), "t.txt")
    assert len(topology.gpus) == 3
    assert "TOPO-BDF-SHARED" in codes(topology)


@pytest.mark.parametrize("order", [1, -1])
def test_s06_links_of_one_tool_and_addresses_of_the_other_are_joined(order):
    text = "".join([printers.rocm_smi_topology(HIVES), "\n$ amd-smi list\n" + LIST][::order])
    topology = read(text, "t.txt")
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in MESH.cards]
    types = [link.type for link in topology.links]
    assert (types.count("xgmi"), types.count("pcie")) == (12, 16)
    assert "TOPO-BY-NUMBER" in codes(topology)
    assert codes(topology, "error") == []


def test_s06_gpus_numbered_by_card_are_not_joined_by_number():
    title = " ROCm System Management Interface "
    old = TOPOLOGY.replace(title.center(printers.WIDTH, "="), title.center(84, "="))
    topology = read(old + "$ amd-smi list\n" + LIST, "t.txt")
    assert topology.links == ()
    assert "TOPO-UNMATCHED" in codes(topology)
    assert (
        "kernel" not in next(x for x in topology.findings if x.code == "TOPO-UNMATCHED").remedy[:8]
    )


def test_s06_nodes_of_one_tool_go_to_the_gpus_of_the_other():
    nodes = system.numactl([range(4), range(4, 8)])
    numa = "Numa Nodes".join(TOPOLOGY.split("Numa Nodes"))
    topology = read(nodes + numa, "t.txt")
    assert [node.cpus for node in topology.numa_nodes] == ["0-3", "4-7"]
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4


def test_s06_evidence_of_amd_smi_and_rocm_smi_alone_has_the_links():
    commands = {
        "amd_smi_list": command(printers.amd_smi_list_json(MESH), "amd-smi", "list"),
        "rocm_smi_topology": command(TOPOLOGY, "rocm-smi", "--showtopo"),
    }
    bundle = printers.bundle(MESH) | {"files": {}, "links": {}, "commands": commands}
    topology = from_evidence(bundle)
    assert len(topology.links) == 28
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in MESH.cards]


@pytest.mark.parametrize("block", ["NIC: 0", "NIC:", "CPU: 0"])
def test_s11_another_devices_block_is_no_gpus(block):
    text = re.sub(r"(?m)^    NUMA:\n(?:     .*\n)*", "", amd.static_text(MESH))
    text += f"{block}\n    BUS:\n        BDF: 0000:aa:00.0\n    NUMA:\n        NODE: 1\n"
    topology = read(text, "t.txt")
    assert {gpu.numa_node for gpu in topology.gpus} == {None}
    assert topology.gpus[-1].bdf == MESH.cards[-1].bdf


@pytest.mark.parametrize("form", ["text", "json"])
def test_r01_a_status_is_a_value_of_what_a_gpu_lacks(form):
    status = "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported"
    text, plain = amd.static_text(MESH), amd.static_text(MESH)
    if form == "json":
        text, plain = amd.static_json(MESH), amd.static_json(MESH)
        text = text.replace('"bus":', f'"profile": "{status}", "bus":')
    else:
        text = text.replace("    NUMA:\n", f"    PROFILE: {status}\n    NUMA:\n")
    assert status in text
    topology = read(text, "t.txt")
    assert (topology.gpus, codes(topology)) == (read(plain, "t").gpus, codes(read(plain, "t")))


def test_r01_a_status_without_its_key_is_a_failure():
    text = LIST[: LIST.index("GPU: 4")] + "\t10 | AMDSMI_STATUS_NO_PERM - Permission Denied\n"
    assert "stopped after 4 GPUs" in message(read(text, "t.txt"), "TOPO-TRUNCATED")


NIC_TABLE = "             " + " ".join(card.bdf for card in MESH.cards) + "\n" + "".join(
    f"0000:{bus}:00.0 " + " ".join(f"{'NUMA':<12}" for _card in MESH.cards) + "\n"
    for bus in ("51", "d6")
)  # fmt: skip


@pytest.mark.parametrize("title", ["NIC_LINK_TYPE_TABLE:", "NIC-GPU TABLE:", "NIC/GPU PATH TABLE:"])
@pytest.mark.parametrize("first", [True, False])
def test_r04_an_unknown_table_refuses_only_itself(title, first):
    whole = printers.amd_smi_topology(MESH)
    parts = [whole, f"{title}\n{NIC_TABLE}"]
    topology = read("\n".join(parts[::-1] if first else parts), "t.txt")
    plain = read(whole, "t.txt")
    assert (topology.gpus, topology.links) == (plain.gpus, plain.links)
    assert codes(topology, "error") == []
    assert "TABLE" not in message(topology, "TOPO-UNREAD")


def test_r04_an_unknown_table_of_rocm_smi_refuses_only_itself():
    table = rocm.one_table(MESH, "Weight").replace("Weight between", "Latency between")
    topology = read(TOPOLOGY + table, "t.txt")
    assert topology.links == read(TOPOLOGY, "t.txt").links
    assert "Latency between two GPUs" in message(topology, "TOPO-UNREAD")


def test_processes_are_some_gpus_only():
    blocks = ["    PROCESS_INFO:\n        NAME: python\n        PID: 7\n"] * 7
    blocks.append("    PROCESS_INFO: No running processes detected\n")
    text = "".join(f"GPU: {index}\n{block}\n" for index, block in enumerate(blocks))
    topology = read(text, "t.txt")
    assert len(topology.gpus) == 8
    assert not {"TOPO-NO-END", "TOPO-TRUNCATED"} & set(codes(topology))


@pytest.mark.parametrize(("size", "known"), [(32, True), (256, False)])
def test_memory_of_partitions_is_known_where_it_can_be_their_own(size, known):
    text = "".join(
        f"GPU: {part}\n    BDF: 0000:05:00.0\n    PARTITION_ID: {part}\n"
        f"    ASIC:\n        DEVICE_ID: 0x74a5\n    VRAM:\n        SIZE: {size * 1024} MB\n\n"
        for part in range(8)
    )
    topology = read(text, "t.txt")
    expected = size * 2**30 if known else None
    assert [gpu.vram_bytes for gpu in topology.gpus] == [expected] * 8
    assert ("TOPO-PARTITION-VRAM" in codes(topology)) is not known


def test_numa_lines_that_are_missing_need_no_bios():
    nodes = system.numactl([range(4), range(4, 8)])
    topology = read(nodes + LIST, "t.txt")
    assert "TOPO-NUMA-NOT-SHOWN" in codes(topology)
    assert "TOPO-NUMA-UNKNOWN" not in codes(topology)


@pytest.mark.parametrize("place", ["Node", "IDs", "SCLK"])
def test_an_unknown_column_is_named_once_and_loses_nothing(place):
    plain = rocm.concise(MESH, "6.1.1")
    lines = []
    for line in plain.splitlines():
        row = re.match(r"\d ", line)
        if line.startswith("Device"):
            line = line.replace(place, f"XCP  {place}")
        elif row and place != "SCLK":
            line = re.sub(r"^(\d +)" if place == "Node" else r"^(\d +\d+ +)", r"\g<1>3    ", line)
        elif row:
            line = line.replace("None", "3    None")
        lines.append(line)
    topology = read("\n".join(lines) + "\n", "t.txt")
    known = read(plain, "t.txt").gpus
    if place == "IDs":  # which of the two numbers is the node is not certain
        known = tuple(dataclasses.replace(gpu, kfd_node=None, hip_ordinal=None) for gpu in known)
    assert topology.gpus == known
    assert message(topology, "TOPO-UNREAD") == "not understood: the column 'XCP'"


@pytest.mark.parametrize(
    "edit", [lambda line: line + " ", lambda line: re.sub(r"(?<=\w)( =+)===$", r"\1", line)]
)
def test_rules_that_a_page_changed_are_not_cut(edit):
    lines = rocm.concise(MESH, "6.1.1").splitlines()
    lines[1:] = map(edit, lines[1:]) if edit("") else lines[1:]
    topology = read("\n".join([edit(lines[0]), *lines[1:]]) + "\n", "t.txt")
    assert len(topology.gpus) == 8
    assert codes(topology, "error") == []


def test_a_command_that_selects_an_id_is_no_damaged_row():
    text = "$ lspci -d 1002:74a5 -PP\n" + system.lspci(MESH)
    topology = read(text, "t.txt")
    assert len(topology.gpus) == 8
    assert codes(topology, "error") == []


def test_buses_that_rise_are_no_numbers_of_lines():
    rows = [f"{bus}:00.0 Display controller: {AMD} Aldebaran\n" for bus in ("05", "15", "65", "75")]
    addresses = [gpu.bdf for gpu in read("".join(rows), "lspci.txt").gpus]
    assert addresses == [f"0000:{bus}:00.0" for bus in ("05", "15", "65", "75")]


def test_functions_on_the_bus_are_no_partitions():
    functions = ("01:00.0", "01:02.0", "01:02.1")
    rows = [f"{each} VGA compatible controller: {AMD} Ellesmere\n" for each in functions]
    topology = read("".join(rows), "lspci.txt")
    assert [gpu.bdf for gpu in topology.gpus] == [f"0000:{each}" for each in functions]
    assert "TOPO-PARTITION-COUNT" not in codes(topology)


def test_a_controller_of_another_vendor_is_no_damaged_row():
    text = f"03:00.0 Display controller: {AMD} Aldebaran\n81:00.0 3D controller: NVIDIA GA100\n"
    assert codes(read(text, "lspci.txt")) == ["TOPO-OPEN-LIST"]


def test_a_failed_probe_above_another_tool_is_told():
    text = "amdgpu: probe of 0000:26:00.0 failed with error -22\n"
    bus = "GPU[0]\t\t: PCI Bus: 0000:05:00.0"
    assert "TOPO-PROBE-FAILED" in codes(read(text + rocm.frame(("PCI Bus ID", [bus])), "t.txt"))


def test_ids_that_one_tool_alone_prints_are_no_other_order():
    text = "GPU: 0\n    BDF: 0000:03:00.0\n    NODE_ID: 2\n\n"
    unique = rocm.frame(("Unique ID", ["GPU[0]\t\t: Unique ID: 0x67c63ac3c3c637f9"]))
    topology = read(text + unique, "t.txt")
    assert topology.gpus[0].unique_id == "67c63ac3c3c637f9"
    assert codes(topology) == ["TOPO-BY-NUMBER"]


def test_a_table_s_title_that_is_a_key_too_gives_no_margin():
    blocks = [
        f"GPU: {n}\n    MEMORY_PARTITION:\n        CAPS: N/A\n        CURRENT: NPS1\n\n"
        for n in range(4)
    ]
    assert codes(read("".join(blocks), "p.txt")) == ["TOPO-OPEN-LIST", "TOPO-NO-BDF"]
