# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts of an inventory and their plans → what is watched, and the addresses Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..fleet.names import address_of
from ..fleet.saved import quarantined, saved_plans, saved_system
from ..host.telemetry.amd import has_package, way
from ..plan.types import Plan, plan_of
from ..router.types import RouterSettings
from .promql import ALERTMANAGER, AMD, ENGINE, HAPROXY, NODE, PLAIN, PROMETHEUS, known
from .types import MonitoredHost, Target, TelemetrySettings


def targets(hosts: Sequence[MonitoredHost], settings: TelemetrySettings) -> tuple[Target, ...]:
    """Return every address to read, by job and address, with the labels of its series."""
    result = [target for host in hosts for target in _of_host(host, settings)]
    watchers = settings.prometheuses or (f"127.0.0.1:{settings.ports.prometheus}",)
    result += [Target(PROMETHEUS, address, {}) for address in watchers]
    result += [Target(ALERTMANAGER, address, {}) for address in alertmanagers(settings)]
    return tuple(
        sorted(
            result, key=lambda target: (target.job, target.address, sorted(target.labels.items()))
        )
    )


def alertmanagers(settings: TelemetrySettings) -> tuple[str, ...]:
    """Return where alerts go: the Alertmanagers named, else the one beside Prometheus."""
    return settings.alertmanagers or (f"127.0.0.1:{settings.ports.alertmanager}",)


def _of_host(host: MonitoredHost, settings: TelemetrySettings) -> Iterator[Target]:
    place = {"host": host.name, "rack": host.rack, "failure_domain": host.failure_domain}
    for plan in serving(host):
        deployment = plan.deployment
        for index, replica in enumerate(plan.replicas):
            labels = known(
                **place,
                deployment=deployment.name,
                replica=str(index),
                numa_node=",".join(map(str, replica.memory_nodes)),
                model=deployment.model.name,
                engine_version=deployment.engine.version,
                __scheme__="https" if deployment.tls else None,
            )
            yield Target(ENGINE, at(host.address, replica.port), labels)
    if host.router_port is not None:
        yield Target(HAPROXY, at(host.address, host.router_port), known(**place))
    if "amd" in host.exporters:
        yield Target(AMD, at(host.address, host.amd_port or settings.ports.amd), known(**place))
    if "node" in host.exporters:
        job, labels = NODE, known(**place)
        if settings.web and not host.node_web:
            job, labels = PLAIN, known(**place, job=NODE)
        yield Target(job, at(host.address, host.node_port or settings.ports.node), labels)


def serving(host: MonitoredHost) -> list[Plan]:
    """Return a host's plans that answer HTTP: of a replica over hosts the first host alone does."""
    return [plan for plan in host.plans if plan.node is None or plan.node.rank == 0]


def at(address: str, port: int) -> str:
    """Return address and port as Prometheus takes them; IPv6 stands in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


ADMIN_PORT = RouterSettings().admin_port
# Variables of -e and of INI inventories are texts.
_FALSE = ("false", "no", "off", "0")


def watched_host(
    name: str, variables: Mapping[str, Any], has_gpus: bool, is_router: bool
) -> dict[str, Any]:
    """Return what is watched of a host, as `monitoring_hosts` has it.

    ``amd_packaged_only`` says that AMD's exporter comes only where AMD has a package of it.
    """
    rack = variables.get("apiary_rack")
    method = variables.get("telemetry_amd_method") or "auto"
    image = bool(variables.get("telemetry_amd_digest"))
    amd = has_gpus and way(method, image, True) != "none"
    packaged_only = amd and way(method, image, False) == "none"
    root = variables.get("apiary_artifacts") or "artifacts"
    return {
        "host": name,
        "address": address_of(name, variables),
        "artifacts": f"{root}/{name}" if has_gpus else None,
        "rack": rack,
        "failure_domain": variables.get("apiary_failure_domain") or rack,
        "router_port": variables.get("router_admin_port", ADMIN_PORT) if is_router else None,
        "exporters": ["amd", "node"] if amd else ["node"],
        "amd_port": variables.get("telemetry_amd_port"),
        "node_port": variables.get("telemetry_node_port"),
        "node_web": str(variables.get("telemetry_web_enabled")).lower() not in _FALSE,
        "amd_packaged_only": packaged_only and not variables.get("telemetry_amd_suite"),
    }


def monitored(place: Mapping[str, Any]) -> MonitoredHost:
    """Return a host with its plans, which a directory of the controller or the mapping has."""
    directory = Path(place["artifacts"]).absolute() if place.get("artifacts") else None
    plans = tuple(plan_of(plan, place["host"]) for plan in place.get("plans") or [])
    if directory and not plans and not quarantined(directory):
        plans, _reason = saved_plans(directory)
    exporters = place.get("exporters") or ["amd", "node"]
    if directory and place.get("amd_packaged_only") and not has_package(saved_system(directory)):
        exporters = [name for name in exporters if name != "amd"]
    names = ("rack", "failure_domain", "router_port", "amd_port", "node_port")
    return MonitoredHost(
        name=place["host"],
        address=place["address"],
        plans=plans,
        exporters=tuple(exporters),
        node_web=place.get("node_web", True),
        **{name: place.get(name) for name in names},
    )
