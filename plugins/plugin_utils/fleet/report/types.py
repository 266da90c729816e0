# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a fleet, host by host, and what it rests on: `apiary.fleet-report/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...acceptance.types import Acceptance, Excerpt
from ...findings import Finding, Severity
from ...host.types import Check
from ..ledger import Ledger
from ..types import HostFacts, Quarantine, Served, Survey

# The worst first: that is the order in which a person reads them.
HostState = Literal["failing", "quarantined", "unreached", "unknown", "warning", "ok"]
STATES: tuple[HostState, ...] = ("failing", "quarantined", "unreached", "unknown", "warning", "ok")


@dataclass(frozen=True)
class Place:
    """Where a host stands, as the inventory says; None where it does not."""

    site: str | None = None
    row: str | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Source:
    """One document that the report rests on: its path, when it was made (UTC) and how old it is."""

    kind: str
    path: str
    at: str | None = None
    age_seconds: int | None = None


@dataclass(frozen=True)
class HostInput:
    """Everything that is known of one host, as it was found; None for what is not there.

    ``groups`` are the inventory's, ``problems`` documents that could not be read.
    """

    host: str
    place: Place = Place()
    survey: Survey | None = None
    acceptance: Acceptance | None = None
    quarantine: Quarantine | None = None
    ledger: Ledger | None = None
    groups: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    problems: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class CheckCount:
    """How the checks of one code ended on one host."""

    code: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Pending:
    """A concern that a run of the site playbook would change: how much, and whether it reboots."""

    concern: str
    changes: int
    reboot: tuple[str, ...] = ()


@dataclass(frozen=True)
class Odd:
    """A fact in which a host is not as its peers: ``usual`` is what ``hosts`` of them have."""

    fact: str
    value: str
    usual: str
    hosts: int


@dataclass(frozen=True)
class LastRun:
    """What the ledger says of the last rollout on this host; ``task`` is where it failed."""

    run: str
    at: str
    outcome: str
    task: str = ""
    why: str = ""
    applied: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostReport:
    """One host. ``why`` says its state in one line; ``failed`` are checks that fail or are unknown.

    ``odd`` are the facts in which it stands out among its peers. ``excerpts`` is the raw evidence
    that failed checks rest on.
    """

    host: str
    state: HostState
    why: str
    place: Place = Place()
    facts: HostFacts = field(default_factory=HostFacts)
    sources: tuple[Source, ...] = ()
    checks: tuple[CheckCount, ...] = ()
    failed: tuple[Check, ...] = ()
    measured: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    pending: tuple[Pending, ...] = ()
    wanted: tuple[Served, ...] = ()
    running: tuple[Served, ...] = ()
    odd: tuple[Odd, ...] = ()
    quarantined: Quarantine | None = None
    last_run: LastRun | None = None
    excerpts: tuple[Excerpt, ...] = ()


@dataclass(frozen=True)
class Value:
    """One value of a fact and the hosts that have it."""

    value: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Shared:
    """What hosts of one kind have of one fact, the most frequent value first."""

    peers: str
    fact: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Group:
    """One finding's code over the fleet: the first message of it, and everyone who has it."""

    code: str
    severity: Severity
    message: str
    remedy: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a rollout ended; ``counts`` are hosts by what became of them."""

    run: str
    state: str
    why: str = ""
    began: str | None = None
    ended: str | None = None
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class FleetReport:
    """A whole fleet at ``created`` (UTC); ``hosts`` are outliers first, ``counts`` by state.

    ``costs`` are what the newest benchmark of each deployment, in ``path``, says of its cost.
    """

    SCHEMA: ClassVar[str] = "apiary.fleet-report/v1"

    created: str
    accepted: bool
    counts: tuple[tuple[str, int], ...]
    hosts: tuple[HostReport, ...]
    groups: tuple[Group, ...] = ()
    shared: tuple[Shared, ...] = ()
    rollout: Outcome | None = None
    findings: tuple[Finding, ...] = ()
    costs: tuple[dict[str, Any], ...] = ()
