# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells Prometheus of itself: exporters, and our own text file of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...documents import to_document
from ...evidence.types import Evidence
from ...findings import Finding
from . import amd, node
from .types import Repository, Service, Settings, TelemetryHostPlan

__all__ = ["Repository", "Service", "Settings", "TelemetryHostPlan", "decide", "looks"]


def decide(settings: Settings, evidence: Evidence) -> TelemetryHostPlan:
    """Return what a host gets; raise ApiaryError where nothing right can be done."""
    method, findings = amd.method(settings, evidence)
    directory = node.directory(settings, evidence)
    expected = node.expected(settings, evidence, directory)
    services = amd.services(settings, evidence, method)
    wanted = [service.unit for service in services]
    others = [one for one in amd.all_services(settings, evidence) if one.unit not in wanted]
    ports = {"node": settings.node_port}
    if method != "none":
        ports["amd"] = settings.amd_port
    return TelemetryHostPlan(
        method=method,
        node=node.exporter(settings, evidence, directory),
        textfile=node.textfile(settings, expected),
        amd=services,
        absent=tuple(others),
        repository=amd.repository(settings, evidence) if method == "package" else None,
        directory=directory,
        ports=ports,
        expected=expected,
        findings=(*findings, *_told(settings, evidence)),
    )


def _told(settings: Settings, evidence: Evidence) -> Iterator[Finding]:
    if settings.listen.startswith("127.") or settings.listen in ("::1", "localhost"):
        yield Finding(
            "MONITORING-LOOPBACK",
            evidence.host,
            f"its exporters listen on {settings.listen} alone: no other host reads them",
        )


def looks(plan: TelemetryHostPlan) -> list[dict[str, Any]]:
    """Return what the role does by this plan, as steps of `host_check`: a right host has none due.

    A role that gets another task has it here, too.
    """

    def step(module: str, **arguments: Any) -> dict[str, Any]:
        return {"concern": "telemetry", "module": module, "arguments": to_document(arguments)}

    def service(one: Service) -> dict[str, Any]:
        return step(
            "service_config",
            service=one.unit,
            main=one.main,
            files=one.files,
            reload=False,
            area="MONITORING",
        )

    gone = [{"path": item.path} for one in plan.absent for item in one.files]
    kept = {item.path for one in plan.amd for item in one.files}
    steps = [step("host_files", files=[item for item in gone if item["path"] not in kept])]
    if plan.repository:
        own = plan.repository
        steps.append(
            step(
                "rocm_repositories",
                manager=own.manager,
                keys=own.keys,
                files=own.files,
                packages=own.packages,
            )
        )
        steps.append(
            step(
                "rocm_packages",
                manager=own.manager,
                packages=own.packages,
                install=[own.missing],
            )
        )
    return [*steps, *(service(one) for one in (plan.node, plan.textfile, *plan.amd))]
