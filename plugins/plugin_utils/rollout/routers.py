# SPDX-License-Identifier: GPL-3.0-or-later

"""What routers answered to a drain, an undrain or a question: loop results of router_servers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import Finding, Severity
from .types import Rollout, Situation

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
