# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sources beside the GPU tools: lspci, rocminfo, rocm_bandwidth_test, bus, hives."""

import itertools
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers import pci, rocminfo
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers.pci import nics
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Nic

from tests.support.printers import machine as printers
from tests.support.printers import system as printers_system
from tests.support.printers.machine import Machine, Wire, command

MESH = printers.mesh()
ADDRESSES = [card.bdf for card in MESH.cards]
RANKS = [card.rank for card in MESH.cards]
PCI = "/sys/bus/pci/devices"


def codes(topology):
    return [finding.code for finding in topology.findings]


OTHERS = (
    "0000:00:01.1 PCI bridge [0604]: Advanced Micro Devices, Inc. [AMD] Device [1022:14ab]",
    "0000:05:00.1 Audio device [0403]: Advanced Micro Devices, Inc. [AMD/ATI] Device [1002:ab28]",
    "0000:c9:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. [1a03:2000] (rev 52)",
)


@pytest.mark.parametrize("options", ["", "-D", "-n", "-nn", "-D -nn -PP", "-PP"])
def test_lspci(options):
    others = OTHERS if "-nn" in options else ()
    topology = read(printers_system.lspci(MESH, options, others), "lspci.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert {gpu.model for gpu in topology.gpus} == {"MI325X"}
    path = printers_system.bridges_of(0) if "-PP" in options else ()
    assert topology.gpus[0].pci_path == path
    assert not [one for one in topology.findings if one.severity == "error"]


def test_a_virtual_function_is_one_by_its_id():
    text = printers_system.lspci(MESH).replace("1002:74a5", "1002:74b9")
    (first, *_others) = read(text, "lspci.txt").gpus
    assert (first.model, first.virtual_function) == ("MI325X", True)


def test_a_name_is_no_id_and_what_the_prompt_asked_for_is_one():
    row = "05:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua [MI325X]\n"
    assert read(row, "lspci.txt").gpus[0].model is None
    asked = read("$ sudo lspci -d 1002:74a5\n" + row, "lspci.txt")
    assert asked.gpus[0].model == "MI325X"


def test_no_amd_gpu_on_the_bus_is_a_host_without():
    topology = read("\n".join(OTHERS), "lspci.txt")
    assert codes(topology) == ["TOPO-NO-GPUS"]


def test_lspci_stands_in_for_a_bus_that_is_hidden():
    bundle = printers.bundle(MESH)
    bundle["files"] = {path: text for path, text in bundle["files"].items() if PCI not in path}
    bundle["links"] = {}
    bundle["commands"]["lspci"] = command(printers_system.lspci(MESH), "lspci", "-D", "-nn", "-PP")
    topology = from_evidence(bundle)
    assert [gpu.pci_path[0] for gpu in topology.gpus] == [
        printers_system.bridges_of(index)[0] for index in range(8)
    ]
    assert "lspci" in topology.sources


def test_rocminfo_alone():
    topology = read(printers_system.rocminfo(MESH), "rocminfo.txt")
    assert [gpu.hip_ordinal for gpu in topology.gpus] == list(range(8))
    assert [gpu.kfd_node for gpu in topology.gpus] == list(range(2, 10))
    assert "TOPO-NO-END" not in codes(topology)


def test_rocminfo_that_is_cut_is_told():
    text = printers_system.rocminfo(MESH)
    topology = read(text[: text.index("Agent 8")], "rocminfo.txt")
    assert "TOPO-TRUNCATED" in codes(topology)


def test_rocminfo_that_never_ran_says_nothing():
    assert rocminfo.parse([], "gpu-001").absence is None


def test_rocminfo_agrees_with_the_kernel_or_is_told():
    bundle = printers.bundle(MESH)
    bundle["commands"]["rocminfo"] = command(printers_system.rocminfo(MESH), "rocminfo")
    topology = from_evidence(bundle)
    assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
    assert "TOPO-SOURCES-DISAGREE" not in codes(topology)
    agents = printers_system.rocminfo(MESH).split("*******                  \n")
    agents[3], agents[4] = agents[4], agents[3]
    bundle["commands"]["rocminfo"] = command("*******                  \n".join(agents), "rocminfo")
    (finding,) = [
        one for one in from_evidence(bundle).findings if one.code == "TOPO-SOURCES-DISAGREE"
    ]
    assert "hip_ordinal" in finding.message
    assert "KFD node says 1, rocminfo says 0; 1 was taken" in finding.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ROCk module is NOT loaded, possibly no GPU devices\n", "driver is not loaded"),
        (
            "ROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\n",
            "may not open /dev/kfd",
        ),
    ],
)
def test_rocminfo_says_why_it_sees_nothing(text, reason):
    (finding,) = read(text, "rocminfo.txt").findings
    assert finding.code == "TOPO-NO-GPUS"
    assert reason in finding.message


