# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of Kubernetes nodes, built from what is said of them; and the real schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.device_plugin import (
    DevicePluginPlan,
    Settings,
    decide,
)

from support.topology.simulated import simulated_evidence

ROLE = Path(__file__).parents[3] / "roles/device_plugin"
CONFIG = "/var/lib/kubelet/config.yaml"
DROP_IN = "/etc/kubernetes/kubelet.conf.d/90-apiary.conf"
ARGUMENTS = "/etc/default/kubelet"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
CPU_STATE = "/var/lib/kubelet/cpu_manager_state"
MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
SYSCTL = "/etc/sysctl.d/90-apiary-kubernetes.conf"
DRIVER = "/sys/module/amdgpu/version"
EXPORTER = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
DRA = "/var/lib/kubelet/plugins_registry/gpu.amd.com-reg.sock"
KUBEADM = "--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"
INOTIFY = {
    "/proc/sys/fs/inotify/max_user_watches": "65536\n",
    "/proc/sys/fs/inotify/max_user_instances": "128\n",
    "/proc/sys/fs/inotify/max_queued_events": "16384\n",
}


def lscpu(nodes: int = 2, cores: int = 64) -> str:
    """`lscpu --parse=CPU,CORE,SOCKET,NODE,ONLINE` of cores with two threads each."""
    rows = ["# CPU,Core,Socket,Node,Online"]
    for thread in range(2):
        for core in range(nodes * cores):
            cpu = thread * nodes * cores + core
            rows.append(f"{cpu},{core},{core // cores},{core // cores},Y")
    return "\n".join(rows) + "\n"


def said(stdout: str, code: int | None = 0) -> dict[str, object]:
    return {"argv": ["x"], "exit": code, "stdout": stdout, "stderr": "", "seconds": 0.0}


def pods_table(*pods: str) -> str:
    """`crictl pods` of namespace/name."""
    rows = ["POD ID  CREATED  STATE  NAME  NAMESPACE  ATTEMPT  RUNTIME"]
    for pod in pods:
        namespace, name = pod.split("/")
        rows.append(f"2f3c  5 hours ago  Ready  {name}  {namespace}  0  (default)")
    return "\n".join(rows) + "\n"


def evidence(
    version: str = "1.32.4",
    arguments: str | None = KUBEADM,
    pods: tuple[str, ...] | None = ("kube-system/kube-proxy-x",),
    files: dict[str, str | None] | None = None,
    unreadable: tuple[str, ...] = (EXPORTER,),
    faults: tuple[str, ...] = (),
    nodes: int = 2,
    node_memory: int = 1024 * 2**30,
    commands: dict[str, dict[str, object]] | None = None,
) -> Evidence:
    """Return a joined node with eight GPUs; ``arguments`` None is one whose kubelet is down.

    ``files`` adds files by path, or takes one away (None).
    """
    base = simulated_evidence(*faults)
    found = {
        **base["files"],
        "/etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
        CONFIG: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
        CPU_STATE: json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1}),
        DRIVER: "6.16.13\n",
        **INOTIFY,
    }
    cores = 128 // nodes
    for node in range(nodes):
        first = node * cores
        cpus = f"{first}-{first + cores - 1},{first + 128}-{first + 128 + cores - 1}"
        found[f"/sys/devices/system/node/node{node}/cpulist"] = f"{cpus}\n"
        found[f"/sys/devices/system/node/node{node}/meminfo"] = (
            f"Node {node} MemTotal: {node_memory // 1024} kB\n"
        )
    found.update({path: text for path, text in (files or {}).items() if text is not None})
    for path in [path for path, text in (files or {}).items() if text is None]:
        found.pop(path, None)
    told = {
        "lscpu": said(lscpu(nodes, cores)),
        "kubelet_version": said(f"Kubernetes v{version}\n"),
        "kubelet_service": said(
            f"LoadState=loaded\nActiveState={'active' if arguments else 'failed'}\n"
        ),
        "kubelet_process": said(f"812 /usr/bin/kubelet {arguments}\n" if arguments else "", 0),
        **({} if pods is None else {"pods": said(pods_table(*pods))}),
        **(commands or {}),
    }
    document = {
        **base,
        "host": "gpu-001",
        "files": found,
        "unreadable": dict.fromkeys(unreadable, "ENXIO"),
        "commands": told,
    }
    return from_document(Evidence, document, "test")


def plan(asked: dict[str, object] | None = None, **of_node: Any) -> DevicePluginPlan:
    """Return the plan of settings on a node."""
    settings = from_document(Settings, {"pod_gpus": [4, 4], **(asked or {})}, "test")
    return decide(settings, evidence(**of_node))


def applied(asked: dict[str, object] | None = None, **of_node: Any) -> dict[str, object]:
    """Return the same node's arguments for ``evidence`` after the role and a start of the kubelet.

    The kubelet reads the drop-ins, and writes its states and devices down.
    """
    first = plan(asked, **of_node)
    files = dict(of_node.get("files") or {})
    files.update({one.path: one.content for one in first.files})
    files.update({one.path: one.value + "\n" for one in first.live})
    files[CPU_STATE] = json.dumps({"policyName": "static", "defaultCpuSet": "0-1"})
    files[MEMORY_STATE] = json.dumps({"policyName": "Static"})
    devices = [f"0000:{bus}:00.0" for bus in ("05", "26", "46", "65", "85", "a6", "c6", "e5")]
    registered = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {"amd.com/gpu": devices}}}
    files[CHECKPOINT] = json.dumps(registered)
    told = " --config-dir=/etc/kubernetes/kubelet.conf.d" if files.get(ARGUMENTS) else ""
    return {**of_node, "files": files, "arguments": KUBEADM + told}


def supported_versions() -> list[str]:
    """Every minor version from the oldest to the newest that is supported."""
    facts = knowledge("host/kubernetes.yml")["supported"]
    low, high = (int(facts[name].split(".")[1]) for name in ("oldest", "newest"))
    return [f"1.{minor}" for minor in range(low, high + 1)]


def check_schema(text: str, version: str) -> int:
    """Check a YAML stream against a release's own schemas, strictly; return how many objects."""
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    return len(documents)


def codes(found, severity="error"):
    return [one.code for one in found.findings if one.severity == severity]


def contents(found):
    return {one.path: one.content for one in found.files}


def drop_in(found):
    return yaml.safe_load(contents(found)[DROP_IN])


def failing(found):
    return sorted({(one.code, one.subject) for one in found.checks if one.state == "fail"})
