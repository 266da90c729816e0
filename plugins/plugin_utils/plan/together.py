# SPDX-License-Identifier: GPL-3.0-or-later

"""What several deployments share on one host: names, GPUs and memory; and who else is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..deployment import Deployment
from ..documents import knowledge
from ..engine.facts import with_profile
from ..findings import ApiaryError, Finding
from ..topology.types import Topology
from .engines import argument
from .types import Plan, plan_of

GIB = 2**30


def check_names(deployments: Sequence[Deployment]) -> Iterator[Finding]:
    """Refuse two deployments of one name: their units would be the same."""
    for name, count in Counter(deployment.name for deployment in deployments).items():
        if count > 1:
            yield Finding(
                "PLAN-NAME-TWICE",
                name,
                f"{count} deployments of one host have this name, and their units would too",
            )


def check_gpus(
    sizes: Mapping[str, Sequence[int]], topology: Topology, busy: Sequence[str]
) -> Iterator[Finding]:
    """Refuse deployments that each fit the host and together don't; ``sizes`` are by name."""
    usable = sum(
        gpu.healthy is not False and key not in busy for key, gpu in topology.by_key.items()
    )
    need = {name: sum(parts) for name, parts in sizes.items()}
    if len(need) > 1 and sum(need.values()) > usable >= max(need.values()):
        needs = ", ".join(f"{name} needs {count}" for name, count in need.items())
        yield Finding(
            "PLAN-TOO-FEW-GPUS",
            topology.host,
            f"{needs}, together {sum(need.values())} GPUs; {usable} are usable here",
        )


def offload_gib(topology: Topology) -> float | None:
    """Return the GiB of KV offload that each GPU's part of its NUMA node bears; None if unknown.

    Placement keeps an engine on its GPUs' nodes, so the fullest node bounds all.
    """
    nodes = {node.id: node.memory_bytes for node in topology.numa_nodes}
    near = [gpu.numa_node for gpu in topology.gpus]
    sizes = [(nodes.get(node), near.count(node)) for node in near if node is not None]
    if not sizes or len(sizes) < len(near) or not all(size for size, _gpus in sizes):
        return None
    share: float = knowledge("vllm/features.yml")["offload"]["share"]
    return min((size or 0) / gpus for size, gpus in sizes) * share / GIB


def check_memory(plans: Sequence[Plan], topology: Topology) -> Iterator[Finding]:
    """Say where the engines of a host hold more of its memory than it has."""
    sizes = [node.memory_bytes for node in topology.numa_nodes]
    reported = [size for size in sizes if size]
    if not reported or len(reported) < len(sizes):
        return
    held = {plan.deployment.name: _held_gib(plan) for plan in plans}
    total = sum(reported) / GIB
    if sum(held.values()) > total:
        shares = ", ".join(f"{name} {gib:.0f} GiB" for name, gib in held.items())
        yield Finding(
            "PLAN-HOST-MEMORY",
            topology.host,
            f"engines hold {shares} of host memory, {sum(held.values()):.0f} GiB together, and the"
            f" host has {total:.0f}: the kernel would end one of them",
            source=knowledge("host_memory.yml")["worker"]["source"],
        )


def check_taken(
    plans: Sequence[Plan], running: Sequence[Plan], topology: Topology
) -> Iterator[Finding]:
    """Say which GPUs others use so much of that engines would not get their share."""
    ours = {key for plan in running for replica in plan.replicas for key in replica.gpus}
    ours |= {key for start in topology.starts for key in start.gpus}
    for plan in plans:
        share = with_profile(plan.deployment).limits.gpu_memory_utilization
        texts = [
            f"{key} ({(gpu.vram_used_bytes or 0) / GIB:.1f} of {gpu.vram_bytes / GIB:.1f} GiB)"
            for replica in plan.replicas
            for key, gpu in ((key, topology.by_key[key]) for key in replica.gpus)
            if key not in ours
            and gpu.vram_bytes
            and (gpu.vram_used_bytes or 0) > (1 - share) * gpu.vram_bytes
        ]
        if texts:
            message = f"in use of GPUs: {', '.join(texts)}; engines want {share:g} of each"
            yield Finding("PLAN-GPU-MEMORY", topology.host, message)


def _held_gib(plan: Plan) -> float:
    """Return the GiB of host memory that a plan's engines hold."""
    facts, needs = knowledge("host_memory.yml"), plan.memory
    tables = sum(one.bytes_per_gpu for one in needs.modules if one.sharding == "host") / GIB
    held = 0.0
    for replica, engine in zip(plan.replicas, plan.layout.engines, strict=True):
        gpus = len(replica.gpus)
        held += facts["worker"]["gib"] * gpus
        held += tables * (needs.gpus_per_engine or 0) * gpus / engine.gpus
        for flag, entry in facts["flags"].items():
            text = argument(replica.argv, flag) or "0"
            if text.replace(".", "", 1).isdecimal():
                held += float(text) * (gpus if entry["per"] == "gpu" else 1)
    return held


def running_plans(
    documents: Sequence[Mapping[str, Any]], host: str
) -> tuple[list[Plan], list[Finding]]:
    """Return the plans that a host has, and what is said of those that can't be read.

    A document of another version of Apiary must not keep this one from planning.
    """
    plans, findings = [], []
    for document in documents:
        deployment = document.get("deployment")
        named = deployment.get("name") if isinstance(deployment, Mapping) else None
        subject = f"{host}: the plan of {named or 'a deployment'}"
        try:
            plans.append(plan_of(document, subject))
        except ApiaryError as refusal:
            first = refusal.findings[0]
            findings.append(
                Finding(
                    "PLAN-OTHER-UNREADABLE",
                    subject,
                    f"can't be read, so its GPUs and ports were not left out ({first.message})",
                )
            )
    return plans, findings


def others_of(running: Sequence[Plan], deployments: Sequence[Deployment]) -> tuple[Plan, ...]:
    """Return the plans on a host whose deployment is not asked for any more, by name."""
    requested = {deployment.name for deployment in deployments}
    return tuple(
        sorted(
            (plan for plan in running if plan.deployment.name not in requested),
            key=lambda plan: plan.deployment.name,
        )
    )


def tell_others(others: Sequence[Plan], removed: bool) -> Iterator[Finding]:
    """Say which deployments are on the host though nobody asks for them."""
    for plan in others:
        units = ", ".join(replica.unit for replica in plan.replicas)
        gpus = sum(len(replica.gpus) for replica in plan.replicas)
        fate = (
            "they are removed"
            if removed
            else f"they stay, and keep {gpus} GPUs, their ports and their CPUs"
        )
        yield Finding(
            "PLAN-OTHER-DEPLOYMENT",
            plan.host,
            f"the host has {units} of {plan.deployment.name}, which is not asked for; {fate}",
            accepted=removed,
        )
