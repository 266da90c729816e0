# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet whose telemetry is golden files, and checked by promtool and amtool."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Node, Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    Mail,
    MonitoredHost,
    Receiver,
    TelemetrySettings,
)

from support.demo import demo_plan

RECEIVERS = (
    Receiver("on-call", "pagerduty", secret_file="/etc/prometheus/secrets/pagerduty"),  # noqa: S106 - a path
    Receiver("chat", "slack", channel="#gpu", secret_file="/etc/prometheus/secrets/slack"),  # noqa: S106 - a path
    Receiver("hook", "webhook", "https://alerts.example.org/apiary"),
    Receiver(
        "mail",
        "email",
        to=("gpu@example.org",),
        user="apiary",
        secret_file="/etc/prometheus/secrets/mail",  # noqa: S106 - a path
    ),
)
SETTINGS = TelemetrySettings(
    slos={"qwen3-235b": "ttft:p90:2500ms,ttft:p99:10s,tpot:p90:50ms"},
    receivers=RECEIVERS,
    routes={"critical": ("on-call", "chat"), "warning": ("chat", "hook"), "info": ("mail",)},
    mail=Mail("mail.example.org:587", "apiary@example.org"),
    without=("RebootRequired",),
)


def named(
    plan: Plan, name: str, host: str = "gpu-001", base: int = 8100, version: str | None = None
) -> Plan:
    """Return a plan for a deployment of another name, at ports of its own."""
    engine = plan.deployment.engine
    return replace(
        plan,
        host=host,
        deployment=replace(
            plan.deployment,
            name=name,
            engine=replace(engine, version=version or engine.version),
        ),
        target=f"apiary-{name}.target",
        replicas=tuple(
            replace(one, unit=f"apiary-{name}-{index}.service", port=base + index)
            for index, one in enumerate(plan.replicas)
        ),
    )


def spanning(plan: Plan, rank: int, hosts: tuple[str, ...]) -> Plan:
    """Return the plan of one of several hosts of the same replicas."""
    return replace(
        plan,
        host=hosts[rank],
        node=Node(rank, len(hosts), "10.0.0.1", hosts),
        placement=plan.placement,
    )


def watched_hosts() -> tuple[MonitoredHost, ...]:
    """Return two hosts of one rack with three deployments, one over both, and a router."""
    plan = demo_plan()
    both = ("gpu-001", "gpu-002")
    large = [spanning(named(plan, "large", base=8300), rank, both) for rank in (0, 1)]
    small = named(plan, "small", version="0.9.2")
    first, second = replace(plan, host="gpu-001"), replace(plan, host="gpu-002")
    return (
        MonitoredHost("gpu-001", "10.0.0.1", "r1", "power-1", (first, small, large[0])),
        MonitoredHost("gpu-002", "fd00::2", "r1", "power-1", (second, large[1])),
        MonitoredHost("router-001", "10.0.0.9", router_port=8405, exporters=("node",)),
    )
