# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network of a lab: a bridge of its own, where hosts keep their addresses over a reboot.

A lab has 1022 addresses: routers come first, then what watches and stores, the virtual address of
the routers, then GPU hosts. The machine itself is the gateway and reaches all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

from .console import error, run
from .spec import GPU_HOSTS, MONITORING, ROUTERS, STORAGE
from .state import Lab

PRIVATE = IPv4Network("10.222.0.0/16")  # of RFC 1918, and rarely anybody's
PREFIX = 22
FIRST = {ROUTERS: 11, MONITORING: 211, STORAGE: 231, "virtual": 250, GPU_HOSTS: 257}
MOST = {ROUTERS: 200, MONITORING: 10, STORAGE: 10, GPU_HOSTS: 700}


def name_of(lab: Lab) -> str:
    """Return the network's name in Docker, which labs of several checkouts share."""
    checkout = hashlib.sha256(str(lab.root).encode()).hexdigest()[:6]
    return f"apiary-{checkout}-{lab.name}"


def address(network: IPv4Network, group: str, number: int = 1) -> str:
    """Return the address of the first, second, ... host of a group, or the virtual one."""
    if number > MOST.get(group, 1):
        raise error(
            "LAB-ARGUMENT",
            f"{number} of {group}",
            f"a lab's network has room for {MOST[group]}",
        )
    return str(network[FIRST[group] + number - 1])


def ensure(lab: Lab) -> IPv4Network:
    """Return the lab's network, made in a part of the private range that nobody uses."""
    name = name_of(lab)
    found = subnets("--filter", f"name=^{name}$")
    if found:
        return found[0]
    taken = [*subnets(), *routed()]
    for candidate in free(taken):
        labels = [f"--label=apiary.lab={lab.name}", f"--label=apiary.root={lab.root}"]
        made = run(
            ["docker", "network", "create", f"--subnet={candidate}", *labels, name], check=False
        )
        # Another checkout's lab may have taken it just now.
        if made.returncode == 0:
            return candidate
        if b"overlap" not in made.stderr:
            raise error(
                "LAB-DOCKER",
                f"network {name}",
                made.stderr.decode(errors="replace").strip(),
            )
    raise error("LAB-NETWORK", str(PRIVATE), "every part of it is in use")


def remove(lab: Lab) -> None:
    """Remove the lab's network; its hosts must be gone."""
    run(["docker", "network", "rm", name_of(lab)], check=False)


def close(network: IPv4Network | str, *, closed: bool = True) -> None:
    """Let nobody of a lab's network out of it, or again; what comes in is answered."""
    rule = ["DOCKER-USER", "--source", str(network), "!", "--destination", str(network)]
    rule += ["--jump", "DROP"]
    # Once, however often it was closed.
    while run(["iptables", "--wait", "--delete", *rule], check=False).returncode == 0:
        pass
    if closed:
        run(["iptables", "--wait", "--insert", *rule])


def free(taken: Iterable[IPv4Network]) -> Iterator[IPv4Network]:
    """Yield the parts of the private range that overlap with no taken network."""
    others = list(taken)
    for candidate in PRIVATE.subnets(new_prefix=PREFIX):
        if not any(candidate.overlaps(other) for other in others):
            yield candidate


def subnets(*filters: str) -> list[IPv4Network]:
    """Return the IPv4 networks that Docker has."""
    ids = run(["docker", "network", "ls", "--quiet", *filters]).stdout.decode().split()
    if not ids:
        return []
    inspected = json.loads(run(["docker", "network", "inspect", *ids]).stdout)
    configs = [config for one in inspected for config in one["IPAM"]["Config"] or ()]
    return [IPv4Network(config["Subnet"]) for config in configs if ":" not in config["Subnet"]]


def routed() -> list[IPv4Network]:
    """Return the networks that this machine has routes to, but for the default one."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show"]).stdout or b"[]")
    return [IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]
