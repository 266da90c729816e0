# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas over several hosts: which hosts belong together, and whether they are alike."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..deployment import Deployment, Layout
from ..documents import knowledge
from ..engine.facts import ALONE, NodeRank
from ..engine.types import Reason
from ..findings import ApiaryError, Finding, error
from ..topology.types import Topology
from .types import Node


@dataclass(frozen=True)
class Member:
    """A host of the fleet, in the order of the inventory.

    ``group`` is the name of its group where the inventory has one (`apiary_node_group`);
    ``deployment`` is what it is asked to serve under the name in question, ``topology`` what was
    gathered there, both None where that is not known.
    """

    host: str
    address: str
    group: str | None = None
    deployment: Deployment | None = None
    topology: Topology | None = None


@dataclass(frozen=True)
class Place:
    """A host among those that its replicas span: ``address`` is its own, of ``interface``."""

    node: Node
    address: str | None = None
    interface: str | None = None


def nodes_of(deployment: Deployment) -> int:
    """Return how many hosts each replica of a deployment spans."""
    return deployment.layout.nodes if isinstance(deployment.layout, Layout) else 1


def node_of(host: str, members: Sequence[Member], deployment: Deployment) -> Node:
    """Return a host's place among those that its replicas span.

    Hosts of one named group belong together; those without go together in the order of the
    inventory. Raises ApiaryError PLAN-NODES-GROUP for a group that is too small or too large.
    """
    size = nodes_of(deployment)
    serving = [member for member in members if member.deployment is not None]
    mine = next((member for member in serving if member.host == host), None)
    if mine is None:
        raise _no_group(host, f"is not among the hosts that serve {deployment.name}", size)
    if mine.group is not None:
        group = [member for member in serving if member.group == mine.group]
        if len(group) != size:
            names = ", ".join(member.host for member in group)
            raise _no_group(host, f"its group {mine.group} has {len(group)} hosts: {names}", size)
    else:
        free = [member for member in serving if member.group is None]
        first = free.index(mine) // size * size
        group = free[first : first + size]
        if len(group) < size:
            names = ", ".join(member.host for member in group)
            raise _no_group(host, f"{names} of {len(free)} hosts are left over", size)
    return Node(
        rank=group.index(mine),
        size=size,
        master_address=group[0].address,
        hosts=tuple(member.host for member in group),
    )


def _no_group(host: str, message: str, size: int) -> ApiaryError:
    return error("PLAN-NODES-GROUP", host, f"{message}; layout.nodes is {size}", size=size)


def check_nodes(node: Node, members: Sequence[Member], mine: Topology) -> Iterator[Finding]:
    """Yield what the hosts of a group don't have in common, though their replicas need it."""
    by_host = {member.host: member for member in members}
    group = [by_host[name] for name in node.hosts if name in by_host]
    own = by_host[mine.host].deployment if mine.host in by_host else None
    for member in group:
        if member.host == mine.host:
            continue
        if member.deployment != own:
            yield _differ(
                mine.host, f"{member.host} is asked to serve another deployment", member.host
            )
        if member.topology is None:
            yield Finding(
                "PLAN-NODES-UNSEEN",
                mine.host,
                f"nothing is known of {member.host}, which its replicas span as well, so the hosts"
                " were not compared",
            )
            continue
        for what, here, there in _compared(mine, member.topology):
            if here != there:
                yield _differ(
                    mine.host, f"{what} {here} here and {there} on {member.host}", member.host
                )
    address = node.master_address
    if _is_loopback(address):
        yield _differ(mine.host, f"the address of rank 0 is {address}", node.hosts[0])


def _differ(host: str, message: str, other: str) -> Finding:
    return Finding(
        "PLAN-NODES-DIFFER",
        host,
        f"{message}; hosts of one replica must agree in deployment, GPUs and links",
        other=other,
    )


def _compared(one: Topology, other: Topology) -> Iterator[tuple[str, str, str]]:
    """Yield what must be the same on hosts of one replica, with each host's value in words."""
    yield "usable GPUs are", _gpus(one), _gpus(other)
    yield "memory of the smallest GPU is", _memory(one), _memory(other)
    yield "links between GPUs are", _links(one), _links(other)


def _gpus(topology: Topology) -> str:
    usable = [gpu.model or "unknown" for gpu in topology.gpus if gpu.healthy is not False]
    return ", ".join(f"{count} × {model}" for model, count in sorted(Counter(usable).items()))


def _memory(topology: Topology) -> str:
    return str(min((gpu.vram_bytes or 0 for gpu in topology.gpus), default=0))


def _links(topology: Topology) -> str:
    kinds = Counter(link.type or "unknown" for link in topology.links)
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())) or "none"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def rank_of(node: Node | None, master_port: int | None) -> NodeRank:
    """Return the place of a replica's process on one host among those on all of its hosts."""
    if node is None:
        return ALONE
    return NodeRank(node.rank, node.master_address, master_port or 0)


def check_place(deployment: Deployment, place: Place | None, host: str) -> Iterator[Finding]:
    """Refuse a replica over hosts without a place among them; say what its network lacks."""
    if nodes_of(deployment) == 1:
        return
    if place is None:
        yield Finding(
            "PLAN-NODES-UNPLACED",
            host,
            f"replicas of {deployment.name} span {nodes_of(deployment)} hosts, and this one's place"
            " among them is not known",
        )
    elif place.node.size != nodes_of(deployment):
        yield Finding(
            "PLAN-NODES-GROUP",
            host,
            f"its group has {place.node.size} hosts; layout.nodes is {nodes_of(deployment)}",
            size=nodes_of(deployment),
        )
    elif place.interface is None and "GLOO_SOCKET_IFNAME" not in deployment.engine.env:
        yield Finding(
            "PLAN-NODES-INTERFACE",
            host,
            "the network interface between the hosts of a replica is not named; Gloo takes the one"
            " that the host's own name resolves to, often loopback, and the start then hangs",
            source=knowledge("network.yml")["variables"]["GLOO_SOCKET_IFNAME"]["source"],
        )


def network_env(place: Place, rdma: Sequence[str]) -> Iterator[tuple[str, str, Reason]]:
    """Yield the variables that tie a replica over hosts to the network that they share.

    ``rdma`` are the names of the RDMA devices nearest to the replica's GPUs.
    """
    address = place.address
    facts: Mapping[str, Mapping[str, str]] = knowledge("network.yml")["variables"]
    values = {
        "address": address if address and _is_address(address) else None,
        "interface": place.interface,
        "rdma": f"={','.join(rdma)}" if rdma else None,
    }
    for name, entry in facts.items():
        value = values[entry["from"]]
        if value:
            yield name, value, Reason(name, "SERVE-NETWORK", entry["reason"], entry["source"])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
