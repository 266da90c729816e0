# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet's hosts and plans → all that Prometheus and Alertmanager are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..documents import knowledge
from ..engine.conditions import order, parse_version
from ..findings import Finding, error, stop_on_errors
from ..plan.types import Plan
from . import programs
from .check import check_hosts, check_settings, check_targets
from .promql import rule_file
from .rules import alert_group, recording_groups
from .slo import objectives, slo_groups
from .targets import serving, targets
from .types import MonitoredHost, Objective, TelemetryPlan, TelemetrySettings


def telemetry_plan(
    hosts: Sequence[MonitoredHost], settings: TelemetrySettings | None = None
) -> TelemetryPlan:
    """Return what is watched, and every file for it; the same hosts in any order give the same.

    Raises ApiaryError with TELEMETRY-* findings, or BENCH-SLO for limits that cannot be read.
    """
    settings = settings or TelemetrySettings()
    hosts = sorted(hosts, key=lambda item: item.name)
    if not hosts:
        raise error("TELEMETRY-NO-HOSTS", "hosts", "there is no host to watch")
    plans = _serving(hosts)
    findings = [*check_hosts(hosts), *check_settings(settings, plans)]
    stop_on_errors(findings)
    all_targets = targets(hosts, settings)
    stop_on_errors(check_targets(all_targets))
    retained, notes = objectives(plans, settings)
    findings += [*notes, *_engines(plans)]
    return TelemetryPlan(
        settings,
        any(host.router_port is not None for host in hosts),
        all_targets,
        {
            programs.CONFIG: programs.prometheus_config(settings),
            **programs.target_files(all_targets),
            **rule_files(retained, settings),
            programs.ALERTMANAGER: programs.alertmanager_config(settings),
        },
        tuple(findings),
    )


def rule_files(kept: Sequence[Objective], settings: TelemetrySettings) -> dict[str, str]:
    """Return the files of rules: those of every fleet, of the SLOs, and the alerts."""
    recording, slo, alerts = programs.RULES
    return {
        recording: rule_file(recording_groups()),
        slo: rule_file(slo_groups(kept)),
        alerts: rule_file([alert_group(settings)]),
    }


def _serving(hosts: Sequence[MonitoredHost]) -> dict[str, list[Plan]]:
    """Return the plans of each deployment, of the hosts that answer HTTP for it."""
    plans: dict[str, list[Plan]] = {}
    for host in hosts:
        for plan in serving(host):
            plans.setdefault(plan.deployment.name, []).append(plan)
    return plans


def _engines(plans: dict[str, list[Plan]]) -> Iterator[Finding]:
    """Say of engines that are newer than what was read of them, and of metrics without a key."""
    facts = knowledge("telemetry/vllm.yml")
    last = facts["versions"]["last"]
    variable = knowledge("router.yml")["engine_key"]["variable"]
    for name in sorted(plans):
        versions = {plan.deployment.engine.version for plan in plans[name]}
        for version in sorted(versions):
            parsed = parse_version(version)
            if parsed is None or parsed > order(last):
                yield Finding(
                    "TELEMETRY-ENGINE-VERSION",
                    name,
                    f"runs vLLM {version}; the names of metrics are known up to {last}",
                )
        if any(variable in plan.deployment.secrets for plan in plans[name]):
            yield Finding(
                "TELEMETRY-OPEN-METRICS",
                name,
                "has a key for its API, and vLLM serves /metrics without one: whoever reaches the "
                "port reads it",
                source=facts["guarded"]["source"],
            )
