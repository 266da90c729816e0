# SPDX-License-Identifier: GPL-3.0-or-later

"""One replica of a plan: its engine's command, what its place adds, how long it may start."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from ..deployment import Deployment
from ..documents import knowledge
from ..engine.types import Reason, Recipe
from ..model.types import Architecture, Memory
from ..model.weights import checkpoint_bytes
from ..placement.types import ReplicaPlacement
from .nodes import Place, network_env
from .ports import meeting_port
from .types import Plan, Replica, unit_name


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
