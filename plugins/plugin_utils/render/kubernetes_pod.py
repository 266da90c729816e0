# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One replica of a plan as a Deployment: the pod, its probes, devices, volumes and rights."""

from __future__ import annotations

from typing import Any

from ..documents import knowledge
from ..plan.timing import start_timeout
from ..plan.types import Plan, Replica
from .kubernetes_types import KubernetesOptions, Sizes

LABEL = "apiary/deployment"
PRIORITY = "apiary-serving"
# Where the plan placed the replica: not what the cluster will do.
PLACED = ("APIARY_GPUS", "APIARY_CPUS", "APIARY_MEMORY_NODES")
_PERIOD = 10


def deployment_name(plan: Plan, index: int) -> str:
    """Return the name of a replica's Deployment, unique over the hosts of a deployment."""
    return f"{plan.deployment.name}-{plan.host.replace('.', '-')}-{index}"


def literal(word: str) -> str:
    """Return a word that Kubernetes leaves as it is: it expands $(NAME) in commands and values."""
    return word.replace("$", "$$")


def deployment_object(
    plan: Plan, replica: Replica, index: int, sizes: Sizes, options: KubernetesOptions
) -> dict[str, Any]:
    """Return the Deployment of one replica."""
    name = deployment_name(plan, index)
    selector = {LABEL: plan.deployment.name, "apiary/replica": str(index)}
    # Host names are longer than a label's value may be, so the host is told by the selector below.
    selector["apiary/host"] = plan.host[:63].rstrip("-.")
    labels = {**selector, "app.kubernetes.io/managed-by": "apiary"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": options.namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            # The old pod holds the GPUs that a new one waits for.
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": start_timeout(plan, replica) + 600,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(plan, replica, sizes, options),
            },
        },
    }


def _pod(plan: Plan, replica: Replica, sizes: Sizes, options: KubernetesOptions) -> dict[str, Any]:
    facts = knowledge("host/kubernetes.yml")["pods"]
    serving = knowledge("serving.yml")["unit"]
    grace = facts["pre_stop_seconds"]["value"] + serving["stop_margin_seconds"]
    rights: dict[str, Any] = {"seccompProfile": {"type": facts["security"]["seccomp"]}}
    if options.render_gid is not None:
        rights["supplementalGroups"] = [options.render_gid]
    if options.user is not None:
        rights |= {"runAsUser": options.user, "runAsGroup": options.user, "runAsNonRoot": True}
        rights["fsGroup"] = options.user
    return {
        "nodeSelector": {"kubernetes.io/hostname": plan.host},
        "tolerations": [{"key": facts["toleration"], "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": PRIORITY,
        "terminationGracePeriodSeconds": plan.deployment.limits.drain_timeout_seconds + grace,
        "automountServiceAccountToken": False,
        # A Service called vllm would set VLLM_PORT to an address, which the engine can't read.
        "enableServiceLinks": False,
        "securityContext": rights,
        "containers": [_container(plan, replica, sizes, options)],
        "volumes": _volumes(plan, replica, sizes, options),
    }


def _container(
    plan: Plan, replica: Replica, sizes: Sizes, options: KubernetesOptions
) -> dict[str, Any]:
    facts = knowledge("host/kubernetes.yml")["pods"]
    amounts = {
        "cpu": str(sizes.cpus),
        "memory": f"{sizes.memory_gib}Gi",
        options.resource: str(len(replica.gpus)),
    }
    env = {name: value for name, value in replica.env.items() if name not in PLACED}
    if options.user is not None:
        # Python's getpass finds no name for a number that the image doesn't know.
        env.setdefault("USER", plan.deployment.user or "vllm")
    container: dict[str, Any] = {
        "name": "engine",
        "image": plan.deployment.engine.image,
        "imagePullPolicy": "IfNotPresent",
        # Images differ in their entrypoint; the whole command does not depend on it.
        "command": ["vllm"],
        "args": [literal(word) for word in replica.argv[1:]],
        "env": [{"name": name, "value": literal(value)} for name, value in sorted(env.items())],
        "ports": [{"name": "http", "containerPort": replica.port}],
        # Equal requests and limits in whole CPUs: QoS Guaranteed, which the kubelet pins.
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "startupProbe": _probe(failureThreshold=-(-start_timeout(plan, replica) // _PERIOD)),
        "readinessProbe": _probe(failureThreshold=2),
        "livenessProbe": _probe(failureThreshold=6),
        # Endpoints take a while to be forgotten; until then requests still come.
        "lifecycle": {
            "preStop": {"exec": {"command": ["sleep", str(facts["pre_stop_seconds"]["value"])]}}
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": facts["security"]["capabilities"]},
        },
        "volumeMounts": [
            {
                "name": "weights",
                "mountPath": plan.deployment.model.path,
                "readOnly": True,
                **({} if options.weights_claim else {"mountPropagation": "HostToContainer"}),
            },
            *(
                []
                if options.weights_claim
                else [
                    {
                        "name": "weights-are-there",
                        "mountPath": "/run/apiary/config.json",
                        "readOnly": True,
                    }
                ]
            ),
            {"name": "caches", "mountPath": _cache_root(replica)},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
        ],
    }
    if options.secret:
        container["envFrom"] = [{"secretRef": {"name": options.secret}}]
    return container


def _cache_root(replica: Replica) -> str:
    return f"/var/cache/{replica.unit.removesuffix('.service')}"


def _probe(failureThreshold: int) -> dict[str, Any]:  # noqa: N803 - the field's own name
    """Return a probe of the engine's /health, asked every 10 s."""
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": _PERIOD,
        # A busy engine answers late.
        "timeoutSeconds": _PERIOD,
        "failureThreshold": failureThreshold,
    }


def _volumes(
    plan: Plan, replica: Replica, sizes: Sizes, options: KubernetesOptions
) -> list[dict[str, Any]]:
    path = plan.deployment.model.path
    weights: list[dict[str, Any]] = [
        {"name": "weights", "hostPath": {"path": path, "type": "Directory"}},
        # Like RequiresMountsFor=: the pod waits until the file system with the weights is mounted.
        {"name": "weights-are-there", "hostPath": {"path": f"{path}/config.json", "type": "File"}},
    ]
    if options.weights_claim:
        claim = {"claimName": options.weights_claim, "readOnly": True}
        weights = [{"name": "weights", "persistentVolumeClaim": claim}]
    # Not the units' own caches, which belong to their user; and only root may write where the
    # kubelet makes a directory of the host.
    cache = f"/var/cache/kubernetes/{replica.unit.removesuffix('.service')}"
    on_host = {"hostPath": {"path": cache, "type": "DirectoryOrCreate"}}
    caches: dict[str, Any] = on_host if options.user is None else {"emptyDir": {}}
    shared = {"medium": "Memory", "sizeLimit": f"{sizes.shared_memory_gib}Gi"}
    return [*weights, {"name": "caches", **caches}, {"name": "shared-memory", "emptyDir": shared}]
