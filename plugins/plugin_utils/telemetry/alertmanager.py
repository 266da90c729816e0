# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Alertmanager's configuration: who hears of what, and what is held back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from .promql import configuration
from .types import Receiver, TelemetrySettings

CONFIG = "alertmanager.yml"
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
        CONFIG,
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
