# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look at a host leaves, `apiary.survey/v1`, and a fleet's plan, `apiary.fleet-plan/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..findings import Finding
from .names import Kind

Health = Literal["healthy", "sick", "unknown"]


@dataclass(frozen=True)
class HostFacts:
    """What peers are expected to share; None and () where the host does not say.

    ``gpu_model`` is the one model of all its GPUs ("MI325X"), None where they differ, ``hives``
    the sizes of its sets of xGMI-linked GPUs, largest first. ``partitions`` is compute and memory
    partition of all GPUs ("SPX/NPS1"). ``driver`` is amdgpu's version, ``rocm`` the installed
    one. ``firmware`` are pairs of component and version, sorted; one that differs between the
    host's own GPUs is there once for each. ``health`` is "sick" where a GPU is missing or cannot
    be used, or counted uncorrectable errors.
    """

    gpu_model: str | None = None
    gpus: int = 0
    vram_bytes: int | None = None
    hives: tuple[int, ...] = ()
    numa_nodes: int | None = None
    partitions: str | None = None
    driver: str | None = None
    rocm: str | None = None
    kernel: str | None = None
    os: str | None = None
    bios: str | None = None
    firmware: tuple[tuple[str, str], ...] = ()
    health: Health = "unknown"


@dataclass(frozen=True)
class Change:
    """One thing that a run would do to a host.

    ``subject`` is what changes (a path, a unit, a package), ``before`` and ``after`` are texts as
    ``--diff`` shows them, both "" for a step that only has a name ("restart a.service").
    """

    subject: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class ConcernSurvey:
    """One concern of a host ("rocm", "host_tuning", …, "replicas:NAME" of one deployment).

    ``settled`` says that a run of its role would change nothing; then ``changes``, ``reboot`` and
    errors among ``findings`` are empty. ``reboot`` are reasons why a run would reboot the host.
    ``asked`` is a sha256 of what the inventory asks of the concern, of nothing seen on the host
    and of no secret; "" where it could not be told.
    """

    concern: str
    settled: bool
    changes: tuple[Change, ...] = ()
    reboot: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    asked: str = ""


@dataclass(frozen=True)
class Served:
    """One deployment on a host: what the plan has there, and how much of it serves now.

    ``plan`` is the digest of its plan.json (sha256), ``layout`` as people write it
    ("DP2/TP4/EP4"), ``up`` how many of its ``replicas`` are active, None where nobody looked.
    """

    deployment: str
    model: str
    engine: str
    layout: str
    replicas: int
    gpus_per_replica: int
    plan: str
    up: int | None = None


@dataclass(frozen=True)
class Survey:
    """What one look at a host found, and what a run of the site playbook would do there.

    ``wanted`` is what the inventory asks for, ``running`` what the host has now. ``findings`` are
    those that belong to no concern, such as a host that could not be reached (then ``reached`` is
    False and the rest is empty). ``collected_at`` is UTC, "2026-11-21T10:39:00Z".
    """

    SCHEMA: ClassVar[str] = "apiary.survey/v1"

    host: str
    collected_at: str
    reached: bool = True
    facts: HostFacts = HostFacts()
    concerns: tuple[ConcernSurvey, ...] = ()
    wanted: tuple[Served, ...] = ()
    running: tuple[Served, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def settled(self) -> bool:
        """Say whether a run would change nothing here."""
        return self.reached and all(one.settled for one in self.concerns)


@dataclass(frozen=True)
class Quarantine:
    """Why a run left a host out: the task that failed, in which words, and what was found."""

    SCHEMA: ClassVar[str] = "apiary.quarantine/v1"

    host: str
    task: str
    message: str
    findings: tuple[Finding, ...] = ()


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
