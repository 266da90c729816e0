# SPDX-License-Identifier: GPL-3.0-or-later

"""knowledge/telemetry/recording.yml and alerts.yml → rules, with the operator's thresholds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ..documents import knowledge
from ..gpus import gpu_models
from .promql import Group, filled, number
from .types import TelemetrySettings

ALERTS = "telemetry/alerts.yml"
RECORDING = "telemetry/recording.yml"


def alert_names() -> tuple[str, ...]:
    """Return the names of all alerts, in the order of the table."""
    return tuple(alert["alert"] for alert in knowledge(ALERTS)["alerts"])


def alert_group(settings: TelemetrySettings) -> Group:
    """Return the alerting rules that the operator did not drop."""
    rules = [
        _rule(alert, settings)
        for alert in knowledge(ALERTS)["alerts"]
        if alert["alert"] not in settings.without
    ]
    return {"name": "apiary-alerts", "rules": rules}


def thresholds(settings: TelemetrySettings) -> dict[str, float]:
    """Return each threshold by its name: the operator's value, else that of settings.yml."""
    table = knowledge("telemetry/settings.yml")["thresholds"]
    return {name: settings.thresholds.get(name, fact["value"]) for name, fact in table.items()}


def runbook(name: str, settings: TelemetrySettings) -> str:
    """Return where an alert's page is read."""
    return f"{settings.runbooks or knowledge(ALERTS)['runbooks']}#{name.lower()}"


def _rule(alert: Mapping[str, Any], settings: TelemetrySettings) -> Mapping[str, Any]:
    wait = _patient(alert.get("for"), settings.patience)
    return {
        "alert": alert["alert"],
        "expr": _expression(alert["expr"], settings),
        **({"for": wait} if wait else {}),
        "labels": {"severity": alert["severity"]},
        "annotations": {
            "summary": alert["summary"],
            "description": alert["description"],
            "remedy": alert["remedy"],
            "runbook_url": runbook(alert["alert"], settings),
        },
    }


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


def recording_groups() -> tuple[Group, ...]:
    """Return the groups of recording rules, in the order in which they build on each other."""
    table = knowledge(RECORDING)
    groups: dict[str, list[Mapping[str, str]]] = {}
    for name, entry in expanded(table):
        rule = {"record": entry["record"], "expr": _recorded(entry, table["join"])}
        groups.setdefault(name, []).append(rule)
    return tuple({"name": f"apiary-{name}", "rules": rules} for name, rules in groups.items())


def expanded(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each series of a table with its group's name, templates filled in."""
    for group in table["groups"]:
        each: Mapping[str, list[Any]] = group.get("each", {})
        for chosen in itertools.product(*each.values()):
            values = {f"%{{{key}}}": str(value) for key, value in zip(each, chosen, strict=True)}
            for entry in group["series"]:
                yield group["name"], replaced(entry, values)


def replaced(one: Any, values: Mapping[str, str]) -> Any:
    """Return texts, lists or mappings with values in the place of their names."""
    if isinstance(one, str):
        for key, value in values.items():
            one = one.replace(key, value)
        return one
    if isinstance(one, list):
        return [replaced(item, values) for item in one]
    if isinstance(one, dict):
        return {key: replaced(item, values) for key, item in one.items()}
    return one


def _recorded(entry: Mapping[str, Any], join: Mapping[str, str]) -> str:
    """Return a series' PromQL; AMD's is joined with what the host says of the GPU."""
    if "expr" in entry:
        return filled(entry["expr"], {})
    if "amd" not in entry:
        return filled(join[entry["join"]], {})
    scale = entry.get("scale", 1)
    metric = filled(entry["amd"], {})
    joined = filled(join["expr"], {"metric": metric})
    if scale != 1:
        joined = f"({joined}) * {number(scale)}"
    if "also" in entry:
        return f"{joined} or on (host, gpu) {filled(join['also'], {'metric': entry['also']})}"
    return joined
