# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells Prometheus of itself: exporters, and our own text file of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...documents import to_document
from ...evidence.types import Evidence
from ...findings import Finding
from ..facts import package_manager
from . import amd, node
from .types import Service, Settings, TelemetryHostPlan

__all__ = ["Service", "Settings", "TelemetryHostPlan", "decide"]


def decide(settings: Settings, evidence: Evidence) -> TelemetryHostPlan:
    """Return what a host gets; raise ApiaryError where nothing right can be done."""
    method, findings = amd.method(settings, evidence)
    directory = node.directory(settings, evidence)
    expected = node.expected(settings, evidence, directory)
    services = amd.services(settings, method)
    wanted = [service.unit for service in services]
    others = [one for one in amd.all_services(settings) if one.unit not in wanted]
    plan = TelemetryHostPlan(
        method=method,
        node=node.exporter(settings, evidence, directory),
        textfile=node.textfile(settings, expected),
        amd=services,
        absent=tuple(others),
        directory=directory,
        expected=expected,
        findings=(*findings, *_told(settings, evidence)),
    )
    if settings.state == "absent":
        return replace(plan, resources=tuple(_absent(plan)))
    return replace(plan, resources=tuple(_present(plan, settings, evidence)))


def _told(settings: Settings, evidence: Evidence) -> Iterator[Finding]:
    if settings.listen.startswith("127.") or settings.listen in ("::1", "localhost"):
        yield Finding(
            "MONITORING-LOOPBACK",
            evidence.host,
            f"its exporters listen on {settings.listen} alone: no other host reads them",
        )


def _configuration(service: Service, **more: Any) -> dict[str, Any]:
    return {
        "kind": "configuration",
        "service": service.unit,
        "main": service.main,
        "files": to_document(service.files),
        "reload": False,
        "area": "MONITORING",
        **more,
    }


def _gone(service: Service, kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return a service that goes, without the files that another service has."""
    paths = [item.path for item in service.files if item.path not in set(kept)]
    return _configuration(service, files=[{"path": path} for path in paths], state="absent")


def _present(
    plan: TelemetryHostPlan, settings: Settings, evidence: Evidence
) -> Iterator[Mapping[str, Any]]:
    yield from node.web(settings)
    output = evidence.commands.get("exporters")
    if output is None or plan.node.program not in output.stdout.split():
        # A package starts its service as soon as it is there, on all addresses unless it has flags.
        if output is not None:
            yield from ({"kind": "file", **to_document(item)} for item in plan.node.files)
        manager = package_manager(evidence)
        yield {"kind": "packages", "manager": manager, "names": [plan.node.package]}
    yield {
        "kind": "directory",
        "path": plan.directory,
        "owner": "root",
        "group": "root",
        "mode": "0755",
    }
    yield from (_configuration(service) for service in (plan.node, plan.textfile))
    if not settings.web:
        yield from node.no_web()
    # AMD's exporter as it came another way goes before it comes.
    kept = [item.path for service in plan.amd for item in service.files]
    yield from (_gone(service, kept) for service in plan.absent)
    if plan.method == "package":
        yield from amd.repository(settings, evidence)
    yield from (_configuration(service) for service in plan.amd)


def _absent(plan: TelemetryHostPlan) -> Iterator[Mapping[str, Any]]:
    services = (*plan.amd, *plan.absent, plan.textfile, plan.node)
    yield from (_gone(service) for service in services)
    yield from node.no_web()
    for path in (amd.SOURCES, amd.PREFERENCES, plan.expected["file"]):
        yield {"kind": "file", "path": path}
    # Not a text: a keyring.
    folder, _slash, name = amd.KEY.rpartition("/")
    yield {"kind": "directory", "path": folder, "purge": name, "state": "absent"}
