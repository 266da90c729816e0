# SPDX-License-Identifier: GPL-3.0-or-later

"""What Prometheus, Alertmanager and Grafana read: their configurations, targets and dashboards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    alerts = knowledge("telemetry/alerts.yml")["alerts"]
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
        of_hosts=[alert["alert"] for alert in alerts if "host" in alert["labels"]],
        exporters={cause: unfounded(cause, prefixes) for cause, prefixes in EXPORTERS.items()},
    )


# The alert that says that an exporter is gone, and how the series begin that come from it.
EXPORTERS: Mapping[str, tuple[str, ...]] = {
    "NodeExporterDown": ("node_", "apiary_"),
    "TextfileStale": ("apiary_",),
    "AmdExporterDown": ("apiary:gpu_",),
}


def unfounded(cause: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the alerts of a host that an exporter's series cannot found once it is down.

    What is critical is never among them, nor whether a replica answers: that Prometheus sees.
    """
    return [
        alert["alert"]
        for alert in knowledge("telemetry/alerts.yml")["alerts"]
        if "host" in alert["labels"]
        and alert["alert"] != cause
        and alert["severity"] != "critical"
        and any(name.startswith(prefixes) for name in alert["needs"])
        and "apiary:replica_up" not in alert["needs"]
    ]


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
