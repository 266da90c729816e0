# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.host import kubernetes as lab
from support.host.kubernetes import applied, codes, contents, failing, plan, said

# ---- which host is a node


def test_a_host_without_a_kubelet_gets_nothing():
    found = plan(commands={"kubelet_version": said("", None)})
    assert not found.node
    assert (found.files, found.checks, found.manifests) == ((), (), ())
    assert [one.name for one in found.skipped] == ["device_plugin"]


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
    assert "KUBE-PLUGIN-UNCOUNTED" in codes(found, "warning")
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
