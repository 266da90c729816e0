# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan lacks to run in a cluster, and what a cluster decides otherwise than the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..documents import knowledge
from ..findings import Finding
from ..host.device_plugin.quantities import parse_memory
from ..plan.types import Plan
from .containers.review import is_pinned
from .kubernetes_types import KubernetesOptions

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Services were the last to be allowed a leading digit.
_SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_VISIBLE = re.compile(r"(ROCR|HIP|CUDA|AMD)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL")
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - what a pod has to listen on


def review(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    """Yield every finding about a plan as objects of a cluster."""
    yield from _names(plan, options)
    yield from _image(plan)
    yield from _amounts(plan, options)
    yield from _devices(plan)
    if plan.deployment.listen_address not in _ANY:
        yield Finding(
            "KUBE-LISTEN",
            "error",
            plan.host,
            f"its replicas listen on {plan.deployment.listen_address}, which no pod has",
            "set listen_address to 0.0.0.0 in the deployment and plan again",
        )
    if options.render_gid is None:
        yield Finding(
            "KUBE-RENDER-GID",
            "warning",
            plan.host,
            "the number of the node's group render is not given, and the device plugin sets no"
            " group; an engine that is not root can't open /dev/kfd",
            "give --render-gid (`getent group render` on the node)",
            "https://github.com/ROCm/k8s-device-plugin/issues/39",
        )


def _names(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    if not _NAME.fullmatch(plan.host) or len(plan.host) > 200:
        yield Finding(
            "KUBE-NAME",
            "error",
            plan.host,
            "is no name that a node can have; expected lower-case letters, digits, dashes and dots",
            "name the host in the inventory as `kubectl get nodes` does",
        )
    names = {
        "--namespace": options.namespace,
        "--secret": options.secret,
        "--weights-claim": options.weights_claim,
    }
    service = f"{plan.deployment.name}-replicas"
    if not _SERVICE.fullmatch(service):
        yield Finding(
            "KUBE-NAME",
            "error",
            "name",
            f"{service!r} can't name a Service; expected at most 63 lower-case letters, digits and"
            " dashes, the first a letter",
            "give the deployment another name and plan again",
        )
    for what, name in names.items():
        if name is not None and not _LABEL.fullmatch(name):
            yield Finding(
                "KUBE-NAME",
                "error",
                what,
                f"{name!r} is no name of an object; expected at most 63 lower-case letters,"
                " digits and dashes, the first a letter or digit",
                f"give another {what}",
            )


def _image(plan: Plan) -> Iterator[Finding]:
    image = plan.deployment.engine.image
    if image is None:
        yield Finding(
            "KUBE-NO-IMAGE",
            "error",
            "engine.image",
            "is not set, and a pod runs an image",
            f"set engine.image to one that has vLLM {plan.deployment.engine.version} for ROCm"
            f" (docker.io/vllm/vllm-openai-rocm:v{plan.deployment.engine.version}@sha256:…) and"
            " plan again",
        )
    elif not is_pinned(image):
        yield Finding(
            "KUBE-UNPINNED",
            "warning",
            image,
            "is named by its tag, which its registry can move; expected a digest",
            "add @sha256:… to engine.image",
        )


def _amounts(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    for index, replica in enumerate(plan.replicas):
        if options.cpus is None and replica.cpus is None:
            yield Finding(
                "KUBE-AMOUNT",
                "error",
                f"replica {index}",
                "the plan binds it to no CPUs, so nothing tells how many to request",
                "give --cpus, or plan from evidence that tells the GPUs' NUMA nodes",
            )
        if options.cpus is None and replica.cpus is not None and len(replica.memory_nodes) > 1:
            nodes = ", ".join(map(str, replica.memory_nodes))
            yield Finding(
                "KUBE-SPANS-NODES",
                "warning",
                f"replica {index}",
                f"spans NUMA nodes {nodes}; a kubelet with topology manager policy"
                " single-numa-node refuses its pod (TopologyAffinityError)",
                "run the role device_plugin with device_plugin_pod_gpus="
                f"{[len(one.gpus) for one in plan.replicas]}, which then chooses best-effort",
                knowledge("host/kubernetes.yml")["kubelet"]["managers"]["source"],
            )
    if options.memory is None and plan.memory.weights_bytes_per_gpu is None:
        yield Finding(
            "KUBE-AMOUNT",
            "error",
            plan.host,
            "the plan does not know how large the weights are, so nothing tells how much memory"
            " to request",
            "give --memory",
        )
    if options.memory is not None and not parse_memory(options.memory):
        yield Finding(
            "KUBE-AMOUNT",
            "error",
            "--memory",
            f"is {options.memory!r}, expected a whole amount of memory such as 400Gi",
            "give --memory as one",
        )
    if options.cpus is not None and options.cpus < 1:
        yield Finding(
            "KUBE-AMOUNT", "error", "--cpus", f"is {options.cpus}, expected 1 or more", "give more"
        )


def _devices(plan: Plan) -> Iterator[Finding]:
    """Refuse a choice of devices inside the pod, and say who makes it instead."""
    chosen = sorted({name for one in plan.replicas for name in one.env if _VISIBLE.fullmatch(name)})
    if chosen:
        yield Finding(
            "KUBE-VISIBLE-DEVICES",
            "error",
            "engine.env",
            f"sets {', '.join(chosen)}; in a pod the device plugin's GPUs are numbered from 0,"
            " and an index of the host hides them",
            "remove it from engine.env and plan again",
        )
    yield Finding(
        "KUBE-SUBSET",
        "info",
        plan.host,
        "each pod gets as many GPUs as planned; which ones, AMD's device plugin and the kubelet's"
        " topology manager choose (the planned sets stand in the file's head)",
        "compare with `kubectl exec POD -- rocm-smi --showbus`; role device_plugin sets the"
        " kubelet so that a pod that fits a NUMA node stays on one",
        "https://github.com/ROCm/k8s-device-plugin/blob/master/docs/user-guide/"
        "resource-allocation.md",
    )
