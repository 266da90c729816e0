# SPDX-License-Identifier: GPL-3.0-or-later

"""What could be measured: feasible layouts in the order of `layout: auto`, then knobs around one.

Rules and memory prune, by the plan builder itself; nothing is dropped for a predicted speed.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bench.types import Workload
from ..deployment import MOST_DEVICES, AutoLayout, Deployment, Layout
from ..documents import knowledge
from ..findings import ApiaryError, Finding, error, errors_of
from ..model.types import Architecture, ModuleMemory
from ..plan.build import PlanRequest, build_plans
from ..plan.nodes import nodes_of
from ..plan.types import ConsideredLayout, Plan, name_of
from ..topology.types import Topology
from . import knobs
from .types import Candidate, Fact, NotTried, Question, Tune

_EQUAL = re.compile(r"DP(\d{1,3})/TP(\d{1,3})(?:/EP(\d{1,3}))?")
_MIXED = re.compile(r"(TP\d{1,3}(?:\+TP\d{1,3})+)(/EP)?")
CURRENT = "current"
LAYOUTS = "layouts"


@dataclass(frozen=True)
class Queue:
    """Candidates in the order they are measured in, and what is not measured."""

    candidates: tuple[Candidate, ...]
    not_tried: tuple[NotTried, ...]


@dataclass(frozen=True)
class World:
    """What a configuration is planned for."""

    question: Question
    architecture: Architecture
    topology: Topology
    others: tuple[Plan, ...] = ()

    def plan(self, changes: Mapping[str, Any]) -> Plan:
        """Return the plan of the deployment with changes; raises ApiaryError as planning does."""
        wanted = knobs.changed(self.question.deployment, changes)
        requested = PlanRequest(wanted, self.architecture)
        return build_plans((requested,), self.topology, self.others)[0]


def world_of(state: Tune) -> World:
    return World(state.requested, state.architecture, state.topology, state.others)


def deployment_of(state: Tune, candidate: str) -> Deployment:
    """Return the whole deployment of a candidate, as the plan of its trial is made from."""
    return knobs.changed(state.requested.deployment, state.candidate(candidate).changes)


def layouts(world: World) -> Queue:
    """Return the current configuration and the layouts that are possible on the host, in order.

    Raises ApiaryError: TRIAL-NODES for replicas over several hosts, TRIAL-LAYOUT for a name that
    means none, and what the plan builder refuses for all of them alike.
    """
    if nodes_of(world.question.deployment) > 1:
        raise error(
            "TRIAL-NODES",
            world.question.deployment.name,
            "its replicas span several hosts, and a trial is one host's",
        )
    current, refused = _current(world)
    plans = [] if current is None else [world.plan({})]
    found = [] if current is None else [current]
    left_out = [] if refused is None else [refused]
    budget = world.question.budget.layouts
    for one in _wanted(world):
        if one.verdict == "dropped":
            left_out.append(NotTried(one.name, one.reason, _change(one), one.codes))
        elif current is not None and one.name == current.layout:
            continue
        elif len(found) - (current is not None) >= budget:
            reason = f"the budget is {budget} layouts, and by the exact facts others come first"
            left_out.append(NotTried(one.name, reason, _change(one)))
        else:
            made = _made(world, one.name, LAYOUTS, _change(one), plans)
            if isinstance(made, NotTried):
                left_out.append(made)
            else:
                found.append(made)
    if not found:
        raise error(
            "TRIAL-NOTHING",
            world.question.deployment.name,
            "nothing can be measured: "
            + "; ".join(f"{one.label}: {one.reason}" for one in left_out[:5]),
        )
    return Queue(_numbered(found, ()), tuple(left_out))


def around(state: Tune, leader: Candidate, path: str, values: Sequence[Any]) -> Queue:
    """Return the leader with each value of one knob that is possible and is not what it has."""
    world = world_of(state)
    base = world.plan(leader.changes)
    plans, found, left_out = [base], list[Candidate](), list[NotTried]()
    for value in values:
        changes = {**leader.changes, path: value}
        if knobs.of(knobs.changed(state.requested.deployment, leader.changes), path) == value:
            continue
        label = f"{leader.label} {knobs.label(path, value)}"
        made = _made(world, label, path, changes, plans)
        if isinstance(made, NotTried):
            left_out.append(made)
        else:
            found.append(made)
    return Queue(_numbered(found, state.candidates), tuple(left_out))


def _current(world: World) -> tuple[Candidate | None, NotTried | None]:
    """Return the configuration as deployed, or why it is impossible here."""
    try:
        plan = world.plan({})
    except ApiaryError as refusal:
        return None, _refused("the current configuration", {}, refusal)
    name = name_of(plan.layout)
    measured = facts(plan, world.topology, world.question.workload)
    return Candidate(CURRENT, name, CURRENT, name, {}, measured), None


def _wanted(world: World) -> tuple[ConsideredLayout, ...]:
    """Return the layouts that the operator names, else all of the host in the order of facts."""
    names = world.question.layouts
    return _considered(world) if names is None else tuple(map(_named, names))


def _named(name: str) -> ConsideredLayout:
    """Return the layout that DP2/TP4/EP4 or TP4+TP2+TP2 means; raises TRIAL-LAYOUT."""
    equal, mixed = _EQUAL.fullmatch(name), _MIXED.fullmatch(name)
    sizes: tuple[int, ...] = ()
    if equal and equal[3] in (None, equal[2]):
        sizes = (int(equal[2]),) * int(equal[1])
    elif mixed:
        sizes = tuple(int(size) for size in re.findall(r"\d+", mixed[1]))
    if not 0 < sum(sizes) <= MOST_DEVICES:
        raise error("TRIAL-LAYOUT", "tune_knobs.layouts", f"{name!r} names no layout")
    whole = bool(equal and equal[3]) or bool(mixed and mixed[2])
    return ConsideredLayout(name, sizes, whole, "possible", "the operator names it")


def _considered(world: World) -> tuple[ConsideredLayout, ...]:
    """Return every layout of the host as `layout: auto` sees it: possible ones in its order."""
    question = world.question
    automatic = question.deployment.layout
    if not isinstance(automatic, AutoLayout):
        automatic = AutoLayout()
    automatic = dataclasses.replace(
        automatic,
        concurrency=automatic.concurrency or question.concurrency,
        sequence_tokens=automatic.sequence_tokens
        or question.workload.input_tokens + question.workload.output_tokens,
    )
    open_ = dataclasses.replace(question.deployment, layout=automatic)
    plan = dataclasses.replace(
        world, question=dataclasses.replace(question, deployment=open_)
    ).plan({})
    return plan.layouts.considered if plan.layouts else ()


def _change(one: ConsideredLayout) -> dict[str, Any]:
    """Return the change that makes a deployment have this layout."""
    if len(set(one.sizes)) > 1:
        return {"layout": {"sizes": list(one.sizes), "expert_parallel": one.expert_parallel}}
    size = one.sizes[0]
    chosen = {"tensor_parallel_size": size, "replicas": len(one.sizes)}
    return {"layout": {**chosen, "expert_parallel": one.expert_parallel}}


def _made(
    world: World, label: str, stage: str, changes: dict[str, Any], plans: list[Plan]
) -> Candidate | NotTried:
    """Return the candidate, or why it is none; ``plans`` are those of the others, base first."""
    try:
        plan = world.plan(changes)
    except ApiaryError as refusal:
        return _refused(label, changes, refusal)
    useless = _no_effect(plan, plans[0] if plans else None)
    if useless is not None:
        return NotTried(label, useless.message, changes, (useless.code,))
    if any(_same(plan, other) for other in plans):
        return NotTried(label, "the engines get the same commands as in another one", changes)
    plans.append(plan)
    measured = facts(plan, world.topology, world.question.workload)
    return Candidate("", label, stage, name_of(plan.layout), changes, measured, _notes(stage))


def _refused(label: str, changes: dict[str, Any], refusal: ApiaryError) -> NotTried:
    errors = errors_of(refusal.findings)
    codes = tuple(dict.fromkeys(one.code for one in errors))
    reason = "; ".join(dict.fromkeys(one.message for one in errors))
    return NotTried(label, reason, changes, codes)


def _no_effect(plan: Plan, base: Plan | None) -> Finding | None:
    """Return what the rules say of a value that changes nothing, where it is new."""
    codes = knowledge("tune.yml")["no_effect"]
    before = set(base.findings) if base is not None else set(plan.findings)
    return next((one for one in plan.findings if one.code in codes and one not in before), None)


def _same(plan: Plan, other: Plan) -> bool:
    mine = [(one.gpus, one.env, one.argv) for one in plan.replicas]
    return mine == [(one.gpus, one.env, one.argv) for one in other.replicas]


def _notes(stage: str) -> tuple[Finding, ...]:
    entries = knowledge("tune.yml")["knobs"].values()
    entry = next((one for one in entries if one["path"] == stage), None)
    if entry is None or not entry.get("answers"):
        return ()
    note = Finding(
        "TRIAL-ANSWERS",
        stage,
        "it may change what the model answers, and only its speed was measured",
        source=entry["source"],
    )
    return (note,)


def _numbered(found: Sequence[Candidate], taken: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return candidates with ids that are short, unique, and good as file names."""
    ids = {one.id for one in taken}
    result = []
    for one in found:
        plain = one.id or re.sub(r"[^a-z0-9]+", "-", one.label.lower()).strip("-")[:80]
        name, again = plain, 2
        while name in ids:
            name, again = f"{plain}-{again}", again + 1
        ids.add(name)
        result.append(dataclasses.replace(one, id=name))
    return tuple(result)


