# SPDX-License-Identifier: GPL-3.0-or-later

"""What is watched, and how somebody is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..findings import Finding
from ..plan.types import Plan

Exporter = Literal["amd", "node"]
Kind = Literal["email", "pagerduty", "slack", "webhook"]
Level = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class MonitoredHost:
    """A host as Prometheus reaches it: its place, what it serves, and which exporters it has.

    With ``router_port`` it is a router whose HAProxy serves its metrics there. ``amd_port`` and
    ``node_port`` are those of its exporters, None for the settings'. Without ``node_web`` its
    node_exporter speaks plain HTTP though the others have TLS.
    """

    name: str
    address: str
    rack: str | None = None
    failure_domain: str | None = None
    plans: tuple[Plan, ...] = ()
    router_port: int | None = None
    exporters: tuple[Exporter, ...] = ("amd", "node")
    amd_port: int | None = None
    node_port: int | None = None
    node_web: bool = True


@dataclass(frozen=True)
class Receiver:
    """Whom alerts reach. No secret is in here: ``secret_file`` is a file on the monitoring host.

    It holds a webhook's bearer token, a mail server's password, Slack's URL or PagerDuty's key.
    ``url`` is a webhook's or, with PagerDuty, another end point's; ``to`` mail addresses.
    """

    name: str
    kind: Kind
    url: str | None = None
    to: tuple[str, ...] = ()
    channel: str | None = None
    user: str | None = None
    secret_file: str | None = None


@dataclass(frozen=True)
class Mail:
    """The mail server that e-mail leaves by, as host:port, and whom it is from."""

    server: str
    sender: str
    tls: bool = True


@dataclass(frozen=True)
class Ports:
    """Where what is watched serves its metrics."""

    amd: int = 5000
    node: int = 9100
    prometheus: int = 9090
    alertmanager: int = 9093


@dataclass(frozen=True)
class TelemetrySettings:
    """Everything about telemetry that an operator sets.

    ``slos`` are the deployments' limits as `apiary bench` takes them: ttft:p90:2s,tpot:p90:50ms.
    ``success_objective`` is the share of requests that must not fail. ``thresholds`` replaces
    values of knowledge/telemetry/settings.yml, ``without`` drops alerts by name. ``routes`` names
    receivers by severity. ``alertmanagers`` and ``prometheuses`` are addresses with
    ports; () is the one on the monitoring host. ``cluster`` is on all that leaves Prometheus.
    ``patience`` multiplies how long alerts wait before they fire; 0 is not at all. ``runbooks`` is
    where the alerts' page is read. ``web`` is a directory with what it takes to read programs that
    speak TLS and want a password; None where they speak plain HTTP to everybody, as Alertmanagers
    do that are not our own.
    """

    slos: dict[str, str] = field(default_factory=dict)
    success_objective: float = 0.995
    thresholds: dict[str, float] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    receivers: tuple[Receiver, ...] = ()
    routes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mail: Mail | None = None
    alertmanagers: tuple[str, ...] = ()
    prometheuses: tuple[str, ...] = ()
    cluster: str = "apiary"
    scrape_seconds: int = 15
    evaluation_seconds: int = 15
    patience: float = 1.0
    ports: Ports = field(default_factory=Ports)
    runbooks: str | None = None
    web: str | None = None
    own_alertmanagers: bool = True
    prometheus_version: str = "2.42"
    alertmanager_version: str = "0.25"


@dataclass(frozen=True)
class Objective:
    """One limit of a deployment's SLO, as histograms can tell whether it is kept.

    ``limit`` is what was asked, ``bucket`` the bound of the engine's histogram that is counted,
    in seconds: the limit, else the next below it. ``target`` is the share that keeps it. None of
    both for failed requests, which have no time.
    """

    deployment: str
    slo: str
    target: float
    limit: float | None = None
    bucket: float | None = None


@dataclass(frozen=True)
class Target:
    """One address that a job of Prometheus reads."""

    job: str
    address: str
    labels: dict[str, str]


@dataclass(frozen=True)
class TelemetryPlan:
    """All of a fleet's telemetry; ``files`` are texts by path below Prometheus' directory.

    `alertmanager.yml` among them is Alertmanager's, whose directory is another. ``routed`` says
    that there are routers to watch.
    """

    settings: TelemetrySettings
    routed: bool
    targets: tuple[Target, ...]
    files: dict[str, str]
    findings: tuple[Finding, ...] = ()
