# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults that a tool's output shows and does not name: no driver, no access, one node for all."""

import json
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    read as read_file,
)

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm

MESH = printers.mesh()
BUSES = [card.bdf.removeprefix("0000:") for card in MESH.cards]
NAME = "Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram"


def lspci_k(drivers, modules="amdgpu"):
    """`lspci -k` of a bridge and eight GPUs."""
    lines = ["00:00.0 Host bridge: Advanced Micro Devices, Inc. [AMD] Device 14a4 (rev 01)"]
    lines += ["00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 14ab (rev 01)"]
    lines += ["\tKernel driver in use: pcieport"]
    for bus, driver in zip(BUSES, drivers, strict=True):
        lines += [f"{bus} {NAME} [Instinct MI300X]", "\tSubsystem: Advanced Micro Devices, Inc."]
        lines += [f"\tKernel driver in use: {driver}"] if driver else []
        lines += [f"\tKernel modules: {modules}"] if modules else []
    return "\n".join(lines) + "\n"


def read(text):
    return read_file(text, "t.txt")


def messages(topology, code):
    return [finding.message for finding in topology.findings if finding.code == code]


@pytest.mark.parametrize("modules", ["amdgpu", None])
def test_gpus_that_no_driver_has_are_no_host(modules):
    topology = read(lspci_k([None] * 8, modules))
    assert topology.gpus == ()
    assert "8 AMD GPUs are on the PCI bus" in messages(topology, "TOPO-NO-GPUS")[0]
    assert "0000:05:00.0 and 7 more GPUs" in messages(topology, "TOPO-NO-DRIVER")[0]


def test_one_gpu_without_a_driver_is_told_and_unusable():
    topology = read(lspci_k(["amdgpu"] * 7 + [None]))
    assert [gpu.healthy for gpu in topology.gpus] == [None] * 7 + [False]
    assert "0000:e5:00.0 has no driver" in messages(topology, "TOPO-NO-DRIVER")[0]
    assert messages(topology, "TOPO-GPU-UNUSABLE") == []


def test_gpus_of_a_guest_are_left_out():
    topology = read(lspci_k(["amdgpu"] * 6 + ["vfio-pci"] * 2))
    assert len(topology.gpus) == 6
    assert "bound to vfio-pci" in messages(topology, "TOPO-GPU-LEFT-OUT")[0]


def test_all_drivers_are_bound_and_nothing_is_said():
    topology = read(lspci_k(["amdgpu"] * 8))
    assert len(topology.gpus) == 8
    assert {gpu.healthy for gpu in topology.gpus} == {None}
    assert [finding.code for finding in topology.findings] == ["TOPO-OPEN-LIST"]


def test_a_list_that_ends_before_the_last_driver_says_so():
    text = lspci_k(["amdgpu"] * 8)
    cut = read(text[: text.index("\tSubsystem", text.index("e5:00.0"))])
    assert messages(cut, "TOPO-NO-DRIVER") == []
    assert "the driver of e5:00.0" in messages(cut, "TOPO-NO-END")[0]


@pytest.mark.parametrize(
    "line",
    [
        "[    8.841500] amdgpu: probe of 0000:{bus} failed with error -22",
        "[    5.408787] amdgpu 0000:{bus}: probe with driver amdgpu failed with error -22",
    ],
)
def test_a_probe_that_failed_is_told_with_its_error(line):
    log = "".join(line.format(bus=bus) + "\n" for bus in BUSES)
    topology = read(lspci_k([None] * 8) + "$ dmesg | grep amdgpu\n" + log)
    (message,) = messages(topology, "TOPO-PROBE-FAILED")
    assert "0000:05:00.0 and 7 more GPUs: its probe failed with error -22 (EINVAL)" in message


def without_access(text):
    """The text with the access of GPU 0 and 1 taken away, in whatever form it has it."""
    if text.startswith("["):
        document = json.loads(text)
        for a, b in ((0, 1), (1, 0)):
            if "links" in document[a]:
                document[a]["links"][b]["link_status"] = "DISABLED"
            else:
                document[a]["link_accessibility"][f"gpu_{b}"] = "DISABLED"
        return json.dumps(document)
    return text


ACCESS = {
    "amd-smi JSON": lambda: without_access(printers.amd_smi_topology_json(MESH)),
    "amd-smi old JSON": lambda: without_access(printers.amd_smi_topology_json(MESH, old=True)),
    "amd-smi text": lambda: re.sub(
        r"(?m)^0000:05:00.0( +)ENABLED( +)ENABLED ",
        r"0000:05:00.0\1ENABLED\2DISABLED",
        printers.amd_smi_topology(MESH),
        count=1,
    ),
    "amd-smi 6.0": lambda: amd.topology_linear(MESH).replace("GPU_1: True", "GPU_1: False", 1),
    "rocm-smi JSON": lambda: printers.rocm_smi_json(MESH).replace(
        '"system": {',
        '"system": {"(Topology) Link accessibility between DRM devices 0 and 1": "False", ',
    ),
}


