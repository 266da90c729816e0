# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sources that see different GPUs, number them differently, or guess: who is believed and told."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from tests.support.printers import machine as printers
from tests.support.printers import system as printers_system
from tests.support.printers.machine import Machine, command

MESH = printers.mesh()
SEVEN = Machine(MESH.cards[:7])
ADDRESSES = [card.bdf for card in MESH.cards]
LAST = ADDRESSES[7]
NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"


def codes(topology):
    return [finding.code for finding in topology.findings]


def told(topology, code="TOPO-SOURCES-DISAGREE"):
    return [finding.message for finding in topology.findings if finding.code == code]


def seven(bundle, *tools):
    """The bundle with tools that list one GPU less than the kernel."""
    commands = bundle["commands"]
    if "amd-smi" in tools:
        commands["amd_smi_list"]["stdout"] = printers.amd_smi_list_json(SEVEN)
        commands["amd_smi_topology"]["stdout"] = printers.amd_smi_topology_json(SEVEN)
    if "rocm-smi" in tools:
        commands["rocm_smi_identity"]["stdout"] = printers.rocm_smi_json(SEVEN)
    return bundle


@pytest.mark.parametrize(
    ("sources", "short", "message"),
    [
        ({"rocm_smi": False}, ["amd-smi"], "KFD lists it, amd-smi does not"),
        ({}, ["amd-smi", "rocm-smi"], "KFD lists it, amd-smi and rocm-smi do not"),
        ({}, ["rocm-smi"], "KFD and amd-smi list it, rocm-smi does not"),
        ({"sysfs": False}, ["amd-smi"], "rocm-smi lists it, amd-smi does not"),
        ({"sysfs": False}, ["rocm-smi"], "amd-smi lists it, rocm-smi does not"),
    ],
)
def test_a_gpu_that_a_source_leaves_out_is_told(sources, short, message):
    topology = from_evidence(seven(printers.bundle(MESH, **sources), *short))
    assert len(topology.gpus) == 8
    assert told(topology) == [f"GPU {LAST}: {message}"]


def test_several_gpus_that_are_left_out_make_one_finding():
    bundle = printers.bundle(MESH, rocm_smi=False, amd_smi=False)
    some = Machine(tuple(card for card in MESH.cards if card.rank < 4))
    bundle["commands"]["rocminfo"] = command(printers_system.rocminfo(some), "rocminfo")
    (message,) = told(from_evidence(bundle))
    assert message == "GPU 0000:85:00.0 and 3 more GPUs: KFD lists them, rocminfo does not"


def in_cpx(listed):
    """Eight GPUs in CPX mode, of whose 64 partitions amd-smi lists some."""
    bundle = printers.partitioned(
        printers.bundle(MESH, rocm_smi=False, amd_smi=False), MESH, parts=8
    )
    entries = []
    for number, gpu in enumerate(from_evidence(bundle).gpus[:listed]):
        entries.append({"gpu": number, "bdf": f"{gpu.bdf[:-1]}{gpu.partition}"})
        entries[-1] |= {"partition_id": gpu.partition, "node_id": gpu.kfd_node}
    bundle["commands"]["amd_smi_list"] = command(json.dumps(entries), "amd-smi", "list")
    return bundle


def test_a_partition_that_a_source_leaves_out_is_told():
    assert told(from_evidence(in_cpx(64))) == []
    assert told(from_evidence(in_cpx(63))) == [f"GPU {LAST}#7: KFD lists it, amd-smi does not"]


def test_a_tool_that_knows_no_partitions_leaves_none_out():
    bundle = in_cpx(64)
    whole = {
        f"card{number}": {"PCI Bus": address.upper()} for number, address in enumerate(ADDRESSES)
    }
    bundle["commands"]["rocm_smi_identity"] = command(json.dumps(whole), "rocm-smi")
    topology = from_evidence(bundle)
    assert sum(gpu.smi_index is not None for gpu in topology.gpus) == 64
    assert not [text for text in told(topology) if "rocm-smi does not" in text]
    del whole["card7"]
    bundle["commands"]["rocm_smi_identity"]["stdout"] = json.dumps(whole)
    (message,) = [text for text in told(from_evidence(bundle)) if "rocm-smi does not" in text]
    assert message.startswith(f"GPU {LAST}#0 and 7 more GPUs: KFD and amd-smi list them")


