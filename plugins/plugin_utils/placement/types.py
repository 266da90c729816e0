# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs, CPUs and memory nodes each replica gets: `apiary.placement/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..findings import Finding


@dataclass(frozen=True)
class Request:
    """What is wanted of one host: a replica of each of ``sizes`` GPUs, all at once.

    ``busy`` GPUs stay out; ``require`` names GPUs that the replica at that place must have, and
    ``keep`` the GPUs it has now and keeps where it can. All are keys, or the BDF of a whole GPU.
    ``cost`` is the name of a cost function.
    """

    sizes: tuple[int, ...]
    busy: tuple[str, ...] = ()
    require: tuple[tuple[str, ...], ...] = ()
    keep: tuple[tuple[str, ...], ...] = ()
    cost: str = "fabric"


@dataclass(frozen=True)
class ReplicaPlacement:
    """One replica's share of the host; ``gpus`` are topology keys in BDF order.

    ``cost`` has the components that the placement's ``cost_fields`` name. ``cpus`` is a cpulist;
    ``nics`` are the network interfaces nearest to the GPUs.
    """

    gpus: tuple[str, ...]
    cost: tuple[int, ...]
    cpus: str | None = None
    memory_nodes: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunnerUp:
    """The best cut that was not taken, and what decided."""

    replicas: tuple[tuple[str, ...], ...]
    cost: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Usable:
    """How many replicas of a size the free GPUs hold over xGMI, and how many on one NUMA node."""

    tensor_parallel_size: int
    replicas: int
    on_one_node: int


@dataclass(frozen=True)
class Placement:
    """A whole host cut into replicas, jointly; ``cost`` is the sum of theirs, lower is better.

    Costs are compared from the left by ``cost_fields``. ``exact`` says that no cut costs less.
    ``free`` GPUs are left over, ``usable`` is what they can still hold.
    """

    SCHEMA: ClassVar[str] = "apiary.placement/v1"

    host: str
    cost_function: str
    cost_fields: tuple[str, ...]
    replicas: tuple[ReplicaPlacement, ...]
    cost: tuple[int, ...]
    exact: bool
    free: tuple[str, ...] = ()
    usable: tuple[Usable, ...] = ()
    runner_up: RunnerUp | None = None
    findings: tuple[Finding, ...] = ()
