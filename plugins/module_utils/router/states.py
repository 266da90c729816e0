# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to change at a router's servers, what is left to wait for, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..finding import Finding
from .haproxy import ServerState


def of_hosts(states: list[ServerState], hosts: list[str]) -> list[str]:
    """Return the names of all servers of hosts; a server is called <host>-<replica>."""
    patterns = [re.compile(rf"{re.escape(host)}-[0-9]+") for host in hosts]
    return sorted(
        {state.name for state in states if any(p.fullmatch(state.name) for p in patterns)}
    )


def changes_of(servers: list[ServerState], state: str) -> list[ServerState]:
    """Return the servers to set; one that tracks another follows it by itself."""
    return [server for server in servers if server.wanted != state and not server.inherited]


def remaining(servers: list[ServerState], state: str) -> list[ServerState]:
    """Return the servers that are not yet where they are to be."""
    if state in ("drain", "maint"):
        return [server for server in servers if server.sessions or server.queued]
    if state == "ready":
        return [server for server in servers if not server.up]
    return []


def diff_of(
    changes: list[ServerState], state: str, taken_over: Sequence[ServerState] = ()
) -> dict[str, str]:
    """Return Ansible's diff: a line for each server that changes, or only has no deadline more."""
    before = [f"{server.key}: {server.wanted}\n" for server in changes]
    before += [f"{server.key}: {server.wanted} until its deadline\n" for server in taken_over]
    after = [f"{server.key}: {state}\n" for server in (*changes, *taken_over)]
    return {"before": "".join(before), "after": "".join(after)}


def told(servers: list[ServerState], state: str, waited: float | None) -> dict[str, Any]:
    """Return the module's result; a wait that ended too early has a finding."""
    left = remaining(servers, state)
    findings = []
    if left and waited is not None:
        subject = ", ".join(server.key for server in left)
        if state == "ready":
            message = f"not up after {waited:g} s: {', '.join(server.status for server in left)}"
            findings.append(Finding("ROUTER-NOT-UP", subject, message, minor=True))
        else:
            message = (
                f"still {sum(server.sessions for server in left)} in work and "
                f"{sum(server.queued for server in left)} waiting after {waited:g} s"
            )
            findings.append(Finding("ROUTER-DRAIN-TIMEOUT", subject, message, minor=True))
    return {
        "servers": {
            server.key: {
                "state": server.wanted,
                "status": server.status,
                "sessions": server.sessions,
                "queued": server.queued,
                "up": server.up,
            }
            for server in servers
        },
        "finished": not left,
        "sessions": sum(server.sessions for server in servers),
        "queued": sum(server.queued for server in servers),
        "findings": [finding.facts() for finding in findings],
    }
