# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts change at once, in growing batches, and what takes out more than is allowed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..findings import Finding, error
from .types import HostSteps

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%|(\d+)")


def share(text: str, whole: int, subject: str) -> int:
    """Return what a number or a percentage of ``whole`` is, rounded down; raise ROLLOUT-SETTING."""
    found = _SHARE.fullmatch(text.strip())
    if not found or (found[1] and Fraction(found[1]) > 100):
        raise error(
            "ROLLOUT-SETTING",
            subject,
            f"is {text!r}, expected a number like 2 or a percentage like 25%",
        )
    if found[2]:
        return int(found[2])
    return int(Fraction(found[1]) / 100 * whole)


def allowed_out(max_unavailable: str, replicas: int) -> int:
    """Return how many replicas may be out at once: at least one, but never all of them.

    0 means that there is no replica to spare.
    """
    limit = max(1, share(max_unavailable, replicas, "rollout_max_unavailable"))
    return min(limit, replicas - 1) if replicas else 0


def brought_back(hosts: Sequence[HostSteps], failure_budget: int) -> int:
    """Return how many replicas hosts bring back, where as many of them fail as may."""
    gains = sorted(one.back for one in hosts)
    return sum(gains[: max(0, len(gains) - failure_budget)])


def cut_batches(
    hosts: Sequence[HostSteps],
    sizes: Sequence[str],
    canary: int,
    capacity: int,
    failure_budget: int = 0,
) -> tuple[int, ...]:
    """Return the number of hosts of each batch, all of which come one after the other.

    ``sizes`` are as the operator gave them, the last one repeating; ``canary`` is the size of the
    first batch, 0 for the first of ``sizes``. ``capacity`` is how many replicas may go out, below 0
    where more are out than may be; what hosts of earlier batches bring back is added to it.
    A host that takes out more than that is a batch of its own: it has been allowed before.
    """
    wanted = [
        max(1, share(size, len(hosts), f"rollout_batches[{index}]"))
        for index, size in enumerate(sizes)
    ] or [len(hosts)]
    if canary:
        wanted = [canary, *wanted]
    batches: list[int] = []
    place, rest, used, room = 0, 0, 0, 0
    for index, one in enumerate(hosts):
        if rest == 0 or (batches[-1] and used + one.out > max(room, 0)):
            # What does not fit into a batch is the next one, before any larger one.
            if rest == 0:
                rest, place = wanted[min(place, len(wanted) - 1)], place + 1
            batches.append(0)
            used, room = 0, capacity + brought_back(hosts[:index], failure_budget)
        batches[-1] += 1
        rest -= 1
        used += one.out
    return tuple(batches)


def room_for(
    servers: Mapping[str, Mapping[str, Any]],
    hosts: Collection[str],
    max_unavailable: str,
    allow_outage: bool = False,
) -> Iterator[Finding]:
    """Yield what forbids taking these hosts out at the same time; nothing when it may be done.

    ``servers`` are a router's, as it tells them: {"deployment/host-0": {"up", "state"}}.
    With ``allow_outage`` the findings are warnings.
    """
    pools: dict[str, dict[str, bool]] = {}
    for name, told in servers.items():
        deployment, _slash, server = name.partition("/")
        serves = bool(told.get("up")) and told.get("state") == "ready"
        pools.setdefault(deployment, {})[server] = serves
    for deployment, pool in sorted(pools.items()):
        leaving = [one for one in pool if one.rpartition("-")[0] in hosts]
        # Who does not serve anyway costs nothing.
        if not any(pool[one] for one in leaving):
            continue
        missing = [one for one, serves in pool.items() if not serves and one not in leaving]
        names = ", ".join(sorted({one.rpartition("-")[0] for one in leaving}))
        counts = (len(pool), allowed_out(max_unavailable, len(pool)), len(missing))
        yield from too_many(deployment, names, len(leaving), counts, allow_outage)


def too_many(
    deployment: str, names: str, out: int, counts: tuple[int, int, int], allow: bool
) -> Iterator[Finding]:
    """Yield the refusal of hosts that take out more replicas than is allowed.

    ``counts`` are the replicas there are, those that may be out, and those that are out already.
    """
    total, allowed, missing = counts
    if not out or missing + out <= allowed:
        return
    gone = f"{missing} of {total} replicas do not serve already, and " if missing else ""
    if missing + out >= total:
        yield Finding(
            "ROLLOUT-OUTAGE",
            names,
            f"{gone}it takes out {out}: nothing of {deployment}, which has {total} "
            "replicas, would answer",
            accepted=allow,
        )
    else:
        yield Finding(
            "ROLLOUT-MAX-UNAVAILABLE",
            names,
            f"{gone}it takes out {out} of {total} of {deployment}, {allowed} may be out",
            accepted=allow,
        )
