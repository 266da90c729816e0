# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that never collide: each replica's API port, and a block for its engine's own sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from .types import Plan, Replica


def block_size() -> int:
    """Return how many ports, from ``Replica.internal_port`` on, are one replica's own."""
    return int(knowledge("ports.yml")["internal"]["size"])


def agent_port(replica: Replica) -> int | None:
    """Return where a replica's supervisor tells routers whether it takes requests, or None.

    It is the last port of the replica's block: engines take theirs from the first on. A replica
    over hosts has the block of its meeting port.
    """
    first = replica.master_port if replica.internal_port is None else replica.internal_port
    return None if first is None else first + block_size() - 1


def meeting_port(port: int) -> int:
    """Return where all hosts of the replica with this API port meet: the same on each of them.

    It is the first of the port's own block, or of the next one without a known service.
    """
    return internal_ports([port])[port]


def internal_ports(
    api_ports: Sequence[int], others: Sequence[int] = (), blocks_taken: Sequence[int] = ()
) -> dict[int, int]:
    """Return the first port of each API port's own block.

    A block follows from the API port alone, so replicas that are planned apart don't meet; only
    where a port of ``api_ports``, ``others`` or a known service lies in it, or a block of
    ``blocks_taken`` (first ports) overlaps it, it is the next one without. The result doesn't
    depend on the order of the ports.
    """
    rules: Mapping[str, Any] = knowledge("ports.yml")["internal"]
    size, count = int(rules["size"]), int(rules["blocks"])

    def block(port: int) -> int:
        return (port - int(rules["first"])) // size

    used = {block(port) for port in (*api_ports, *others, *_known())}
    used |= {block(port + more) for port in blocks_taken for more in (0, size - 1)}
    homes = {port: (port - int(rules["anchor"])) % count for port in sorted(set(api_ports))}
    blocks: dict[int, int] = {}
    for port, home in homes.items():
        if home not in used:
            used.add(home)
            blocks[port] = home
    # The others move on once all that can have their own block have it.
    for port, home in homes.items():
        if port in blocks:
            continue
        steps = ((home + step) % count for step in range(count))
        for number in [number for number in steps if number not in used][:1]:
            used.add(number)
            blocks[port] = number
    return {port: int(rules["first"]) + number * size for port, number in blocks.items()}


def check_ports(plan: Plan, others: Sequence[Plan]) -> Iterator[Finding]:
    """Yield what is wrong with the API ports of a plan; ``others`` are on the same host."""
    owners = {replica.port: replica.unit for other in others for replica in other.replicas}
    name, ports = plan.deployment.name, [replica.port for replica in plan.replicas]
    for replica in plan.replicas:
        if replica.port in owners:
            yield _taken(plan, replica.port, owners[replica.port], replica.unit)
    # Where hosts meet is the same on all of them, so it can't move out of the way.
    mine = {replica.port: replica.unit for replica in plan.replicas}
    blocks = {
        replica.internal_port + more: replica.unit
        for other in (*others, plan)
        for replica in other.replicas
        if replica.internal_port is not None
        for more in range(block_size())
    }
    for replica in plan.replicas:
        owner = (owners | mine | blocks).get(replica.master_port or 0, replica.unit)
        if owner != replica.unit:
            yield _taken(plan, replica.master_port or 0, owner, replica.unit)
    yield from _ephemeral(name, ports)
    yield from _met(name, ports)


def _taken(plan: Plan, port: int, owner: str, unit: str) -> Finding:
    return Finding(
        "PLAN-PORT-TAKEN",
        f"{plan.deployment.name}: base_port",
        f"{unit} would listen on {port}, which {owner} has on {plan.host}",
        count=len(plan.replicas),
    )


def _ephemeral(name: str, ports: Sequence[int]) -> Iterator[Finding]:
    rules = knowledge("ports.yml")["ephemeral"]
    inside = [port for port in ports if rules["first"] <= port <= rules["last"]]
    if inside:
        yield Finding(
            "PLAN-PORT-EPHEMERAL",
            f"{name}: base_port",
            f"{', '.join(map(str, inside))} lie among the ports that the kernel gives to outgoing"
            f" connections ({rules['first']} to {rules['last']}), one of which may have it when the"
            " replica starts",
            source=rules["source"],
            first=rules["first"],
        )


def _met(name: str, ports: Sequence[int]) -> Iterator[Finding]:
    listed = _known()
    for port in ports:
        if port in listed:
            yield Finding(
                "PLAN-PORT-KNOWN",
                f"{name}: base_port",
                f"{port} is the port of {listed[port]['name']}: a replica can't start where that"
                " runs on the same host",
                source=listed[port]["source"],
            )


def _known() -> dict[int, Mapping[str, Any]]:
    return {int(entry["port"]): entry for entry in knowledge("ports.yml")["known"]}
