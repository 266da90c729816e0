# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's device plugin and node labeller as objects of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ...documents import knowledge, to_document
from .settings import Settings

NAMESPACE = "kube-system"
PLUGIN = "amdgpu-device-plugin-daemonset"
LABELLER = "amdgpu-labeller-daemonset"
ACCOUNT = "amdgpu-node-labeller"
_SELECTED = {PLUGIN: "amdgpu-dp-ds", LABELLER: "amdgpu-lr-ds"}
_MANAGED = {"app.kubernetes.io/managed-by": "apiary"}


def to_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as one YAML stream, in the order in which they are given."""
    # Ansible's strings are subclasses, which YAML does not know.
    plain = json.loads(json.dumps([to_document(one) for one in documents]))
    return yaml.safe_dump_all(
        plain,
        sort_keys=False,
        default_flow_style=False,
        explicit_start=True,
        width=10_000,
    )


def image(settings: Settings, tag: str, digest: str) -> str:
    """Return the reference of an image: the tag for people, the digest for the runtime."""
    name = knowledge("host/kubernetes.yml")["plugin"]["repository"]
    return f"{settings.registry}/{name}:{tag}" + (f"@{digest}" if digest else "")


def manifests(settings: Settings, naming: str) -> tuple[dict[str, Any], ...]:
    """Return the objects; with a DRA driver in the plugin's place only the labeller's."""
    objects: list[dict[str, Any]] = []
    if not settings.dra_version:
        objects.append(_plugin(settings, naming))
    if settings.labeller_enabled:
        objects += [*_rights(), _labeller(settings)]
    return tuple(objects)


def _plugin(settings: Settings, naming: str) -> dict[str, Any]:
    facts = knowledge("host/kubernetes.yml")["plugin"]
    # 0 turns the health checks off.
    pulse = facts["pulse_seconds"] if settings.health_enabled else 0
    mounts = {"device-plugins": (facts["device_plugins"], False), "sys": ("/sys", True)}
    if settings.health_enabled:
        mounts |= {
            "kfd": ("/dev/kfd", False),
            "dri": ("/dev/dri", False),
            "exporter": (facts["exporter_directory"], False),
        }
    container = {
        "name": "device-plugin",
        "image": image(settings, settings.version, settings.digest),
        "workingDir": "/root",
        "command": ["./k8s-device-plugin"],
        "args": [
            "-logtostderr=true",
            "-stderrthreshold=INFO",
            f"-pulse={pulse}",
            f"-resource_naming_strategy={naming}",
        ],
    }
    return _daemon_set(settings, PLUGIN, "amdgpu-device-plugin", container, mounts)


def _labeller(settings: Settings) -> dict[str, Any]:
    facts = knowledge("host/kubernetes.yml")["plugin"]
    tag = facts["labeller_tag_prefix"] + settings.version
    container = {
        "name": "node-labeller",
        "image": image(settings, tag, settings.labeller_digest),
        "workingDir": "/root",
        "command": ["./k8s-node-labeller"],
        "args": [f"-{label}" for label in facts["labels"]],
        "env": [
            {"name": "DS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        ],
    }
    mounts = {"sys": ("/sys", True), "dev": ("/dev", False)}
    return _daemon_set(settings, LABELLER, "amdgpu-node-labeller", container, mounts, ACCOUNT)


def _daemon_set(
    settings: Settings,
    name: str,
    app: str,
    container: dict[str, Any],
    mounts: Mapping[str, tuple[str, bool]],
    account: str | None = None,
) -> dict[str, Any]:
    """Return a DaemonSet; ``mounts`` are host paths by volume, each with whether it is read-only.

    Both programs reach the driver's files of the host, which only a privileged container may.
    """
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": settings.node_selector,
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            *settings.tolerations,
        ],
        "automountServiceAccountToken": account is not None,
        "enableServiceLinks": False,
        "containers": [
            {
                **container,
                "imagePullPolicy": "IfNotPresent",
                "securityContext": {"privileged": True},
                "volumeMounts": [
                    {"name": volume, "mountPath": path, **({"readOnly": True} if only else {})}
                    for volume, (path, only) in mounts.items()
                ],
            }
        ],
        "volumes": [
            {"name": volume, "hostPath": {"path": path, **_kind(volume)}}
            for volume, (path, _only) in mounts.items()
        ],
    }
    if account:
        pod = {"serviceAccountName": account, **pod}
    # AMD's own manifests select by this label, and a selector can't change: theirs become ours.
    selected = {"name": _SELECTED[name]}
    labels = {**selected, "app.kubernetes.io/name": app, **_MANAGED}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": selected},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _kind(volume: str) -> dict[str, str]:
    # The exporter may come later than the plugin.
    return {"type": "DirectoryOrCreate"} if volume == "exporter" else {}


def _rights() -> list[dict[str, Any]]:
    """Return what the labeller may do: read and label nodes."""
    labels = {"app.kubernetes.io/name": "amdgpu-node-labeller"} | _MANAGED
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": NAMESPACE, "labels": labels},
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": ACCOUNT, "labels": labels},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["nodes"],
                    "verbs": ["get", "list", "watch", "update"],
                }
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT, "labels": labels},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    ]
