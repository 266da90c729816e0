# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet serves now and would, and what the largest failure domain takes with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .plan_types import Capacity, DeploymentCapacity
from .types import Served


@dataclass(frozen=True)
class Serving:
    """One host: its GPUs, what runs there, and what would.

    ``domain`` is what fails as one, its own name where nothing else is known.
    """

    host: str
    domain: str
    gpus: int
    running: tuple[Served, ...]
    planned: tuple[Served, ...]


def fleet_capacity(hosts: Sequence[Serving]) -> Capacity:
    """Return what hosts serve."""
    names = dict.fromkeys(
        served.deployment for host in hosts for served in (*host.planned, *host.running)
    )
    idle = {host.host: max(0, host.gpus - _gpus(host.planned)) for host in hosts}
    return Capacity(
        gpus=sum(host.gpus for host in hosts),
        used_now=sum(_gpus(host.running) for host in hosts),
        used=sum(_gpus(host.planned) for host in hosts),
        idle=sum(idle.values()),
        idle_hosts=tuple(host for host, count in idle.items() if count),
        deployments=tuple(_deployment(name, hosts) for name in names),
    )


def _gpus(served: Iterable[Served]) -> int:
    return sum(item.replicas * item.gpus_per_replica for item in served)


def _replicas(served: Iterable[Served]) -> int:
    return sum(item.replicas for item in served)


def _deployment(name: str, hosts: Sequence[Serving]) -> DeploymentCapacity:
    running = [item for host in hosts for item in host.running if item.deployment == name]
    planned = [(host, item) for host in hosts for item in host.planned if item.deployment == name]
    served = [item for _host, item in planned]
    domains: Counter[str] = Counter()
    for host, item in planned:
        domains[host.domain] += item.replicas
    worst, lost = domains.most_common(1)[0] if domains else ("", 0)
    up = [item.up for item in running if item.up is not None]
    return DeploymentCapacity(
        deployment=name,
        model=", ".join(dict.fromkeys(item.model for item in served or running)),
        engines=tuple(dict.fromkeys(item.engine for item in served)),
        layouts=tuple(dict.fromkeys(item.layout for item in served)),
        hosts=len(served),
        up=sum(up) if up or not _replicas(running) else None,
        running=_replicas(running),
        planned=_replicas(served),
        gpus=_gpus(served),
        worst=worst,
        lost=lost,
    )
