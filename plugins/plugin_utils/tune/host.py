# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host may be tuned on, and what it takes to leave it as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..findings import ApiaryError, Finding, error
from ..plan.naming import unit_name
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
