# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes and cores."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers import cpus
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.readers.cpus import (
    disagreements,
    numa_nodes,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.recognise import recognise

from tests.support.printers import machine as printers
from tests.support.printers import system as printers_system


def test_cores_hold_their_smt_siblings():
    cores = [(0, 4), (1, 5), (2, 6), (3, 7)]
    text = printers.lscpu(cores, lambda cpu: int(cpu % 4 >= 2))
    first, second = numa_nodes(printers.node_files(["0-1,4-5", "2-3,6-7"]), text)
    assert (first.cpus, first.cores) == ("0-1,4-5", ("0,4", "1,5"))
    assert (second.cpus, second.cores) == ("2-3,6-7", ("2,6", "3,7"))
    assert (first.memory_bytes, first.distances) == (2**40, (10, 32))


def test_interleaved_cpu_numbers_are_no_ranges():
    files = printers.node_files(["0,2,4,6", "1,3,5,7"])
    text = printers.lscpu([(0, 4), (1, 5), (2, 6), (3, 7)], lambda cpu: cpu % 2)
    first, second = numa_nodes(files, text)
    assert first.cores == ("0,4", "2,6")
    assert second.cores == ("1,5", "3,7")


def test_sparse_node_ids_stay():
    files = {
        path.replace("node1/", "node7/"): text
        for path, text in printers.node_files(["0-3", "4-7"]).items()
    }
    assert [node.id for node in numa_nodes(files)] == [0, 7]


def test_sysfs_stands_in_for_lscpu():
    files = printers.node_files(["0-1"])
    for cpu in (0, 1):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = "0-1\n"
    assert numa_nodes(files)[0].cores == ("0-1",)


def test_a_core_over_two_nodes_is_divided():
    (first, second) = numa_nodes(printers.node_files(["0", "1"]), printers.lscpu([(0, 1)], int))
    assert (first.cores, second.cores) == (("0",), ("1",))


def test_half_of_the_cpus_known_is_no_smaller_node():
    (node,) = numa_nodes(printers.node_files(["0-95"]), printers.lscpu([(0,), (1,)], lambda cpu: 0))
    assert (node.cpus, node.cores) == ("0-95", ())


def test_offline_cpus_are_in_no_core():
    text = "0,0,0,0,Y\n1,0,0,0,N\n"
    assert numa_nodes(printers.node_files(["0"]), text)[0].cores == ("0",)


def test_numactl_stands_in_for_sysfs():
    told, findings = cpus.numactl_nodes(printers_system.numactl([range(4), range(4, 8)]), "h")
    text = printers.lscpu([(0, 2), (1, 3), (4, 6), (5, 7)], lambda cpu: cpu // 4)
    first, second = numa_nodes({}, text, told)
    assert findings == ()
    assert (first.cpus, first.cores) == ("0-3", ("0,2", "1,3"))
    assert (second.memory_bytes, second.distances) == (2**40, (32, 10))


def test_lscpu_stands_in_for_both():
    text = printers.lscpu([(0, 2), (1, 3)], lambda cpu: cpu % 2)
    first, second = numa_nodes({}, text)
    assert (first.cpus, first.cores, first.memory_bytes) == ("0,2", ("0,2",), None)
    assert second.cpus == "1,3"


def test_numactl_and_sysfs_are_held_against_each_other():
    nodes = numa_nodes(printers.node_files(["0-3", "4-7"]))
    told, _findings = cpus.numactl_nodes(printers_system.numactl([range(4), range(4, 7)]), "h")
    assert disagreements(nodes, told) == [
        "cpus of NUMA node 1: sysfs says 4-7, numactl says 4-6; 4-7 was taken"
    ]
    told, _findings = cpus.numactl_nodes(printers_system.numactl([range(4), range(4, 8)]), "h")
    assert disagreements(nodes, told) == []
    assert "NUMA nodes: sysfs says 0,1, numactl says 0;" in disagreements(nodes, told[:1])[0]


@pytest.mark.parametrize("end", ["node 1 cpus", "node 1 size", "node distances", "  1: "])
def test_numactl_that_is_cut_is_told(end):
    text = printers_system.numactl([range(4), range(4, 8)])
    _nodes, (finding,) = cpus.numactl_nodes(text[: text.index(end)], "h")
    assert finding.code == "TOPO-TRUNCATED"


def test_a_node_that_numactl_counts_and_does_not_describe_is_told():
    text = printers_system.numactl([range(4), range(4, 8)])
    lines = [line for line in text.splitlines() if not line.startswith("node 1 ")]
    (node,), (finding,) = cpus.numactl_nodes("\n".join(lines) + "\n", "h")
    assert (node.id, finding.code) == (0, "TOPO-TRUNCATED")
    assert "1 of 2 nodes" in finding.message


def test_no_numa_support_is_no_node():
    text = "No NUMA support available on this system.\n"
    assert recognise(text, "h").tools == ("numactl",)
    assert cpus.numactl_nodes(text, "h") == ((), ())


def test_a_node_without_cpus_is_memory_only():
    (node,) = numa_nodes(printers.node_files([""]))
    assert (node.cpus, node.cores) == ("", ())


def test_nonsense_is_unknown():
    (node,) = numa_nodes(printers.node_files(["what"]), "a,b,c\n")
    assert (node.cpus, node.cores) == ("", ())
