# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""knowledge/telemetry/alerts.yml → alerting rules, with the operator's thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from .promql import Group, Rule, filled, number
from .types import TelemetrySettings

TABLE = "telemetry/alerts.yml"


def alert_names() -> tuple[str, ...]:
    """Return the names of all alerts, in the order of the table."""
    return tuple(one["alert"] for one in knowledge(TABLE)["alerts"])


def alert_group(settings: TelemetrySettings) -> Group:
    """Return the alerting rules that the operator did not drop."""
    rules = [
        _rule(one, settings)
        for one in knowledge(TABLE)["alerts"]
        if one["alert"] not in settings.without
    ]
    return Group("apiary-alerts", tuple(rules))


def thresholds(settings: TelemetrySettings) -> dict[str, float]:
    """Return each threshold by its name: the operator's value, else that of settings.yml."""
    table = knowledge("telemetry/settings.yml")["thresholds"]
    return {name: settings.thresholds.get(name, fact["value"]) for name, fact in table.items()}


def runbook(name: str, settings: TelemetrySettings) -> str:
    """Return where an alert's page is read."""
    return f"{settings.runbooks or knowledge(TABLE)['runbooks']}#{name.lower()}"


def _rule(one: Mapping[str, Any], settings: TelemetrySettings) -> Rule:
    values = {f"threshold:{name}": number(value) for name, value in thresholds(settings).items()}
    return Rule(
        one["alert"],
        filled(one["expr"], values),
        {"severity": one["severity"]},
        {
            "summary": one["summary"],
            "description": one["description"],
            "remedy": one["remedy"],
            "runbook_url": runbook(one["alert"], settings),
        },
        alert=True,
        wait=_patient(one.get("for"), settings.patience),
    )


# Prometheus' units that the table has, in seconds.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _patient(wait: str | None, patience: float) -> str | None:
    """Return how long an alert waits; None where it doesn't."""
    if wait is None or patience == 1:
        return wait
    seconds = int(wait[:-1]) * _UNITS[wait[-1]] * patience
    return f"{max(1, round(seconds))}s" if seconds else None
