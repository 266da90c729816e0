# SPDX-License-Identifier: GPL-3.0-or-later

"""One replica of a plan: its engine's command, what its place adds, ports, time to start."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..deployment import Deployment
from ..documents import knowledge
from ..engine.types import Reason, Recipe
from ..findings import Finding
from ..model.types import Architecture, Memory
from ..model.weights import checkpoint_bytes
from ..placement.types import ReplicaPlacement
from .nodes import Place, network_env
from .types import Plan, Replica, unit_name


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


@dataclass(frozen=True)
class Part:
    """What is known of the replica of a number: its place, its command, what it takes up.

    ``blocks`` are the first ports of the blocks of all API ports, ``place`` is the host among
    those that the replica spans, ``rdma`` are the RDMA devices of NICs by name, ``host`` is the
    name of the host itself.
    """

    index: int
    share: ReplicaPlacement
    recipe: Recipe
    needs: Memory
    blocks: Mapping[int, int]
    place: Place | None = None
    rdma: Mapping[str, str] = field(default_factory=dict)
    host: str = ""


def replica_of(deployment: Deployment, part: Part) -> Replica:
    """Return the replica; ``deployment`` has its start timeout."""
    share, recipe = part.share, part.recipe
    unit = unit_name(deployment.name, part.index)
    port = deployment.base_port + part.index
    internal = part.blocks.get(port)
    env, reasons = dict(recipe.env), list(recipe.reasons)

    def add(name: str, value: str, rule: str, reason: str, source: str) -> None:
        # What the recipe or the operator already decided stands.
        if name not in env:
            env[name] = value
            reasons.append(Reason(name, rule, reason, source))

    caches = knowledge("serving.yml")["cache_directories"]
    for name, entry in caches["entries"].items():
        add(
            name,
            f"/var/cache/{unit.removesuffix('.service')}/{entry['directory']}",
            "SERVE-LOCAL-CACHE",
            entry["reason"],
            caches["source"],
        )
    ports = knowledge("ports.yml")
    if part.place is not None:
        near = [part.rdma[name] for name in share.nics if name in part.rdma]
        for name, value, reason in network_env(part.place, near):
            add(name, value, reason.rule, reason.reason, reason.source)
    elif internal is not None:
        # The workers of a replica over hosts ask all at once, and from one start find one port.
        variable = ports["variable"]
        add(
            variable["name"],
            str(internal),
            "SERVE-PORTS",
            variable["reason"],
            ports["internal"]["source"],
        )
    design = "Apiary design: a unit stores BDFs, and checks at start that it got what was planned"
    promise = {
        "APIARY_DEPLOYMENT": deployment.name,
        "APIARY_REPLICA": str(part.index),
        "APIARY_GPUS": ",".join(share.gpus),
        "APIARY_CPUS": share.cpus,
        "APIARY_MEMORY_NODES": ",".join(map(str, share.memory_nodes)) or None,
    }
    for name, promised in promise.items():
        if promised is not None:
            add(name, promised, "SERVE-PROMISE", "what this replica was promised", design)
    if deployment.tracing is not None:
        names = knowledge("tracing.yml")["resource"]
        attributes = _resource(deployment, part)
        add(names["variable"], attributes, "SERVE-TRACES", names["reason"], names["source"])
    return Replica(
        unit=unit,
        port=port,
        gpus=share.gpus,
        cpus=share.cpus,
        memory_nodes=share.memory_nodes,
        env=env,
        argv=(deployment.engine.executable, *recipe.argv),
        reasons=tuple(reasons),
        recipe=_digest(deployment, recipe, port),
        kv_tokens=part.needs.kv_tokens_per_engine,
        attention_backend=recipe.attention_backend,
        attention_reason=recipe.attention_reason,
        internal_port=internal,
        master_port=None if part.place is None else meeting_port(port),
        start_timeout_seconds=deployment.limits.start_timeout_seconds,
    )


def _digest(deployment: Deployment, recipe: Recipe, port: int) -> str:
    engine, words = deployment.engine, [word for word in recipe.argv if word != str(port)]
    text = json.dumps([engine.executable, engine.image, words, sorted(recipe.env.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _resource(deployment: Deployment, part: Part) -> str:
    """Return who the replica is, as OpenTelemetry reads it: `key=value` pairs, percent-encoded."""
    attributes = {
        "service.namespace": "apiary",
        "service.instance.id": f"{part.host}-{part.index}",
        "service.version": deployment.engine.version,
        "host.name": part.host,
        "apiary.deployment": deployment.name,
        "apiary.replica": str(part.index),
        "apiary.numa_nodes": " ".join(map(str, part.share.memory_nodes)),
        "apiary.gpus": " ".join(part.share.gpus),
    }
    return ",".join(
        f"{name}={quote(value, safe=':.')}" for name, value in attributes.items() if value
    )


def with_start_timeout(deployment: Deployment, architecture: Architecture) -> Deployment:
    """Return the deployment with its start timeout; what it says itself stands."""
    if deployment.limits.start_timeout_seconds is not None:
        return deployment
    seconds = computed(deployment, architecture)
    limits = dataclasses.replace(deployment.limits, start_timeout_seconds=seconds)
    return dataclasses.replace(deployment, limits=limits)


def computed(deployment: Deployment, architecture: Architecture) -> int:
    """Return the seconds that a start may take, by knowledge/start.yml."""
    facts = knowledge("start.yml")
    weights = checkpoint_bytes(architecture) or 0
    speed = deployment.model.read_mb_per_second or int(facts["read_mb_per_second"]["value"])
    reading = int(facts["reads"]["value"]) * weights // (speed * 10**6)
    needed = int(facts["beside_weights_seconds"]["value"]) + reading
    return max(needed, int(facts["at_least_seconds"]["value"]))


def start_timeout(plan: Plan, replica: Replica) -> int:
    """Return the seconds that a planned replica may take to answer."""
    configured = replica.start_timeout_seconds or plan.deployment.limits.start_timeout_seconds
    return configured or computed(plan.deployment, plan.model)
