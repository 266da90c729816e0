# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn a deployment, a topology and an architecture into the plan of one host."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    AutoLayout,
    Deployment,
    Layout,
    MixedLayout,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import Reason, Recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import (
    Architecture,
    Memory,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import (
    place_telling,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    ReplicaPlacement,
    Request,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.engines import Engines, of_host
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.layouts import (
    choose_layout,
    not_measured,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import (
    LayoutChoice,
    Plan,
    Replica,
)
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


def build_plan(
    deployment: Deployment,
    topology: Topology,
    architecture: Architecture,
    keep: Plan | None = None,
) -> Plan:
    """Return the plan of one host; raise ApiaryError with every finding that forbids it.

    Replicas of the plan to ``keep`` that can stay on their GPUs do.

    The first stage that refuses ends the planning: a host without GPUs is not asked for memory.
    Findings of lower severity of all stages stay with the plan.
    """
    _stop_on_errors(topology.findings)
    _stop_on_errors(check_deployment(deployment))
    gpu_model = _gpu_model(topology)
    layout, choice = _layout(deployment, topology, architecture, gpu_model)
    engines = Engines(deployment, architecture, gpu_model, None)
    recipes = [
        engines.recipe(Layout(size, 1, layout.expert_parallel), deployment.base_port + index)
        for index, size in enumerate(layout.sizes)
    ]
    kept = tuple(one.gpus for one in keep.replicas) if keep else ()
    placement = place_telling(topology, Request(layout.sizes, keep=kept))
    used = [key for share in placement.replicas for key in share.gpus]
    _check_addresses(topology, used)
    engines = Engines(deployment, architecture, gpu_model, _least_vram(topology, used))
    needs = engines.memories(layout, recipes)
    findings = _without_repeats(
        *topology.findings,
        *architecture.findings,
        *(finding for one in recipes for finding in one.findings),
        *placement.findings,
        *(finding for one in needs for finding in one.findings),
        *([not_measured(choice, topology.host)] if choice else []),
    )
    _stop_on_errors(findings)
    replicas = tuple(
        _replica(deployment, index, share, one, need)
        for index, (share, one, need) in enumerate(
            zip(placement.replicas, recipes, needs, strict=True)
        )
    )
    return Plan(
        host=topology.host,
        deployment=deployment,
        layout=layout,
        replicas=replicas,
        placement=placement,
        memory=of_host(needs),
        target=f"apiary-{deployment.name}.target",
        model=architecture,
        gpu_model=gpu_model,
        layouts=choice,
        findings=findings,
    )


def _layout(
    deployment: Deployment, topology: Topology, architecture: Architecture, gpu_model: str | None
) -> tuple[Layout | MixedLayout, LayoutChoice | None]:
    """Return the layout that was asked for, or the chosen one and how it was chosen."""
    asked = deployment.layout
    if isinstance(asked, (Layout, MixedLayout)):
        return asked, None
    wish = AutoLayout() if isinstance(asked, str) else asked
    usable = [key for key, gpu in topology.by_key.items() if gpu.healthy is not False]
    _check_addresses(topology, usable)
    vram = _least_vram(topology, usable)
    engines = Engines(deployment, architecture, gpu_model, vram, wish.sequence_tokens)
    choice = choose_layout(wish, engines, topology)
    chosen = choice.considered[0]
    if len(set(chosen.sizes)) > 1:
        return MixedLayout(chosen.sizes, chosen.expert_parallel), choice
    return Layout(chosen.sizes[0], len(chosen.sizes), chosen.expert_parallel), choice


def _least_vram(topology: Topology, keys: Sequence[str]) -> int | None:
    """Return the memory of the smallest of some GPUs, in bytes; None where one is unknown."""
    gpus = topology.by_key
    known = [gpus[key].vram_bytes for key in keys]
    sizes = [size for size in known if size is not None]
    return min(sizes) if sizes and len(sizes) == len(known) else None


def _stop_on_errors(findings: tuple[Finding, ...]) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise ApiaryError(*errors)


def _check_addresses(topology: Topology, keys: Sequence[str]) -> None:
    """Refuse GPUs that a unit could not be held to: its device policy goes by PCI address."""
    gpus = topology.by_key
    used = [(key, gpus[key]) for key in keys]
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


def _replica(
    deployment: Deployment, index: int, share: ReplicaPlacement, one: Recipe, needs: Memory
) -> Replica:
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
        kv_tokens=needs.kv_tokens_per_engine,
        attention_backend=one.attention_backend,
        attention_reason=one.attention_reason,
    )
