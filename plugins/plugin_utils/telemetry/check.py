# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts and settings are checked before anything is rendered from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..documents import knowledge
from ..findings import Finding
from .promql import words
from .rules import alert_names
from .types import MonitoredHost, Receiver, Target, TelemetrySettings

SEVERITIES = ("critical", "info", "warning")
_URL_SECRET = re.compile(r"(?i)(token|key|secret|passw|signature|sig)=|/services/T")


def check_hosts(hosts: Sequence[MonitoredHost]) -> Iterator[Finding]:
    """Refuse hosts that are two, or cannot be addressed; name those that plans know besides."""
    names = {host.name for host in hosts}
    for name, count in sorted(Counter(host.name for host in hosts).items()):
        if count > 1:
            yield _refused(
                "TELEMETRY-HOST", name, f"is given {count} times, so that its series would be mixed"
            )
    for host in hosts:
        if not _matches("address", host.address):
            yield _refused("TELEMETRY-HOST", host.name, f"has the address {host.address!r}")
        for plan in host.plans:
            if plan.host != host.name:
                yield _refused(
                    "TELEMETRY-HOST",
                    host.name,
                    f"has a plan of {plan.deployment.name} that is for {plan.host}",
                )
            for other in plan.node.hosts if plan.node else ():
                if other not in names:
                    yield Finding(
                        "TELEMETRY-UNKNOWN-HOST",
                        host.name,
                        f"{other} carries replicas of {plan.deployment.name} with it and is not "
                        "watched",
                        other=other,
                    )
        for field, text in (("rack", host.rack), ("failure_domain", host.failure_domain)):
            if text and not _matches("label", text):
                yield _refused(
                    "TELEMETRY-LABEL",
                    f"{host.name}: {field}",
                    f"{text!r} cannot be a label's value",
                )


def check_targets(targets: Sequence[Target]) -> Iterator[Finding]:
    """Refuse two targets at one address, and two replicas that no label tells apart."""
    places = Counter((target.job, target.address) for target in targets)
    for (job, address), count in sorted(places.items()):
        if count > 1:
            who = _told(
                target for target in targets if (target.job, target.address) == (job, address)
            )
            yield _refused("TELEMETRY-ADDRESS", f"{job} {address}", f"is where {who} would be read")
    ports: dict[str, set[str]] = {}
    for target in targets:
        ports.setdefault(target.address, set()).add(target.job)
    for address, jobs in sorted(ports.items()):
        if len(jobs) > 1:
            yield _refused(
                "TELEMETRY-ADDRESS",
                address,
                f"would be read as {words(jobs)}, and only one of them can listen there",
            )
    several = Counter(
        (target.job, tuple(sorted(target.labels.items()))) for target in targets if target.labels
    )
    for (job, labels), count in sorted(several.items()):
        if count > 1:
            text = ", ".join(f"{name}={value}" for name, value in labels)
            yield _refused(
                "TELEMETRY-LABEL",
                f"{job}: {text}",
                f"are the labels of {count} targets, so that nothing tells their series apart",
            )


def check_settings(settings: TelemetrySettings, deployments: Iterable[str]) -> Iterator[Finding]:
    """Refuse settings that cannot be meant, receivers that do not exist, and secrets in them."""
    facts = knowledge("telemetry/settings.yml")
    yield from _numbers(settings)
    yield from _unknown("thresholds", settings.thresholds, facts["thresholds"])
    yield from _unknown("without", settings.without, alert_names())
    yield from _unknown("routes", settings.routes, SEVERITIES)
    for name in sorted(set(settings.slos) - set(deployments)):
        # Hosts may all be in quarantine, or gone for a while; the others are watched all the same.
        yield Finding(
            "TELEMETRY-SLO-UNKNOWN",
            name,
            f"has an SLO, and no plan serves it; the plans serve {words(deployments) or 'nothing'}",
        )
    for field, texts in (
        ("alertmanagers", settings.alertmanagers),
        ("prometheuses", settings.prometheuses),
    ):
        for text in texts:
            if not re.fullmatch(r"[A-Za-z0-9_.\[\]:-]+:\d{1,5}", text):
                yield _setting(field, text, "host:port")
    for name, minimum in (("prometheus", "prometheus"), ("alertmanager", "alertmanager")):
        version = getattr(settings, f"{name}_version")
        least = facts[minimum]["minimum"]
        if _version(version) < _version(least):
            yield _setting(f"{name}_version", version, f"{least} or later")
    yield from _receivers(settings)


