# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Alertmanager's configuration: who hears of what, and what is held back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from .promql import document
from .types import Mail, Receiver, TelemetrySettings

CONFIG = "alertmanager.yml"
SEVERITIES = ("critical", "warning", "info")
NOBODY = "nobody"


def alertmanager_config(settings: TelemetrySettings) -> str:
    """Return alertmanager.yml; secrets are names of files in it."""
    facts = knowledge("telemetry/settings.yml")["alertmanager"]
    routed = [severity for severity in SEVERITIES if settings.routes.get(severity)]
    config: dict[str, Any] = {
        "route": {
            "receiver": NOBODY,
            "group_by": facts["group_by"],
            "group_wait": f"{min(facts['group_wait_seconds'], 2 * settings.evaluation_seconds)}s",
            "group_interval": facts["group_interval"],
            "routes": [
                {
                    "receiver": severity,
                    "matchers": [f'severity="{severity}"'],
                    "repeat_interval": facts["repeat_interval"][severity],
                }
                for severity in routed
            ],
        },
        "receivers": [{"name": NOBODY}, *(_receiver(severity, settings) for severity in routed)],
        "inhibit_rules": inhibitions(),
    }
    return document(config)


def _receiver(severity: str, settings: TelemetrySettings) -> dict[str, Any]:
    """Return one receiver that has the ways of all who hear of a severity."""
    named = {receiver.name: receiver for receiver in settings.receivers}
    ways: dict[str, Any] = {"name": severity}
    for name in settings.routes[severity]:
        receiver = named[name]
        ways.setdefault(f"{receiver.kind}_configs", []).append(_way(receiver, settings.mail))
    return ways


def _way(receiver: Receiver, mail: Mail | None) -> dict[str, Any]:
    secret = receiver.secret_file
    if receiver.kind == "webhook":
        way: dict[str, Any] = {"url": receiver.url, "send_resolved": True}
        if secret:
            way["http_config"] = {"authorization": {"credentials_file": secret}}
        return way
    if receiver.kind == "slack":
        return {
            "api_url_file": secret,
            **({"channel": receiver.channel} if receiver.channel else {}),
            "title": "{{ .CommonLabels.alertname }} ({{ .CommonLabels.severity }})",
            "text": (
                "{{ range .Alerts }}{{ .Annotations.summary }}\n"
                "{{ .Annotations.remedy }}\n{{ end }}"
            ),
            "send_resolved": True,
        }
    if receiver.kind == "pagerduty":
        url = {"url": receiver.url} if receiver.url else {}
        return {"routing_key_file": secret, **url, "send_resolved": True}
    return _mail(receiver, mail)


def _mail(receiver: Receiver, mail: Mail | None) -> dict[str, Any]:
    way: dict[str, Any] = {"to": ", ".join(receiver.to), "send_resolved": True}
    if mail:
        way |= {"smarthost": mail.server, "from": mail.sender, "require_tls": mail.tls}
    if receiver.user:
        way["auth_username"] = receiver.user
    if receiver.secret_file:
        way["auth_password_file"] = receiver.secret_file
    return way


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
