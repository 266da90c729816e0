# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a new router document would do to the one that serves now."""

from __future__ import annotations

from ..findings import Finding
from .types import Pool, Router


def check_change(before: Router, after: Router) -> tuple[Finding, ...]:
    """Refuse a pool that loses most of its replicas at once (ROUTER-SHRUNK), unless that is meant.

    A plan that was lost on the controller looks like a host that was removed.
    """
    if after.settings.allow_removed:
        return ()
    now = {pool.deployment: pool for pool in after.pools}
    return tuple(
        finding for old in before.pools if (finding := _shrunk(old, now.get(old.deployment)))
    )


def _shrunk(old: Pool, new: Pool | None) -> Finding | None:
    names = {server.name for server in old.servers}
    retained = names & {server.name for server in new.servers} if new else set()
    if not names or len(retained) * 2 >= len(names):
        return None
    return Finding(
        "ROUTER-SHRUNK", old.deployment, f"would keep {len(retained)} of {len(names)} replicas"
    )
