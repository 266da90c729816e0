# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a new router document would do to the one that serves now."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Finding
from .types import Pool, Router


def check_change(before: Router, after: Router) -> tuple[Finding, ...]:
    """Refuse a pool that moves (ROUTER-PORT-MOVED) or loses most of its replicas (ROUTER-SHRUNK).

    Unless that is meant: a plan that was lost on the controller looks like a host that was removed.
    """
    now = {pool.deployment: pool for pool in after.pools}
    shrunk = () if after.settings.allow_removed else before.pools
    return (
        *_moved(before, after),
        *(finding for old in shrunk if (finding := _shrunk(old, now.get(old.deployment)))),
    )


def _moved(before: Router, after: Router) -> Iterator[Finding]:
    former = {pool.deployment: pool.port for pool in before.pools}
    for pool in after.pools:
        port = former.get(pool.deployment, pool.port)
        if pool.port != port and pool.deployment not in after.settings.ports:
            yield Finding(
                "ROUTER-PORT-MOVED",
                pool.deployment,
                f"would move from port {port} to {pool.port}: the settings give its port away",
                port=str(pool.port),
            )


def _shrunk(old: Pool, new: Pool | None) -> Finding | None:
    names = {server.name for server in old.servers}
    retained = names & {server.name for server in new.servers} if new else set()
    if not names or len(retained) * 2 >= len(names):
        return None
    return Finding(
        "ROUTER-SHRUNK", old.deployment, f"would keep {len(retained)} of {len(names)} replicas"
    )
