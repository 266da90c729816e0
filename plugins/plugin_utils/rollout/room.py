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
        out, total = len(leaving) + len(missing), len(pool)
        names = ", ".join(sorted({one.rpartition("-")[0] for one in leaving}))
        gone = f"{len(missing)} of {total} replicas do not serve already, and " if missing else ""
        if out >= total:
            yield Finding(
                "ROLLOUT-OUTAGE",
                names,
                f"{gone}taking it out takes {len(leaving)} more: nothing of {deployment}, which "
                f"has {total} replicas, would answer",
                accepted=allow_outage,
            )
        elif out > (allowed := allowed_out(max_unavailable, total)):
            yield Finding(
                "ROLLOUT-MAX-UNAVAILABLE",
                names,
                f"{gone}taking it out takes {len(leaving)} of {total} of {deployment}, "
                f"{allowed} may be out",
                accepted=allow_outage,
            )
