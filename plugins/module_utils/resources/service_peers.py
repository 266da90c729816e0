# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is connected to ports of this host: a unit that closes them must not cut somebody off."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ..finding import Finding

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
