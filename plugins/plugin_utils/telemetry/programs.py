# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Prometheus, Alertmanager and Grafana read: their configurations, targets and dashboards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..documents import knowledge
from .promql import JOBS, configuration
from .rules import thresholds
from .targets import alertmanagers
from .types import Receiver, Target, TelemetryPlan, TelemetrySettings

CONFIG = "prometheus.yml"
RULES = ("rules/recording.yml", "rules/slo.yml", "rules/alerts.yml")


def target_file(job: str) -> str:
    """Return the path of a job's targets below Prometheus' directory."""
    return f"targets/{job}.json"


def target_files(all_targets: Sequence[Target]) -> dict[str, str]:
    """Return the files of file-based discovery, one for each job, as JSON; a job may have none."""
    files = {}
    for job in JOBS:
        groups = [
            {"targets": [target.address], "labels": dict(sorted(target.labels.items()))}
            for target in all_targets
            if target.job == job
        ]
        files[target_file(job)] = json.dumps(groups, indent=2, sort_keys=True) + "\n"
    return files


def prometheus_config(settings: TelemetrySettings) -> str:
    """Return prometheus.yml; the paths in it are relative to its directory."""
    bounds = knowledge("telemetry/settings.yml")["scrape"]["bounds"]
    return configuration(
        CONFIG,
        settings=settings,
        rules=RULES,
        alertmanagers=alertmanagers(settings),
        jobs={job: target_file(job) for job in JOBS},
        bounds={job: {**bounds["every"], **bounds.get(job, {})} for job in JOBS},
        dropped=knowledge("telemetry/amd.yml")["labels"]["dropped"],
    )


ALERTMANAGER = "alertmanager.yml"
SEVERITIES = ("critical", "warning", "info")


def alertmanager_config(settings: TelemetrySettings) -> str:
    """Return alertmanager.yml; secrets are names of files in it."""
    named = {receiver.name: receiver for receiver in settings.receivers}
    routed: dict[str, dict[str, list[Receiver]]] = {}
    for severity in SEVERITIES:
        for name in settings.routes.get(severity) or ():
            kinds = routed.setdefault(severity, {})
            kinds.setdefault(named[name].kind, []).append(named[name])
    return configuration(
        ALERTMANAGER,
        settings=settings,
        facts=knowledge("telemetry/settings.yml")["alertmanager"],
        routed=routed,
        inhibitions=inhibitions(),
    )


def inhibitions() -> list[dict[str, Any]]:
    """Return what holds back what: causes their consequences, on the same host or deployment.

    What is no critical alert itself never holds one back.
    """
    alerts = knowledge("telemetry/alerts.yml")["alerts"]
    on_hosts = [alert["alert"] for alert in alerts if "host" in alert["labels"]]
    slos = ["SloBurnFast", "SloBurnMedium", "SloBurnSlow"]
    rules = [
        # A host that is down is told once, not for each of its replicas and exporters.
        _inhibit("HostDown", [name for name in on_hosts if name != "HostDown"], ["host"]),
        _inhibit("DeploymentDown", ["ReplicaDown", "RouterNoServers", *slos], ["deployment"]),
        _inhibit("SloBurnFast", slos[1:], ["deployment", "slo"]),
        _inhibit("SloBurnMedium", slos[2:], ["deployment", "slo"]),
    ]
    # What an exporter says is old, or nothing, once it is down.
    for cause, prefixes in EXPORTERS.items():
        held = [
            alert["alert"]
            for alert in alerts
            if alert["alert"] in on_hosts
            and alert["alert"] != cause
            and alert["severity"] != "critical"
            and any(name.startswith(prefixes) for name in alert["needs"])
            # Whether a replica answers, Prometheus sees for itself.
            and "apiary:replica_up" not in alert["needs"]
        ]
        rules.append(_inhibit(cause, held, ["host"]))
    return rules


# The alert that says that an exporter is gone, and how the series begin that come from it.
EXPORTERS: Mapping[str, tuple[str, ...]] = {
    "NodeExporterDown": ("node_", "apiary_"),
    "TextfileStale": ("apiary_",),
    "AmdExporterDown": ("apiary:gpu_",),
}


def _inhibit(cause: str, names: list[str], equal: list[str]) -> dict[str, Any]:
    listed = "|".join(names)
    return {
        "source_matchers": [f'alertname="{cause}"'],
        "target_matchers": [f'alertname=~"{listed}"'],
        "equal": equal,
    }


SHIPPED = Path(__file__).parents[1] / "knowledge/telemetry/dashboards"
ROUTER = "apiary-router.json"
_NAMED = re.compile(r'"@(\w+)"')


def dashboards(plan: TelemetryPlan | None = None) -> dict[str, str]:
    """Return the JSON of each dashboard by file name, with the thresholds of the plan's alerts.

    A fleet without routers gets no dashboard of them; without a plan there are all.
    """
    values = thresholds(plan.settings if plan else TelemetrySettings())
    routed = plan is None or plan.routed
    return {
        path.name: _NAMED.sub(lambda match: json.dumps(values[match[1]]), path.read_text("utf-8"))
        for path in sorted(SHIPPED.glob("*.json"))
        if routed or path.name != ROUTER
    }
