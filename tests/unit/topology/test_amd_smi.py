# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""amd-smi's text and JSON."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Link

from tests.support.printers import machine as printers


def codes(topology):
    return [finding.code for finding in topology.findings]


@pytest.mark.parametrize(
    "text",
    [
        printers.amd_smi_topology(printers.mesh()),
        printers.amd_smi_topology(printers.mesh(), blank_lines=False),
        "$ amd-smi topology\n" + printers.amd_smi_topology(printers.mesh()),
        printers.amd_smi_topology_json(printers.mesh()),
        "WARNING: User is missing a group\n" + printers.amd_smi_topology_json(printers.mesh()),
    ],
    ids=["tables", "tables of ROCm 7", "after a prompt", "JSON", "JSON after a warning"],
)
def test_topology_is_read_by_bus_address(text):
    topology = read(text, "topology")
    expected = Link("0000:05:00.0", "0000:e5:00.0", "xgmi", 1, 15, (50000, 50000))
    assert topology.link("0000:e5:00.0", "0000:05:00.0") == expected
    assert len(topology.links) == 28
    assert codes(topology) == []


def test_the_old_schema_has_no_addresses():
    topology = read(printers.amd_smi_topology_json(printers.mesh(), old=True), "old.json")
    assert topology.link("GPU0", "GPU1") == Link("GPU0", "GPU1", "xgmi", 1, 15, (50000, 50000))
    assert codes(topology) == ["TOPO-NO-BDF"]


def test_only_the_selected_fields_are_known():
    document = [
        {"gpu": i, "bdf": f"0000:0{i}:00.0", "links": [{"gpu": 1 - i, "link_type": "PCIE"}]}
        for i in range(2)
    ]
    topology = read(json.dumps(document), "t.json")
    assert topology.links == (Link("0000:00:00.0", "0000:01:00.0", "pcie"),)


def test_list_gives_every_index_space():
    topology = read(printers.amd_smi_list_json(printers.mesh()), "list.json")
    gpu = topology.by_key["0000:05:00.0"]
    assert (gpu.smi_index, gpu.kfd_node, gpu.hip_ordinal, gpu.render_node, gpu.card) == (
        0,
        3,
        1,
        "renderD129",
        "card1",
    )
    assert gpu.unique_id == "1000000000000001"


LIST = """GPU: 0
    BDF: 0000:0c:00.0
    UUID: 00ff74a1-0000-1000-8000-000000000000
    KFD_ID: 18421
    NODE_ID: 2
    PARTITION_ID: 0
    RENDER: renderD128
    CARD: card0
    HSA_ID: 2
    HIP_ID: 0
    HIP_UUID: GPU-9ff0c5f642c689c2

GPU: 1
    BDF: 0000:0c:00.1
    UUID: 00ff74a1-0000-1000-8000-000000000000
    KFD_ID: 48116
    NODE_ID: 3
    PARTITION_ID: 1
    RENDER: N/A
    CARD: N/A
    HSA_ID: 3
    HIP_ID: 1
    HIP_UUID: GPU-9ff0c5f642c689c2
"""


def test_partitions_are_listed_under_their_gpu():
    topology = read(LIST, "list.txt")
    assert list(topology.by_key) == ["0000:0c:00.0#0", "0000:0c:00.0#1"]
    assert topology.gpus[1].render_node is None
    assert [gpu.hip_ordinal for gpu in topology.gpus] == [0, 1]


@pytest.mark.parametrize("marker", ["...", "[output truncated]", "…"])
def test_lines_left_out_are_an_error(marker):
    topology = read(LIST + marker + "\n", "list.txt")
    assert "TOPO-TRUNCATED" in codes(topology)
    assert topology.gpus[0].hip_ordinal == 0  # printed, not ranked


def test_a_cut_block_is_told():
    assert "TOPO-NO-END" in codes(read(LIST[: LIST.rindex("    HSA_ID")], "list.txt"))


STATIC = {
    "gpu": 0,
    "asic": {"device_id": "0x74a5", "oam_id": 5, "market_name": "whatever"},
    "bus": {"bdf": "0000:05:00.0"},
    "vram": {"size": {"value": 262128, "unit": "MB"}},
    "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0},
    "numa": {"node": 1, "affinity": -1},
}


@pytest.mark.parametrize("document", [[STATIC], {"gpu_data": [STATIC]}], ids=["6.x", "7.x"])
def test_static_is_read_in_both_wrappings(document):
    (gpu,) = read(json.dumps(document), "static.json").gpus
    assert (gpu.bdf, gpu.model, gpu.oam_id) == ("0000:05:00.0", "MI325X", 5)
    assert gpu.vram_bytes == 262128 * 2**20
    assert (gpu.compute_partition, gpu.memory_partition) == ("SPX", "NPS1")
    # Affinity -1 is unknown; the computed node stands in.
    assert gpu.numa_node == 1


