# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated sysfs is one consistent machine, whatever is broken in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simgpu.faults import FaultError, Faults, parse_faults
from simgpu.kfd import io_links, p2p_links
from simgpu.machine import Machine, read_probe_ranks
from simgpu.mi325x import BUSES
from simulated_sysfs import generate, main

CPU_NODES = 2
Generate = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Generate:
    def make(*faults: str, **machine: object) -> Path:
        root = tmp_path / "sys"
        generate(root, Machine(faults=parse_faults(faults), **machine))  # type: ignore[arg-type]
        return root

    return make


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("healthy") / "sys"
    generate(root, Machine())
    return root


def numbers(path: Path) -> dict[str, int]:
    return {key: int(value) for key, value in map(str.split, path.read_text().splitlines())}


def kfd_nodes(root: Path) -> dict[int, dict[str, int]]:
    nodes = root / "class/kfd/kfd/topology/nodes"
    return {int(node.name): numbers(node / "properties") for node in nodes.glob("*")}


def gpu_nodes(root: Path) -> dict[int, dict[str, int]]:
    """Return KFD properties by bus number."""
    nodes = kfd_nodes(root).values()
    return {node["location_id"] >> 8: node for node in nodes if node["simd_count"]}


def links(root: Path, kind: str) -> dict[tuple[int, int], dict[str, int]]:
    files = (root / "class/kfd/kfd/topology/nodes").glob(f"*/{kind}/*/properties")
    found = [numbers(file) for file in files]
    return {(link["node_from"], link["node_to"]): link for link in found}


def attribute(root: Path, gpu: int, name: str) -> str:
    device = root / f"bus/pci/devices/0000:{BUSES[gpu]:02x}:00.0"
    return (device / name).read_text().rstrip("\n")


def test_every_link_leads_somewhere(tree: Generate) -> None:
    root = tree(bmc=True)
    dangling = [path for path in root.rglob("*") if path.is_symlink() and not path.exists()]
    # A node's CPUs are the machine's own, below the overlay.
    assert [path for path in dangling if path.parent.parent.name != "node"] == []


def test_a_healthy_host_is_a_full_mesh_of_eight(healthy: Path) -> None:
    joined = {pair for pair, link in links(healthy, "io_links").items() if link["type"] == 11}
    gpus = range(CPU_NODES, CPU_NODES + 8)
    assert joined == {(a, b) for a in gpus for b in gpus if a != b}


def test_the_file_says_how_many_links_there_are(tree: Generate) -> None:
    root = tree("pcie=0:5", "missing=3")
    for kind in ("io_links", "p2p_links"):
        for number, node in kfd_nodes(root).items():
            directory = root / f"class/kfd/kfd/topology/nodes/{number}/{kind}"
            assert node[f"{kind}_count"] == len(list(directory.iterdir()))


def test_drm_and_kfd_agree_on_the_render_node(tree: Generate) -> None:
    root = tree(bmc=True)
    for bus, node in gpu_nodes(root).items():
        entry = root / f"class/drm/renderD{node['drm_render_minor']}"
        assert (entry / "device").resolve().name == f"0000:{bus:02x}:00.0"
        assert (entry / "dev").read_text() == f"226:{node['drm_render_minor']}\n"


def test_serial_numbers_agree_and_differ(healthy: Path) -> None:
    seen = {bus: node["unique_id"] for bus, node in gpu_nodes(healthy).items()}
    assert len(set(seen.values())) == 8
    for gpu, bus in enumerate(BUSES):
        assert int(attribute(healthy, gpu, "unique_id"), 16) == seen[bus]


def test_by_default_no_index_is_the_bus_order(healthy: Path) -> None:
    nodes = gpu_nodes(healthy)
    minors = [nodes[bus]["drm_render_minor"] - 128 for bus in sorted(nodes)]
    assert minors == [1, 3, 2, 0, 5, 7, 6, 4]


def test_bus_order_on_request(tree: Generate) -> None:
    nodes = gpu_nodes(tree(probe_ranks=read_probe_ranks("bdf")))
    assert [nodes[bus]["drm_render_minor"] for bus in sorted(nodes)] == list(range(128, 136))


@pytest.mark.parametrize("text", ["", "0,1", "0,0,2,3,4,5,6,7", "a,b", "0,1,2,3,4,5,6,8"])
def test_an_order_names_each_rank_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"each of 0 to 7|invalid literal"):
        read_probe_ranks(text)


def test_a_bmc_takes_card0(tree: Generate) -> None:
    root = tree(bmc=True)
    assert (root / "class/drm/card0/device/vendor").read_text() == "0x1a03\n"
    assert (root / "class/drm/card8").exists()