def test_a_container_may_be_shown_less_by_one_source():
    bundle = seven(printers.bundle(MESH, rocm_smi=False), "amd-smi")
    bundle["files"][f"{NODES}/2/properties"] = ""
    assert not [text for text in told(from_evidence(bundle)) if "amd-smi does not" in text]


@pytest.mark.parametrize("unreadable", [True, False], ids=["EPERM", "empty"])
@pytest.mark.parametrize("with_tool", [True, False], ids=["amd-smi", "sysfs alone"])
def test_in_a_container_hip_counts_the_gpus_in_view(unreadable, with_tool):
    """amd-smi's hip_id is the node id less the smallest in view: 0 and 3 for nodes 4 and 7."""
    bundle = printers.bundle(MESH, rocm_smi=False, amd_smi=False)
    for node in {*range(2, 10)} - {4, 7}:
        path = f"{NODES}/{node}/properties"
        bundle["files"][path] = ""
        if unreadable:
            del bundle["files"][path]
            bundle["unreadable"][path] = "EPERM"
    seen = [card for card in MESH.cards if card.rank in (2, 5)]
    if with_tool:
        entries = json.loads(printers.amd_smi_list_json(Machine(tuple(seen))))
        for entry in entries:
            entry["hip_id"] = entry["node_id"] - 4
        bundle["commands"]["amd_smi_list"] = command(json.dumps(entries), "amd-smi", "list")
    topology = from_evidence(bundle)
    assert [(gpu.kfd_node, gpu.hip_ordinal) for gpu in topology.gpus] == [(4, 0), (7, 1)]
    expected = (
        f"hip_ordinal of {seen[1].bdf}: the rank of its KFD node says 1, amd-smi says 3; 1 was "
        "taken"
    )
    assert told(topology) == ([expected] if with_tool else [])


def test_a_device_that_reports_no_node_where_others_do_has_none():
    bundle = printers.bundle(MESH, rocm_smi=False, amd_smi=False)
    bundle["files"][f"{PCI}/{ADDRESSES[6]}/numa_node"] = "-1\n"
    topology = from_evidence(bundle)
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 0, 0, 1, 1, None, 1]
    assert "TOPO-NUMA-UNKNOWN" in codes(topology)
    for address in ADDRESSES:
        bundle["files"][f"{PCI}/{address}/numa_node"] = "-1\n"
    assert [gpu.numa_node for gpu in from_evidence(bundle).gpus] == [0, 0, 0, 0, 1, 1, 1, 1]


def nowhere(nodes=2, sources="sysfs"):
    """A host whose BIOS tells no GPU's node, so that the kernel counts all to the first."""
    alone = {"rocm_smi": False, "amd_smi": False} if sources == "sysfs" else {"sysfs": False}
    bundle = printers.bundle(printers.mesh((0,) * 8), **({"amd_smi": False} | alone))
    for path in list(bundle["files"]):
        if path.endswith("/numa_node"):
            bundle["files"][path] = "-1\n"
    if nodes == 1:
        cpus = printers.node_files(["0-127"])
        kept = {p: t for p, t in bundle["files"].items() if "/system/node/" not in p}
        bundle["files"] = kept | cpus
        bundle["commands"].pop("lscpu")
    if sources != "sysfs":
        output = bundle["commands"]["rocm_smi_identity"]
        output["stdout"] = output["stdout"].replace('Affinity": "0"', 'Affinity": "-1"')
        assert '"-1"' in output["stdout"]
    return bundle


@pytest.mark.parametrize("sources", ["sysfs", "rocm-smi"])
def test_the_first_node_is_no_knowledge_where_no_gpu_reports_one(sources):
    topology = from_evidence(nowhere(sources=sources))
    assert {gpu.numa_node for gpu in topology.gpus} == {None}
    assert "TOPO-NUMA-UNKNOWN" in codes(topology)
    assert "TOPO-NUMA-IMBALANCE" not in codes(topology)


def test_the_only_node_is_every_gpus_node():
    topology = from_evidence(nowhere(nodes=1))
    assert {gpu.numa_node for gpu in topology.gpus} == {0}
    assert "TOPO-NUMA-UNKNOWN" not in codes(topology)


def test_a_node_that_is_not_the_first_is_known():
    bundle = printers.bundle(printers.mesh((1,) * 8), rocm_smi=False, amd_smi=False)
    for address in ADDRESSES:
        bundle["files"][f"{PCI}/{address}/numa_node"] = "-1\n"
    assert {gpu.numa_node for gpu in from_evidence(bundle).gpus} == {1}
