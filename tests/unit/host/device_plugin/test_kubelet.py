# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role device_plugin on a node: what the kubelet is set to, its restart, and the undo."""

import json

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.objects import (
    parse_memory,
)

from support.host import kubernetes as lab
from support.host.kubernetes import applied, codes, contents, drop_in, failing, plan, said

# ---- the kubelet's settings


def test_the_drop_in_fits_host_and_layout(golden):
    golden("host/device_plugin/90-apiary.conf", contents(plan())[lab.DROP_IN])


@pytest.mark.parametrize(
    ("pods", "policy"),
    [
        ((4, 4), "single-numa-node"),
        ((4, 2, 2), "single-numa-node"),
        ((8,), "best-effort"),
        ((2, 6), "best-effort"),
        ((), "best-effort"),
    ],
)
def test_a_pod_larger_than_a_numa_node_rules_out_the_strict_policy(pods, policy):
    assert drop_in(plan({"pod_gpus": pods}))["topologyManagerPolicy"] == policy


def test_a_missing_gpu_makes_its_numa_node_too_small():
    found = plan(faults=("missing=0", "missing=7"))
    assert drop_in(found)["topologyManagerPolicy"] == "best-effort"


def test_an_asked_for_policy_stands():
    asked = {"topology_manager_policy": "restricted"}
    assert drop_in(plan(asked))["topologyManagerPolicy"] == "restricted"


def test_the_system_keeps_the_cpus_that_plans_leave_free():
    assert drop_in(plan())["reservedSystemCPUs"] == "0-1,64-65,128-129,192-193"


def test_what_numa_nodes_reserve_is_what_the_node_reserves():
    config = drop_in(plan({"system_memory": "3Gi", "kubelet_memory": "1G", "eviction_memory": "1"}))
    parts = [one["limits"]["memory"] for one in config["reservedMemory"]]
    whole = [config["systemReserved"]["memory"], config["kubeReserved"]["memory"]]
    whole.append(config["evictionHard"]["memory.available"])
    assert sum(map(parse_memory, parts)) == sum(map(parse_memory, whole)) == 3 * 2**30 + 10**9 + 1


def test_without_memory_manager_nothing_is_reserved_by_node():
    config = drop_in(plan({"memory_manager_enabled": False}))
    assert "memoryManagerPolicy" not in config
    assert "reservedMemory" not in config


def test_many_numa_nodes_need_an_option():
    config = drop_in(plan(nodes=16, version="1.31.0"))
    assert config["topologyManagerPolicyOptions"] == {"max-allowable-numa-nodes": "16"}


def test_many_numa_nodes_are_refused_where_the_option_is_not_known():
    assert codes(plan(nodes=16, version="1.30.9")) == ["KUBE-NUMA-NODES"]


def test_eight_numa_nodes_need_none():
    assert "topologyManagerPolicyOptions" not in drop_in(plan(nodes=8))


@pytest.mark.parametrize("text", ["5%", "16 Gi", "", "1.5Gi", "-4Gi"])
def test_an_amount_that_cannot_be_added_up_is_refused(text):
    assert codes(plan({"system_memory": text})) == ["KUBE-QUANTITY"]


def test_a_numa_node_smaller_than_its_part_is_refused():
    found = plan(node_memory=8 * 2**30)
    assert codes(found) == ["KUBE-RESERVED"]
    assert not found.restart


def test_unknown_cpus_are_refused():
    found = plan(commands={"lscpu": said("", None)})
    assert codes(found) == ["KUBE-CPUS-UNKNOWN"]
    assert [one.path for one in found.files] == [lab.SYSCTL]


def test_the_kubelet_is_left_alone_where_that_is_asked():
    found = plan({"kubelet_enabled": False})
    assert [one.path for one in found.files] == [lab.SYSCTL]
    assert not found.restart


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d\n"),
        (
            "# mine\nKUBELET_EXTRA_ARGS='--node-ip=10.0.0.7 --v=2'\nOTHER=1\n",
            "# mine\nKUBELET_EXTRA_ARGS='--node-ip=10.0.0.7 --v=2"
            " --config-dir=/etc/kubernetes/kubelet.conf.d'\nOTHER=1\n",
        ),
    ],
)
def test_the_kubelet_is_told_to_read_drop_ins(before, after):
    assert contents(plan(files={lab.ARGUMENTS: before}))[lab.ARGUMENTS] == after


