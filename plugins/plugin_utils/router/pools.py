# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of all hosts → pools: one for each deployment, with every replica in it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from types import MappingProxyType

from ..documents import knowledge
from ..findings import Finding
from ..plan.engines import argument
from ..plan.replica import agent_port
from ..plan.types import Plan, Replica, server_name
from .types import Pool, RouterSettings, Server

BASE_WEIGHT = 100
# An adapter as vLLM takes it: NAME=PATH, or JSON with its name.
_ADAPTER = re.compile(r'"name"\s*:\s*"([^"]+)"|^([^={]+)=')


@dataclass(frozen=True)
class PlannedHost:
    """A host's plan of one deployment, and the address that routers reach the host at.

    ``ports_closed`` says whether routers and monitoring alone reach its replicas, None where the
    inventory has nothing of the host.
    """

    host: str
    address: str
    plan: Plan
    ports_closed: bool | None = None


def server_ids(names: Iterable[str]) -> dict[str, int]:
    """Return the place on the ring of each server, the same on every router: 1 to 2^20 - 1.

    HAProxy spreads a server over the ring by the hash of id * 4096 + node in 32 bits, so that of
    an id only the low 20 bits count; a taken id is hashed again, in the order of the names.
    """
    limit = knowledge("router.yml")["ring"]["ids"]
    ids: dict[str, int] = {}
    taken = {0}
    for name in sorted(set(names)):
        attempt = 0
        while (number := _hash(name, attempt) % limit) in taken:
            attempt += 1
        ids[name] = number
        taken.add(number)
    return ids


def _hash(name: str, attempt: int) -> int:
    text = f"{name}#{attempt}" if attempt else name
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def pools_from_plans(
    plans: Sequence[PlannedHost],
    settings: RouterSettings,
    ports: Mapping[str, int] = MappingProxyType({}),
) -> tuple[tuple[Pool, ...], tuple[Finding, ...]]:
    """Return one pool for each deployment, in the order of their names, and what to know of them.

    Of a replica that spans hosts only the first host answers requests. ``ports`` are those that
    deployments have. The findings are refusals (ROUTER-*, severity error) where the plans do not go
    together, else notes.
    """
    groups: dict[str, list[PlannedHost]] = {}
    for host in sorted(plans, key=lambda host: host.host):
        if host.plan.node is None or host.plan.node.rank == 0:
            groups.setdefault(host.plan.deployment.name, []).append(host)
    ports = assigned_ports(sorted(groups), settings, ports)
    pools = tuple(_pool(name, groups[name], ports[name], settings) for name in sorted(groups))
    findings = [finding for name in sorted(groups) for finding in _differences(name, groups[name])]
    return pools, (*findings, *check_pools(pools, settings))


