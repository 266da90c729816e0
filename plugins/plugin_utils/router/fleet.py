# SPDX-License-Identifier: GPL-3.0-or-later

"""All hosts' plans, the hosts that have none, and what the router runs now → what it is to run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..documents import knowledge
from ..findings import ApiaryError, Finding, error, has_errors
from .check import check_router
from .pools import PlannedHost, check_pools, per_router, pools_from_plans, renumbered
from .types import ApiKey, Pool, Router, RouterSettings, Server

# The limits that a key may have of its own.
_OF_A_KEY = ("requests_per_minute", "concurrent_requests")


@dataclass(frozen=True)
class MissingHost:
    """A host of the inventory without a plan to route to, and why."""

    host: str
    reason: str


def decide_router(
    settings: RouterSettings,
    plans: Sequence[PlannedHost],
    missing: Sequence[MissingHost] = (),
    before: Router | None = None,
    engine_keys: Mapping[str, str] = MappingProxyType({}),
    peers: Sequence[Router] = (),
) -> Router:
    """Return the router; raise ApiaryError with every refusal.

    A host without a plan that the router serves now keeps its replicas: whether they answer is for
    the health checks to say, and an empty directory of plans must not end the service. Hosts that
    are in no inventory any more are left out. A deployment keeps its port, or has the one that it
    has at the ``peers``. ``engine_keys`` are those of engines that the router has, by deployment.
    """
    pools, noted = pools_from_plans(plans, settings, _ports(before, peers))
    absent = {item.host: item.reason for item in missing}
    retained = _kept(before, absent, {(item.host, item.plan.deployment.name) for item in plans})
    if retained:
        pools = _with(pools, retained, settings)
        reported = [item for item in noted if item.code != "ROUTER-NO-REPLICAS"]
        noted = tuple(dict.fromkeys([*reported, *check_pools(pools, settings)]))
    router = Router(settings, pools)
    findings = [
        *check_router(router, engine_keys),
        *noted,
        *_locked(router, engine_keys),
        *_bypassed(plans),
    ]
    findings += _unlimited(router)
    findings += _missing(absent, {server.host for pool in retained for server in pool.servers})
    if before is not None:
        findings += _gone(before, router)
        findings += check_change(before, router)
    if has_errors(findings):
        raise ApiaryError(*(item for item in findings if item.severity == "error"))
    return replace(router, findings=tuple(findings))


def _ports(before: Router | None, peers: Sequence[Router]) -> dict[str, int]:
    """Return the ports that deployments have: the router's own, then those of the others."""
    ports: dict[str, int] = {}
    for router in (*((before,) if before else ()), *peers):
        for pool in router.pools:
            if pool.port not in ports.values():
                ports.setdefault(pool.deployment, pool.port)
    return ports


def _kept(
    before: Router | None, absent: Mapping[str, str], planned: set[tuple[str, str]]
) -> list[Pool]:
    """Return what of the running pools stays because its hosts have no plan."""
    retained = []
    for pool in before.pools if before else ():
        servers = tuple(
            server
            for server in pool.servers
            if server.host in absent and (server.host, pool.deployment) not in planned
        )
        if servers:
            retained.append(replace(pool, servers=servers))
    return retained


def _with(pools: tuple[Pool, ...], kept: list[Pool], settings: RouterSettings) -> tuple[Pool, ...]:
    """Return pools with the kept servers in them; a pool that only they have keeps its port."""
    merged = {pool.deployment: pool for pool in pools}
    for pool in kept:
        existing = merged.get(pool.deployment)
        if existing is None:
            merged[pool.deployment] = pool
            continue
        names = {server.name for server in existing.servers}
        most = settings.queueing.within_slo.get(pool.deployment)
        limit = most and per_router(most, settings)
        more: list[Server] = [
            replace(server, concurrency=limit or server.concurrency)
            for server in pool.servers
            if server.name not in names
        ]
        merged[pool.deployment] = renumbered(replace(existing, servers=(*existing.servers, *more)))
    return tuple(merged[name] for name in sorted(merged))


def _unlimited(router: Router) -> Iterator[Finding]:
    """Warn of limits against overload that are of no deployment here."""
    known, queueing = [pool.deployment for pool in router.pools], router.settings.queueing
    for name in sorted({*queueing.within_slo, *queueing.ttft_seconds} - set(known)):
        yield Finding("ROUTER-LIMIT-UNKNOWN", name, f"the router has {', '.join(known)}")