@pytest.mark.parametrize(
    ("cpus", "lists", "masks"),
    [
        (1, ["0", "1"], ["00000001", "00000002"]),
        (4, ["0-3", "4-7"], ["0000000f", "000000f0"]),
        (24, ["0-23", "24-47"], ["00000000,00ffffff", "0000ffff,ff000000"]),
    ],
)
def test_cpus_are_shared_among_the_nodes(
    tree: Generate, cpus: int, lists: list[str], masks: list[str]
) -> None:
    root = tree(cpus_per_node=cpus)
    nodes = [root / f"devices/system/node/node{node}" for node in range(2)]
    assert [(node / "cpulist").read_text().strip() for node in nodes] == lists
    assert [(node / "cpumap").read_text().strip() for node in nodes] == masks
    assert attribute(root, 7, "local_cpulist") == lists[1]


def test_missing_leaves_no_trace_and_no_gap(tree: Generate) -> None:
    root = tree("missing=3")
    assert not (root / "bus/pci/devices/0000:65:00.0").exists()
    assert sorted(gpu_nodes(root)) == [bus for bus in BUSES if bus != 0x65]
    assert sorted(kfd_nodes(root)) == list(range(CPU_NODES + 7))
    cards = {path.name for path in (root / "class/drm").glob("card*")}
    assert cards == {f"card{number}" for number in range(7)}


def test_nokfd_keeps_the_card(tree: Generate) -> None:
    root = tree("nokfd=2")
    assert len(list((root / "class/drm").glob("card*"))) == 8
    assert 0x46 not in gpu_nodes(root)


@pytest.mark.parametrize(("fault", "weight"), [("pcie=0:3", 40), ("pcie=0:5", 72)])
def test_without_xgmi_only_the_way_over_pcie_is_left(
    tree: Generate, fault: str, weight: int
) -> None:
    root = tree(fault)
    gpus = range(CPU_NODES, CPU_NODES + 8)
    direct = [pair for pair in links(root, "io_links") if set(pair) <= set(gpus)]
    assert len(direct) == 8 * 7 - 2
    ways = {p: w for p, w in links(root, "p2p_links").items() if set(p) <= set(gpus)}
    assert len(ways) == 2
    assert all(way["weight"] == weight and way["type"] == 2 for way in ways.values())


@pytest.mark.parametrize(
    ("fault", "gpu", "name", "value"),
    [
        ("numa=1:1", 1, "numa_node", "1"),
        ("numa=1:1", 1, "local_cpulist", "1"),
        ("numa=1:-1", 1, "numa_node", "-1"),
        ("numa=1:-1", 1, "local_cpulist", ""),
        ("vram=4:1024", 4, "mem_info_vram_total", "1024"),
        ("linkwidth=0:8", 0, "current_link_width", "8"),
        ("ue=6:12", 6, "ras/umc_err_count", "ue: 12\nce: 0"),
        ("partition=7:CPX", 7, "current_compute_partition", "CPX"),
        ("memory=7:NPS4", 7, "current_memory_partition", "NPS4"),
        ("linkspeed=0:16", 0, "current_link_speed", "16.0 GT/s PCIe"),
        ("slotwidth=0:8", 0, "current_link_width", "16"),
        ("pcie=0:5", 0, "xgmi_num_links", "01 00 01 01 01 01 01 00"),
    ],
)
def test_a_fault_shows_in_its_attribute_alone(
    tree: Generate, healthy: Path, fault: str, gpu: int, name: str, value: str
) -> None:
    root = tree(fault)
    assert attribute(root, gpu, name) == value
    other = (gpu + 1) % 4  # of node 0
    assert attribute(root, other, name) == attribute(healthy, other, name)


def test_the_columns_of_a_hive_are_in_probe_order(healthy: Path) -> None:
    own = [attribute(healthy, gpu, "xgmi_num_links").split().index("00") for gpu in range(8)]
    assert own == [1, 3, 2, 0, 5, 7, 6, 4]


def test_links_end_at_ports_that_have_trained_alike(tree: Generate) -> None:
    root = tree("slotwidth=0:8", "linkspeed=0:16")
    chain = (root / "bus/pci/devices/0000:05:00.0").resolve().relative_to(root).parts[2:]
    assert chain == tuple(
        f"0000:{bus}" for bus in ("00:01.1", *(f"0{n}:00.0" for n in range(1, 6)))
    )
    ports = [root / "bus/pci/devices" / bdf for bdf in chain]
    state = [
        (
            (port / "current_link_width").read_text().strip(),
            (port / "current_link_speed").read_text().split()[0],
        )
        for port in ports
    ]
    assert state == [("16", "32.0")] * 2 + [("8", "32.0")] * 2 + [("16", "16.0")] * 2


