# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rollout is decided from, and what it is: `apiary.rollout/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..deployment import MOST_DEVICES
from ..findings import Finding

Compare = Literal["must", "should", "no"]
StepKind = Literal["return", "replace", "swap", "finish"]


@dataclass(frozen=True)
class Slot:
    """The place of a replica on its host: what must be the same for it to be replaced alone."""

    unit: str
    port: int
    gpus: tuple[str, ...]
    tls: bool = False

    @property
    def reached(self) -> tuple[int, bool]:
        """Return what routers have to know to reach it."""
        return self.port, self.tls


@dataclass(frozen=True)
class Lock:
    """Who is changing a host, and which units that run has taken out of the routers.

    ``dead`` says that it was a run that has ended.
    """

    owner: str
    since: str
    out: tuple[str, ...] = ()
    dead: bool = False


@dataclass(frozen=True)
class Situation:
    """One host before a change of one deployment.

    ``running`` are the replicas of the plan that the host has, in order, ``wanted`` those of the
    new plan. ``changed`` are the units that would be restarted or started, ``files`` says whether
    anything at all would be written or removed, ``serving`` which units are up, ``parked`` which
    of them somebody else has taken out of the routers, where they stay. ``kept`` is the release to
    go back to, None where there is none. ``routed`` are wanted units that routers know although
    the host does not run them, which only the way back asks for. ``engine_key`` says whether the
    key changes that routers show to the engine, ``key_first`` that it may change without a request
    lost once routers show the first of the new ones. ``nodes`` is how many hosts a replica spans.
    No more than ``known`` of its replicas count, which others than the host itself know of.
    """

    host: str
    running: tuple[Slot, ...]
    wanted: tuple[Slot, ...]
    changed: tuple[str, ...] = ()
    files: bool = False
    serving: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    kept: str | None = None
    lock: Lock | None = None
    routed: tuple[str, ...] = ()
    engine_key: bool = False
    key_first: bool = False
    nodes: int = 1
    known: int = MOST_DEVICES


@dataclass(frozen=True)
class Settings:
    """How a rollout goes: shares are numbers ("2") or percents ("25%").

    ``canary`` names the hosts of the first batch; without it, it is as large as the first of
    ``batches``. ``routers`` says whether there are any. ``elsewhere`` is how many replicas the
    deployment has on hosts that the rollout does not touch, ``down_elsewhere`` how many of them
    do not serve.
    """

    batches: tuple[str, ...]
    max_unavailable: str
    failure_budget: int
    canary: tuple[str, ...] = ()
    routers: bool = False
    elsewhere: int = 0
    down_elsewhere: int = 0
    allow_outage: bool = False
    allow_unhealthy: bool = False
    take_over: bool = False


@dataclass(frozen=True)
class Step:
    """One thing that is done to a host as a whole.

    ``drain`` are the units that leave the routers before it, ``ask`` those that must answer after
    it, ``undrain`` those that then come back, ``later`` those that come back only when the routers
    have learned their new port, TLS or key. ``replace`` restarts the one unit in ``drain``,
    ``swap`` all that changes places, ``return`` only brings back what an interrupted run left out,
    ``finish`` writes what nobody runs from.
    """

    kind: StepKind
    drain: tuple[str, ...]
    ask: tuple[str, ...]
    undrain: tuple[str, ...]
    reason: str
    later: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostSteps:
    """What happens to one host, in order. ``out`` is how many replicas that takes at most.

    ``back`` is how many of those that an interrupted run left out serve after it.
    """

    host: str
    steps: tuple[Step, ...]
    out: int
    back: int = 0


@dataclass(frozen=True)
class Comparison:
    """Whether a replica must answer as before, and why."""

    compare: Compare
    because: str
    rule: str


@dataclass(frozen=True)
class Rollout:
    """The order of a change over its hosts.

    ``order`` are the hosts that change, the canary first; ``batches`` cuts them, and ``unchanged``
    are the others. ``allowed`` is how many of the deployment's ``replicas`` may be out at once.
    """

    SCHEMA: ClassVar[str] = "apiary.rollout/v1"

    deployment: str
    order: tuple[str, ...]
    batches: tuple[int, ...]
    hosts: tuple[HostSteps, ...]
    unchanged: tuple[str, ...]
    replicas: int
    allowed: int
    failure_budget: int
    findings: tuple[Finding, ...] = field(default=())
