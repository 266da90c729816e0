# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary telemetry` reads: hosts of an inventory, and what playbooks left of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    plan_files,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.targets import (
    monitored,
    watched_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)

from apiary.fleet.hosts import GROUP, FleetHost, read_hosts

ROUTERS, MONITORING = "routers", "monitoring"
PREFIX = "monitoring_"
WATCHERS = ("prometheus", "alertmanager")


def hosts_of_inventory(
    sources: Sequence[str],
    limit: str | None,
    vault_password_files: Sequence[str],
    artifacts: Path | None,
) -> tuple[tuple[MonitoredHost, ...], tuple[Finding, ...]]:
    """Return the GPU hosts with their plans, the routers and the monitoring hosts of an inventory.

    The findings say which GPU hosts have no plan. ``limit`` is of GPU hosts alone.
    Raises FILE-UNREADABLE, PROBE-INVENTORY, PROBE-NO-HOSTS or what is wrong with a document.
    """
    pattern = ":".join((GROUP, ROUTERS, MONITORING))
    result = read_hosts(sources, None, pattern, vault_password_files).hosts
    chosen = {item.name for item in result if GROUP in item.groups}
    if limit:
        limited = read_hosts(sources, limit, GROUP, vault_password_files)
        chosen = {host.name for host in limited.hosts}
    hosts = []
    for item in result:
        router = ROUTERS in item.groups
        if item.name in chosen or router or MONITORING in item.groups:
            hosts.append(_monitored(item, artifacts, item.name in chosen, router))
    gpu_hosts = [host for host in hosts if host.name in chosen]
    return tuple(hosts), _without_plan(gpu_hosts)


def hosts_of_artifacts(artifacts: Path) -> tuple[tuple[MonitoredHost, ...], tuple[Finding, ...]]:
    """Return the hosts that have plans below a directory; each is reached by its name.

    The findings say which of them have no plan that counts. Raises FILE-UNREADABLE or DOC-….
    """
    names = sorted(
        entry.name for entry in _entries(artifacts) if entry.is_dir() and plan_files(entry)
    )
    if not names:
        raise error(
            "FILE-UNREADABLE",
            str(artifacts),
            "holds no plan of any host",
            origin="playbooks/site.yml and plan.yml write them, --inventory names hosts",
        )
    hosts = tuple(_monitored(FleetHost(name), artifacts, True, False) for name in names)
    return hosts, _without_plan(hosts)


def _without_plan(gpu_hosts: Iterable[MonitoredHost]) -> tuple[Finding, ...]:
    """Say which GPU hosts have no plan, so that no replica of theirs is watched."""
    names = [gpu_host.name for gpu_host in gpu_hosts if not gpu_host.plans]
    if not names:
        return ()
    return (
        Finding(
            "TELEMETRY-NO-PLAN",
            ", ".join(names),
            "this controller decided no plan of it, or the host is quarantined: "
            "no replica of it is watched",
        ),
    )


def _entries(directory: Path) -> Iterable[Path]:
    if not directory.is_dir():
        raise error(
            "FILE-UNREADABLE",
            str(directory),
            "is no directory of artifacts",
            origin="the playbooks write to apiary_artifacts",
        )
    return directory.iterdir()


def _monitored(
    host: FleetHost, artifacts: Path | None, has_gpus: bool, is_router: bool
) -> MonitoredHost:
    """Return what is watched of a host; a port that is no number, its role refuses."""
    own = {
        name: int(text) if name.endswith("_port") else text
        for name, text in host.metrics.items()
        if text and (text.isdecimal() or not name.endswith("_port"))
    }
    variables = {
        **own,
        # ansible_host comes first, apiary_address, which other hosts use, last.
        "apiary_address": host.addresses[-1] if host.addresses else host.name,
        "apiary_artifacts": artifacts or host.artifacts,
        "apiary_failure_domain": host.domain,
        "apiary_rack": host.rack,
    }
    return monitored(watched_host(host.name, variables, has_gpus, is_router))


def load_settings(name: str | None) -> TelemetrySettings:
    """Return the settings in a file: of the document's own names, or the role monitoring's.

    Of a file of variables only those count that have to do with what is rendered.
    Raises FILE-UNREADABLE, FILE-SYNTAX or DOC-….
    """
    if name is None:
        return TelemetrySettings()
    try:
        data: Any = yaml.safe_load(read_text(name)) or {}
    except yaml.YAMLError as failure:
        raise error(
            "FILE-SYNTAX", name, f"is no YAML: {' '.join(str(failure).split())}"
        ) from failure
    if isinstance(data, dict) and any(str(key).startswith(PREFIX) for key in data):
        allowed = {field.name for field in fields(TelemetrySettings)}
        named = {str(key).removeprefix(PREFIX): value for key, value in data.items()}
        data = {key: value for key, value in named.items() if key in allowed}
        # The role has variables of their own for where its two programs listen.
        own = {item: named[f"{item}_port"] for item in WATCHERS if f"{item}_port" in named}
        ports = data.get("ports") or {}
        if own and isinstance(ports, dict):
            data["ports"] = {**own, **ports}
    return from_document(TelemetrySettings, data, name)