def test_red_hat_keeps_the_arguments_elsewhere():
    found = plan(files={"/etc/os-release": 'ID="rhel"\nVERSION_ID="9.6"\n'})
    assert "/etc/sysconfig/kubelet" in contents(found)


def test_a_kubelet_that_reads_the_directory_anyway_needs_no_argument():
    arguments = lab.KUBEADM + " --config-dir=/etc/kubernetes/kubelet.conf.d"
    assert lab.ARGUMENTS not in contents(plan(arguments=arguments))


def test_before_1_30_the_settings_are_merged_into_the_configuration():
    before = "kind: KubeletConfiguration\nclusterDomain: cluster.local\nevictionHard: {x: 1%}\n"
    found = plan(version="1.29.15", files={lab.CONFIG: before})
    config = yaml.safe_load(contents(found)[lab.CONFIG])
    assert config["clusterDomain"] == "cluster.local"
    assert config["cpuManagerPolicy"] == "static"
    assert config["evictionHard"]["x"] == "1%"
    assert lab.DROP_IN not in contents(found)


def test_a_merged_configuration_is_left_as_it_is_written():
    again = plan(**applied(version="1.29.15"))
    assert not again.restart
    assert not failing(again)


def test_without_configuration_and_drop_ins_it_is_refused():
    assert codes(plan(version="1.29.15", files={lab.CONFIG: None})) == ["KUBE-NO-CONFIG"]


def test_a_flag_that_beats_the_configuration_is_refused():
    found = plan(arguments=lab.KUBEADM + " --cpu-manager-policy=none")
    assert codes(found) == ["KUBE-FLAGS"]
    assert "--cpu-manager-policy=none" in found.findings[-1].message


def test_another_directory_of_drop_ins_is_refused():
    assert codes(plan(arguments=lab.KUBEADM + " --config-dir=/etc/x")) == ["KUBE-CONFIG-DIR"]


# ---- restarting it


def test_a_drained_node_is_restarted_and_forgets_its_states():
    found = plan()
    assert found.restart
    assert contents(found)[lab.CPU_STATE] is None
    assert codes(found) == []


def test_second_run_changes_nothing():
    node = applied()
    again = plan(**node)
    assert not again.restart
    assert {path: text for path, text in contents(again).items()} == {
        path: node["files"][path] for path in contents(again)
    }
    assert [one.state for one in again.checks if one.state != "pass"] == []


@pytest.mark.parametrize("policy", ["none", "None"])
def test_a_kubelet_that_did_not_read_its_settings_is_restarted(policy):
    node = applied()
    node["files"][lab.MEMORY_STATE] = json.dumps({"policyName": policy})
    assert plan(**node).restart


def test_a_kubelet_that_a_killed_run_has_stopped_loses_states_of_another_policy():
    node = applied()
    node["files"][lab.CPU_STATE] = json.dumps({"policyName": "none"})
    found = plan(**{**node, "arguments": ""})
    assert not found.restart
    paths = [item.path for item in found.files]
    assert contents(found)[lab.CPU_STATE] is None
    # Before the settings: while those differ, the next run knows that states go.
    assert paths.index(lab.CPU_STATE) < paths.index(lab.DROP_IN)


def test_a_kubelet_that_was_not_restarted_since_the_argument_is():
    node = applied()
    found = plan(**{**node, "arguments": lab.KUBEADM})
    assert found.restart
    assert ("KUBE-KUBELET-SETTING", "cpuManagerPolicy") in failing(found)


def test_pods_forbid_the_restart():
    found = plan(pods=("kube-system/proxy", "shop/cart-1"))
    assert codes(found) == ["KUBE-NOT-DRAINED"]
    assert "shop/cart-1" in found.findings[-1].message
    assert not found.restart


