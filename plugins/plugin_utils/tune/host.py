# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host may be tuned on, and what it takes to leave it as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..findings import ApiaryError, Finding, error

Servers = Mapping[str, Mapping[str, Any]]
# What the lock of a tuning run begins with: a rollout's run leaves a host in another state.
TUNING = "tuning by "


@dataclass(frozen=True)
class Lock:
    """Who holds a host, whether that run has ended, and how it found it.

    ``out`` is what it took out of the routers, ``stopped`` says that nothing of it was up.
    """

    owner: str
    dead: bool
    out: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def left(self) -> bool:
        """Return whether a tuning run that has ended left it."""
        return self.dead and self.owner.startswith(TUNING)


@dataclass(frozen=True)
class Seen:
    """A host before it is tuned on.

    ``serving`` are units that are up, ``stopped`` those that somebody stopped. ``planned`` says
    whether a plan is there, ``release`` is the
    one to come back to. ``servers`` are what routers know, by host-number; None: there are none.
    """

    host: str
    deployment: str
    serving: tuple[str, ...]
    planned: bool
    release: str | None
    lock: Lock | None = None
    servers: Servers | None = None
    stopped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ready:
    """What is to be done before and after: units to drain, units to bring back, what to restore.

    A deployment that was ``stopped`` gets its release back, and is left stopped.
    """

    drain: tuple[str, ...]
    out: tuple[str, ...]
    restore: Literal["release", "nothing"]
    resumed: bool
    stopped: bool = False
    findings: tuple[Finding, ...] = ()


def seen_of(
    host: str, deployment: str, info: Mapping[str, Any], answers: Sequence[Servers], dead: bool
) -> Seen:
    """Return what a host reported in ``info`` by rollout_info, and routers by router_servers.

    ``dead`` says whether the run has ended that holds its lock.
    """
    lock = info.get("lock")
    return Seen(
        host=host,
        deployment=deployment,
        serving=tuple(info.get("serving") or ()),
        planned=bool(info.get("plan")),
        release=info.get("current"),
        lock=Lock(
            str(lock.get("owner")),
            dead,
            tuple(lock.get("out") or ()),
            stopped=bool(lock.get("stopped")),
        )
        if lock
        else None,
        servers=_servers(answers, deployment) if answers else None,
        stopped=tuple(info.get("stopped") or ()),
    )


def _servers(answers: Sequence[Servers], deployment: str) -> Servers:
    """Return the deployment's servers by host-number; one that any router has ready is ready."""
    servers: dict[str, Mapping[str, Any]] = {}
    for answer in answers:
        for name, server in answer.items():
            backend, _slash, number = name.partition("/")
            if backend == deployment and servers.get(number, {}).get("state") != "ready":
                servers[number] = server
    return servers


def prepare(seen: Seen, serving: bool = False, take_over: bool = False) -> Ready:
    """Return what to do, or raise ApiaryError with TRIAL-LOCKED, -NO-RELEASE or -SERVES.

    ``serving`` lets a host be taken that serves, ``take_over`` ends another run's lock.
    """
    lock = seen.lock
    if lock is not None and not lock.left and not take_over:
        raise error(
            "TRIAL-LOCKED",
            seen.host,
            f"{lock.owner} is changing {seen.deployment} on this host, or was and left its lock",
        )
    resumed = lock is not None
    # A tuning leaves a plan of its own; a rollout that died leaves one that serves.
    tried = lock is not None and lock.owner.startswith(TUNING)
    if seen.planned and seen.release is None and not tried:
        raise error(
            "TRIAL-NO-RELEASE",
            seen.host,
            f"it has a plan of {seen.deployment} and no release, so it could not be brought back",
        )
    routed = _routed(seen)
    busy = routed if seen.servers is not None else (() if resumed else seen.serving)
    findings: tuple[Finding, ...] = ()
    if busy:
        where = "routers send requests to" if seen.servers is not None else "it serves, undrained:"
        told = Finding(
            "TRIAL-SERVES",
            seen.host,
            f"{where} {', '.join(busy)}, which tuning replaces",
            accepted=serving,
        )
        if not serving:
            raise ApiaryError(told)
        findings = (told,)
    known = lock.out if lock is not None else ()
    return Ready(
        drain=routed,
        out=tuple(sorted({*known, *routed})),
        restore="release" if seen.release else "nothing",
        resumed=resumed,
        # What an interrupted tuning left up is a trial of its own.
        stopped=lock.stopped if lock is not None and tried else _on_purpose(seen),
        findings=findings,
    )


def _on_purpose(seen: Seen) -> bool:
    """Return whether the deployment is there and somebody stopped it.

    Where one replica of several is stopped, it is brought back whole.
    """
    return bool(seen.stopped) and not seen.serving and seen.release is not None


def _routed(seen: Seen) -> tuple[str, ...]:
    """Return the units of this host that some router sends requests to, or would if they were up.

    A trial brings such a unit up, so one that is down counts, and one that is in no plan.
    """
    ready = [name for name, told in (seen.servers or {}).items() if told.get("state") == "ready"]
    return tuple(
        sorted(
            f"apiary-{seen.deployment}-{index}.service"
            for name in ready
            for host, _dash, index in [name.rpartition("-")]
            if host == seen.host and index.isdigit()
        )
    )
