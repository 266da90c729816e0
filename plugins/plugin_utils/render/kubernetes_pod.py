# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One replica of a plan as a Deployment: what its object is filled with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..host.device_plugin.objects import objects
from ..plan.timing import start_timeout
from ..plan.types import Plan, Replica
from .kubernetes_review import KubernetesOptions

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
