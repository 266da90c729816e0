# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan lacks to run in a cluster, and what a cluster decides otherwise than the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import Finding
from ..host.device_plugin.quantities import parse_memory
from ..plan.types import Plan
from .containers.review import is_pinned

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Services were the last to be allowed a leading digit.
_SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_VISIBLE = re.compile(r"(ROCR|HIP|CUDA|AMD)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL")
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - what a pod has to listen on


@dataclass(frozen=True)
class KubernetesOptions:
    """What a cluster needs to know beside the plan; ``None`` is taken from the plan.

    ``render_gid`` is the number of the node's group render. ``cpus`` and ``memory`` are each
    replica's. ``user`` is a uid; without it the image's own user runs the engine.
    """

    namespace: str = "apiary"
    render_gid: int | None = None
    user: int | None = None
    cpus: int | None = None
    memory: str | None = None
    resource: str = "amd.com/gpu"
    weights_claim: str | None = None
    secret: str | None = None


def review(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    """Yield every finding about a plan as objects of a cluster."""
    yield from _names(plan, options)
    yield from _image(plan)
    yield from _amounts(plan, options)
    yield from _devices(plan)
    if plan.deployment.listen_address not in _ANY:
        yield Finding(
            "KUBE-LISTEN",
            plan.host,
            f"its replicas listen on {plan.deployment.listen_address}, which no pod has",
        )
    if options.render_gid is None:
        yield Finding(
            "KUBE-RENDER-GID",
            plan.host,
            "the number of the node's group render is not given, and the device plugin sets no"
            " group; an engine that is not root can't open /dev/kfd",
            source="https://github.com/ROCm/k8s-device-plugin/issues/39",
        )


def _names(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    if not _NAME.fullmatch(plan.host) or len(plan.host) > 200:
        yield Finding(
            "KUBE-NAME",
            plan.host,
            "is no name that a node can have; expected lower-case letters, digits, dashes and dots",
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
            "name",
            f"{service!r} can't name a Service; expected at most 63 lower-case letters, digits and"
            " dashes, the first a letter",
        )
    for what, name in names.items():
        if name is not None and not _LABEL.fullmatch(name):
            yield Finding(
                "KUBE-NAME",
                what,
                f"{name!r} is no name of an object; expected at most 63 lower-case letters,"
                " digits and dashes, the first a letter or digit",
            )


def _image(plan: Plan) -> Iterator[Finding]:
    if plan.deployment.tls:
        message = (
            "has `tls`, and a pod has no certificate of a host's: it would answer in the clear"
        )
        yield Finding("KUBE-TLS", plan.deployment.name, message)
    image = plan.deployment.engine.image
    if image is None:
        yield Finding(
            "KUBE-NO-IMAGE",
            "engine.image",
            "is not set, and a pod runs an image",
            version=plan.deployment.engine.version,
        )
    elif not is_pinned(image):
        yield Finding(
            "KUBE-UNPINNED",
            image,
            "is named by its tag, which its registry can move; expected a digest",
            variable="engine.image",
        )


def _amounts(plan: Plan, options: KubernetesOptions) -> Iterator[Finding]:
    for index, replica in enumerate(plan.replicas):
        if options.cpus is None and replica.cpus is None:
            yield Finding(
                "KUBE-AMOUNT",
                f"replica {index}",
                "the plan binds it to no CPUs, so nothing tells how many to request",
            )
        if options.cpus is None and replica.cpus is not None and len(replica.memory_nodes) > 1:
            nodes = ", ".join(map(str, replica.memory_nodes))
            yield Finding(
                "KUBE-SPANS-NODES",
                f"replica {index}",
                f"spans NUMA nodes {nodes}; a kubelet with topology manager policy"
                " single-numa-node refuses its pod (TopologyAffinityError)",
                source=knowledge("host/kubernetes.yml")["kubelet"]["managers"]["source"],
                sizes=[len(each.gpus) for each in plan.replicas],
            )
    if options.memory is None and plan.memory.weights_bytes_per_gpu is None:
        yield Finding(
            "KUBE-AMOUNT",
            plan.host,
            "the plan does not know how large the weights are, so nothing tells how much memory"
            " to request",
        )
    if options.memory is not None and not parse_memory(options.memory):
        yield Finding(
            "KUBE-AMOUNT",
            "--memory",
            f"is {options.memory!r}, expected a whole amount of memory such as 400Gi",
        )
    if options.cpus is not None and options.cpus < 1:
        yield Finding("KUBE-AMOUNT", "--cpus", f"is {options.cpus}, expected 1 or more")


def _devices(plan: Plan) -> Iterator[Finding]:
    """Refuse a choice of devices inside the pod, and say who makes it instead."""
    chosen = sorted(
        {name for replica in plan.replicas for name in replica.env if _VISIBLE.fullmatch(name)}
    )
    if chosen:
        yield Finding(
            "KUBE-VISIBLE-DEVICES",
            "engine.env",
            f"sets {', '.join(chosen)}; in a pod the device plugin's GPUs are numbered from 0,"
            " and an index of the host hides them",
        )
    yield Finding(
        "KUBE-SUBSET",
        plan.host,
        "each pod gets as many GPUs as planned; which ones, AMD's device plugin and the kubelet's"
        " topology manager choose (the planned sets stand in the file's head)",
        source="https://github.com/ROCm/k8s-device-plugin/blob/master/docs/user-guide/"
        "resource-allocation.md",
    )