# A token looks up one row of an embedding; a vision tower is not read to decode.
_MEASURED = ("kv_tokens_per_host", "weights_bytes_per_gpu")
_NOT_READ = ("embedding", "ngram_tables", "vision")


def facts(plan: Plan, topology: Topology, workload: Workload) -> tuple[Fact, ...]:
    """Return what is known exactly of a configuration; what is unknown is left out.

    Where engines differ, figures per GPU or per engine are those of the first one.
    """
    sources = knowledge("tune.yml")["facts"]
    measured = next((one.source for one in plan.findings if one.code == "FIT-MEASURED"), None)
    found: dict[str, float | None] = {
        "kv_tokens_per_host": plan.memory.kv_tokens_per_host,
        "weights_bytes_per_gpu": plan.memory.weights_bytes_per_gpu,
        "weight_bytes_read_per_token": _read(plan.memory.modules, plan.model),
        "kv_bytes_read_per_token": _kv_read(plan, workload),
        **_experts(plan.model, plan.layout.engines[0]),
        **dict(_reduces(plan, topology)),
    }
    return tuple(
        Fact(
            name,
            found[name] or 0,
            entry["unit"],
            (measured if name in _MEASURED else None) or entry["source"],
        )
        for name, entry in sources.items()
        if found.get(name) is not None
    )


