# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn deployments, a topology and their models' architectures into the plans of one host.

The deployments of a host are placed by one joint search and not one after the other: only so is it
proven that no cut of the host costs less, and nothing depends on the order they are listed in.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ..deployment import AutoLayout, Deployment, Layout, MixedLayout, check_deployment
from ..engine.types import Recipe
from ..findings import error, stop_on_errors
from ..gpus import gpu_facts
from ..model.config import known
from ..model.types import Architecture, Memory
from ..placement.place import place_together
from ..placement.types import Placement, Request
from ..topology.types import Start, Topology
from .engines import Engines, counted, of_host, start_of
from .layouts import choose_layout, not_measured
from .nodes import Place, check_place, rank_of
from .replica import Part, check_ports, internal_ports, meeting_port, replica_of, with_start_timeout
from .together import check_gpus, check_memory, check_names, check_taken, offload_gib
from .types import LayoutChoice, Plan, Replica


@dataclass(frozen=True)
class PlanRequest:
    """A deployment for a host, its model, and the plan whose replicas stay where they can.

    ``place`` is needed where its replicas span hosts.
    """

    deployment: Deployment
    architecture: Architecture
    keep: Plan | None = None
    place: Place | None = None

    @property
    def name(self) -> str:
        return self.deployment.name


def architecture_of(deployment: Deployment, subject: str) -> Architecture:
    """Return what knowledge/models knows of the deployment's model, or raise MODEL-UNKNOWN."""
    architecture = known(deployment.model.name)
    if architecture is None:
        raise error(
            "MODEL-UNKNOWN",
            subject,
            f"no config.json was given and {deployment.model.name!r} is not a model Apiary knows",
        )
    return architecture


def build_plans(
    requests: Sequence[PlanRequest], topology: Topology, present: Sequence[Plan] = ()
) -> tuple[Plan, ...]:
    """Return each deployment's plan on one host; raise ApiaryError with all that forbids them.

    Replicas of a plan to keep that can stay on their GPUs do. ``present`` plans, of deployments
    that nobody asked for, stay on the host with their GPUs and ports. Layouts that are open are
    chosen in the order given, on the GPUs that the others leave; beyond that the order says
    nothing.

    The first stage that refuses ends the planning: a host without GPUs is not asked for memory.
    Findings of lower severity of all stages stay with the plans.
    """
    stop_on_errors(topology.findings)
    stop_on_errors(check_names([request.deployment for request in requests]))
    stop_on_errors(
        finding for request in requests for finding in check_deployment(request.deployment)
    )
    stop_on_errors(
        finding
        for request in requests
        for finding in check_place(request.deployment, request.place, topology.host)
    )
    drafts = _Drafts(requests, topology, present)
    placements = drafts.placed()
    ports = [
        draft.request.deployment.base_port + index
        for draft in drafts.all
        for index in range(draft.layout.replicas)
    ]
    staying = [replica for plan in present for replica in plan.replicas]
    blocks = internal_ports(
        ports,
        [replica.port for replica in staying],
        [replica.internal_port for replica in staying if replica.internal_port is not None],
    )
    plans: list[Plan] = []
    for draft in drafts.all:
        plan = _plan(draft, placements[draft.request.name], topology, blocks)
        findings = (*plan.findings, *check_ports(plan, [*present, *plans]))
        plans.append(dataclasses.replace(plan, findings=findings))
    known = [*present, *(request.keep for request in requests if request.keep)]
    memory = (*check_memory([*plans, *present], topology), *check_taken(plans, known, topology))
    if plans and memory:
        plans[0] = dataclasses.replace(plans[0], findings=(*plans[0].findings, *memory))
    stop_on_errors(dict.fromkeys(finding for plan in plans for finding in plan.findings))
    return tuple(plans)


@dataclass(frozen=True)
class _Draft:
    """A deployment with its layout on this host, before it is placed."""

    request: PlanRequest
    layout: Layout | MixedLayout
    recipes: tuple[Recipe, ...]
    gpu_model: str | None
    choice: LayoutChoice | None = None

    @property
    def retained(self) -> tuple[tuple[str, ...], ...]:
        """Return the GPUs that each replica has now, () for a new one."""
        before = self.request.keep.replicas if self.request.keep else ()
        sets = tuple(replica.gpus for replica in before)[: self.layout.replicas]
        return sets + ((),) * (self.layout.replicas - len(sets))


