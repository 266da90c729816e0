# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's evidence: sources joined, held against each other, each enough by itself."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from tests.support.printers import amd_smi as printers_amd_smi
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as printers_rocm_smi
from tests.support.printers.machine import command

NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"


def codes(topology):
    return [finding.code for finding in topology.findings]


def messages(topology, code):
    return [finding.message for finding in topology.findings if finding.code == code]


SOURCES = [
    {"rocm_smi": False, "amd_smi": False},
    {"sysfs": False, "amd_smi": False},
    {"sysfs": False, "rocm_smi": False},
    {"rocm_smi": False},
    {"amd_smi": False},
    {},
]
NAMES = ["sysfs alone", "rocm-smi alone", "amd-smi alone", "ROCm 7.14", "ROCm 5", "all"]


@pytest.mark.parametrize("sources", SOURCES, ids=NAMES)
def test_each_source_is_enough(sources):
    topology = from_evidence(printers.bundle(printers.mesh(), **sources))
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in printers.mesh().cards]
    assert {(link.type, link.weight) for link in topology.links} == {("xgmi", 15)}
    assert len(topology.links) == 28
    assert not [one for one in topology.findings if one.severity == "error"]


TEXTS = {
    "rocm-smi": {
        "rocm_smi_identity_3": printers_rocm_smi.identity(printers.mesh(), old=True),
        "rocm_smi_topology_2": printers.rocm_smi_topology(printers.mesh()),
        "rocm_smi_bandwidth": printers_rocm_smi.bandwidth(printers.mesh()),
    },
    "amd-smi": {
        "amd_smi_list_3": printers_amd_smi.list_text(printers.mesh()),
        "amd_smi_topology_2": printers.amd_smi_topology(printers.mesh()),
        "amd_smi_static_3": printers_amd_smi.static_text(printers.mesh()),
        "amd_smi_xgmi_2": printers_amd_smi.xgmi_text(printers.mesh()),
    },
}


@pytest.mark.parametrize("tool", TEXTS)
def test_text_alone_is_enough(tool):
    evidence = printers.bundle(printers.mesh(), sysfs=False, rocm_smi=False, amd_smi=False)
    for name, text in TEXTS[tool].items():
        evidence["commands"][name.rstrip("_23")] = command('{"error": "x", "code": -3}', tool)
        evidence["commands"][name] = command(text, tool)
    topology = from_evidence(evidence)
    assert [gpu.bdf for gpu in topology.gpus] == [card.bdf for card in printers.mesh().cards]
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4
    assert {(link.type, link.weight, link.bandwidth_mb_s) for link in topology.links} == {
        ("xgmi", 15, (50000, 50000))
    }
    assert "TOPO-TOOL-FAILED" not in codes(topology)


def test_every_index_space_is_looked_up():
    topology = from_evidence(printers.bundle(printers.mesh()))
    spaces = [
        (gpu.smi_index, gpu.hip_ordinal, gpu.kfd_node, gpu.render_node, gpu.card)
        for gpu in topology.gpus
    ]
    assert spaces[:4] == [
        (0, 1, 3, "renderD129", "card1"),
        (1, 3, 5, "renderD131", "card3"),
        (2, 2, 4, "renderD130", "card2"),
        (3, 0, 2, "renderD128", "card0"),
    ]
    assert codes(topology) == ["TOPO-INDEX-ORDER"]
    assert topology.sources == (
        "KFD sysfs (amdgpu 6.10.5)",
        "PCI sysfs",
        "amd-smi 26.0.0+abc (ROCm 7.0.0)",
        "rocm-smi",
    )


def test_sources_are_joined_by_address_and_never_by_index():
    machine = printers.mesh()
    reverse = printers.Machine(tuple(reversed(machine.cards)), machine.wire)
    evidence = printers.bundle(machine, amd_smi=False)
    evidence["commands"]["rocm_smi_identity"]["stdout"] = printers.rocm_smi_json(reverse)
    topology = from_evidence(evidence)
    assert [gpu.smi_index for gpu in topology.gpus] == list(range(7, -1, -1))
    assert "TOPO-SOURCES-DISAGREE" not in codes(topology)


def test_without_tools_their_numbers_are_unknown():
    topology = from_evidence(printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False))
    assert {gpu.smi_index for gpu in topology.gpus} == {None}
    assert "TOPO-TOOLS-ABSENT" in codes(topology)