def test_the_bandwidth_test_has_addresses_order_and_weights():
    wires = {True: Wire(), False: Wire("PCIE", 72, 3)}
    machine = Machine(MESH.cards, lambda a, b: wires[a.numa == b.numa])
    topology = read(printers_system.bandwidth_test(machine), "rbt.txt")
    assert [gpu.bdf for gpu in topology.gpus] == ADDRESSES
    assert [gpu.hip_ordinal for gpu in topology.gpus] == RANKS
    assert [gpu.numa_node for gpu in topology.gpus] == [card.numa for card in MESH.cards]
    assert {(link.type, link.weight) for link in topology.links} == {(None, 15), (None, 72)}


def test_a_bandwidth_test_that_is_cut_is_told():
    text = printers_system.bandwidth_test(MESH)
    start = text.index("Numa Distance")
    topology = read(text[: start + 900], "rbt.txt")
    assert len(topology.gpus) == 8
    assert "TOPO-TRUNCATED" in codes(topology)


def bus_bundle(interfaces=4):
    bundle = printers.bundle(MESH)
    files, links = printers_system.bus(MESH, interfaces)
    bundle["files"] = bundle["files"] | files
    bundle["links"] = bundle["links"] | links
    return bundle


def test_gpus_and_interfaces_have_their_bridges():
    topology = from_evidence(bus_bundle())
    assert [gpu.pci_path for gpu in topology.gpus] == [
        printers_system.bridges_of(index) for index in range(8)
    ]
    first, *others = topology.nics
    assert first == Nic(
        name="ens0",
        bdf="0000:14:00.0",
        numa_node=0,
        rdma_device="mlx5_0",
        speed_mb_s=50000,
        up=True,
        pci_path=printers_system.bridges_of(0)[:2],
    )
    assert len(others) == 3
    assert len(topology.gpus) == 8  # bridges and network cards are no GPUs


def test_a_slot_has_the_links_of_the_bridges_above_it():
    bundle = bus_bundle()
    _bus, slots = pci.parse(bundle["files"], bundle["links"])
    assert [len(slot.bridges) for slot in slots] == [3] * 8
    port = slots[0].bridges[0]
    assert (port.bdf, port.device_id) == ("0000:10:01.1", "1022:14a0")
    assert (port.link_width, port.link_speed, port.link_speed_max) == (16, 32.0, 64.0)


LINK = "../../devices/pci0000:00/0000:00:01.1/0000:01:00.0/net/eth0"


@pytest.mark.parametrize(
    ("files", "speed", "up"),
    [
        ({}, None, None),
        ({"speed": "-1\n", "operstate": "down\n"}, None, False),
        ({"speed": "100000\n", "operstate": "up\n"}, 12500, True),
        ({"speed": "what\n", "operstate": "unknown\n"}, None, None),
    ],
)
def test_what_an_interface_does_not_tell_is_unknown(files, speed, up):
    named = {f"/sys/class/net/eth0/{name}": text for name, text in files.items()}
    (nic,) = nics(named, {"/sys/class/net/eth0": LINK})
    assert (nic.speed_mb_s, nic.up, nic.numa_node, nic.rdma_device) == (speed, up, None, None)


def test_an_rdma_device_without_an_interface_stands_for_itself():
    base = "/sys/class/infiniband/mlx5_0"
    files = {
        f"{base}/ports/1/state": "4: ACTIVE\n",
        f"{base}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        f"{base}/device/numa_node": "1\n",
    }
    target = LINK.replace("net/eth0", "infiniband/mlx5_0")
    (nic,) = nics(files, {base: target})
    assert (nic.name, nic.rdma_device, nic.numa_node) == ("mlx5_0", "mlx5_0", 1)
    assert (nic.speed_mb_s, nic.up) == (50000, True)


