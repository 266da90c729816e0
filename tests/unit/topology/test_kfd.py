# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's own topology in sysfs."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    read,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers import kfd

from tests.support.printers import machine as printers
from tests.support.printers.machine import Card, Machine, Wire

TOP = "/sys/class/kfd/kfd/topology/nodes"


def path(observation, a, b):
    return next(one for one in observation.paths if (one.a, one.b) == (a, b))


def test_gpus_come_in_the_kernels_order_with_their_addresses():
    seen = kfd.parse(printers.kfd_files(printers.mesh()))
    assert [device.kfd_node for device in seen.devices] == list(range(2, 10))
    assert [device.bdf[5:7] for device in seen.devices] == [
        *("65", "05", "46", "26"),
        *("e5", "85", "c6", "a6"),
    ]
    first = seen.devices[0]
    assert (first.render_node, first.device_id, first.unique_id, first.numa_node) == (
        "renderD128",
        "74a5",
        "1000000000000000",
        0,
    )
    assert first.vram_bytes == 274861129728


def test_a_missing_xgmi_link_is_the_way_over_the_cpus():
    def wire(a, b):
        broken = {a.bdf, b.bdf} in (
            {"0000:05:00.0", "0000:26:00.0"},
            {"0000:05:00.0", "0000:e5:00.0"},
        )
        return Wire("PCIE") if broken else Wire()

    files = printers.kfd_files(Machine(printers.mesh().cards, wire))
    seen = kfd.parse(files)
    place = {device.bdf: position for position, device in enumerate(seen.devices)}
    near = path(seen, place["0000:05:00.0"], place["0000:26:00.0"])
    far = path(seen, place["0000:e5:00.0"], place["0000:05:00.0"])
    assert (near.type, near.hops, near.weight) == ("pcie", 2, 40)
    assert (far.type, far.hops, far.weight) == ("pcie", 3, 72)


def test_peer_to_peer_links_keep_the_weight_that_the_kernel_gives():
    files = printers.kfd_files(Machine((Card("0000:05:00.0", 0), Card("0000:26:00.0", 1)), pcie))
    files[f"{TOP}/2/p2p_links/0/properties"] = (
        "type 2\nnode_from 2\nnode_to 3\nweight 44\nmin_bandwidth 1000\nmax_bandwidth 64000\n"
    )
    one = path(kfd.parse(files), 0, 1)
    assert (one.type, one.hops, one.weight, one.bandwidth_mb_s) == ("pcie", 2, 44, (1000, 64000))


def pcie(a, b):
    return Wire("PCIE", 40, 2, (0, 0))


def partitions(count, unique_id=7):
    files = {}
    for number in range(count):
        files[f"{TOP}/{number + 1}/properties"] = (
            f"simd_count 152\nlocation_id {0x500 + number}\nunique_id {unique_id}\n"
        )
    return files


def test_function_bits_of_one_gpu_are_partition_ids():
    seen = kfd.parse(partitions(8))
    assert {device.bdf for device in seen.devices} == {"0000:05:00.0"}
    assert [device.partition for device in seen.devices] == list(range(8))


def test_function_bits_of_distinct_gpus_are_functions():
    files = partitions(2)
    files[f"{TOP}/2/properties"] = "simd_count 152\nlocation_id 1281\nunique_id 8\n"
    assert [device.bdf for device in kfd.parse(files).devices] == ["0000:05:00.0", "0000:05:00.1"]


def test_a_single_partition_is_known_by_the_bus_not_having_its_function():
    files = {f"{TOP}/4/properties": "simd_count 152\nlocation_id 1283\nunique_id 7\n"}
    (device,) = kfd.parse(files, functions=frozenset(["0000:05:00.0"])).devices
    assert (device.bdf, device.partition) == ("0000:05:00.0", 3)


def test_unreadable_nodes_are_skipped_and_ranks_close_up():
    files = printers.kfd_files(printers.mesh())
    files[f"{TOP}/3/properties"] = ""
    seen = kfd.parse(files)
    assert [device.kfd_node for device in seen.devices] == [2, 4, 5, 6, 7, 8, 9]


def test_cpu_nodes_are_mapped_to_the_hosts_numa_ids():
    seen = kfd.parse(printers.kfd_files(printers.mesh()), numa_ids=[1, 7])
    assert {device.numa_node for device in seen.devices} == {1, 7}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "no /sys/class/kfd"),
        ({f"{TOP}/0/properties": "cpu_cores_count 64\nsimd_count 0\n"}, "readable here"),
    ],
)
def test_no_gpu_comes_with_the_reason(files, reason):
    seen = kfd.parse(files)
    assert seen.devices == ()
    assert reason in seen.absence


def test_a_dump_of_the_tree_is_a_capture():
    files = printers.kfd_files(printers.mesh())
    dump = "".join(f"==> {path.split('kfd/kfd/')[1]} <==\n{text}" for path, text in files.items())
    topology = read(dump, "kfd.flat.txt")
    assert len(topology.gpus) == 8
    assert {link.type for link in topology.links} == {"xgmi"}
    cut = read(dump[: dump.index("==> topology/nodes/8/")], "kfd.flat.txt")
    assert "TOPO-TRUNCATED" in [finding.code for finding in cut.findings]


def test_weight_zero_and_bandwidth_zero_are_unknown():
    machine = dataclasses.replace(
        printers.mesh(), wire=lambda a, b: Wire("XGMI", 0, 1, bandwidth=(0, 0))
    )
    one = path(kfd.parse(printers.kfd_files(machine)), 0, 1)
    assert (one.type, one.weight, one.bandwidth_mb_s) == ("xgmi", None, None)