def _numbers(settings: TelemetrySettings) -> Iterator[Finding]:
    if not 0 < settings.success_objective < 1:
        yield _setting("success_objective", settings.success_objective, "a share between 0 and 1")
    for name in ("scrape_seconds", "evaluation_seconds"):
        # Rates over five minutes want a few samples.
        if not 1 <= getattr(settings, name) <= 60:
            yield _setting(name, getattr(settings, name), "1 to 60 seconds")
    if not 0 <= settings.patience <= 100:
        yield _setting("patience", settings.patience, "0 to 100")
    if not _matches("label", settings.cluster):
        yield _setting("cluster", settings.cluster, "a name")
    for name, port in vars(settings.ports).items():
        if not 1 <= port <= 65535:
            yield _setting(f"ports.{name}", port, "a port from 1 to 65535")
    for name, value in settings.thresholds.items():
        if value < 0:
            yield _setting(f"thresholds.{name}", value, "0 or more")


def _unknown(field: str, names: Iterable[str], supported: Iterable[str]) -> Iterator[Finding]:
    for name in sorted(set(names) - set(supported)):
        yield _setting(field, name, f"one of {words(supported)}")


def _receivers(settings: TelemetrySettings) -> Iterator[Finding]:
    named = Counter(receiver.name for receiver in settings.receivers)
    for name, count in sorted(named.items()):
        if count > 1 or not _matches("receiver", name):
            yield _receiver(name, "is no name, or that of two")
    for severity, names in sorted(settings.routes.items()):
        for name in names:
            if name not in named:
                yield _receiver(name, f"is to hear of {severity} alerts, and is no receiver")
    if not settings.routes.get("critical"):
        yield Finding(
            "TELEMETRY-NOBODY",
            "routes",
            "nobody hears of critical alerts; they are seen in Alertmanager alone",
        )
    for receiver in settings.receivers:
        yield from _complete(receiver, settings)


def _complete(receiver: Receiver, settings: TelemetrySettings) -> Iterator[Finding]:
    """Refuse a receiver that lacks what its kind needs, or that has its secret in the open."""
    needs = {
        "email": {"to": bool(receiver.to), "mail (of the settings)": settings.mail is not None},
        "pagerduty": {"secret_file": bool(receiver.secret_file)},
        "slack": {"secret_file": bool(receiver.secret_file)},
        "webhook": {"url": bool(receiver.url)},
    }[receiver.kind]
    missing = [name for name, there in needs.items() if not there]
    if missing:
        yield _receiver(receiver.name, f"of kind {receiver.kind} has no {words(missing)}")
    if receiver.secret_file and not _matches("file", receiver.secret_file):
        yield _receiver(receiver.name, f"has the secret_file {receiver.secret_file!r}")
    since = knowledge("telemetry/settings.yml")["alertmanager"]["since"][receiver.kind]
    if receiver.secret_file and _version(settings.alertmanager_version) < _version(since):
        yield _receiver(
            receiver.name,
            f"keeps its secret in a file, which Alertmanager reads for {receiver.kind} since "
            f"{since}",
        )
    if receiver.url:
        parts = urlsplit(receiver.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield _receiver(receiver.name, "has a url that is none")
        elif parts.username or parts.password or _URL_SECRET.search(receiver.url):
            yield _refused(
                "TELEMETRY-SECRET",
                receiver.name,
                "has a secret in its url, which everybody could read who reads the configuration",
            )


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _matches(name: str, text: str) -> bool:
    pattern: str = knowledge("telemetry/settings.yml")["names"][name]
    return re.fullmatch(pattern, text) is not None


def _told(targets: Iterable[Target]) -> str:
    return words(
        " ".join(target.labels.get(name, "") for name in ("host", "deployment", "replica")).strip()
        or target.address
        for target in targets
    )


def _setting(field: str, value: object, expected: str) -> Finding:
    return _refused(
        "TELEMETRY-SETTING",
        field,
        f"is {value!r}, expected {expected}",
        field=field,
        allowed=expected,
    )


def _receiver(name: str, found: str) -> Finding:
    return _refused("TELEMETRY-RECEIVER", name, found)


def _refused(code: str, subject: str, found: str, **values: Any) -> Finding:
    return Finding(code, subject, found, **values)
