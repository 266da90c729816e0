# SPDX-License-Identifier: GPL-3.0-or-later

"""A systemd unit that is enabled or not, running or not; restarted or reloaded after changes.

A unit that closes ports is not begun while others than those it lets in are connected to them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ..finding import Finding, error
from .types import Difference, Host, Resource

NAMED_BY = "name"
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "enabled": {"type": "bool"},
    "state": {"type": "str", "choices": ["started", "stopped", "restarted"]},
    "restart_after": {"type": "list", "elements": "str"},
    "reload_after": {"type": "list", "elements": "str"},
    # Where the unit closes ports: it is not begun while others than these are connected to them.
    "peers": {
        "type": "dict",
        "options": {
            "ports": {"type": "list", "elements": "str", "required": True},
            "addresses": {"type": "list", "elements": "str", "required": True},
            "required": {"type": "bool", "required": True},
        },
    },
}
# systemd_service takes what `is-enabled` answers with 0 for enabled, but for these two.
NOT_ENABLED = ("indirect", "alias")


def dues(resource: Resource) -> dict[str, list[str]]:
    """Return what is due after changes of other resources."""
    unit = resource["name"]
    found = {_restart(unit): resource["restart_after"], _reload(unit): resource["reload_after"]}
    return {due: after for due, after in found.items() if after}


def inspect(host: Host, resource: Resource) -> Difference:
    unit, steps = resource["name"], []
    if resource["enabled"] is not None:
        code, output = host.systemctl("is-enabled", "--", unit)
        enabled = code == 0 and output.splitlines() not in ([word] for word in NOT_ENABLED)
        if enabled != resource["enabled"]:
            steps.append("enable" if resource["enabled"] else "disable")
    properties = host.properties(unit)
    verb = _verb(host, resource, properties.get("ActiveState", ""))
    steps += [verb] if verb else []
    unknown = properties.get("LoadState") == "not-found" and not host.unit_is_pending(unit)
    if unknown and set(steps) - {"disable", "stop"}:
        raise error("HOST-UNIT", unit, "systemd has no such unit")
    if resource["peers"] and {"enable", "start"} <= {*steps}:
        unknown_peers = strangers(resource["peers"])
        if unknown_peers and resource["peers"]["required"]:
            return Difference(refusals=unknown_peers)
        if unknown_peers:
            return Difference(warnings=unknown_peers)
    # A run that ended between writing a unit and this left it unread.
    unread = properties.get("NeedDaemonReload") == "yes"
    host.reload_due = host.reload_due or unread
    done = [f"{step} {unit}" for step in steps]
    return Difference(steps=tuple(["reload systemd"] * unread + done), actual=steps)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    host.reload()
    unit = resource["name"]
    for verb in difference.actual:
        code, output = host.systemctl(verb, "--", unit)
        if code:
            message = f"{verb} failed: {output.strip()}"
            raise error("HOST-UNIT", unit, message)
    host.settle(_restart(unit))
    host.settle(_reload(unit))


def _verb(host: Host, resource: Resource, actual: str) -> str | None:
    unit = resource["name"]
    running = actual in ("active", "activating", "reloading", "refreshing")
    if resource["state"] == "stopped":
        return "stop" if running or actual == "deactivating" else None
    if resource["state"] == "restarted":
        return "restart"
    if not running:
        return "start" if resource["state"] == "started" else None
    if host.is_triggered(_restart(unit), resource["restart_after"]):
        return "restart"
    if host.is_triggered(_reload(unit), resource["reload_after"]):
        return "reload"
    return None


def _restart(unit: str) -> str:
    return f"restart of {unit}"


def _reload(unit: str) -> str:
    return f"reload of {unit}"


# On the hosts of which this runs, words of an address have their last byte first.
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"
_WHY = (
    "is connected to ports of the replicas and is not among those who are to reach them: "
    "an inventory has the addresses that hosts are reached at, connections come from others"
)


def strangers(peers: dict[str, Any]) -> tuple[Finding, ...]:
    """Return who is connected to the ports from an address of none of the networks, by address."""
    networks = [ipaddress.ip_network(text) for text in peers["addresses"]]
    ranges = [tuple(map(int, text.split("-"))) for text in peers["ports"]]
    unknown = {
        str(peer)
        for port, peer in _connected()
        if any(each[0] <= port <= each[-1] for each in ranges)
        and not any(peer in network for network in networks)
    }
    minor = not peers["required"]
    return tuple(Finding("REPLICA-REACH", peer, _WHY, minor=minor) for peer in sorted(unknown))


def _connected() -> Iterator[tuple[int, Any]]:
    """Yield the local port and the other end of each connection from elsewhere."""
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as stream:
                rows = [line.split()[1:4] for line in stream][1:]
        except FileNotFoundError:
            continue  # without IPv6
        for local, remote, state in rows:
            here, port = local.split(":")
            peer = _address(remote.split(":")[0])
            if state == _ESTABLISHED and peer != _address(here):
                yield int(port, 16), peer


def _address(digits: str) -> Any:
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address