def test_static_text_passes_over_the_cpu_block():
    text = """CPU: 0
    SMU:
        FW_VERSION: 85.90.0
...
GPU: 0
    ASIC:
        DEVICE_ID: 0x74a0
        OAM_ID: 0
    BUS:
        BDF: 0000:01:00.0
    NUMA:
        NODE: 0
        AFFINITY: 0
        CPU AFFINITY:
                0xffffff
    VRAM:
        SIZE: 96432 MB
"""
    topology = read(text, "static.txt")
    (gpu,) = topology.gpus
    assert (gpu.bdf, gpu.model, gpu.vram_bytes) == ("0000:01:00.0", "MI300A", 96432 * 2**20)
    assert codes(topology) == ["TOPO-OPEN-LIST"]


def test_the_box_is_read_for_what_it_cannot_cut():
    text = """
+------------------------------------------------------------------------------+
| AMD-SMI 26.0.0+37d158ab      amdgpu version: 6.12.12  ROCm version: 7.0.0    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:0d:00.0    AMD Instinct MI355X | 0 %      41 °C   0          124/1400 W |
|   0       1       7        SPX/NPS1 | 0 %        N/A           283/294896 MB |
+-------------------------------------+----------------------------------------+
"""
    (gpu,) = read(text, "box.txt").gpus
    assert (gpu.bdf, gpu.smi_index, gpu.hip_ordinal, gpu.oam_id) == ("0000:0d:00.0", 0, 1, 7)
    assert gpu.compute_partition == "SPX"


def test_a_link_that_is_down_is_told_and_unused_ports_are_not():
    text = """XGMI LINK STATUS TABLE:
GPU LINK PORT STATUS:
       bdf           port_num
GPU0   0000:05:00.0  U  U  U  U  D  U  U  X
GPU1   0000:26:00.0  U  U  U  U  U  U  U  X
GPU2   0000:46:00.0  X  X  X  X  X  X  X  X
"""
    topology = read(text, "xgmi.txt")
    down = [one.message for one in topology.findings if one.code == "TOPO-XGMI-DOWN"]
    assert len(down) == 1
    assert "0000:05:00.0" in down[0]
    assert "port 4" in down[0]


def test_values_run_together_do_not_hide_a_gpu():
    text = (
        "LINK METRIC TABLE:\n       bdf           bit_rate  max_bandwidth  link_type\n"
        "GPU0   0000:03:00.0  65535 Gb/s4294967295 Gb/sN/A\n"
        "GPU1   0000:0c:00.0  65535 Gb/s4294967295 Gb/sN/A\n"
    )
    assert len(read(text, "xgmi.txt").gpus) == 2


@pytest.mark.parametrize("rows", range(8))
def test_a_cut_table_is_an_error_and_no_smaller_node(rows):
    lines = printers.amd_smi_topology(printers.mesh()).splitlines()
    topology = read("\n".join(lines[: 2 + rows]), "topology.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in codes(topology)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ERROR:root:Driver not loaded (amdgpu not found in modules)\n", "TOPO-NO-GPUS"),
        ('{"error": "Command \'topology\' not supported", "code": -3}\n', "TOPO-TOOL-FAILED"),
        (
            "amdsmi.amdsmi_exception.AmdSmiLibraryException: Error code:\n"
            "\t10 | AMDSMI_STATUS_NO_PERM - Permission Denied\n",
            "TOPO-TOOL-FAILED",
        ),
    ],
)
def test_a_failure_is_a_finding(text, code):
    topology = read(text, "failed.txt")
    assert topology.gpus == ()
    assert code in codes(topology)
    assert [one.code for one in topology.findings if one.severity == "error"] == [
        "TOPO-NO-GPUS" if code == "TOPO-NO-GPUS" else "TOPO-NO-GPU-DATA"
    ]


def test_an_exception_after_some_gpus_is_a_cut_listing():
    topology = read(LIST + "\nOSError: [Errno 24] Too many open files\n", "list.txt")
    assert len(topology.gpus) == 2
    assert "TOPO-TRUNCATED" in codes(topology)


def test_cut_json_is_refused():
    with pytest.raises(ApiaryError) as refusal:
        read(printers.amd_smi_topology_json(printers.mesh())[:2000], "cut.json")
    assert [finding.code for finding in refusal.value.findings] == ["TOPO-DAMAGED-JSON"]
