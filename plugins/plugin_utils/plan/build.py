# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn a deployment, a topology and an architecture into the plan of one host."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import Reason, Recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import memory
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    Placement,
    ReplicaPlacement,
    Request,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, Replica
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology


def architecture_of(deployment: Deployment, subject: str) -> Architecture:
    """Return what knowledge/models knows of the deployment's model, or raise MODEL-UNKNOWN."""
    architecture = known(deployment.model.name)
    if architecture is None:
        raise error(
            "MODEL-UNKNOWN",
            subject,
            f"no config.json was given and {deployment.model.name!r} is not a model Apiary knows",
            "give the model's config.json: `--model FILE`, or model.config in the deployment",
        )
    return architecture


def build_plan(deployment: Deployment, topology: Topology, architecture: Architecture) -> Plan:
    """Return the plan of one host; raise ApiaryError with every finding that forbids it.

    The first stage that refuses ends the planning: a host without GPUs is not asked for memory.
    Findings of lower severity of all stages stay with the plan.
    """
    _stop_on_errors(topology.findings)
    layout = deployment.layout
    recipes = [
        recipe(architecture, deployment, _gpu_model(topology), deployment.base_port + index)
        for index in range(layout.replicas)
    ]
    placement = place(topology, Request((layout.tensor_parallel_size,) * layout.replicas))
    gpus = topology.by_key
    _check_addresses(topology, placement)
    used = [gpus[key] for share in placement.replicas for key in share.gpus]
    sizes = [gpu.vram_bytes for gpu in used if gpu.vram_bytes is not None]
    needs = memory(
        architecture,
        layout,
        deployment.limits,
        min(sizes) if len(sizes) == len(used) else None,
    )
    findings = _without_repeats(
        *topology.findings,
        *architecture.findings,
        *(finding for one in recipes for finding in one.findings),
        *placement.findings,
        *needs.findings,
    )
    _stop_on_errors(findings)
    replicas = tuple(
        _replica(deployment, index, share, one)
        for index, (share, one) in enumerate(zip(placement.replicas, recipes, strict=True))
    )
    return Plan(
        host=topology.host,
        deployment=deployment,
        layout=layout,
        replicas=replicas,
        placement=placement,
        memory=needs,
        target=f"apiary-{deployment.name}.target",
        findings=findings,
    )


def _stop_on_errors(findings: tuple[Finding, ...]) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise ApiaryError(*errors)


def _check_addresses(topology: Topology, placement: Placement) -> None:
    """Refuse GPUs that a unit could not be held to: its device policy goes by PCI address."""
    gpus = topology.by_key
    used = [(key, gpus[key]) for share in placement.replicas for key in share.gpus]
    unknown = [key for key, gpu in used if gpu.bdf is None]
    if unknown:
        raise error(
            "PLAN-NO-BDF",
            topology.host,
            f"the PCI address of {', '.join(unknown)} is unknown; a unit allows devices by address",
            "plan from evidence (`apiary probe`), not from a capture without bus addresses",
        )
    shared = [key for key, gpu in used if key != gpu.bdf]
    if shared:
        raise error(
            "PLAN-PARTITIONED",
            topology.host,
            f"{shared[0]} is one of several partitions of a GPU; replicas run on whole GPUs only",
            "set the compute partition to SPX: `amd-smi set --gpu all --compute-partition SPX`",
        )


def _without_repeats(*findings: Finding) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(findings))


def _gpu_model(topology: Topology) -> str | None:
    models = {gpu.model for gpu in topology.gpus}
    return models.pop() if len(models) == 1 else None


def _replica(deployment: Deployment, index: int, share: ReplicaPlacement, one: Recipe) -> Replica:
    unit = f"apiary-{deployment.name}-{index}.service"
    env, reasons = dict(one.env), list(one.reasons)

    def add(name: str, value: str, rule: str, reason: str, source: str) -> None:
        # What the recipe or the operator already decided stands.
        if name not in env:
            env[name] = value
            reasons.append(Reason(name, rule, reason, source))

    caches = knowledge("serving.yml")["cache_directories"]
    for name, entry in caches["entries"].items():
        add(
            name,
            f"/var/cache/{unit.removesuffix('.service')}/{entry['directory']}",
            "SERVE-LOCAL-CACHE",
            entry["reason"],
            caches["source"],
        )
    design = "Apiary design: a unit stores BDFs, and checks at start that it got what was planned"
    promise = {
        "APIARY_DEPLOYMENT": deployment.name,
        "APIARY_REPLICA": str(index),
        "APIARY_GPUS": ",".join(share.gpus),
        "APIARY_CPUS": share.cpus,
        "APIARY_MEMORY_NODES": ",".join(map(str, share.memory_nodes)) or None,
    }
    for name, value in promise.items():
        if value is not None:
            add(name, value, "SERVE-PROMISE", "what this replica was promised", design)
    return Replica(
        unit=unit,
        port=deployment.base_port + index,
        gpus=share.gpus,
        cpus=share.cpus,
        memory_nodes=share.memory_nodes,
        env=env,
        argv=(deployment.engine.executable, *one.argv),
        reasons=tuple(reasons),
    )
