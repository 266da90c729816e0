# SPDX-License-Identifier: GPL-3.0-or-later

"""What one host gets: `apiary.plan/v1`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..deployment import MOST_DEVICES, Deployment, Layout, MixedLayout
from ..engine.types import Reason
from ..findings import Finding
from ..model.types import Architecture, Memory
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
