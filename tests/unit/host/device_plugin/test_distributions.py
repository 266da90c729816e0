# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubelets that kubeadm's packages did not lay out: kubespray's, RKE2's, K3s's and others."""

import json

import pytest
import yaml

from support.host import kubernetes as lab
from support.host.kubernetes import codes, contents, plan, said

SPRAY_CONFIG = "/etc/kubernetes/kubelet-config.yaml"
# kubernetes-sigs/kubespray, roles/kubernetes/node/templates/kubelet.service.j2
SPRAY_UNIT = (
    "LoadState=loaded\nActiveState=active\n"
    "EnvironmentFiles=/etc/kubernetes/kubelet.env (ignore_errors=yes)\n"
    "ExecStart={ path=/usr/local/bin/kubelet ; argv[]=/usr/local/bin/kubelet $KUBE_LOG_LEVEL"
    " $KUBELET_ARGS $KUBELET_CLOUDPROVIDER ; ignore_errors=no }\n"
)
SPRAY = {
    "version": "1.34.1",
    "arguments": f"--v=2 --node-ip=10.0.0.1 --config={SPRAY_CONFIG} --kubeconfig=/etc/kubernetes/x",
    "commands": {"kubelet_service": said(SPRAY_UNIT)},
    "files": {lab.CONFIG: None, SPRAY_CONFIG: "kind: KubeletConfiguration\n"},
}


def restarted(found):
    return next(one for one in found.resources if one["kind"] == "offline_files")["restart"]


def test_a1_a_kubelet_of_kubespray_is_refused_with_what_its_inventory_needs():
    found = plan(**SPRAY)
    (refusal,) = [one for one in found.findings if one.severity == "error"]
    assert refusal.code == "KUBE-UNIT"
    assert 'kubelet_config_extra_args to {"cpuManagerPolicy": "static"' in refusal.remedy
    assert not restarted(found)
    assert list(contents(found)) == [lab.SYSCTL]


def settled(policy):
    """A node whose kubespray was given what the refusal says, and its kubelet's state."""
    refusal = next(one for one in plan(**SPRAY).findings if one.code == "KUBE-UNIT")
    text = refusal.remedy.partition(" to ")[2].partition(" in kubespray")[0]
    states = {
        lab.CPU_STATE: json.dumps({"policyName": policy}),
        lab.MEMORY_STATE: json.dumps({"policyName": policy.capitalize()}),
    }
    return {**SPRAY, "files": {**SPRAY["files"], SPRAY_CONFIG: text, **states}}


def test_a1_once_kubespray_has_set_it_no_run_restarts_the_kubelet():
    found = plan(**settled("static"))
    assert codes(found) == []
    assert not restarted(found)
    assert [one for one in found.checks if one.state == "fail" and "SETTING" in one.code] == []


def test_a1_a_state_of_another_policy_is_worth_a_restart_there():
    found = plan(**settled("none"))
    assert restarted(found)
    assert contents(found)[lab.CPU_STATE] is None


def test_a1_a_unit_that_reads_the_arguments_elsewhere_gets_them_there():
    unit = (
        "ActiveState=active\nEnvironmentFiles=/etc/sysconfig/kubelet (ignore_errors=yes)\n"
        "ExecStart={ argv[]=/usr/bin/kubelet $KUBELET_EXTRA_ARGS ; }\n"
    )
    found = plan(commands={"kubelet_service": said(unit)})
    assert "--config-dir=" in contents(found)["/etc/sysconfig/kubelet"]


def embedded(name, unit, **more):
    commands = {
        "kubelet_version": said("", None),
        "kubelet_service": said("LoadState=not-found\nActiveState=inactive\n"),
        "kubernetes_distribution": said(f"{unit} loaded active running Agent\n"),
        **more.pop("commands", {}),
    }
    flags = "--eviction-hard=imagefs.available<5% --config-dir=/var/lib/rancher/kubelet.conf.d"
    return {"arguments": flags, "commands": commands, **more}, (
        f"/etc/rancher/{name}/config.yaml.d/90-apiary.yaml"
    )


@pytest.mark.parametrize(
    ("name", "unit"),
    [("rke2", "rke2-agent.service"), ("rke2", "rke2-server.service"), ("k3s", "k3s.service")],
)
def test_a1_rke2_and_k3s_get_flags_in_their_own_configuration(name, unit):
    node, path = embedded(name, unit)
    found = plan(**node)
    assert codes(found) == []
    flags = yaml.safe_load(contents(found)[path])["kubelet-arg+"]
    settings = dict(one.split("=", 1) for one in flags)
    assert settings["cpu-manager-policy"] == "static"
    assert settings["cpu-manager-policy-options"] == "full-pcpus-only=true"
    assert settings["system-reserved"] == "memory=16384Mi"
    assert settings["eviction-hard"].startswith("memory.available<1024Mi,nodefs.available<10%")
    assert settings["reserved-memory"].startswith("0:memory=")
    assert ";1:memory=" in settings["reserved-memory"]
    work = next(one for one in found.resources if one["kind"] == "offline_files")
    assert (work["service"], work["restart"]) == (unit, True)
    # The file in place is read, whatever the state's file says: no run restarts in vain.
    again = plan(**{**node, "files": {path: contents(found)[path]}})
    assert not restarted(again)
    gone = plan({"state": "absent"}, **{**node, "files": {path: contents(found)[path]}})
    assert contents(gone)[path] is None
    assert restarted(gone)
    assert not restarted(plan({"state": "absent"}, **node))


def test_a1_flags_that_another_file_of_rke2_has_are_refused():
    names = {"embedded_flags": said("cpu-manager-policy=\nreserved-cpus=\n")}
    node, _path = embedded("rke2", "rke2-agent.service", commands=names)
    assert codes(plan(**node)) == ["KUBE-FLAGS"]


def test_a1_rke2_is_not_restarted_beneath_pods():
    node, _path = embedded("rke2", "rke2-agent.service", pods=("shop/cart",))
    assert codes(plan(**node)) == ["KUBE-NOT-DRAINED"]


@pytest.mark.parametrize(
    ("unit", "place"),
    [
        ("k0sworker.service", "spec.workerProfiles"),
        ("snap.microk8s.daemon-kubelite.service", "/var/snap/microk8s/current/args/kubelet"),
    ],
)
def test_a1_other_kubelets_are_refused_in_words(unit, place):
    node, _path = embedded("x", unit)
    found = plan(**node)
    assert codes(found) == ["KUBE-DISTRIBUTION"]
    assert place in next(one.remedy for one in found.findings if one.severity == "error")
    assert not restarted(found)
    assert codes(plan({"kubelet_enabled": False}, **node)) == []
