# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes and cores."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.cpus import numa_nodes

from tests.support import printers


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


def test_a_node_without_cpus_is_memory_only():
    (node,) = numa_nodes(printers.node_files([""]))
    assert (node.cpus, node.cores) == ("", ())


def test_nonsense_is_unknown():
    (node,) = numa_nodes(printers.node_files(["what"]), "a,b,c\n")
    assert (node.cpus, node.cores) == ("", ())
