# SPDX-License-Identifier: GPL-3.0-or-later

"""What one look at a host leaves on the controller: `apiary.survey/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..findings import Finding

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