@pytest.mark.parametrize(
    "links",
    [
        {"/sys/class/net/lo": "../../devices/virtual/net/lo"},
        {"/sys/class/net/usb0": "../../devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/net/usb0"},
        {"/sys/class/net/eth0": LINK, "/sys/class/net/eth0/device/physfn": "../0000:01:00.0"},
    ],
    ids=["virtual", "usb", "virtual function"],
)
def test_what_is_no_card_of_the_host_is_left_out(links):
    assert nics({}, links) == ()


def rows(count, lost=()):
    """xgmi_num_links of a full mesh, without the links of some pairs."""
    return [
        " ".join("00" if a == b or (min(a, b), max(a, b)) in lost else "01" for b in range(count))
        for a in range(count)
    ]


def hive_bundle(lost=(), hops=True):
    """A mesh whose GPUs have their rows in the kernel's order."""
    bundle = printers.bundle(MESH)
    for card in MESH.cards:
        base = f"{PCI}/{card.bdf}"
        bundle["files"][f"{base}/xgmi_num_links"] = rows(8, lost)[card.rank] + "\n"
        if hops:
            own = ["00" if rank == card.rank else "01" for rank in range(8)]
            bundle["files"][f"{base}/xgmi_num_hops"] = " ".join(own) + "\n"
    return bundle


def fabric_of(bundle, monkeypatch):
    """The fabric that checks are given."""
    from ansible_collections.apiary.instinct.plugins.plugin_utils.topology import host

    seen = []
    monkeypatch.setattr(host, "check", lambda *given: seen.append(given[-1]) or [])
    from_evidence(bundle)
    return seen[0]


@pytest.mark.parametrize("hops", [True, False])
def test_the_kernels_rows_are_put_to_the_gpus_they_are_of(monkeypatch, hops):
    lost = {(0, 1)} if hops else set()
    found = fabric_of(hive_bundle(lost, hops), monkeypatch).num_links
    of_rank = {card.rank: card.bdf for card in MESH.cards}
    assert len(found) == 28
    for a, b in itertools.combinations(range(8), 2):
        pair = tuple(sorted((of_rank[a], of_rank[b])))
        assert found[pair] == (0 if (a, b) in lost else 1)


def test_rows_that_nothing_tells_apart_are_unknown(monkeypatch):
    bundle = hive_bundle()
    text = bundle["files"][f"{PCI}/{ADDRESSES[0]}/xgmi_num_hops"]
    for card in MESH.cards:
        bundle["files"][f"{PCI}/{card.bdf}/xgmi_num_hops"] = text
    assert fabric_of(bundle, monkeypatch).num_links == {}


def test_two_hives_have_rows_of_their_own(monkeypatch):
    bundle = printers.bundle(MESH)
    for card in MESH.cards:
        base = f"{PCI}/{card.bdf}"
        place = card.rank % 4
        bundle["files"][f"{base}/xgmi_num_links"] = rows(4)[place] + "\n"
        bundle["files"][f"{base}/xgmi_hive_info/xgmi_hive_id"] = f"{77 + card.numa}\n"
    found = fabric_of(bundle, monkeypatch).num_links
    assert len(found) == 12
    assert set(found.values()) == {1}


def test_the_rows_alone_are_a_hive():
    topology = read("$ cat xgmi_num_links\n" + "\n".join(rows(4)) + "\n", "x.txt")
    assert [(link.type, link.weight) for link in topology.links] == [("xgmi", 15)] * 6


def test_rows_alone_tell_how_many_links_a_way_takes():
    topology = read("00 02 00\n02 00 01\n00 01 00\n", "x.txt")
    assert [(link.hops, link.weight) for link in topology.links] == [(1, 15), (2, 30), (1, 15)]


DETOUR = [(0, 1)]  # ranks of 0000:65:00.0 and 0000:05:00.0


def detour_bundle(weight, machine=MESH, hops="02"):
    """A mesh with one pair that has no link of its own, though KFD weighs all the same."""
    cards, wire = machine.cards, Wire(weight=weight, bandwidth=(0, 0))
    bundle = printers.bundle(Machine(cards, lambda a, b: wire), rocm_smi=False, amd_smi=False)
    for card in cards:
        base = f"{PCI}/{card.bdf}"
        bundle["files"][f"{base}/xgmi_num_links"] = rows(8, DETOUR)[card.rank] + "\n"
        far = {(0, 1): hops, (1, 0): hops}
        row = ["00" if r == card.rank else far.get((card.rank, r), "01") for r in range(8)]
        bundle["files"][f"{base}/xgmi_num_hops"] = " ".join(row) + "\n"
    return bundle


