# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as objects of a Kubernetes cluster: a Deployment per replica, what they share, what speaks
against it.

A Deployment and not a StatefulSet: each replica has a command of its own, is one pod on one named
node, and keeps nothing but caches. Strategy Recreate, for a second pod would find no free GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..findings import ApiaryError, Finding, has_errors
from ..host.device_plugin.objects import objects, parse_memory, to_yaml
from ..numbers import parse_cpulist
from ..plan.replica import start_timeout
from ..plan.types import Plan, Replica
from .containers import is_pinned
from .unit import RenderedFile

GIB = 2**30
_MADE = "# Made by `apiary render --target kubernetes`; changes made here are overwritten."


LABEL = "apiary/deployment"
# Where the plan placed the replica: not what the cluster will do.
PLACED = ("APIARY_GPUS", "APIARY_CPUS", "APIARY_MEMORY_NODES")
_PERIOD = 10  # s between two probes of a start


@dataclass(frozen=True)
class Sizes:
    """What one replica requests, and is limited to."""

    cpus: int
    memory_gib: int
    shared_memory_gib: int


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
    facts = knowledge("host/kubernetes.yml")["pods"]
    pre_stop = facts["pre_stop_seconds"]["value"]
    margin = knowledge("serving.yml")["unit"]["stop_margin_seconds"]
    deployment, claim, user = plan.deployment, options.weights_claim, options.user
    selector = {LABEL: deployment.name, "apiary/replica": str(index)}
    # Host names are longer than a label's value may be, so the host is told by the node's selector.
    selector["apiary/host"] = plan.host[:63].rstrip("-.")
    env = {name: value for name, value in replica.env.items() if name not in PLACED}
    if user is not None:
        # Python's getpass finds no name for a number that the image doesn't know.
        env.setdefault("USER", deployment.user or "vllm")
    caches = replica.unit.removesuffix(".service")
    values = {
        "name": deployment_name(plan, index),
        "namespace": options.namespace,
        "labels": {**selector, "app.kubernetes.io/managed-by": "apiary"},
        "selector": selector,
        "deadline": start_timeout(plan, replica) + 600,
        "host": plan.host,
        "toleration": facts["toleration"],
        "grace": deployment.limits.drain_timeout_seconds + pre_stop + margin,
        "seccomp": facts["security"]["seccomp"],
        "groups": None if options.render_gid is None else [options.render_gid],
        "user": user,
        "no_root": None if user is None else True,
        "image": deployment.engine.image,
        "args": [literal(word) for word in replica.argv[1:]],
        "env": [{"name": name, "value": literal(value)} for name, value in sorted(env.items())],
        "port": replica.port,
        "amounts": {
            "cpu": str(sizes.cpus),
            "memory": f"{sizes.memory_gib}Gi",
            options.resource: str(len(replica.gpus)),
        },
        "start_failures": -(-start_timeout(plan, replica) // _PERIOD),
        "pre_stop": str(pre_stop),
        "capabilities": facts["security"]["capabilities"],
        "weights": deployment.model.path,
        "config": f"{deployment.model.path}/config.json",
        "propagation": None if claim else "HostToContainer",
        "claim": claim,
        "on_host": not claim,
        "caches": f"/var/cache/{caches}",
        "host_caches": f"/var/cache/kubernetes/{caches}",
        "as_root": user is None,
        "own_user": user is not None,
        "shared_memory": f"{sizes.shared_memory_gib}Gi",
        "secrets": [{"secretRef": {"name": options.secret}}] if options.secret else None,
    }
    (made,) = objects("replica", values)
    return made


@dataclass(frozen=True)
class RenderedCluster:
    """The files to apply, and what a person should know of them."""

    files: tuple[RenderedFile, ...]
    findings: tuple[Finding, ...]


def render_kubernetes(plan: Plan, options: KubernetesOptions) -> RenderedCluster:
    """Return the objects of one host's plan; raise ApiaryError where they could not serve.

    What hosts share is written the same for each of them, so plans of many hosts may be rendered
    into one directory.
    """
    findings = tuple(review(plan, options))
    if has_errors(findings):
        raise ApiaryError(*(finding for finding in findings if finding.severity == "error"))
    folder = f"/kubernetes/{plan.deployment.name}"
    replicas = [
        deployment_object(plan, replica, index, sizes(plan, replica, options), options)
        for index, replica in enumerate(plan.replicas)
    ]
    return RenderedCluster(
        files=(
            RenderedFile(
                f"{folder}/00-shared.yml", "0644", _header(plan) + to_yaml(_shared(plan, options))
            ),
            RenderedFile(
                f"{folder}/{plan.host}.yml", "0644", _host_header(plan) + to_yaml(replicas)
            ),
        ),
        findings=findings,
    )


def sizes(plan: Plan, replica: Replica, options: KubernetesOptions) -> Sizes:
    """Return a replica's requests: its CPUs but for a few, its weights and its workers' memory.

    CPUs are whole cores: a multiple of 2, as the kubelet's full-pcpus-only wants on SMT hosts.
    """
    facts = knowledge("host/kubernetes.yml")["pods"]
    shared = facts["shared_memory_gib"]["value"]
    cpus = options.cpus
    if cpus is None:
        count = len(parse_cpulist(replica.cpus or ""))
        cpus = max(count - facts["spare_cpus"]["value"], min(count, 2)) // 2 * 2 or 1
    if options.memory is not None:
        gib = -(-(parse_memory(options.memory) or 0) // GIB)
    else:
        gpus = len(replica.gpus)
        weights = -(-(plan.memory.weights_bytes_per_gpu or 0) * gpus // GIB)
        gib = weights + facts["memory_per_gpu_gib"]["value"] * gpus + shared
    return Sizes(cpus, gib, shared)


def _shared(plan: Plan, options: KubernetesOptions) -> tuple[dict[str, Any], ...]:
    """Return what all replicas of a deployment share, on whatever host they are."""
    name = plan.deployment.name
    selector = {LABEL: name}
    values = {
        "name": name,
        "replicas": f"{name}-replicas",
        "namespace": options.namespace,
        "own_namespace": options.namespace != "default",
        "labels": {**selector, "app.kubernetes.io/managed-by": "apiary"},
        "selector": selector,
    }
    return objects("shared", values)


def _header(plan: Plan) -> str:
    return f"{_MADE}\n# What every host of {plan.deployment.name} shares.\n"


def _host_header(plan: Plan) -> str:
    """Return what a reader of the file must know: which part of the plan the cluster decides."""
    lines = [
        _MADE,
        f"# The plan of {plan.host}. Why each flag is there: `apiary explain PLAN`.",
        "# The plan puts these GPUs together; in a cluster AMD's device plugin and the kubelet's",
        "# topology manager choose, so the number is exact and the set is theirs:",
    ]
    for index, replica in enumerate(plan.replicas):
        nodes = ",".join(map(str, replica.memory_nodes)) or "unknown"
        name = deployment_name(plan, index)
        lines.append(f"#   {name}: {' '.join(replica.gpus)} (NUMA node {nodes})")
    return re.sub(r"[^\x20-\x7e\n]", "?", "\n".join(lines)) + "\n"


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
