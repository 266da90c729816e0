# SPDX-License-Identifier: GPL-3.0-or-later

"""What one host gets, `apiary.plan/v1`, and the one reader of such documents, which checks them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..deployment import MOST_DEVICES, Deployment, Layout, MixedLayout, check_deployment
from ..documents import from_document
from ..engine.types import Reason
from ..findings import ApiaryError, Finding, error
from ..model.types import Architecture, Memory
from ..numbers import parse_cpulist
from ..placement.types import Placement
from ..topology.types import Start


@dataclass(frozen=True)
class Replica:
    """One engine process: its unit, GPUs (keys), CPUs (cpulist), memory nodes and command.

    ``kv_tokens`` is what its KV pool holds. ``attention_backend`` is what the engine will choose,
    by vLLM's own name, and ``attention_reason`` why; all None where that is not known.
    ``recipe`` is a digest of what the engine computes with, whatever its place and port.
    ``internal_port`` is the first of a block that is its own (`ports.block_size`),
    ``master_port`` where the hosts of a replica over several meet.
    """

    unit: str
    port: int
    gpus: tuple[str, ...]
    cpus: str | None
    memory_nodes: tuple[int, ...]
    env: dict[str, str]
    argv: tuple[str, ...]
    reasons: tuple[Reason, ...]
    kv_tokens: int | None = None
    recipe: str | None = None
    attention_backend: str | None = None
    attention_reason: Reason | None = None
    internal_port: int | None = None
    master_port: int | None = None
    start_timeout_seconds: int | None = None


@dataclass(frozen=True)
class Node:
    """A host's place among the ``hosts`` that its replicas span, which are named in rank order.

    Rank 0 serves HTTP at ``master_address``; the others run workers alone.
    """

    rank: int
    size: int
    master_address: str
    hosts: tuple[str, ...]


Verdict = Literal["chosen", "possible", "dropped"]


@dataclass(frozen=True)
class ConsideredLayout:
    """One way to cut the host, and why it was chosen, could be, or is impossible.

    ``reason`` says what decided; ``codes`` are the findings that drop it. Of the others is known
    what each GPU of the fullest engine holds in weights, what the whole host holds in KV tokens
    and in sequences of the stated or longest length, and how many usable GPUs stay free.
    """

    name: str
    sizes: tuple[int, ...]
    expert_parallel: bool
    verdict: Verdict
    reason: str
    codes: tuple[str, ...] = ()
    weights_bytes_per_gpu: int | None = None
    kv_tokens_per_host: int | None = None
    max_sequences_per_host: float | None = None
    free_gpus: int | None = None


@dataclass(frozen=True)
class Criterion:
    """One thing that layouts are compared by, and where that preference is from."""

    name: str
    meaning: str
    source: str


@dataclass(frozen=True)
class LayoutChoice:
    """How `layout: auto` was decided: every layout considered, the chosen one first.

    The possible ones follow in the order of ``preference``, which ``because`` names the cause of;
    ``order`` is what it compares by, the first first.
    """

    preference: str
    because: str
    order: tuple[Criterion, ...]
    considered: tuple[ConsideredLayout, ...]


@dataclass(frozen=True)
class Plan:
    """All of a deployment for one host: the only input of the `replicas` role.

    ``deployment`` is as it was asked for, ``layout`` what holds here, and ``layouts`` how an open
    one was chosen. ``memory`` is that of the first replica's engine, per host of all of them.
    ``node`` is set where the replicas span hosts. ``measured`` are the figures of engines that
    count in it in place of computed ones.
    """

    SCHEMA: ClassVar[str] = "apiary.plan/v1"

    host: str
    deployment: Deployment
    layout: Layout | MixedLayout
    replicas: tuple[Replica, ...]
    placement: Placement
    memory: Memory
    target: str
    model: Architecture
    gpu_model: str | None = None
    layouts: LayoutChoice | None = None
    node: Node | None = None
    measured: tuple[Start, ...] = ()
    findings: tuple[Finding, ...] = ()


_UNIT = re.compile(
    r"apiary-([a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)-(0|[1-9][0-9]?)\.service", re.ASCII
)


def unit_name(deployment: str, replica: int) -> str:
    """Return the unit of a deployment's replica."""
    return f"apiary-{deployment}-{replica}.service"


def replica_number(unit: str, deployment: str | None = None) -> int | None:
    """Return a replica's number from its unit; None where it is no unit, or another deployment's.

    Hosts report units, and all that comes of such a text is this number.
    """
    match = _UNIT.fullmatch(unit)
    if match is None or deployment not in (None, match[1]) or int(match[2]) >= MOST_DEVICES:
        return None
    return int(match[2])


