# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts report, as the situations that a rollout is decided from, and what routers answered.

The plan that a host runs may be of an earlier version of Apiary, so only what is needed is read.
A host speaks for itself alone: of what it reports only its own replicas' units are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..documents import knowledge
from ..findings import Finding, Severity, error
from ..plan.types import replica_number, server_name
from .types import Lock, Rollout, Situation, Slot

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


Result = Mapping[str, Any]


@dataclass(frozen=True)
class Answers:
    """``results`` are those of the routers that answered, ``lost`` the others' names."""

    results: tuple[Result, ...]
    answered: tuple[str, ...]
    unreachable: tuple[str, ...]
    lost: tuple[str, ...]


def read_answers(
    results: Sequence[Result], routers: Collection[str], variable: str, answer: str = "finished"
) -> Answers:
    """Return what came of a loop over routers, whose names are in ``variable`` of each result."""
    good = tuple(result for result in results if answer in result)
    answered = tuple(str(result[variable]) for result in good)
    return Answers(
        results=good,
        answered=answered,
        unreachable=tuple(str(one[variable]) for one in results if one.get("unreachable")),
        lost=tuple(router for router in routers if router not in answered),
    )


def servers_elsewhere(
    servers: Mapping[str, Mapping[str, Any]], deployment: str, hosts: Collection[str]
) -> tuple[int, int] | None:
    """Return how many servers of other hosts a router has, and how many of them get no requests.

    None where no router answered.
    """
    serve = [
        bool(server.get("up")) and server.get("state") == "ready"
        for name, server in servers.items()
        if name.partition("/")[0] == deployment
        and name.partition("/")[2].rpartition("-")[0] not in hosts
    ]
    return (len(serve), serve.count(False)) if servers else None


def must_learn(rollout: Rollout, situations: Sequence[Situation]) -> bool:
    """Return whether routers are to be configured anew: other replicas, ports or keys.

    What an interrupted run configured is unknown, so they are then, too.
    """
    steps = [step for host in rollout.hosts for step in host.steps]
    locked = {situation.host for situation in situations if situation.lock is not None}
    return any(step.kind == "swap" or step.later for step in steps) or bool(
        locked & set(rollout.order)
    )


def must_show_key(rollout: Rollout, situations: Sequence[Situation]) -> bool:
    """Return whether routers are to show the first of new keys before any host changes."""
    return any(item.key_first and item.host in rollout.order for item in situations)


def cannot_drain(routers: Collection[str], host: str) -> Iterator[Finding]:
    """Yield the refusal to begin with routers that cannot be reached."""
    if routers:
        message = f"could not be reached, so {host} could not be drained there"
        yield _unreachable(routers, message)


def still_sends(routers: Collection[str], replicas: Collection[str]) -> Iterator[Finding]:
    """Yield the refusal to go on while a router may send requests to what is being drained."""
    if routers:
        names = ", ".join(replicas) or "the replicas"
        message = f"could not be reached; it may still send requests to {names}"
        yield _unreachable(routers, message)


def goes_on_without(routers: Collection[str]) -> Iterator[Finding]:
    """Yield the warning that a drain goes on without routers that did not answer."""
    if routers:
        message = "did not answer; it goes on without"
        yield _unreachable(routers, message, minor=True)


def still_drained(routers: Collection[str], host: str, severity: Severity) -> Iterator[Finding]:
    """Yield that replicas may still be out at routers that did not answer."""
    if routers:
        message = f"did not answer; {host} may still be drained there"
        yield _unreachable(routers, message, minor=severity == "warning")


def not_drained(results: Sequence[Result], host: str, timeout: object) -> Iterator[Finding]:
    """Yield the refusal to call a host drained while something is in work."""
    if not all(result["finished"] for result in results):
        yield Finding("ROUTER-DRAIN-TIMEOUT", host, f"not drained within {timeout} s")


def not_up(results: Sequence[Result], variable: str) -> Iterator[Finding]:
    """Yield the refusal to call replicas back that are not up at every router."""
    left = [result for result in results if not result["finished"]]
    servers = dict.fromkeys(
        str(finding["subject"]) for result in left for finding in result.get("findings", ())
    )
    if left:
        yield Finding(
            "ROUTER-NOT-UP",
            ", ".join(str(result[variable]) for result in left),
            f"{', '.join(servers)} not up",
        )


def _unreachable(routers: Collection[str], message: str, *, minor: bool = False) -> Finding:
    return Finding("ROLLOUT-ROUTER-UNREACHABLE", ", ".join(routers), message, minor=minor)
