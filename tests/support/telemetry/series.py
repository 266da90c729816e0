# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every series that a fleet has by Apiary's tables, with the labels that it may carry."""

from __future__ import annotations

from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry import promql
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.rules import (
    RECORDING,
    expanded,
    replaced,
)

SCRAPED = frozenset({"job", "instance"})
ENGINE = frozenset({*promql.REPLICA, "model", "engine_version"}) | SCRAPED
HOST = frozenset(promql.HOST) | SCRAPED
EVERY = ENGINE | HOST
# Of Prometheus and Alertmanager, as their /metrics have it (tests/telemetry asks them).
SERVERS: dict[str, tuple[str, ...]] = {
    "alertmanager_config_last_reload_successful": (),
    "alertmanager_notifications_failed_total": ("integration",),
    "prometheus_config_last_reload_successful": (),
    "prometheus_notifications_alertmanagers_discovered": (),
    "prometheus_notifications_dropped_total": (),
    "prometheus_rule_evaluation_failures_total": ("rule_group",),
    "prometheus_rule_group_interval_seconds": ("rule_group",),
    "prometheus_rule_group_last_duration_seconds": ("rule_group",),
    "prometheus_sd_file_read_errors_total": (),
}
HISTOGRAM = ("bucket", "sum", "count")


def known(version: str | None = None) -> dict[str, frozenset[str]]:
    """Return labels by series: of an engine of this version, else of any that Apiary knows."""
    return {**scraped(version), **recorded(), **of_prometheus()}


def of_prometheus() -> dict[str, frozenset[str]]:
    """Return what Prometheus makes itself of targets and alerts, and what it and its like serve."""
    alerts = frozenset({"alertname", "alertstate", "severity", "slo", *promql.GPU}) | EVERY
    own = {name: SCRAPED | frozenset(names) for name, names in SERVERS.items()}
    of_targets = dict.fromkeys(("up", "scrape_duration_seconds", "scrape_series_added"), EVERY)
    return {**of_targets, "ALERTS": alerts, **own}


def scraped(version: str | None = None) -> dict[str, frozenset[str]]:
    """Return what engines, routers and exporters serve, as it is stored."""
    found: dict[str, frozenset[str]] = {}
    for entry in knowledge("telemetry/vllm.yml")["series"]:
        if version is None or _holds(entry, version):
            own = ENGINE | frozenset(entry["labels"])
            found |= dict.fromkeys(_wire(entry), own)
            if entry["kind"] == "histogram":
                found[f"{entry['name']}_bucket"] = own | {"le"}
    amd = knowledge("telemetry/amd.yml")
    kept = frozenset(amd["labels"]["always"]) - frozenset(amd["labels"]["dropped"])
    for entry in amd["series"]:
        found[entry["name"]] = HOST | kept | frozenset(entry["labels"])
    for table in ("haproxy", "node"):
        for entry in knowledge(f"telemetry/{table}.yml")["series"]:
            found.setdefault(entry["name"], HOST | frozenset(entry["labels"]))
    for name, entry in knowledge("telemetry/host.yml")["metrics"].items():
        found[name] = HOST | frozenset(entry["labels"])
    return found


def _wire(entry: dict[str, Any]) -> list[str]:
    if entry["kind"] == "histogram":
        return [f"{entry['name']}_{part}" for part in HISTOGRAM]
    return [entry["name"]]


def _holds(entry: dict[str, Any], version: str) -> bool:
    here = order(version)
    first, last = entry.get("since"), entry.get("until")
    return (first is None or order(first) <= here) and (last is None or here <= order(last))


def recorded() -> dict[str, frozenset[str]]:
    """Return the recorded series."""
    return {
        entry["record"]: frozenset(promql.SETS[entry["labels"]]) | frozenset(entry.get("more", ()))
        for entry in recorded_series()
    }


def recorded_series() -> tuple[dict[str, Any], ...]:
    """Return every series of the table with its name, labels, unit, meaning; templates expanded.

    Of the SLO's series each is there for every window of `slo.windows` that its name asks for.
    """
    table = knowledge(RECORDING)
    series = [entry for _group, entry in expanded(table)]
    for entry in table["slo"]["series"]:
        windows = [name for name in table["slo"]["windows"] if name in entry["record"]]
        for name in windows:
            series += [replaced(entry, {name: window}) for window in table["slo"]["windows"][name]]
        series += [] if windows else [entry]
    return tuple(series)