def server_name(host: str, replica: int) -> str:
    """Return a replica's name at the routers."""
    return f"{host}-{replica}"


def layout_name(sizes: Sequence[int], expert_parallel: bool) -> str:
    """Return DP2/TP4/EP4, or TP4+TP2+TP2 (`/EP` with expert parallelism) where engines differ."""
    if len(set(sizes)) == 1:
        name = f"DP{len(sizes)}/TP{sizes[0]}"
        return f"{name}/EP{sizes[0]}" if expert_parallel else name
    return "+".join(f"TP{size}" for size in sizes) + ("/EP" if expert_parallel else "")


def name_of(layout: Layout | MixedLayout) -> str:
    """Return a layout's name, such as DP1/TP8/PP2 over 2 hosts."""
    if isinstance(layout, MixedLayout):
        return layout_name(layout.sizes, layout.expert_parallel)
    sizes = (layout.tensor_parallel_size,) * layout.replicas
    name = layout_name(sizes, layout.expert_parallel)
    if layout.pipeline_parallel_size > 1:
        name += f"/PP{layout.pipeline_parallel_size}"
    return name + (f" over {layout.nodes} hosts" if layout.nodes > 1 else "")


_GPU = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def plan_of(document: Any, subject: str) -> Plan:
    """Return the plan of a document, checked as far as it can be without its host.

    Raises ApiaryError with DOC-… or PLAN-INVALID, or the deployment's findings.
    """
    plan = from_document(Plan, document, subject)
    check_plan(plan, subject)
    return plan


def parse_plan(text: str, subject: str) -> Plan:
    """Return the plan of a plan.json, as ``plan_of``; DOC-TYPE for what is no JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as failure:
        allowed = "JSON, as playbooks/plan.yml writes it"
        raise error(
            "DOC-TYPE", subject, f"is no JSON: {failure}", field="the plan", allowed=allowed
        ) from failure
    return plan_of(document, subject)


def check_plan(plan: Plan, subject: str) -> None:
    """Refuse a plan whose names or values would not stay where a unit file has them.

    Raises ApiaryError with PLAN-INVALID for the first wrong field, or the deployment's findings.
    """
    findings = check_deployment(plan.deployment)
    if findings:
        raise ApiaryError(*findings)
    _expect(bool(plan.replicas), subject, "replicas", plan.replicas, "at least one replica")
    name = plan.deployment.name
    _expect(plan.target == f"apiary-{name}.target", subject, "target", plan.target, "its own")
    sizes = tuple(len(replica.gpus) for replica in plan.replicas)
    _expect(sizes == plan.layout.sizes, subject, "layout", plan.layout.sizes, f"sizes {sizes}")
    nodes = 1 if isinstance(plan.layout, MixedLayout) else plan.layout.nodes
    node = plan.node
    if node is not None or nodes > 1:
        sound = node is not None and 0 <= node.rank < node.size == nodes == len(node.hosts)
        _expect(sound, subject, "node", node, f"a place among {nodes} hosts")
    for index, replica in enumerate(plan.replicas):
        _check_replica(replica, unit_name(name, index), subject, f"replicas[{index}]")


def _check_replica(replica: Replica, unit: str, subject: str, path: str) -> None:
    _expect(replica.unit == unit, subject, f"{path}.unit", replica.unit, unit)
    for key in replica.gpus:
        _expect(bool(_GPU.fullmatch(key)), subject, f"{path}.gpus", key, "PCI addresses")
    for port in (replica.port, replica.internal_port, replica.master_port):
        _expect(port is None or 0 < port < 65536, subject, f"{path}.port", port, "a port")
    for node in replica.memory_nodes:
        _expect(node >= 0, subject, f"{path}.memory_nodes", node, "node numbers")
    if replica.cpus is not None:
        try:
            sound = bool(parse_cpulist(replica.cpus)) and "\n" not in replica.cpus
        except ValueError:
            sound = False
        _expect(sound, subject, f"{path}.cpus", replica.cpus, "a list of CPUs such as 0-63")
    _expect(len(replica.argv) > 2, subject, f"{path}.argv", replica.argv, "serve and a model")
    for variable in replica.env:
        _expect(bool(_VARIABLE.fullmatch(variable)), subject, f"{path}.env", variable, "names")


def _expect(right: bool, subject: str, path: str, found: object, expected: str) -> None:
    if not right:
        raise error("PLAN-INVALID", subject, f"field {path}: found {found!r}, expected {expected}")