class _Drafts:
    """The deployments of one host: each one's layout, and then where all of them lie."""

    def __init__(
        self, requests: Sequence[PlanRequest], topology: Topology, present: Sequence[Plan]
    ) -> None:
        self.topology = topology
        self.gpu_model = topology.model
        held = {key for plan in present for replica in plan.replicas for key in replica.gpus}
        self.busy = tuple(key for key in topology.by_key if key in held)
        drafts = {
            request.name: self._draft(request, request.deployment.layout)
            for request in requests
            if isinstance(request.deployment.layout, (Layout, MixedLayout))
        }
        sizes = {name: draft.layout.sizes for name, draft in drafts.items()}
        stop_on_errors(check_gpus(sizes, topology, self.busy))
        for request in requests:
            if request.name not in drafts:
                drafts[request.name] = self._choose(request, list(drafts.values()))
        self.all = [drafts[request.name] for request in requests]

    def _draft(
        self, request: PlanRequest, layout: Layout | MixedLayout, choice: LayoutChoice | None = None
    ) -> _Draft:
        deployment = with_start_timeout(request.deployment, request.architecture)
        offload = offload_gib(self.topology)
        engines = Engines(
            deployment, request.architecture, self.gpu_model, None, offload_gib=offload
        )
        node = request.place.node if request.place else None
        ports = range(deployment.base_port, deployment.base_port + layout.replicas)
        recipes = tuple(
            engines.recipe(engine, port, rank_of(node, meeting_port(port)))
            for engine, port in zip(layout.engines, ports, strict=True)
        )
        return _Draft(request, layout, recipes, self.gpu_model, choice)

    def _choose(self, request: PlanRequest, others: Sequence[_Draft]) -> _Draft:
        """Return an open deployment with the layout chosen on what the others leave."""
        layout = request.deployment.layout
        auto = layout if isinstance(layout, AutoLayout) else AutoLayout()
        taken = set(self.busy)
        if others:
            shares = (share for part in self._place(others) for share in part.replicas)
            taken |= {key for share in shares for key in share.gpus}
        gpus = tuple(
            dataclasses.replace(gpu, healthy=False) if key in taken else gpu
            for key, gpu in self.topology.by_key.items()
        )
        topology = dataclasses.replace(self.topology, gpus=gpus) if taken else self.topology
        usable = [key for key, gpu in topology.by_key.items() if gpu.healthy is not False]
        _check_addresses(topology, usable)
        engines = Engines(
            request.deployment,
            request.architecture,
            self.gpu_model,
            _least_vram(topology, usable),
            auto.sequence_tokens,
            offload_gib(topology),
        )
        choice = choose_layout(auto, engines, topology)
        chosen = choice.considered[0]
        if len(set(chosen.sizes)) > 1:
            return self._draft(request, MixedLayout(chosen.sizes, chosen.expert_parallel), choice)
        equal = Layout(chosen.sizes[0], len(chosen.sizes), chosen.expert_parallel)
        return self._draft(request, equal, choice)

    def placed(self) -> dict[str, Placement]:
        """Return each deployment's part of the cut of the host, by name."""
        # By name, so that what is equally good goes to the same deployment however they're listed.
        order = sorted(self.all, key=lambda draft: draft.request.name)
        parts = self._place(order)
        for part in parts:
            _check_addresses(self.topology, [key for share in part.replicas for key in share.gpus])
        return {draft.request.name: part for draft, part in zip(order, parts, strict=True)}

    def _place(self, drafts: Sequence[_Draft]) -> tuple[Placement, ...]:
        sizes = tuple(size for draft in drafts for size in draft.layout.sizes)
        retained = tuple(itertools.chain.from_iterable(draft.retained for draft in drafts))
        request = Request(sizes, busy=self.busy, keep=retained if any(retained) else ())
        return place_together(self.topology, request, [draft.layout.replicas for draft in drafts])


