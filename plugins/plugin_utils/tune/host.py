# SPDX-License-Identifier: GPL-3.0-or-later

"""What is tuned on a host, whether it may be, and what it takes to leave it as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..findings import ApiaryError, Finding, error
from ..plan.types import unit_name
from ..rollout.read import own_units

Servers = Mapping[str, Mapping[str, Any]]
# What the lock of a tuning run begins with: a rollout's run leaves a host in another state.
TUNING = "tuning by "


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


def prepare(
    host: str,
    deployment: str,
    info: Mapping[str, Any],
    answers: Sequence[Servers],
    *,
    dead: bool = False,
    serving: bool = False,
    take_over: bool = False,
) -> Ready:
    """Return what to do, or raise ApiaryError with TRIAL-LOCKED, -NO-RELEASE or -SERVES.

    ``info`` is what rollout_info returned, ``answers`` are the servers of each router, none where
    there are no routers. ``dead`` says whether the run has ended that holds the host's lock.
    ``serving`` lets a host be taken that serves, ``take_over`` ends another run's lock.
    """
    lock, release = info.get("lock") or {}, info.get("current")
    # A tuning leaves a plan of its own; a rollout that died leaves one that serves.
    tried = str(lock.get("owner", "")).startswith(TUNING)
    if lock and not (dead and tried) and not take_over:
        raise error(
            "TRIAL-LOCKED",
            host,
            f"{lock.get('owner')} is changing {deployment} on this host, or was and left its lock",
        )
    if info.get("plan") and release is None and not tried:
        raise error(
            "TRIAL-NO-RELEASE",
            host,
            f"it has a plan of {deployment} and no release, so it could not be brought back",
        )
    routed = _routed(host, deployment, answers)
    busy = routed if answers else () if lock else tuple(info.get("serving", ()))
    findings: tuple[Finding, ...] = ()
    if busy:
        where = "routers send requests to" if answers else "it serves, undrained:"
        message = f"{where} {', '.join(busy)}, which tuning replaces"
        findings = (Finding("TRIAL-SERVES", host, message, accepted=serving),)
        if not serving:
            raise ApiaryError(*findings)
    return Ready(
        drain=routed,
        out=tuple(sorted({*own_units(lock.get("out", ()), deployment, host), *routed})),
        restore="release" if release else "nothing",
        resumed=bool(lock),
        # What an interrupted tuning left up is a trial of its own.
        stopped=bool(lock.get("stopped")) if tried else _on_purpose(info),
        findings=findings,
    )


def _on_purpose(info: Mapping[str, Any]) -> bool:
    """Return whether the deployment is there and somebody stopped it.

    Where one replica of several is stopped, it is brought back whole.
    """
    return bool(info.get("stopped")) and not info.get("serving") and bool(info.get("current"))


def _routed(host: str, deployment: str, answers: Sequence[Servers]) -> tuple[str, ...]:
    """Return the units of this host that some router sends requests to, or would if they were up.

    A trial brings such a unit up, so one that is down counts, and one that is in no plan.
    """
    ready = {
        name.removeprefix(f"{deployment}/{host}-")
        for servers in answers
        for name, server in servers.items()
        if name.startswith(f"{deployment}/{host}-") and server.get("state") == "ready"
    }
    return tuple(sorted(unit_name(deployment, int(one)) for one in ready if one.isdecimal()))


_PLAN = re.compile(r"/etc/apiary/[^/]+/plan[.]json")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Scope:
    """The deployment that is tuned, and its neighbours on the host, as documents.

    ``others`` are the other deployments as the variables want them, ``waiting`` those of them that
    the host does not run yet. ``running`` are the plans of the others that it runs: they count as
    they run. ``planned`` are those of the waiting ones.
    """

    deployment: Document
    others: tuple[Document, ...]
    waiting: tuple[Document, ...]
    running: tuple[Document, ...]
    planned: tuple[Document, ...]


def scope(
    host: str,
    plans: Sequence[Document],
    evidence: Document,
    name: str = "",
    workload: str = "",
    load: object = None,
) -> Scope:
    """Return what is tuned and what stays; ``plans`` are those that the variables ask for.

    ``load`` is the SLO or the concurrency. Raises TRIAL-ASKED where what to measure is missing.
    """
    deployments = {plan["deployment"]["name"]: plan["deployment"] for plan in plans}
    problem = ""
    if not workload:
        problem = "tune_workload is not set (5600/140, or a name)"
    elif not load:
        problem = "neither tune_slo nor tune_concurrency is set"
    elif (name or next(iter(deployments), "")) not in deployments or (
        not name and len(deployments) > 1
    ):
        problem = f"it serves {', '.join(deployments)}; tune_deployment is {name or 'not set'}"
    if problem:
        raise error("TRIAL-ASKED", host, problem)
    tuned = name or next(iter(deployments))
    running = {plan["deployment"]["name"]: plan for plan in running_on(evidence)}
    others = tuple(own for own_name, own in deployments.items() if own_name != tuned)
    waiting = tuple(own for own in others if own["name"] not in running)
    names = {own["name"] for own in waiting}
    return Scope(
        deployment=deployments[tuned],
        others=others,
        waiting=waiting,
        running=tuple(plan for own_name, plan in running.items() if own_name != tuned),
        planned=tuple(plan for plan in plans if plan["deployment"]["name"] in names),
    )


def running_on(evidence: Document) -> tuple[Document, ...]:
    """Return the plans that a host has, which are among what was read of it."""
    files: Mapping[str, str] = evidence.get("files") or {}
    return tuple(json.loads(text) for path, text in files.items() if _PLAN.fullmatch(path))
