# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts told, as the situations that a rollout is decided from.

The plan that a host runs may be of an earlier version of Apiary, so only what is needed is read.
A host speaks for itself alone: of what it reports only its own replicas' units are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..documents import knowledge
from ..findings import error
from ..plan.types import replica_number, server_name
from .types import Lock, Situation, Slot

# An owner is a user, a controller and a process; a time is shorter.
_WORDS = 300


def slots_of(plan: Mapping[str, Any] | None, deployment: str, subject: str) -> tuple[Slot, ...]:
    """Return the replicas' places of a plan document.

    Raises ROLLOUT-PLAN for one that is none, and for one with units that are not the deployment's
    or that it has twice.
    """
    try:
        tls = bool(_deployment(plan or {}).get("tls"))
        slots = tuple(
            Slot(one["unit"], int(one["port"]), tuple(map(str, one["gpus"])), tls)
            for one in (plan or {}).get("replicas", ())
        )
        own_units([slot.unit for slot in slots], deployment, subject)
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        raise error("ROLLOUT-PLAN", subject, f"is no plan: {failure}") from failure
    return slots


def own_units(units: Sequence[str], deployment: str, subject: str) -> tuple[str, ...]:
    """Return units that a host reports; raise ROLLOUT-PLAN where one is not the deployment's."""
    own = [
        unit
        for unit in units
        if isinstance(unit, str) and replica_number(unit, deployment) is not None
    ]
    if len({*own}) < len(units):
        foreign = next((unit for unit in units if unit not in own), "the same twice")
        message = f"names units of {deployment} that are none: {foreign!r:.100}"
        raise error("ROLLOUT-PLAN", subject, message)
    return tuple(own)


def situation_of(
    host: str,
    told: Mapping[str, Any],
    wanted: Mapping[str, Any],
    would: Mapping[str, Any],
    servers: Mapping[str, Any],
    back: bool = False,
    others: Sequence[Mapping[str, Any]] = (),
) -> Situation:
    """Return a host's situation.

    ``told`` is what rollout_info returned, ``wanted`` the new plan, ``would`` what converging
    would do with it, as it says in check mode, with ``turns``, what becomes of each secret that
    changes; ``servers`` is what a router knows, states by deployment/host-replica, and
    ``others`` what the other routers know. ``back`` says that this is the way back from a change,
    whose own drains are nobody else's.
    Raises ApiaryError: ROLLOUT-PLAN.
    """
    deployment: str = wanted["deployment"]["name"]
    lock = _lock_of(told.get("lock"), deployment, host)
    before: Mapping[str, Any] = told.get("plan") or {}
    running = slots_of(before, deployment, f"{host}: the plan that it runs")
    new = slots_of(wanted, deployment, f"{host}: the new plan")
    units = {slot.unit for slot in (*running, *new)}
    known = {unit: servers.get(_server(deployment, host, unit)) for unit in units}
    drained = tuple(slot.unit for slot in running if _is_parked(known[slot.unit] or {}))
    if lock and lock.dead:
        # It was torn, and said which of them; nobody else would bring them back.
        lock = replace(lock, out=drained)
    elif lock:
        # Since its run died, routers may have ended what it drained.
        names = {unit: _server(deployment, host, unit) for unit in lock.out}
        used = {unit for unit in lock.out if _are_used(names[unit], (servers, *others))}
        lock = replace(lock, out=tuple(unit for unit in lock.out if unit not in used))
    key = _key_change(before, wanted, would)
    changed: Sequence[str] = [*would.get("restarted", ()), *would.get("started", ())]
    return Situation(
        host=host,
        running=running,
        wanted=new,
        changed=tuple(dict.fromkeys(unit for unit in changed if unit in units)),
        files=bool(would.get("changed")),
        serving=tuple(slot.unit for slot in running if slot.unit in told.get("serving", ())),
        parked=tuple(unit for unit in drained if lock is None or unit not in lock.out),
        kept=told.get("current"),
        lock=lock,
        routed=tuple(slot.unit for slot in new if back and known[slot.unit] is not None),
        engine_key=bool(before) and key == "other",
        key_first=bool(before) and key == "accepted",
        nodes=max(_nodes(before), _nodes(wanted)),
    )


def _key_change(
    before: Mapping[str, Any], wanted: Mapping[str, Any], would: Mapping[str, Any]
) -> str:
    """Return what becomes of the key that routers show: `same`, `accepted` already, or `other`."""
    variable = knowledge("router.yml")["engine_key"]["variable"]
    asks = [variable in (_deployment(one).get("secrets") or ()) for one in (before, wanted)]
    turns = would.get("turns", {})
    turn = [turns[path] for path in turns if path.rpartition("/")[2] == variable]
    return "other" if asks[0] != asks[1] else str((turn or ["same"])[0])


def _deployment(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    told = plan.get("deployment")
    return told if isinstance(told, Mapping) else {}


def _nodes(plan: Mapping[str, Any]) -> int:
    """Return how many hosts each replica of a plan spans."""
    node = plan.get("node")
    return int(node.get("size", 1)) if isinstance(node, Mapping) else 1


def _lock_of(document: Mapping[str, Any] | None, deployment: str, host: str) -> Lock | None:
    if not document:
        return None
    owner, since = (str(document.get(name, "unknown"))[:_WORDS] for name in ("owner", "since"))
    out = own_units(document.get("out", ()), deployment, f"{host}: its lock")
    return Lock(owner, since, out, dead=bool(document.get("torn")))


def _server(deployment: str, host: str, unit: str) -> str:
    """Return a replica as routers name it."""
    return f"{deployment}/{server_name(host, replica_number(unit) or 0)}"


def _are_used(name: str, routers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every router knows a server and sends requests to it."""
    known = [router.get(name) or {} for router in routers]
    return all(server.get("state") == "ready" and server.get("up") for server in known)


def _is_parked(server: Mapping[str, Any]) -> bool:
    """Say whether somebody has taken a server out, which is not the same as its being down."""
    return server.get("state") in ("drain", "maint")
