# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts may be taken out of service as a whole, by what routers say of their replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..findings import Finding
from .batches import allowed_out


def room_for(
    servers: Mapping[str, Mapping[str, Any]],
    hosts: Collection[str],
    max_unavailable: str,
    allow_outage: bool = False,
) -> tuple[Finding, ...]:
    """Return what forbids taking these hosts out at the same time; nothing when it may be done.

    ``servers`` are a router's, as it tells them: {"deployment/host-0": {"up", "state"}}.
    With ``allow_outage`` the findings are warnings.
    """
    pools: dict[str, dict[str, bool]] = {}
    for name, told in servers.items():
        deployment, _slash, server = name.partition("/")
        serves = bool(told.get("up")) and told.get("state") == "ready"
        pools.setdefault(deployment, {})[server] = serves
    return tuple(_findings(pools, hosts, max_unavailable, allow_outage))


def _findings(
    pools: Mapping[str, Mapping[str, bool]],
    hosts: Collection[str],
    max_unavailable: str,
    allow_outage: bool,
) -> Iterator[Finding]:
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
