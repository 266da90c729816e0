# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""knowledge/telemetry/alerts.yml → alerting rules, with the operator's thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from ..gpus import gpu_models
from .promql import Group, Rule, filled, number
from .types import TelemetrySettings

TABLE = "telemetry/alerts.yml"


def alert_names() -> tuple[str, ...]:
    """Return the names of all alerts, in the order of the table."""
    return tuple(alert["alert"] for alert in knowledge(TABLE)["alerts"])


def alert_group(settings: TelemetrySettings) -> Group:
    """Return the alerting rules that the operator did not drop."""
    rules = [
        _rule(alert, settings)
        for alert in knowledge(TABLE)["alerts"]
        if alert["alert"] not in settings.without
    ]
    return Group("apiary-alerts", tuple(rules))


def thresholds(settings: TelemetrySettings) -> dict[str, float]:
    """Return each threshold by its name: the operator's value, else that of settings.yml."""
    table = knowledge("telemetry/settings.yml")["thresholds"]
    return {name: settings.thresholds.get(name, fact["value"]) for name, fact in table.items()}


def runbook(name: str, settings: TelemetrySettings) -> str:
    """Return where an alert's page is read."""
    return f"{settings.runbooks or knowledge(TABLE)['runbooks']}#{name.lower()}"


def _rule(alert: Mapping[str, Any], settings: TelemetrySettings) -> Rule:
    return Rule(
        alert["alert"],
        _expression(alert["expr"], settings),
        {"severity": alert["severity"]},
        {
            "summary": alert["summary"],
            "description": alert["description"],
            "remedy": alert["remedy"],
            "runbook_url": runbook(alert["alert"], settings),
        },
        alert=True,
        wait=_patient(alert.get("for"), settings.patience),
    )


def _expression(expr: str, settings: TelemetrySettings) -> str:
    """Return an alert's expression; models with thresholds of their own have a part of their own.

    What the operator sets holds for every model.
    """
    common = thresholds(settings)
    groups: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for name, model in gpu_models().items():
        own = {
            key: value
            for key, value in model.thresholds.values.items()
            if f"%{{threshold:{key}}}" in expr
            and key not in settings.thresholds
            and value != common[key]
        }
        if own:
            groups.setdefault(tuple(sorted(own.items())), []).append(name)
    if not groups:
        return _filled(expr, common)
    apart = "|".join(name for names in groups.values() for name in names)
    parts = [f"({_filled(expr, common)}) unless {_OF_MODEL.format(apart)}"]
    parts += [
        f"({_filled(expr, common | dict(own))}) and {_OF_MODEL.format('|'.join(names))}"
        for own, names in groups.items()
    ]
    return " or ".join(parts)


def _filled(expr: str, values: Mapping[str, float]) -> str:
    return filled(expr, {f"threshold:{name}": number(value) for name, value in values.items()})


# Which GPUs of a rule's are of some models; a host's text file names the model of each.
_OF_MODEL = 'on (host, gpu) apiary_gpu_info{{model=~"{}"}}'

# Prometheus' units that the table has, in seconds.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _patient(wait: str | None, patience: float) -> str | None:
    """Return how long an alert waits; None where it doesn't."""
    if wait is None or patience == 1:
        return wait
    seconds = int(wait[:-1]) * _UNITS[wait[-1]] * patience
    return f"{max(1, round(seconds))}s" if seconds else None