@pytest.mark.parametrize(
    ("old", "new", "field", "taken"),
    [
        ('"0x74a5"', '"0x74a1"', "device_id", "74a5"),
        ('"274861129728"', '"206158430208"', "vram_bytes", 274861129728),
        ('Affinity": "0"', 'Affinity": "1"', "numa_node", 0),
        (
            '"Unique ID": "0x1000000000000001"',
            '"Unique ID": "0x9900000000000001"',
            "unique_id",
            "1000000000000001",
        ),
    ],
)
def test_a_disagreement_names_both_values_and_the_one_taken(old, new, field, taken):
    evidence = printers.bundle(printers.mesh(), amd_smi=False)
    output = evidence["commands"]["rocm_smi_identity"]
    assert old in output["stdout"]
    output["stdout"] = output["stdout"].replace(old, new, 1)
    topology = from_evidence(evidence)
    (message,) = messages(topology, "TOPO-SOURCES-DISAGREE")
    assert message.startswith(f"{field} of 0000:05:00.0: ")
    assert message.endswith(f"{taken} was taken")
    assert getattr(topology.gpus[0], field) == taken


@pytest.mark.parametrize(
    ("old", "new", "field", "taken"),
    [
        ('"render": "renderD129"', '"render": "renderD140"', "render_node", "renderD129"),
        ('"card": "card1"', '"card": "card9"', "card", "card1"),
        ('"node_id": 3', '"node_id": 9', "kfd_node", 3),
        (
            '"hip_uuid": "GPU-1000000000000001"',
            '"hip_uuid": "GPU-99000000000000ff"',
            "unique_id",
            None,
        ),
    ],
)
def test_what_amd_smi_numbers_otherwise_is_told(old, new, field, taken):
    evidence = printers.bundle(printers.mesh(), rocm_smi=False)
    output = evidence["commands"]["amd_smi_list"]
    assert old in output["stdout"]
    output["stdout"] = output["stdout"].replace(old, new, 1)
    topology = from_evidence(evidence)
    told = [text for text in messages(topology, "TOPO-SOURCES-DISAGREE") if text.startswith(field)]
    assert len(told) == 1
    assert told[0].startswith(f"{field} of 0000:05:00.0: ")
    assert taken is None or getattr(topology.gpus[0], field) == taken


def test_a_gpu_that_is_matched_by_its_node_and_has_another_address_is_told():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False)
    output = evidence["commands"]["amd_smi_list"]
    output["stdout"] = output["stdout"].replace("0000:05:00.0", "0000:07:00.0")
    del evidence["commands"]["amd_smi_topology"]
    topology = from_evidence(evidence)
    assert len(topology.gpus) == 8
    assert messages(topology, "TOPO-SOURCES-DISAGREE") == [
        "address: KFD says 0000:05:00.0, amd-smi says 0000:07:00.0; KFD's was taken"
    ]


def test_link_types_that_disagree_are_told():
    evidence = printers.bundle(printers.mesh(), amd_smi=False)
    output = evidence["commands"]["rocm_smi_identity"]
    output["stdout"] = output["stdout"].replace('"XGMI"', '"PCIE"', 1)
    topology = from_evidence(evidence)
    (message,) = messages(topology, "TOPO-SOURCES-DISAGREE")
    assert "KFD says xgmi, rocm-smi says pcie" in message
    assert topology.link("0000:05:00.0", "0000:26:00.0").type == "xgmi"


@pytest.mark.parametrize("heavier", [True, False])
def test_a_source_with_one_direction_agrees_with_either_of_the_kernels(heavier):
    low, high = printers.mesh().cards[:2]

    def wire(a, b):
        one_way = (a, b) == ((low, high) if heavier else (high, low))
        return printers.Wire(weight=30 if one_way else 15)

    machine = printers.Machine(printers.mesh().cards, wire)
    topology = from_evidence(printers.bundle(machine, amd_smi=False))
    assert topology.link(low.bdf, high.bdf).weight == 30
    assert "TOPO-ASYMMETRY" in codes(topology)
    assert "TOPO-SOURCES-DISAGREE" not in codes(topology)


def test_a_hip_id_that_is_not_the_rank_is_told():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False)
    output = evidence["commands"]["amd_smi_list"]
    output["stdout"] = output["stdout"].replace('"hip_id": 1', '"hip_id": 6')
    topology = from_evidence(evidence)
    (message,) = messages(topology, "TOPO-SOURCES-DISAGREE")
    assert "amd-smi says 6; 1 was taken" in message
    assert topology.gpus[0].hip_ordinal == 1


