# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet would change, and what stands out in it: `apiary.fleet-plan/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..findings import Finding
from .names import Kind
from .types import Change, Quarantine

# Why a host is not as the inventory asks: the inventory changed since, the host did, or nobody
# knows, for it was not noted what was applied.
Cause = Literal["to apply", "drift", "unknown"]


@dataclass(frozen=True)
class ChangeGroup:
    """Hosts on which one concern would change in the same way, for the same cause.

    ``name`` is "rocm/1". ``refused`` are errors that keep it from being applied; then ``changes``
    may be empty. Texts that differ only in what is ``neutral`` have {host}, {address} or {pci1} in
    its place; ``variants`` is how many different ones there were.
    """

    name: str
    concern: str
    cause: Cause
    hosts: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    reboot: tuple[str, ...] = ()
    refused: tuple[Finding, ...] = ()
    neutral: tuple[Kind, ...] = ()
    variants: int = 1


@dataclass(frozen=True)
class HostGroup:
    """Hosts with the same ``changes``, names of change groups; none where all is settled."""

    hosts: tuple[str, ...]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlier:
    """Hosts in which a fact is ``value``, unlike ``agree`` of their ``of`` peers: ``expected``.

    ``peers`` says who they are ("MI325X"). ``value`` is None where the host does not say.
    """

    fact: str
    peers: str
    value: str | None
    expected: str
    hosts: tuple[str, ...]
    agree: int
    of: int


@dataclass(frozen=True)
class DeploymentCapacity:
    """One deployment, as it runs and as it would.

    ``up`` is None where nobody looked. ``layouts`` and ``engines`` are those that would be,
    ``gpus`` what they use. ``worst`` is the failure domain that takes most replicas with it,
    ``lost`` how many of ``planned``.
    """

    deployment: str
    model: str
    engines: tuple[str, ...]
    layouts: tuple[str, ...]
    hosts: int
    up: int | None
    running: int
    planned: int
    gpus: int
    worst: str
    lost: int


@dataclass(frozen=True)
class Capacity:
    """What the fleet serves. GPUs are counted as the hosts show them, partitions one by one.

    ``gpus`` are those of the surveyed hosts, ``used_now`` those of running replicas, ``used``
    those that the plans use; ``idle`` the rest. ``idle_hosts`` would have GPUs without work.
    """

    gpus: int
    used_now: int
    used: int
    idle: int
    idle_hosts: tuple[str, ...]
    deployments: tuple[DeploymentCapacity, ...]


@dataclass(frozen=True)
class Unseen:
    """A host without a survey that counts: not reached, or its survey is missing or stale.

    ``age_seconds`` is how old its last survey is, None where there is none.
    """

    host: str
    why: str
    age_seconds: int | None = None


@dataclass(frozen=True)
class Totals:
    """Hosts by what became of them; ``hosts`` = ``unchanged`` + ``changing`` + ``refused`` +
    ``unseen``.

    ``changing`` would change and nothing forbids it, ``refused`` have an error. ``rebooting`` are
    those of them that would reboot, ``drifted``, ``to_apply`` and ``unclear`` those with a change
    of that cause; a host may be in several.
    """

    hosts: int
    unchanged: int
    changing: int
    refused: int
    unseen: int
    rebooting: int
    drifted: int
    to_apply: int
    unclear: int
    quarantined: int


@dataclass(frozen=True)
class FleetPlan:
    """What a run of the site playbook would do to each host of an inventory, and what results.

    ``drift`` says that only changes of the cause "drift" or "unknown" are listed and counted as
    ``would_change``. ``oldest`` and ``newest`` are when the first and last survey was made, UTC.
    """

    SCHEMA: ClassVar[str] = "apiary.fleet-plan/v1"

    drift: bool
    would_change: bool
    totals: Totals
    oldest: str | None
    newest: str | None
    changes: tuple[ChangeGroup, ...]
    groups: tuple[HostGroup, ...]
    outliers: tuple[Outlier, ...]
    capacity: Capacity
    unseen: tuple[Unseen, ...]
    quarantined: tuple[Quarantine, ...]
    findings: tuple[Finding, ...] = ()
