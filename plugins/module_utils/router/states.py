# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to change at a router's servers, what is left to wait for, and how it is told."""

from __future__ import annotations

import re
from typing import Any

from ..finding import Finding
from .haproxy import ServerState


def of_hosts(states: list[ServerState], hosts: list[str]) -> list[str]:
    """Return the names of all servers of hosts; a server is called <host>-<replica>."""
    patterns = [re.compile(rf"{re.escape(host)}-[0-9]+") for host in hosts]
    return sorted({one.name for one in states if any(p.fullmatch(one.name) for p in patterns)})


def changes_of(servers: list[ServerState], state: str) -> list[ServerState]:
    """Return the servers to set; one that tracks another follows it by itself."""
    return [one for one in servers if one.wanted != state and not one.inherited]


def remaining(servers: list[ServerState], state: str) -> list[ServerState]:
    """Return the servers that are not yet where they are to be."""
    if state in ("drain", "maint"):
        return [one for one in servers if one.sessions or one.queued]
    if state == "ready":
        return [one for one in servers if not one.up]
    return []


def diff_of(changes: list[ServerState], state: str) -> dict[str, str]:
    """Return Ansible's diff: a line for each server that changes."""
    return {
        "before": "".join(f"{one.key}: {one.wanted}\n" for one in changes),
        "after": "".join(f"{one.key}: {state}\n" for one in changes),
    }


def told(servers: list[ServerState], state: str, waited: float | None) -> dict[str, Any]:
    """Return the module's result; a wait that ended too early has a finding."""
    left = remaining(servers, state)
    findings = []
    if left and waited is not None:
        subject = ", ".join(one.key for one in left)
        if state == "ready":
            message = f"not up after {waited:g} s: {', '.join(one.status for one in left)}"
            findings.append(Finding("ROUTER-NOT-UP", subject, message, minor=True))
        else:
            message = (
                f"still {sum(one.sessions for one in left)} in work and "
                f"{sum(one.queued for one in left)} waiting after {waited:g} s"
            )
            findings.append(Finding("ROUTER-DRAIN-TIMEOUT", subject, message, minor=True))
    return {
        "servers": {
            one.key: {
                "state": one.wanted,
                "status": one.status,
                "sessions": one.sessions,
                "queued": one.queued,
                "up": one.up,
            }
            for one in servers
        },
        "finished": not left,
        "sessions": sum(one.sessions for one in servers),
        "queued": sum(one.queued for one in servers),
        "findings": [finding.facts() for finding in findings],
    }