@pytest.mark.parametrize("name", ACCESS)
def test_gpus_without_access_to_each_other_are_told(name):
    topology = read(ACCESS[name]())
    (message,) = messages(topology, "TOPO-P2P-DISABLED")
    assert re.search(r"(05:00.0|GPU0) – (0000:26:00.0|GPU1) have no peer", message)
    (part,) = [finding.parts for finding in topology.findings if "P2P" in finding.code]
    assert len(part) == 1


def test_access_alone_makes_no_link_and_misses_none():
    title = "Link accessibility between two GPUs"
    rows = ["       GPU0         GPU1", "GPU0   True         False", "GPU1   False        True"]
    topology = read(rocm.frame((title, rows)))
    assert topology.links == ()
    assert messages(topology, "TOPO-LINK-UNKNOWN") == []
    assert "GPU0 – GPU1" in messages(topology, "TOPO-P2P-DISABLED")[0]


@pytest.mark.parametrize(
    "text",
    [
        re.sub(r"(?m)^(\d       )\d+ ", r"\g<1>4 ", rocm.concise(MESH, "6.1.1")),
        re.sub(r"NODE_ID: \d+", "NODE_ID: 4", amd.list_text(MESH)),
        re.sub(r'"node_id": \d+', '"node_id": 4', printers.amd_smi_list_json(MESH)),
    ],
    ids=["rocm-smi", "amd-smi", "amd-smi JSON"],
)
def test_one_kfd_node_of_several_gpus_is_none(text):
    topology = read(text)
    assert {gpu.kfd_node for gpu in topology.gpus} == {None}
    assert "KFD node 4 for 8 GPUs" in messages(topology, "TOPO-KFD-NODE-SHARED")[0]


def test_a_product_name_tells_a_virtual_function():
    values = [("Card Series", "AMD Instinct MI300X VF"), ("Card Model", "0x74b5")]
    lines = [f"GPU[{gpu}]\t\t: {key}: \t\t{value}" for gpu in range(4) for key, value in values]
    topology = read(rocm.frame(("Product Info", lines)))
    assert {(gpu.model, gpu.virtual_function) for gpu in topology.gpus} == {("MI300X", True)}
    assert messages(topology, "TOPO-VIRTUAL-FUNCTION")
    static = amd.static_text(MESH).replace("Instinct MI325X", "Instinct MI325X VF")
    assert messages(read(static), "TOPO-VIRTUAL-FUNCTION")


def test_a_subsystem_id_beside_a_virtual_function_is_no_model():
    values = [("Card series", "AMD Instinct MI210 VF"), ("Card model", "0x0c34")]
    lines = [f"GPU[0]\t\t: {key}: \t\t{value}" for key, value in values]
    (gpu,) = read(rocm.frame(("Product Info", lines))).gpus
    assert (gpu.device_id, gpu.virtual_function) == (None, True)


def evidence(**commands):
    bundle = printers.bundle(MESH)
    for name, text in commands.items():
        bundle["commands"][name] = printers.command(text, *name.split("_"))
    return from_evidence(bundle)


def test_evidence_has_the_errors_of_probes_beside_the_gpu_that_is_of_no_use():
    line = "[    8.8] amdgpu: probe of 0000:e5:00.0 failed with error -12\n"
    (message,) = messages(evidence(amdgpu_log=line), "TOPO-PROBE-FAILED")
    assert "0000:e5:00.0: its probe failed with error -12 (ENOMEM)" in message


def test_evidence_has_the_access_that_rocm_smi_prints():
    bundle = printers.bundle(MESH, amd_smi=False)
    key = "(Topology) Link accessibility between DRM devices 2 and 3"
    printed = json.dumps({"system": {key: "False"}})
    bundle["commands"]["rocm_smi_topology"] = printers.command(printed, "rocm-smi", "--showtopo")
    (message,) = messages(from_evidence(bundle), "TOPO-P2P-DISABLED")
    assert "0000:46:00.0 – 0000:65:00.0" in message


@pytest.mark.parametrize("form", ['{"error": "%s", "code": -1}', "%s"])
def test_an_amd_smi_without_a_command_is_no_failure(form):
    refusal = form % "Command 'partition' is invalid. Run 'amd-smi -h' for more info."
    refused = evidence(amd_smi_partition=refusal, amd_smi_partition_2=refusal)
    assert messages(refused, "TOPO-TOOL-FAILED") == []
    assert len(refused.gpus) == 8


def test_partitions_of_evidence_agree_with_the_rest():
    whole = evidence(amd_smi_partition=amd.partition_json(MESH))
    assert [finding.code for finding in whole.findings] == [
        finding.code for finding in evidence().findings
    ]