def _read(modules: tuple[ModuleMemory, ...], model: Architecture) -> float | None:
    """Return the bytes of weights that one GPU reads for a token alone, on average."""
    if not modules:
        return None
    share = 1.0
    if any(one.sharding == "experts" for one in modules):
        if not model.experts or not model.experts_per_token:
            return None
        share = model.experts_per_token / model.experts
    return float(
        sum(
            one.bytes_per_gpu * (share if one.sharding == "experts" else 1)
            for one in modules
            if one.kind not in _NOT_READ
        )
    )


def _kv_read(plan: Plan, workload: Workload) -> float | None:
    """Return the bytes of KV that one GPU reads for a token, halfway through the answer."""
    each = plan.memory.kv_bytes_per_token_per_gpu
    if each is None:
        return None
    return float(each * (workload.input_tokens + workload.output_tokens // 2))


def _experts(model: Architecture, engine: Layout) -> dict[str, float | None]:
    if not model.experts:
        return {}
    shares = engine.gpus if engine.expert_parallel else 1
    return {"experts_per_gpu": math.ceil(model.experts / shares)}


def _reduces(plan: Plan, topology: Topology) -> Iterator[tuple[str, float | None]]:
    """Yield the hops that a token waits for, and the most xGMI or PCIe hops between two GPUs.

    A ring all-reduce over N GPUs takes 2 (N - 1) steps; a layer has two of them.
    """
    size, layers = plan.layout.engines[0].tensor_parallel_size, plan.model.layers
    if layers is not None:
        yield "all_reduce_hops_per_token", 2 * layers * 2 * (size - 1)
    gpus = plan.replicas[0].gpus
    links = [topology.link(a, b) for at, a in enumerate(gpus) for b in gpus[at + 1 :]]
    hops = [None if link is None else link.hops for link in links]
    known = [one for one in hops if one is not None]
    if known and len(known) == len(hops):
        yield "link_hops", max(known)