def _plan(draft: _Draft, placement: Placement, topology: Topology, blocks: dict[int, int]) -> Plan:
    """Return the plan of one placed deployment."""
    request, deployment = draft.request, draft.request.deployment
    earlier = request.keep.placement if request.keep else None
    # Where nothing moves, what was found when the places were chosen still says why.
    if earlier and dataclasses.replace(placement, runner_up=earlier.runner_up) == earlier:
        placement = earlier
    used = [key for share in placement.replicas for key in share.gpus]
    vram = _least_vram(topology, used)
    engines = Engines(deployment, request.architecture, draft.gpu_model, vram)
    needs = engines.memories(draft.layout, draft.recipes)
    timed = with_start_timeout(deployment, request.architecture)
    rdma = {nic.name: nic.rdma_device for nic in topology.nics if nic.rdma_device}
    replicas = tuple(
        replica_of(
            timed, Part(index, share, recipe, need, blocks, request.place, rdma, topology.host)
        )
        for index, (share, recipe, need) in enumerate(
            zip(placement.replicas, draft.recipes, needs, strict=True)
        )
    )
    version, before = deployment.engine.version, request.keep
    starts = [start_of(one, version, draft.gpu_model, topology.starts, before) for one in replicas]
    measured = [
        counted(need, start, topology.host, engines.given)
        for need, start in zip(needs, starts, strict=True)
    ]
    computed = _finished(draft, placement, topology, replicas, needs, ())
    # What engines measured counts as soon as something else changes: a second run brings nothing.
    if measured == needs or (
        before and dataclasses.replace(computed, findings=before.findings) == before
    ):
        return computed
    used_starts = [
        start for start, need, own in zip(starts, measured, needs, strict=True) if need is not own
    ]
    return _finished(draft, placement, topology, replicas, measured, used_starts)


def _finished(
    draft: _Draft,
    placement: Placement,
    topology: Topology,
    replicas: Sequence[Replica],
    needs: Sequence[Memory],
    starts: Sequence[Start | None],
) -> Plan:
    """Return the plan of replicas whose memory is known."""
    request, deployment = draft.request, draft.request.deployment
    replicas = tuple(
        dataclasses.replace(one, kv_tokens=need.kv_tokens_per_engine)
        for one, need in zip(replicas, needs, strict=True)
    )
    findings = dict.fromkeys(
        (
            *topology.findings,
            *request.architecture.findings,
            *(finding for recipe in draft.recipes for finding in recipe.findings),
            *placement.findings,
            *(finding for need in needs for finding in need.findings),
            *check_place(deployment, request.place, topology.host),
            *([not_measured(draft.choice, topology.host)] if draft.choice else []),
        )
    )
    return Plan(
        host=topology.host,
        deployment=deployment,
        layout=draft.layout,
        replicas=replicas,
        placement=placement,
        memory=of_host(needs),
        target=f"apiary-{deployment.name}.target",
        model=request.architecture,
        gpu_model=draft.gpu_model,
        layouts=draft.choice,
        node=request.place.node if request.place else None,
        measured=tuple(dict.fromkeys(start for start in starts if start is not None)),
        findings=tuple(findings),
    )


def _least_vram(topology: Topology, keys: Sequence[str]) -> int | None:
    """Return the memory of the smallest of some GPUs, in bytes; None where one is unknown.

    It is no more than the model has: routers share requests by what a host's replicas hold.
    """
    gpus = [topology.by_key[key] for key in keys]
    sizes = [
        min(gpu.vram_bytes, (gpu_facts(gpu.model).memory.gib or gpu.vram_bytes) << 30)
        for gpu in gpus
        if gpu.vram_bytes is not None
    ]
    return min(sizes) if sizes and len(sizes) == len(gpus) else None


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
        )
    shared = [key for key, gpu in used if key != gpu.bdf]
    if shared:
        raise error(
            "PLAN-PARTITIONED",
            topology.host,
            f"{shared[0]} is one of several partitions of a GPU; replicas run on whole GPUs only",
        )
