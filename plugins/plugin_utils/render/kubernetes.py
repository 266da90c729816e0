# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as objects of a Kubernetes cluster: a Deployment per replica, and what they share.

A Deployment and not a StatefulSet: each replica has a command of its own, is one pod on one named
node, and keeps nothing but caches. Strategy Recreate, for a second pod would find no free GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..cpulist import parse_cpulist
from ..documents import knowledge
from ..findings import ApiaryError, Finding, has_errors
from ..host.device_plugin.objects import objects, to_yaml
from ..host.device_plugin.quantities import parse_memory
from ..plan.types import Plan, Replica
from .files import RenderedFile
from .kubernetes_pod import LABEL, Sizes, deployment_name, deployment_object
from .kubernetes_review import KubernetesOptions, review

GIB = 2**30
_MADE = "# Made by `apiary render --target kubernetes`; changes made here are overwritten."


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