def test_a_gpu_without_kfd_node_stays_in_view_and_is_unusable():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    files = evidence["files"]
    evidence["files"] = {
        path: text for path, text in files.items() if not path.startswith(f"{NODES}/3/")
    }
    topology = from_evidence(evidence)
    gpu = topology.by_key["0000:05:00.0"]
    assert (gpu.healthy, gpu.kfd_node, gpu.hip_ordinal) == (False, None, None)
    assert [other.healthy for other in topology.gpus[1:]] == [True] * 7
    assert sorted(gpu.hip_ordinal for gpu in topology.gpus[1:]) == list(range(7))
    assert "TOPO-GPU-UNUSABLE" in codes(topology)
    assert len(topology.links) == 21


def test_gpus_that_a_container_was_not_given_are_left_out():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    for node in range(4, 10):
        evidence["files"][f"{NODES}/{node}/properties"] = ""
    topology = from_evidence(evidence)
    assert [gpu.kfd_node for gpu in topology.gpus] == [3, 2]
    assert {gpu.healthy for gpu in topology.gpus} == {True}
    assert "TOPO-GPU-LEFT-OUT" in codes(topology)
    assert not {"TOPO-GPU-UNUSABLE", "TOPO-GPU-MISSING"} & set(codes(topology))


def test_a_gpu_given_to_a_guest_is_left_out():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    evidence["links"][f"{PCI}/0000:05:00.0/driver"] = "../../../../bus/pci/drivers/vfio-pci"
    evidence["files"] = {
        path: text for path, text in evidence["files"].items() if not path.startswith(f"{NODES}/3/")
    }
    topology = from_evidence(evidence)
    assert len(topology.gpus) == 7
    assert messages(topology, "TOPO-GPU-LEFT-OUT") == ["GPU 0000:05:00.0 is bound to vfio-pci"]


def test_without_the_driver_there_are_no_gpus_and_the_reason_is_told():
    evidence = printers.bundle(printers.mesh(), amd_smi=False)
    evidence["files"] = {
        path: text for path, text in evidence["files"].items() if "/kfd/" not in path
    }
    evidence["links"] = {}
    evidence["commands"]["rocm_smi_identity"] = command("", "rocm-smi") | {
        "stderr": "ERROR:root:Driver not initialized (amdgpu not found in modules)\n"
    }
    topology = from_evidence(evidence)
    assert topology.gpus == ()
    (message,) = messages(topology, "TOPO-NO-GPUS")
    assert "8 AMD GPUs are on the PCI bus, without a driver" in message
    assert "driver is not loaded" in message


def test_exit_code_2_beside_data_is_data():
    evidence = printers.bundle(printers.mesh(), sysfs=False, amd_smi=False)
    evidence["commands"]["rocm_smi_identity"]["exit"] = 2
    assert len(from_evidence(evidence).gpus) == 8


def test_a_tool_that_hangs_is_told_and_the_others_count():
    evidence = printers.bundle(printers.mesh(), amd_smi=False)
    evidence["commands"]["amd_smi_list"] = command(
        "", "amd-smi", "list", exit_code=None, error="no answer within 60 s"
    )
    topology = from_evidence(evidence)
    assert len(topology.gpus) == 8
    assert messages(topology, "TOPO-TOOL-FAILED") == ["amd-smi list failed: no answer within 60 s"]


TRACEBACK = 'Traceback (most recent call last):\n  File "x"\n'


@pytest.mark.parametrize(
    ("stderr", "code", "message"),
    [
        (TRACEBACK + "OSError: [Errno 24] Too many open files\n", 1, "OSError: [Errno 24]"),
        ("Error code:\n\t10 | AMDSMI_STATUS_NO_PERM - Permission Denied\n", 1, "10 | AMDSMI_STA"),
        ("Segmentation fault\n", -11, "Segmentation fault"),
        ("", -11, "it ended with signal 11 and printed nothing"),
        ("", 3, "it ended with exit code 3 and printed nothing"),
        (
            "ERROR:root:ROCm SMI returned 8 (the expected value is 0)\n",
            8,
            "ERROR:root:ROCm SMI ret",
        ),
        ("ERROR:root:Driver not initialized (amdgpu not found)\n", 0, "ERROR:root:Driver not in"),
    ],
)
@pytest.mark.parametrize("tool", ["amd-smi", "rocm-smi", "rocminfo"])
def test_a_tool_that_fails_beside_a_readable_kernel_is_told(tool, stderr, code, message):
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    failed = command("", tool, "list", exit_code=code) | {"stderr": stderr}
    prefix = tool.replace("-", "_")
    evidence["commands"] |= {prefix: failed, f"{prefix}_more": failed}
    topology = from_evidence(evidence)
    assert len(topology.gpus) == 8
    (finding,) = [one for one in topology.findings if one.code == "TOPO-TOOL-FAILED"]
    assert finding.severity == "warning"
    assert finding.message.startswith(f"{tool} list (and 1 more) failed: {message}")