def test_unknown_pods_forbid_the_restart():
    assert codes(plan(pods=None)) == ["KUBE-NOT-DRAINED"]


def test_pods_of_system_namespaces_stay_through_a_drain():
    asked = {"system_namespaces": ["kube-system", "calico-system"]}
    assert codes(plan(asked, pods=("calico-system/node-x",))) == []


def test_the_restart_can_be_allowed():
    assert plan({"kubelet_restart_allowed": True}, pods=("shop/cart-1",)).restart


def test_pinned_pods_forbid_it_even_then():
    state = {"policyName": "none", "entries": {"9d1c": {"engine": "2-63"}}}
    found = plan({"kubelet_restart_allowed": True}, files={lab.CPU_STATE: json.dumps(state)})
    assert codes(found) == ["KUBE-NOT-DRAINED"]


def test_a_kubelet_that_is_down_has_nothing_to_drain():
    found = plan(arguments=None, pods=None)
    assert codes(found) == []
    assert found.restart


# ---- undoing


def test_absent_takes_back_what_was_written():
    node = applied()
    found = plan({"state": "absent"}, **node)
    after = contents(found)
    assert after[lab.DROP_IN] is None
    assert after[lab.SYSCTL] is None
    assert after[lab.ARGUMENTS] == "KUBELET_EXTRA_ARGS=''\n"
    assert found.restart
    assert found.checks == ()


def test_absent_keeps_reading_the_drop_ins_of_others():
    node = applied()
    node["files"]["/etc/kubernetes/kubelet.conf.d/10-mine.conf"] = "kind: KubeletConfiguration\n"
    assert lab.ARGUMENTS not in contents(plan({"state": "absent"}, **node))


def test_absent_twice_changes_nothing():
    found = plan({"state": "absent"})
    assert not found.restart
    assert all(content is None for content in contents(found).values())


# ---- files of others whose text is not known

HIDDEN = "PROXY=http://***@proxy\n"


@pytest.mark.parametrize(
    "of_node",
    [
        {"files": {lab.ARGUMENTS: HIDDEN}},
        {"unreadable": (lab.ARGUMENTS, lab.EXPORTER)},
    ],
)
def test_arguments_that_are_not_known_are_never_written(of_node):
    found = plan(**of_node)
    assert codes(found) == ["KUBE-FILE-UNKNOWN"]
    (told,) = [one for one in found.findings if one.code == "KUBE-FILE-UNKNOWN"]
    assert told.subject == f"gpu-001: {lab.ARGUMENTS}"
    assert "add --config-dir=/etc/kubernetes/kubelet.conf.d in KUBELET_EXTRA_ARGS" in told.remedy
    assert lab.ARGUMENTS not in contents(found)
    assert not found.restart


def test_arguments_that_have_it_already_stop_nothing():
    node = applied()
    node["files"][lab.ARGUMENTS] += HIDDEN
    found = plan(**node)
    assert codes(found) == []
    assert lab.ARGUMENTS not in contents(found)


def test_a_configuration_that_is_not_known_is_never_written():
    before = "kind: KubeletConfiguration\nclusterDomain: http://***@x\n"
    found = plan(version="1.29.15", files={lab.CONFIG: before})
    assert codes(found) == ["KUBE-FILE-UNKNOWN"]
    assert lab.CONFIG not in contents(found)
    assert '"cpuManagerPolicy": "static"' in found.findings[-1].remedy


def test_a_configuration_that_is_right_already_is_left_out():
    node = applied(version="1.29.15")
    node["files"][lab.CONFIG] = "# http://***@x\n" + node["files"][lab.CONFIG]
    found = plan(**node)
    assert codes(found) == []
    assert lab.CONFIG not in contents(found)


def test_absent_refuses_arguments_that_it_cannot_read():
    node = applied()
    del node["files"][lab.ARGUMENTS]
    found = plan({"state": "absent"}, **{**node, "unreadable": (lab.ARGUMENTS,)})
    assert codes(found) == ["KUBE-FILE-UNKNOWN"]
    assert "remove --config-dir=" in found.findings[-1].remedy
