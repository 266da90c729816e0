# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every layout of rocm-smi, ROCm 4 to 7 and amd-smi's stand-in for it: what it says is read."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers.machine import Machine, Wire

MESH = printers.mesh()
RANKS = [card.rank for card in MESH.cards]


def codes(topology):
    return [finding.code for finding in topology.findings]


@pytest.mark.parametrize("layout", ["4.x", "5.7", "6.0", "6.1.1"])
def test_the_concise_table(layout):
    topology = read(rocm.concise(MESH, layout), "rocm-smi.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-NO-END" not in codes(topology)
    if layout == "6.1.1":
        assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
        assert {gpu.model for gpu in topology.gpus} == {"MI325X"}
    if layout in ("6.0", "6.1.1"):
        assert {gpu.compute_partition for gpu in topology.gpus} == {"SPX"}


def test_an_empty_concise_table_is_a_host_without_gpus():
    topology = read(rocm.LOW_POWER + rocm.concise(Machine(()), "6.1.1"), "rocm-smi.txt")
    assert topology.gpus == ()
    assert codes(topology) == ["TOPO-NO-GPUS"]


def test_a_node_that_several_gpus_claim_ranks_nobody():
    text = rocm.concise(MESH, "6.1.1")
    for rank in range(8):
        text = text.replace(f"       {2 + rank}     0x", f"       {rank // 4}     0x")
    topology = read(text, "rocm-smi.txt")
    assert len(topology.gpus) == 8
    assert {gpu.hip_ordinal for gpu in topology.gpus} == {None}


@pytest.mark.parametrize("old", [False, True])
def test_identity_text(old):
    topology = read(rocm.identity(MESH, old), "rocm-smi.txt")
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in MESH.cards]
    assert {gpu.device_id for gpu in topology.gpus} == {"74a5"}
    assert [gpu.hip_ordinal for gpu in topology.gpus] == ([None] * 8 if old else RANKS)


@pytest.mark.parametrize("kind", ["Link Type", "Weight", "Hops"])
def test_one_table_alone(kind):
    topology = read(rocm.one_table(MESH, kind), "rocm-smi.txt")
    assert (len(topology.gpus), len(topology.links)) == (8, 28)
    field = {"Link Type": "type", "Weight": "weight", "Hops": "hops"}[kind]
    assert {getattr(link, field) for link in topology.links} == {
        {"Link Type": "xgmi", "Weight": 15, "Hops": 1}[kind]
    }


def test_bandwidth_is_of_xgmi_only():
    wires = {True: Wire("XGMI", 15, 1, (50000, 200000)), False: Wire("PCIE", 72, 3, (0, 0))}
    machine = Machine(MESH.cards, lambda a, b: wires[a.numa == b.numa])
    topology = read(rocm.bandwidth(machine), "rocm-smi.txt")
    assert {(link.type, link.bandwidth_mb_s) for link in topology.links} == {
        ("xgmi", (50000, 200000))
    }
    assert len(topology.links) == 12
    assert "TOPO-LINK-UNKNOWN" in codes(topology)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_ports_of_the_metrics(as_json):
    ports = {2: ["1", "0", "1", "1", "1", "1", "1", "N/A"], 5: ["0"] * 8, 6: ["65535"] * 8}
    topology = read(rocm.metrics(MESH, ports, as_json), "metrics.txt")
    assert len(topology.gpus) == 8
    told = [one.message for one in topology.findings if one.code == "TOPO-XGMI-DOWN"]
    assert len(told) == 1
    assert "GPU2" in told[0]
    assert "port 1" in told[0]


def test_the_table_with_partition_ids():
    topology = read(rocm.hardware(Machine(MESH.cards[:4]), partitions=3), "hw.txt")
    assert [(gpu.bdf, gpu.partition) for gpu in topology.gpus] == [
        (card.bdf, part) for card in MESH.cards[:4] for part in range(3)
    ]
    assert sorted(gpu.hip_ordinal for gpu in topology.gpus) == list(range(12))


def test_partitions_under_one_address_are_not_collapsed():
    topology = read(rocm.bus_of_partitions(MESH, 8), "bus.txt")
    assert len(topology.gpus) == 64
    assert "TOPO-BDF-SHARED" in codes(topology)


def test_a_gpu_listed_once_is_the_first_of_its_partitions():
    bundle = printers.bundle(MESH, amd_smi=False)
    split = printers.partitioned(bundle, MESH, parts=8)
    topology = from_evidence(split)
    assert len(topology.gpus) == 64
    assert {(gpu.partition, gpu.smi_index is None) for gpu in topology.gpus} == {
        (part, part > 0) for part in range(8)
    }
    assert "TOPO-BDF-SHARED" not in codes(topology)


def test_xxxx_is_unknown():
    text = printers.rocm_smi_topology(
        Machine(MESH.cards, lambda a, b: Wire("XXXX" if a.numa != b.numa else "XGMI"))
    )
    topology = read(text, "topo.txt")
    assert len(topology.links) == 28
    assert [link.type for link in topology.links].count(None) == 16
    assert "TOPO-LINK-TYPE-UNKNOWN" in codes(topology)
    assert "TOPO-CELLS" not in codes(topology)


def test_one_gpu_has_tables_of_one_cell():
    topology = read(printers.rocm_smi_topology(Machine(MESH.cards[:1])), "topo.txt")
    assert (len(topology.gpus), topology.links) == (1, ())
    assert "TOPO-TRUNCATED" not in codes(topology)


@pytest.mark.parametrize(
    "text",
    [
        "NOT_SUPPORTED: Cannot print JSON/CSV output for concise output\n",
        "rocm_smi.py: error: unrecognized arguments: --showtopology\n",
        "=== ROCm System Management Interface ===\nIndexError: list index out of range\n"
        "=== End of ROCm SMI Log ===\n",
    ],
)
def test_a_refusal_is_told_and_is_no_host_without_gpus(text):
    assert codes(read(text, "t.txt")) == ["TOPO-TOOL-FAILED", "TOPO-NO-GPU-DATA"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ERROR: Unable to detect amdgpu driver. Exiting...\n", "driver is not loaded"),
        ("ERROR: No AMD GPU devices found\n", "sees no GPU"),
    ],
)
def test_the_stand_in_says_why_it_sees_nothing(text, reason):
    (finding,) = read(text, "t.txt").findings
    assert finding.code == "TOPO-NO-GPUS"
    assert reason in finding.message


def test_tasks_that_see_other_gpus_are_no_one_output():
    first = printers.rocm_smi_json(Machine(MESH.cards[:4]))
    second = printers.rocm_smi_json(Machine(MESH.cards[4:]))
    text = "".join(f"0: {line}\n" for line in first.splitlines())
    text += "".join(f"1: {line}\n" for line in second.splitlines())
    with pytest.raises(ApiaryError) as refusal:
        read(text, "srun.txt")
    assert [finding.code for finding in refusal.value.findings] == ["TOPO-SEVERAL-OUTPUTS"]


def test_tasks_that_see_the_same_gpus_are_one_output():
    lines = printers.rocm_smi_topology(MESH).splitlines()
    text = "".join(f"{task}: {line}\n" for line in lines for task in (0, 1))
    text += "srun: error: gpu-001: task 1: Exited with exit code 2\n"
    assert len(read(text, "srun.txt").links) == 28
