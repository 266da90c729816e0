# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import socket

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin.node import (
    read_node,
)

from support.host import kubernetes as lab
from support.host.collected import collected as evidence_of

ANSWERS = {
    "kubelet": "Kubernetes v1.33.1\n",
    "crictl": lab.pods_table("kube-system/kube-proxy-x", "shop/cart"),
    "pgrep": "812 /usr/bin/kubelet --v=2\n",
}


def collected(root):
    def run(argv):
        said = ANSWERS.get(argv[0])
        return (0, said, "", None) if said else (None, "", "", "not found")

    return evidence_of(["kubernetes"], run, str(root))


def put(root, path, text=""):
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def test_what_the_collector_gathers_is_what_the_node_is_read_from(tmp_path, monkeypatch):
    put(tmp_path, "/etc/os-release", "ID=ubuntu\n")
    put(tmp_path, lab.CONFIG, "cpuManagerPolicy: static\n")
    put(tmp_path, lab.EXPORTER).unlink()
    put(tmp_path, lab.DRA).unlink()
    listeners = [socket.socket(socket.AF_UNIX) for _name in range(2)]
    for listener, path in zip(listeners, (lab.EXPORTER, lab.DRA), strict=True):
        # The path of a socket is short, so it is bound from its directory.
        directory, _slash, name = str(tmp_path / path.lstrip("/")).rpartition("/")
        monkeypatch.chdir(directory)
        listener.bind(name)
    node = read_node(from_document(Evidence, collected(tmp_path), "test"))
    for listener in listeners:
        listener.close()
    assert node.version == (1, 33, 1)
    assert node.arguments == ("/usr/bin/kubelet", "--v=2")
    assert node.config == {"cpuManagerPolicy": "static"}
    assert [pod.namespace for pod in node.pods] == ["kube-system", "shop"]
    assert node.exporter_socket
    assert node.dra


def test_no_credentials_of_the_node_are_collected(tmp_path):
    for path in (
        "/etc/kubernetes/kubelet.conf",
        "/etc/kubernetes/bootstrap-kubelet.conf",
        "/var/lib/kubelet/pki/kubelet-client-current.pem",
        "/var/lib/kubelet/config.json",
    ):
        put(tmp_path, path, "secret")
    told = collected(tmp_path)
    assert "secret" not in "".join(told["files"].values())
    # A pod's annotations can hold its manifest, environment and all.
    assert "json" not in " ".join(told["commands"]["pods"]["argv"])