def _locked(router: Router, engine_keys: Mapping[str, str]) -> Iterator[Finding]:
    """Refuse a router that takes clients' keys away and has none that the engines take."""
    variable = knowledge("router.yml")["engine_key"]["variable"]
    for pool in router.pools:
        if router.settings.keys and pool.engine_key and pool.deployment not in engine_keys:
            yield Finding(
                "ROUTER-ENGINE-KEY",
                pool.deployment,
                f"its engines ask for {variable}, which the router does not have",
                variable=variable,
            )


def _bypassed(plans: Sequence[PlannedHost]) -> Iterator[Finding]:
    """Warn of replicas that clients reach past the router, and past all that it refuses."""
    hosts: dict[str, list[str]] = {}
    for item in plans:
        if item.ports_closed is False and (item.plan.node is None or item.plan.node.rank == 0):
            hosts.setdefault(item.plan.deployment.name, []).append(item.host)
    for name, there in sorted(hosts.items()):
        shown = ", ".join(sorted(there)[:8]) + (f" and {len(there) - 8} more" if there[8:] else "")
        message = f"its replicas on {shown} answer everybody who reaches their ports"
        yield Finding("ROUTER-BYPASS", name, message)


def _missing(absent: Mapping[str, str], kept: set[str]) -> Iterator[Finding]:
    for host, reason in sorted(absent.items()):
        if host in kept:
            yield Finding(
                "ROUTER-HOST-KEPT",
                host,
                f"{reason}; its replicas stay in the router as they are, while they answer",
                host=host,
            )
        else:
            yield Finding(
                "ROUTER-HOST-MISSING", host, f"{reason}; nothing is routed to it", host=host
            )


def _gone(before: Router, after: Router) -> Iterator[Finding]:
    """Name what leaves the router, so that nothing does unseen."""
    now = {(pool.deployment, server.name) for pool in after.pools for server in pool.servers}
    for pool in before.pools:
        names = sorted(
            server.name for server in pool.servers if (pool.deployment, server.name) not in now
        )
        if names:
            shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")
            yield Finding(
                "ROUTER-SERVER-GONE",
                pool.deployment,
                f"{shown} leave the router: no plan has them, or the host is in no inventory",
            )


def check_change(before: Router, after: Router) -> tuple[Finding, ...]:
    """Refuse a pool that moves (ROUTER-PORT-MOVED) or loses most of its replicas (ROUTER-SHRUNK).

    Unless that is meant: a plan that was lost on the controller looks like a host that was removed.
    """
    return (
        *_moved(before, after),
        *(() if after.settings.allow_removed else _shrunk(before, after)),
    )


def _moved(before: Router, after: Router) -> Iterator[Finding]:
    former = {pool.deployment: pool.port for pool in before.pools}
    for pool in after.pools:
        port = former.get(pool.deployment, pool.port)
        if pool.port != port and pool.deployment not in after.settings.ports:
            yield Finding(
                "ROUTER-PORT-MOVED",
                pool.deployment,
                f"would move from port {port} to {pool.port}: the settings give its port away",
                port=str(pool.port),
            )


def _shrunk(before: Router, after: Router) -> Iterator[Finding]:
    now = {(pool.deployment, server.name) for pool in after.pools for server in pool.servers}
    for old in before.pools:
        retained = sum((old.deployment, server.name) in now for server in old.servers)
        if retained * 2 < len(old.servers):
            message = f"would keep {retained} of {len(old.servers)} replicas"
            yield Finding("ROUTER-SHRUNK", old.deployment, message)


def api_keys(keys: Mapping[str, Any]) -> tuple[ApiKey, ...]:
    """Return the digests of keys by name, each a text or a mapping of `key` and its limits.

    Raises ApiaryError with ROUTER-KEY, which never shows a key.
    """
    least = knowledge("router.yml")["key_length"]
    result = []
    for name, text in sorted(keys.items()):
        entry = text if isinstance(text, Mapping) else {"key": text}
        key = entry.get("key")
        unknown = sorted(set(map(str, entry)) - {"key", "priority", *_OF_A_KEY})
        if unknown or not isinstance(key, str):
            raise error(
                "ROUTER-KEY",
                f"key {name}",
                f"has {', '.join(unknown)}" if unknown else "is no text",
            )
        if len(key) < least["minimum"]:
            raise error(
                "ROUTER-KEY",
                f"key {name}",
                f"has {len(key)} characters, expected at least {least['minimum']}",
                source=least["source"],
            )
        digest = hashlib.sha256(str(key).encode()).hexdigest()
        limits = {field: int(entry[field]) for field in _OF_A_KEY if entry.get(field) is not None}
        priority = str(entry.get("priority", "normal"))
        result.append(ApiKey(str(name), digest, **limits, priority=priority))
    doubles = {key.sha256 for key in result}
    if len(doubles) < len(result):
        raise error("ROUTER-KEY", "keys", "two names have the same key")
    return tuple(result)
