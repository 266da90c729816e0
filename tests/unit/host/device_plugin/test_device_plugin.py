# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.quantities import (
    parse_memory,
)

from support.host import kubernetes as lab
from support.host.kubernetes import applied, plan, said


def codes(found, severity="error"):
    return [one.code for one in found.findings if one.severity == severity]


def contents(found):
    return {one.path: one.content for one in found.files}


def drop_in(found):
    return yaml.safe_load(contents(found)[lab.DROP_IN])


def failing(found):
    return sorted({(one.code, one.subject) for one in found.checks if one.state == "fail"})


# ---- which host is a node


def test_a_host_without_a_kubelet_gets_nothing():
    found = plan(commands={"kubelet_version": said("", None)})
    assert not found.node
    assert (found.files, found.checks, found.manifests) == ((), (), ())
    assert [one.name for one in found.skipped] == ["device_plugin"]


def test_k3s_keeps_its_own_kubelet_and_gets_the_plugin():
    found = plan(
        commands={
            "kubelet_version": said("", None),
            "kubernetes_distribution": said("k3s-agent.service loaded active running Agent\n"),
        }
    )
    assert [one.path for one in found.files] == [lab.SYSCTL]
    assert found.manifests
    assert found.skipped[0].reason == "k3s configures its own kubelet"


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


# ---- what it is asked for


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("registry", "docker.io /rocm"),
        ("registry", ""),
        ("registry", "https://docker.io/rocm"),
        ("registry", "docker.io/rocm\n"),
        ("version", "1.31.0.9; x"),
        ("version", ""),
        ("dra_version", "1.0.1 x"),
        ("exporter_version", "1.5.1;"),
        ("digest", "sha256:abc"),
        ("labeller_digest", "a" * 64),
        ("tolerations", [{"key": "amd.com/gpu", "operater": "Exists"}]),
        ("pod_gpus", [4, 0]),
        ("pod_gpus", [-1]),
    ],
)
def test_an_input_that_cannot_be_is_one_refusal(name, value):
    found = plan({name: value})
    (told,) = [one for one in found.findings if one.severity == "error"]
    assert (told.code, told.subject) == ("KUBE-INPUT", f"gpu-001: device_plugin_{name}")


@pytest.mark.parametrize(
    "asked",
    [
        {"registry": "[fd00::1]:5000/rocm"},
        {"registry": "registry.example:5000/a/b_c"},
        {"tolerations": [{"key": "x", "effect": "NoExecute", "tolerationSeconds": 3}]},
    ],
)
def test_an_input_that_is_unusual_is_none(asked):
    assert codes(plan(asked)) == []


# ---- versions and owners


@pytest.mark.parametrize(
    ("asked", "driver", "expected"),
    [
        ({"version": "1.31.0.8"}, "6.14.14", ["KUBE-PLUGIN-FLOOR"]),
        ({"version": "1.31.0.8"}, "6.12.12", []),
        ({"version": "1.31.0.9"}, "6.14.14", []),
        ({"version": "1.31.0.10"}, "7.1.3", []),
        ({"version": "1.31.0.8"}, None, ["KUBE-PLUGIN-FLOOR"]),
        ({"dra_version": "1.0.0"}, "6.19.14", ["KUBE-DRA-FLOOR"]),
        ({"dra_version": "v1.0.0"}, "6.16.13", []),
        ({"dra_version": "1.0.1"}, "6.19.14", []),
        # The plugin's version says nothing where there is none.
        ({"dra_version": "1.0.1", "version": "1.31.0.8"}, "6.19.14", []),
    ],
)
def test_floors(asked, driver, expected):
    assert codes(plan(asked, files={lab.DRIVER: driver})) == expected


@pytest.mark.parametrize(
    ("asked", "package", "expected"),
    [
        ({}, "1.5.0-1", ["KUBE-EXPORTER-FLOOR"]),
        ({}, "1.5.1", []),
        ({"exporter_version": "v1.5.0"}, "1.5.2", ["KUBE-EXPORTER-FLOOR"]),
    ],
)
def test_an_old_exporter_is_told(asked, package, expected):
    found = plan(asked, commands={"exporter_package": said(package)})
    assert [code for code in codes(found, "warning") if code != "KUBE-UNPINNED"] == expected


def test_no_exporter_is_told():
    assert "KUBE-NO-EXPORTER" in codes(plan(unreadable=()), "warning")
    assert "KUBE-NO-EXPORTER" not in codes(
        plan({"health_enabled": False}, unreadable=()), "warning"
    )


@pytest.mark.parametrize(
    ("version", "told"), [("1.28.9", True), ("1.29.0", False), ("1.37.0", True)]
)
def test_unsupported_versions_are_told(version, told):
    assert ("KUBE-VERSION" in codes(plan(version=version), "warning")) is told


def test_the_operator_owns_its_cluster():
    found = plan(pods=("kube-amd-gpu/default-device-plugin-x",))
    assert "KUBE-OPERATOR" in codes(found)


