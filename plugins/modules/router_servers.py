#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take replicas out of a running router, bring them back, or look at them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import Finding, fail
from ..module_utils.router import haproxy
from ..module_utils.router.haproxy import ServerState

# How often HAProxy is polled; one question costs it well below a millisecond.
LOOK_SECONDS = 0.2


def find(module, send):
    """Return the servers that are meant; end the module where there are none."""
    asked_for = module.params
    states = haproxy.server_states(send)
    names = asked_for["servers"]
    if asked_for["hosts"]:
        names = [*(names or []), *of_hosts(states, asked_for["hosts"])]
    matches = haproxy.chosen(states, asked_for["deployment"], names)
    absent = sorted(set(asked_for["servers"] or []) - {server.name for server in matches})
    empty = not matches and (asked_for["hosts"] or asked_for["deployment"])
    if (absent or empty) and asked_for["missing"] == "fail":
        place = f"backend {asked_for['deployment']}" if asked_for["deployment"] else "router"
        what = ", ".join(absent or asked_for["hosts"] or ["any server"])
        available = ", ".join(sorted({server.key for server in states})[:8]) or "none"
        fail(module, Finding("ROUTER-SERVER-UNKNOWN", place, f"has no {what}; it has {available}"))
    return matches


def taken_over_by(module, servers, changes):
    """Return the servers that a run has drained until a time, and that are to stay so."""
    if module.params["state"] not in ("drain", "maint") or module.params["deadline"]:
        return []
    former = haproxy.deadlines(module.params["state_file"])
    return [server for server in servers if server.key in former and server not in changes]


def carry_out(module, send, servers, changes):
    """Set the states, and when they end: a drain's end before it begins, and after it is over."""
    state, state_file = module.params["state"], module.params["state_file"]
    seconds = module.params["deadline"] if state == "drain" else None
    until = haproxy.moment().later(seconds) if seconds else None
    if state != "ready":
        haproxy.schedule(servers, until, state_file)
    for server in changes:
        haproxy.set_state(send, server, state)
    if changes:
        haproxy.save(send, True, module.params["configuration"], state_file)
    if state == "ready":
        haproxy.schedule(servers, None, state_file)


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


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "servers": {"type": "list", "elements": "str"},
            "hosts": {"type": "list", "elements": "str"},
            "deployment": {"type": "str"},
            "state": {
                "type": "str",
                "choices": ["drain", "ready", "maint", "present"],
                "default": "present",
            },
            "wait": {"type": "bool", "default": True},
            "timeout": {"type": "float", "default": 300},
            "deadline": {"type": "float"},
            "missing": {"type": "str", "choices": ["fail", "ignore"], "default": "fail"},
            "socket": {"type": "path", "default": haproxy.SOCKET},
            "configuration": {"type": "path", "default": haproxy.CONFIGURATION},
            "state_file": {"type": "path", "default": haproxy.STATE_FILE},
        },
        supports_check_mode=True,
    )
    state, timeout = module.params["state"], module.params["timeout"]

    def send(command: str) -> str:
        return haproxy.ask(command, module.params["socket"])

    try:
        matches = find(module, send)
        changes = [] if state == "present" else changes_of(matches, state)
        taken_over = taken_over_by(module, matches, changes)
        keys = {server.key for server in matches}
        after = matches
        if state != "present" and not module.check_mode:
            carry_out(module, send, matches, changes)
        if not module.check_mode:
            end = time.monotonic() + timeout
            while True:
                after = [server for server in haproxy.server_states(send) if server.key in keys]
                over = not module.params["wait"] or time.monotonic() >= end
                if over or not remaining(after, state):
                    break
                time.sleep(LOOK_SECONDS)
    except ConnectionError as failure:
        fail(module, Finding("ROUTER-SOCKET", "HAProxy", f"did not answer: {failure}"))
    except OSError as failure:
        message = f"the servers' states were not saved: {failure.strerror}"
        fail(module, Finding("ROUTER-STATE", str(failure.filename), message))
    waited = module.params["wait"] and not module.check_mode
    outcome = told(after, state, timeout if waited else None)
    ports = haproxy.frontend_ports(haproxy.read(module.params["configuration"]))
    diff = diff_of(changes, state, taken_over)
    module.exit_json(changed=bool(changes or taken_over), diff=diff, ports=ports, **outcome)


if __name__ == "__main__":
    main()