@pytest.mark.parametrize("hops", ["02", "01"])
@pytest.mark.parametrize("weight", [15, 0], ids=["contradicted", "unknown"])
def test_a_way_without_a_link_is_weighed_by_its_hops(weight, hops):
    topology = from_evidence(detour_bundle(weight, hops=hops))
    link = topology.link("0000:05:00.0", "0000:65:00.0")
    assert (link.hops, link.weight, link.bandwidth_mb_s) == (2, 30, None)
    assert {(one.hops, one.weight) for one in topology.links if one != link} == {(1, 15)}
    assert "TOPO-XGMI-INDIRECT" in codes(topology)
    told = [one.message for one in topology.findings if one.code == "TOPO-SOURCES-DISAGREE"]
    expected = "xGMI: 0000:05:00.0 – 0000:65:00.0: weight 15, by 2 physical hops 30; 30 was taken"
    assert told == ([expected] if weight else [])
    best = place(topology, Request((2,))).replicas[0].gpus
    assert set(best) != {link.a, link.b}


def test_of_a_weight_and_a_way_the_worse_one_counts():
    topology = from_evidence(detour_bundle(45))
    assert {link.weight for link in topology.links} == {45}
    (finding,) = [one for one in topology.findings if one.code == "TOPO-SOURCES-DISAGREE"]
    assert "xGMI (and 27 more pairs)" in finding.message


@pytest.mark.parametrize(
    ("device_id", "bandwidth"), [(0x74A5, (50000, 150000)), (0x75A3, None)], ids=["gfx942", "950"]
)
def test_counted_links_give_the_bandwidth_where_that_of_one_is_known(device_id, bandwidth):
    cards = tuple(replace(card, device_id=device_id) for card in MESH.cards)
    bundle = detour_bundle(15, Machine(cards))
    for path in bundle["files"]:
        if path.endswith("xgmi_num_links"):
            bundle["files"][path] = bundle["files"][path].replace("01", "03")
    topology = from_evidence(bundle)
    assert topology.link("0000:05:00.0", "0000:26:00.0").bandwidth_mb_s == bandwidth
    assert topology.link("0000:05:00.0", "0000:65:00.0").bandwidth_mb_s is None


def test_a_guest_that_reads_no_link_at_all_has_no_detour():
    bundle = detour_bundle(15)
    for path in bundle["files"]:
        if path.endswith("xgmi_num_links"):
            bundle["files"][path] = " ".join(["00"] * 8) + "\n"
    topology = from_evidence(bundle)
    assert not {"TOPO-XGMI-INDIRECT", "TOPO-SOURCES-DISAGREE"} & set(codes(topology))


@pytest.mark.parametrize("cut", [rows(8)[:5], rows(4) + rows(4)], ids=["cut", "two hives"])
def test_rows_that_are_no_whole_hive_are_told(cut):
    topology = read("\n".join(cut) + "\n", "x.txt")
    assert "TOPO-TRUNCATED" in codes(topology)
    assert topology.gpus == ()


@pytest.mark.parametrize("lost", ["/5/io_links/3/", "/9/properties", "/6/"])
def test_a_dump_of_the_kernels_tree_that_lacks_something_is_told(lost):
    files = printers.kfd_files(MESH)
    kept = {path: text for path, text in files.items() if lost not in path}
    text = "".join(f"==> {path} <==\n{content}" for path, content in kept.items())
    assert len(kept) < len(files)
    assert "TOPO-TRUNCATED" in codes(read(text, "kfd.txt"))


KFD_NODES = """cpu_cores_count 96
simd_count 0
location_id 0
cpu_cores_count 0
simd_count 1216
device_id 29861
location_id 1280
drm_render_minor 128
unique_id 7
cpu_cores_count 0
simd_count 1216
device_id 29861
location_id 9728
drm_render_minor 129
unique_id 8
"""


def test_properties_without_their_paths_have_gpus_and_no_nodes():
    topology = read(KFD_NODES, "properties.txt")
    assert [(gpu.bdf, gpu.render_node, gpu.kfd_node) for gpu in topology.gpus] == [
        ("0000:05:00.0", "renderD128", None),
        ("0000:26:00.0", "renderD129", None),
    ]


def test_a_links_own_file_is_recognised_and_has_no_gpu():
    topology = read("type 2\nnode_from 1\nnode_to 0\nweight 20\n", "io_link.txt")
    assert codes(topology) == ["TOPO-NO-GPU-DATA"]