def test_a_dra_driver_and_the_plugin_exclude_each_other():
    assert codes(plan(unreadable=(lab.DRA, lab.EXPORTER))) == ["KUBE-DRA-EXCLUSIVE"]
    assert codes(plan({"dra_version": "1.0.1"}, **applied())) == ["KUBE-DRA-EXCLUSIVE"]
    assert codes(plan({"dra_version": "1.0.1"}, unreadable=(lab.DRA,))) == []


def test_dra_needs_a_kubernetes_that_knows_it():
    assert codes(plan({"dra_version": "1.0.1"}, version="1.31.4")) == ["KUBE-DRA-KUBERNETES"]


def test_an_unpinned_image_is_told_with_its_variable():
    told = [one for one in plan().findings if one.code == "KUBE-UNPINNED"]
    assert [one.remedy.split()[-1].rstrip(".") for one in told] == [
        "device_plugin_digest",
        "device_plugin_labeller_digest",
    ]


# ---- checks


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({lab.CPU_STATE: '{"policyName": "none"}'}, ("KUBE-KUBELET-POLICY", lab.CPU_STATE)),
        (
            {"/proc/sys/fs/inotify/max_user_instances": "128\n"},
            ("KUBE-INOTIFY", "/proc/sys/fs/inotify/max_user_instances"),
        ),
        ({lab.CHECKPOINT: '{"Data": {"RegisteredDevices": {}}}'}, ("KUBE-RESOURCES", "amd.com")),
        ({lab.CHECKPOINT: None}, ("KUBE-RESOURCES", "amd.com")),
        (
            {lab.CHECKPOINT: '{"Data": {"RegisteredDevices": {"amd.com/gpu": ["a"]}}}'},
            ("KUBE-RESOURCES", "amd.com"),
        ),
    ],
)
def test_a_drift_fails_its_check(change, expected):
    node = applied()
    node["files"] = {**node["files"], **change}
    found = plan(**node)
    assert failing(found) == [expected]
    assert all(one.remedy for one in found.checks if one.state == "fail")


def test_a_changed_setting_fails_by_its_name():
    node = applied()
    text = node["files"][lab.DROP_IN].replace("single-numa-node", "none")
    node["files"] = {**node["files"], lab.DROP_IN: text}
    assert failing(plan(**node)) == [("KUBE-KUBELET-SETTING", "topologyManagerPolicy")]


def test_a_kubelet_that_is_down_fails():
    found = plan(**{**applied(), "arguments": None})
    assert ("KUBE-KUBELET-DOWN", "kubelet.service") in failing(found)


def test_a_higher_inotify_limit_stays():
    path = "/proc/sys/fs/inotify/max_user_watches"
    found = plan(files={path: "1048576\n"})
    assert path not in [one.path for one in found.live]
    assert "max_user_watches" not in contents(found)[lab.SYSCTL]


# ---- partitions


def test_partitions_of_every_gpu_count():
    node = applied(faults=("partition=all:CPX",))
    found = plan(**node)
    check = next(one for one in found.checks if one.code == "KUBE-RESOURCES")
    assert check.expected == '{"amd.com/gpu": 64}'
    assert check.state == "fail"


def test_gpus_that_are_cut_in_several_ways_get_several_names():
    found = plan(faults=("partition=0:CPX",))
    check = next(one for one in found.checks if one.code == "KUBE-RESOURCES")
    assert json.loads(check.expected) == {"amd.com/cpx_nps1": 8, "amd.com/spx_nps1": 7}
    container = found.manifests[0]["spec"]["template"]["spec"]["containers"][0]
    assert "-resource_naming_strategy=mixed" in container["args"]


def test_one_name_for_them_is_refused():
    assert codes(plan({"naming": "single"}, faults=("partition=0:CPX",))) == ["KUBE-HETEROGENEOUS"]


# ---- the cluster's objects


def test_the_objects(golden):
    golden("host/device_plugin/health.yml", plan().manifests_text)


def test_the_plain_objects(golden):
    asked = {
        "health_enabled": False,
        "labeller_enabled": False,
        "digest": "sha256:" + "a" * 64,
        "registry": "registry.example/rocm",
        "node_selector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    golden("host/device_plugin/plain.yml", plan(asked).manifests_text)


@pytest.mark.parametrize("version", lab.supported_versions())
def test_every_supported_kubernetes_takes_the_objects(version):
    partitioned = plan(faults=("partition=0:CPX",))
    assert lab.check_schema(plan().manifests_text, version) == 5
    assert lab.check_schema(partitioned.manifests_text, version) == 5


def test_with_dra_there_is_no_plugin():
    found = plan({"dra_version": "1.0.1"})
    names = [one["metadata"]["name"] for one in found.manifests if one["kind"] == "DaemonSet"]
    assert names == ["amdgpu-labeller-daemonset"]


def test_a_plan_is_a_document():
    assert to_document(plan())["manifests"][0]["kind"] == "DaemonSet"


def test_an_unknown_setting_is_named():
    with pytest.raises(ApiaryError, match="device_count"):
        plan({"device_count": 4})
