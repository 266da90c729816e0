# SPDX-License-Identifier: GPL-3.0-or-later

"""What is measured, by plans: whose replicas, at which addresses, from which host."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings import Finding, error
from ..plan.types import Plan, name_of

_EVERYWHERE = ("0.0.0.0", "::", "*")  # noqa: S104 - addresses to compare with
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Replicas:
    """A host's plan with its file, and the address at which others reach the host."""

    host: str
    path: str
    plan: Document
    address: str

    @property
    def urls(self) -> list[str]:
        """Return where its replicas answer; of several nodes only the first one does."""
        if (self.plan.get("node") or {}).get("rank"):
            return []
        listens = self.plan["deployment"]["listen_address"]
        place = self.address if listens in _EVERYWHERE else listens
        scheme = "https" if self.plan["deployment"].get("tls") else "http"
        return [f"{scheme}://{place}:{replica['port']}" for replica in self.plan["replicas"]]


@dataclass(frozen=True)
class Router:
    """The inventory's routers: their addresses, and the ports of deployments that they have."""

    addresses: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    tls: bool = False

    def urls(self, name: str) -> list[str]:
        """Return the endpoints of a deployment; raise BENCH-PLAN where routers do not have it."""
        if self.addresses and name not in self.ports:
            raise error("BENCH-PLAN", name, "is at none of the routers")
        scheme = "https" if self.tls else "http"
        return [f"{scheme}://{address}:{self.ports[name]}" for address in self.addresses]


@dataclass(frozen=True)
class Place:
    """What is measured and from where; ``itself``: the load host serves, too."""

    name: str
    model: str
    engine: Document
    keyed: bool
    hosts: tuple[str, ...]
    plans: tuple[str, ...]
    units: Mapping[str, tuple[str, ...]]
    start_seconds: int
    load_host: str
    itself: bool
    urls: tuple[str, ...]
    metrics: tuple[str, ...]


def place_of(
    replicas: Sequence[Replicas],
    router: Router,
    load_hosts: Sequence[str],
    deployment: str = "",
    urls: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> Place:
    """Return what is measured; raise BENCH-PLAN where hosts have no plan, or several's."""
    requested = deployment
    for one in replicas:
        name = (one.plan.get("deployment") or {}).get("name")
        requested = requested or name or ""
        if name is None:
            raise error("BENCH-PLAN", one.host, f"has no plan at {one.path}")
        if name != requested:
            raise error("BENCH-PLAN", one.host, f"serves {name}, not {requested}")
    first = replicas[0].plan["deployment"]
    direct = [url for one in replicas for url in one.urls]
    hosts = tuple(one.host for one in replicas)
    load_host = (*load_hosts, *hosts)[0]
    timeouts = [
        replica.get("start_timeout_seconds") for one in replicas for replica in one.plan["replicas"]
    ]
    return Place(
        name=first["name"],
        model=first["model"]["name"],
        engine=first["engine"],
        keyed="VLLM_API_KEY" in (first.get("secrets") or ()),
        hosts=hosts,
        plans=tuple(one.path for one in replicas),
        units={one.host: tuple(item["unit"] for item in one.plan["replicas"]) for one in replicas},
        start_seconds=max((one for one in timeouts if one), default=1800),
        load_host=load_host,
        itself=load_host in hosts,
        urls=tuple(urls or router.urls(first["name"]) or direct),
        metrics=tuple(metrics or (f"{url}/metrics" for url in direct)),
    )


def same_host(place: Place) -> tuple[Finding, ...]:
    """Return the warning where client and engines share a host."""
    if not place.itself:
        return ()
    message = (
        "serves and sends the load; the client is kept to NUMA nodes without replicas where there"
        " is one"
    )
    return (Finding("BENCH-SAME-HOST", place.load_host, message),)


def refuse_serving(name: str, runs: int, answers: Sequence[Mapping[str, Document]]) -> None:
    """Raise BENCH-SERVING where routers send requests to what engine runs would restart.

    ``answers`` are the servers that each router has, by deployment/host-replica.
    """
    states = [
        server.get("state")
        for servers in answers
        for path, server in servers.items()
        if path.partition("/")[0] == name
    ]
    if runs > 1 and "ready" in states:
        raise error(
            "BENCH-SERVING",
            name,
            f"{runs} engine runs restart replicas that routers send requests to",
        )


@dataclass(frozen=True)
class Served:
    """What the hosts of some plans serve together.

    ``ports`` are those of the first plan's replicas that answer by ``scheme``; ``cpus`` are
    cpulists that replicas are bound to, ``environment`` fields of Bench.environment.
    """

    model: str
    tokenizer: str
    version: str
    image: str | None
    container_engine: str
    executable: str
    ports: tuple[int, ...]
    scheme: str
    gpus: int
    hosts: int
    cpus: tuple[str, ...]
    environment: dict[str, Any]


def served_by(plans: Sequence[tuple[Plan, str]]) -> Served:
    """Return what plans, each with the text of its file, say; there must be one at least."""
    first = plans[0][0]
    hashes = {plan.host: hashlib.sha256(text.encode()).hexdigest() for plan, text in plans}
    layouts = {plan.host: name_of(plan.layout) for plan, _text in plans}
    replicas = [(plan, replica) for plan, _text in plans for replica in plan.replicas]
    engine, model = first.deployment.engine, first.deployment.model
    keys = ((plan.host, key) for plan, replica in replicas for key in replica.gpus)
    addresses = {f"{host}/" * (len(plans) > 1) + key.partition("#")[0] for host, key in keys}
    return Served(
        model=model.name,
        tokenizer=model.path,
        version=engine.version,
        image=engine.image if engine.runtime != "native" else None,
        container_engine="podman" if engine.runtime == "quadlet" else "docker",
        executable=engine.executable,
        ports=tuple(
            replica.port for replica in first.replicas if first.node is None or first.node.rank == 0
        ),
        scheme="https" if first.deployment.tls else "http",
        gpus=sum(len(replica.gpus) for _plan, replica in replicas),
        hosts=len(plans),
        cpus=tuple(replica.cpus for _plan, replica in replicas if replica.cpus),
        environment={
            "plan_hash": _common(hashes),
            "layout": _common(layouts),
            "deployment": first.deployment.name,
            "model": model.name,
            "engine": {"name": engine.name, "version": engine.version, "image": engine.image},
            "hosts": [plan.host for plan, _text in plans],
            "gpu": first.gpu_model,
            "gpu_addresses": sorted(addresses),
            "topology": _common({plan.host: _topology(plan) for plan, _text in plans}),
        },
    )


def _common(values: dict[str, str]) -> str | dict[str, str]:
    """Return what all hosts have alike, else each host's."""
    return next(iter(values.values())) if len(set(values.values())) == 1 else values


def _topology(plan: Plan) -> str:
    """Return in a line how the replicas lie on the host."""
    places = [
        f"{len(replica.gpus)} GPUs on NUMA {','.join(map(str, replica.memory_nodes)) or '?'}"
        for replica in plan.replicas
    ]
    return "; ".join(places)