def assigned_ports(
    names: Sequence[str],
    settings: RouterSettings,
    present: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return the port of each deployment: its setting, else the present one, else the next free.

    A port that is another's by the settings cannot stay; one that a deployment just left is not
    given away in the same run, for its clients still ask there.
    """
    reserved = {*settings.ports.values(), settings.admin_port, settings.shared_port or 0}
    retained = {name: port for name, port in present.items() if port not in reserved}
    assigned = {**retained, **settings.ports}
    taken = reserved | set(present.values())
    free = (port for port in count(settings.first_port) if port not in taken)
    return {name: assigned[name] if name in assigned else next(free) for name in names}


def _pool(name: str, hosts: Sequence[PlannedHost], port: int, settings: RouterSettings) -> Pool:
    replicas = [
        (server_name(host.host, index), host, index, replica)
        for host in hosts
        for index, replica in enumerate(host.plan.replicas)
    ]
    weights = _weights([replica for *_place, replica in replicas])
    servers = tuple(
        Server(
            name=key,
            host=host.host,
            replica=index,
            address=host.address,
            port=replica.port,
            id=0,  # renumbered
            concurrency=_concurrency(name, replica, settings),
            weight=weight,
            agent_port=agent_port(replica),
            tls=host.plan.deployment.tls,
        )
        for (key, host, index, replica), weight in zip(replicas, weights, strict=True)
    )
    deployment = hosts[0].plan.deployment
    engine_key = knowledge("router.yml")["engine_key"]["variable"] in deployment.secrets
    models = [host.plan.model for host in hosts]
    media = any(model.vision or (model.details or {}).get("audio") for model in models)
    model = deployment.model.name
    served = _served([replica for *_place, replica in replicas], model)
    return renumbered(Pool(name, model, port, servers, engine_key, media, served))


def _served(replicas: Sequence[Replica], model: str) -> tuple[str, ...]:
    """Return the names that replicas answer to: those of the model and of its adapters."""
    flags, names = knowledge("router.yml")["models"]["flags"], dict[str, None]()
    for replica in replicas:
        adapters = (_ADAPTER.search(value) for value in _values(replica.argv, flags["adapters"]))
        names |= dict.fromkeys(_values(replica.argv, flags["served"]) or [model])
        names |= dict.fromkeys(match[1] or match[2] for match in adapters if match)
    return tuple(names)


def _values(argv: tuple[str, ...], flag: str) -> list[str]:
    first = argument(argv, flag)
    more = argv[argv.index(flag) + 2 :] if flag in argv else ()
    return [*filter(None, [first]), *takewhile(lambda word: not word.startswith("--"), more)]


def _weights(replicas: Sequence[Replica]) -> list[int]:
    """Return each replica's share: as its KV pool is to the largest, else as its GPUs are.

    What fits into the pool decides how many sessions stay warm and how many run at once.
    """
    sizes = [replica.kv_tokens or 0 for replica in replicas]
    capacities = sizes if all(sizes) else [len(replica.gpus) for replica in replicas]
    largest = max(capacities, default=1)
    return [max(1, round(BASE_WEIGHT * capacity / largest)) for capacity in capacities]


def _concurrency(name: str, replica: Replica, settings: RouterSettings) -> int:
    """Return how many requests a replica gets at once from one of the routers that share it."""
    limit = settings.queueing.within_slo.get(name, settings.queueing.concurrency)
    if limit is None:
        requested = argument(replica.argv, "--max-num-seqs") or ""
        default: int = knowledge("models/memory.yml")["sequences"]["value"]
        limit = int(requested) if requested.isdecimal() else default
    return per_router(limit, settings)


def per_router(limit: int, settings: RouterSettings) -> int:
    """Return the share of a replica's limit that one of the routers has."""
    return max(1, -(-limit // settings.active_routers))


def _differences(name: str, hosts: Sequence[PlannedHost]) -> Iterator[Finding]:
    """Refuse hosts that serve different models under one name; say where versions differ."""
    models = _by({host.host: host.plan.deployment.model.name for host in hosts})
    if len(models) > 1:
        yield Finding(
            "ROUTER-MODELS", name, f"is {_told(models)}: clients would get answers of either"
        )
    versions = _by({host.host: host.plan.deployment.engine.version for host in hosts})
    if len(versions) > 1:
        yield Finding(
            "ROUTER-VERSIONS", name, f"runs {_told(versions)}; answers may differ in wording"
        )


def _by(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts by what they have."""
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    return groups


def _told(groups: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(
        f"{value} on {hosts[0]}" + (f" and {len(hosts) - 1} more" if len(hosts) > 1 else "")
        for value, hosts in sorted(groups.items())
    )


def check_pools(pools: Sequence[Pool], settings: RouterSettings) -> Iterator[Finding]:
    """Refuse pools without replicas, what two of them have, and replicas at one address."""
    if not pools:
        yield Finding(
            "ROUTER-NO-REPLICAS",
            "router",
            "no plan of any host has a replica, so there is nothing to route to",
        )
    shared = {"router_shared_port": settings.shared_port} if settings.shared_port else {}
    listeners = {pool.deployment: pool.port for pool in pools} | shared
    ports = Counter([*listeners.values(), settings.admin_port])
    for pool in pools:
        if not pool.servers:
            yield Finding("ROUTER-NO-REPLICAS", pool.deployment, "has no replica on any host")
    for name, port in listeners.items():
        if ports[port] > 1 or not 1 <= port <= 65535:
            yield Finding(
                "ROUTER-PORT",
                name,
                f"would listen on port {port}, which another deployment, all of them or the "
                "router's own metrics have, or which is none",
            )
    models = Counter(name for name, _pool in routed_models(pools, settings)) if shared else {}
    for name in sorted(name for name, number in models.items() if number > 1):
        owners = ", ".join(pool.deployment for pool in pools if name in pool.names)
        yield Finding("ROUTER-MODEL-TWICE", name, f"is a model of {owners}")
    places = [(server.address, server.port, server) for pool in pools for server in pool.servers]
    several = Counter((address, port) for address, port, _server in places)
    for (address, port), number in sorted(several.items()):
        if number > 1:
            names = sorted(other.name for *at, other in places if at == [address, port])
            yield Finding("ROUTER-ADDRESS", ", ".join(names), f"are all at {address} port {port}")


def routed_models(pools: Sequence[Pool], settings: RouterSettings) -> list[tuple[str, str]]:
    """Return each model's name and the deployment that the port of all models routes it to.

    Of a model of both deployments of an experiment that is the divided one.
    """
    names = {pool.deployment: pool.names for pool in pools}
    divided = {
        (one.deployment, name)
        for deployment, one in settings.experiments.items()
        for name in names.get(deployment, ())
    }
    served = [(name, pool.deployment) for pool in pools for name in pool.names]
    return [(name, deployment) for name, deployment in served if (deployment, name) not in divided]


def renumbered(pool: Pool) -> Pool:
    """Return the pool with places on the ring for the servers that it has now."""
    ids = server_ids(server.name for server in pool.servers)
    servers = sorted(pool.servers, key=lambda server: (server.host, server.replica))
    return replace(pool, servers=tuple(replace(each, id=ids[each.name]) for each in servers))