@pytest.mark.parametrize(
    ("stdout", "stderr", "code"),
    [
        ("", "usage: amd-smi [-h]\namd-smi: error: argument: invalid choice: 'xgmi'\n", 2),
        ("", "bash: amd-smi: command not found\n", 127),
        ("", "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported\n", 2),
        ("", "", 0),
        ("xGMI", "WARNING: something is odd\n", 1),
    ],
)
def test_what_is_no_failure_of_a_tool_is_not_told(stdout, stderr, code):
    evidence = printers.bundle(printers.mesh(), rocm_smi=False)
    output = command(stdout, "amd-smi", "xgmi", exit_code=code) | {"stderr": stderr}
    evidence["commands"]["amd_smi_xgmi"] = output
    assert "TOPO-TOOL-FAILED" not in codes(from_evidence(evidence))


def test_a_tool_that_prints_why_it_sees_nothing_is_told_beside_one_that_sees():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    text = "WARNING: User is missing the following required groups: render, video.\n"
    evidence["commands"]["amd_smi_list"] = command(text, "amd-smi", "list")
    assert messages(from_evidence(evidence), "TOPO-TOOL-FAILED") == [
        "amd-smi failed: the user is not in the groups render and video"
    ]


def test_cut_json_of_one_tool_is_told_and_the_others_count():
    evidence = printers.bundle(printers.mesh(), amd_smi=False)
    output = evidence["commands"]["rocm_smi_identity"]
    output["stdout"] = output["stdout"][:500]
    topology = from_evidence(evidence)
    assert len(topology.gpus) == 8
    assert "TOPO-TOOL-FAILED" in codes(topology)


def test_partitions_share_the_bus_and_keep_their_own_memory():
    evidence = printers.bundle(printers.mesh(), rocm_smi=False, amd_smi=False)
    files = {path: text for path, text in evidence["files"].items() if "/kfd/" not in path}
    for number in range(8):
        base = f"{NODES}/{number + 2}"
        files[f"{base}/properties"] = (
            f"simd_count 152\nvendor_id 4098\ndevice_id 29861\nlocation_id {0x500 + number}\n"
            f"unique_id 7\ndrm_render_minor {128 + number}\n"
        )
        files[f"{base}/mem_banks/0/properties"] = "heap_type 1\nsize_in_bytes 34357641216\n"
    for name in ("05",):
        files[f"{PCI}/0000:{name}:00.0/current_compute_partition"] = "CPX\n"
    keep = (f"{PCI}/0000:05:00.0", "/sys/devices")
    evidence["files"] = {path: text for path, text in files.items() if path.startswith(keep)} | {
        path: text for path, text in files.items() if "/kfd/" in path
    }
    topology = from_evidence(evidence)
    assert list(topology.by_key) == [f"0000:05:00.0#{number}" for number in range(8)]
    assert {gpu.vram_bytes for gpu in topology.gpus} == {34357641216}
    assert [gpu.render_node for gpu in topology.gpus] == [f"renderD{128 + n}" for n in range(8)]
    assert {gpu.compute_partition for gpu in topology.gpus} == {"CPX"}
    assert "TOPO-PARTITION-COUNT" not in codes(topology)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"host": None}, "DOC-TYPE"),
        ({"schema": "apiary.evidence/v9"}, "DOC-SCHEMA"),
        ({"files": {"/x": 5}}, "DOC-TYPE"),
        ({"commands": {"lscpu": {"argv": []}}}, "DOC-MISSING"),
    ],
)
def test_a_wrong_document_is_refused(change, code):
    with pytest.raises(ApiaryError) as refusal:
        from_evidence(printers.bundle(printers.mesh()) | change)
    assert [finding.code for finding in refusal.value.findings] == [code]


def test_the_answer_is_the_same_whatever_the_order_of_keys():
    evidence = printers.bundle(printers.mesh())
    shuffled = json.loads(json.dumps(evidence, sort_keys=True))
    shuffled["files"] = dict(reversed(shuffled["files"].items()))
    shuffled["links"] = dict(reversed(shuffled["links"].items()))
    assert from_evidence(shuffled) == from_evidence(evidence)