@pytest.mark.parametrize(("mode", "parts"), [("SPX", 1), ("DPX", 2), ("QPX", 4), ("CPX", 8)])
def test_each_partition_is_a_device(tree: Generate, mode: str, parts: int) -> None:
    root = tree(f"partition=all:{mode}")
    found = [node for node in kfd_nodes(root).values() if node["simd_count"]]
    assert len(found) == 8 * parts
    assert {node["location_id"] & 7 for node in found} == set(range(parts))
    assert {node["simd_count"] for node in found} == {1216 // parts}
    assert len({node["unique_id"] for node in found}) == 8
    for node in found:
        entry = (root / f"class/drm/renderD{node['drm_render_minor']}/device").resolve()
        assert (entry.parent.name == "platform") == bool(node["location_id"] & 7)
    assert len(list((root / "devices/platform").glob("amdgpu_xcp.*"))) == 8 * (parts - 1)


def test_partitions_of_a_gpu_are_nearer_than_those_of_another(tree: Generate) -> None:
    root = tree("partition=all:CPX", "pcie=0:5")
    place = {node: numbers_["location_id"] for node, numbers_ in kfd_nodes(root).items()}
    for (a, b), link in links(root, "io_links").items():
        if link["type"] == 11:
            same = place[a] >> 8 == place[b] >> 8
            expected = (13, 819200) if same else (41, 0)
            assert (link["weight"], link["max_bandwidth"]) == expected
            assert {place[a] >> 8, place[b] >> 8} != {0x05, 0xA6}


def test_a_bmc_leaves_63_of_64_devices(tree: Generate) -> None:
    root = tree("partition=all:CPX", bmc=True)
    assert len([node for node in kfd_nodes(root).values() if node["simd_count"]]) == 63
    assert not (root / "class/drm/card64").exists()
    lost = [node for node in kfd_nodes(root).values() if node["location_id"] == 0xA607]
    assert lost == []  # the last partition of the GPU that is probed last


def test_hives_are_linked_by_pcie_only(tree: Generate) -> None:
    root = tree("hives=0,2,3,7/1,4,5,6", probe_ranks=read_probe_ranks("bdf"))
    joined = {pair for pair, link in links(root, "io_links").items() if link["type"] == 11}
    hives = [{2, 4, 5, 9}, {3, 6, 7, 8}]
    assert joined == {(a, b) for hive in hives for a in hive for b in hive if a != b}


def test_a_weight_holds_one_way(tree: Generate) -> None:
    root = tree("weight=0:5:30", probe_ranks=read_probe_ranks("bdf"))
    found = links(root, "io_links")
    assert (found[2, 7]["weight"], found[7, 2]["weight"]) == (30, 15)


def test_a_guest_is_told_less(tree: Generate) -> None:
    root = tree("vf")
    assert attribute(root, 0, "device") == "0x74b9"
    assert {node["device_id"] for node in gpu_nodes(root).values()} == {0x74B9}
    assert attribute(root, 0, "current_link_width") == "0"
    device = root / "bus/pci/devices/0000:05:00.0"
    for name in ("current_compute_partition", "xgmi_num_links", "ras/umc_err_count"):
        assert not (device / name).exists()


def test_without_the_driver_only_the_bus_knows(tree: Generate) -> None:
    root = tree("nodriver")
    classes = [path.read_text() for path in (root / "bus/pci/devices").glob("*/class")]
    assert classes.count("0x120000\n") == 8
    assert "DRIVER=" not in attribute(root, 0, "uevent")
    for path in ("class/kfd", "class/drm", "module/amdgpu", "bus/pci/drivers"):
        assert not (root / path).exists()


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "melted=3",
        "missing",
        "missing=8",
        "missing=-1",
        "missing=x",
        "missing= 1",
        "pcie=1:1",
        "pcie=1",
        "vram=1",
        "partition=1:SPQ",
        "nodriver=1",
        "vf=1",
        "memory=all:NPS3",
        "hives=0,1/1,2",
        "hives=0,8",
        "weight=0:1",
        "weight=0:1:x",
        "missing=every",
    ],
)
def test_what_is_not_a_fault_is_refused(fault: str) -> None:
    with pytest.raises(FaultError):
        parse_faults([fault])


def test_all_names_every_gpu() -> None:
    assert parse_faults(["partition=all:CPX", "partition=3:SPX"]).partition == {
        gpu: "SPX" if gpu == 3 else "CPX" for gpu in range(8)
    }


def test_the_program_refuses_without_writing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(tmp_path / "sys"), "--fault", "melted=3"]) == 2
    assert "melted" in capsys.readouterr().err
    assert not (tmp_path / "sys").exists()


gpus = st.integers(0, 7)
machines = st.builds(
    Machine,
    probe_ranks=st.permutations(range(8)).map(tuple),
    faults=st.builds(
        Faults,
        missing=st.frozensets(gpus),
        nokfd=st.frozensets(gpus),
        pcie=st.frozensets(st.frozensets(gpus, min_size=2, max_size=2)),
        numa=st.dictionaries(gpus, st.integers(-1, 1)),
        partition=st.dictionaries(gpus, st.sampled_from(["SPX", "DPX"])),
    ),
)


@settings(deadline=None)
@given(machines)
def test_any_two_nodes_are_joined_both_ways_and_once(machine: Machine) -> None:
    found = [*io_links(machine), *p2p_links(machine)]
    weights = {(link.source, link.target): link.weight for link in found}
    assert len(weights) == len(found)
    nodes = [*range(machine.numa_nodes), *machine.kfd_nodes.values()]
    assert set(weights) == {(a, b) for a in nodes for b in nodes if a != b}
    assert all(weights[b, a] == weight for (a, b), weight in weights.items())
