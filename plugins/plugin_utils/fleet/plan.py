# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a fleet: its surveys grouped, compared and added up, and why hosts differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..documents import knowledge
from ..findings import Finding, Severity, by_severity, errors_of, has_errors
from .groups import Grouping
from .ledger import Applied
from .names import Own, fold, neutral
from .report.outliers import Peer, outliers
from .types import (
    Capacity,
    Cause,
    ChangeGroup,
    ConcernSurvey,
    DeploymentCapacity,
    FleetPlan,
    HostGroup,
    Quarantine,
    Served,
    Survey,
    Totals,
    Unseen,
)

# A concern for what a host's survey refuses as a whole.
HOST = "host"


@dataclass(frozen=True)
class Observed:
    """One host of the inventory, where it stands, and what is known of it.

    ``survey`` is None where there is none that counts, and ``why`` says so. ``age_seconds`` is the
    survey's, also of one that does not count. ``applied`` is the host's ledger by concern.
    """

    host: str
    survey: Survey | None
    why: str = ""
    age_seconds: int | None = None
    addresses: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    domain: str | None = None
    quarantined: Quarantine | None = None
    applied: Mapping[str, Applied] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass
class _Seen:
    """What is kept of the hosts as they go by: no texts of any one host."""

    drift: bool
    grouping: Grouping = field(default_factory=Grouping)
    peers: list[Peer] = field(default_factory=list)
    serving: list[Serving] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    quarantined: list[Quarantine] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    said: dict[tuple[str, Severity, str, str, str], list[Finding]] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)
    homeless: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    by_cause: dict[Cause, set[str]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)


def fleet_plan(hosts: Iterable[Observed], drift: bool = False) -> FleetPlan:
    """Return what would change on hosts, who stands out, and what capacity results.

    ``hosts`` are taken one by one and may be a stream. With ``drift``, changes that the inventory
    asks for since the last run are counted, and left out of the groups.
    """
    seen = _Seen(drift)
    for host in hosts:
        _look(host, seen)
    changes, groups = seen.grouping.groups()
    capacity = fleet_capacity(seen.serving)
    totals = _totals(seen, changes, groups)
    return FleetPlan(
        drift=drift,
        would_change=any(group.changes for group in groups),
        totals=totals,
        oldest=min(seen.times, default=None),
        newest=max(seen.times, default=None),
        changes=changes,
        groups=groups,
        outliers=outliers(seen.peers),
        capacity=capacity,
        unseen=tuple(seen.unseen),
        quarantined=tuple(seen.quarantined),
        findings=(*_said(seen), *_own(seen, capacity)),
    )


def _look(host: Observed, seen: _Seen) -> None:
    """Take in one host."""
    survey = host.survey
    own = Own(host.host, host.addresses)
    _say(host.findings, own, seen)
    if host.quarantined is not None:
        seen.quarantined.append(host.quarantined)
    if survey is None or not survey.reached:
        why = host.why or "could not be reached"
        if survey is not None:
            _say(survey.findings, own, seen)
            why = next((one.message for one in survey.findings), why)
        seen.unseen.append(Unseen(host.host, why, host.age_seconds))
        return
    seen.times.append(survey.collected_at)
    if host.age_seconds is not None:
        most = knowledge("fleet_plan.yml")["survey_age"]["seconds"]
        seen.old += [host.host] if host.age_seconds > most else []
    for part in (survey.findings, *(one.findings for one in survey.concerns)):
        _say(part, own, seen)
    found = causes(survey, host.applied)
    concerns = survey.concerns
    if errors := errors_of(survey.findings):
        concerns = (ConcernSurvey(HOST, False, findings=errors), *concerns)
        found[HOST] = "unknown"
    if any(has_errors(one.findings) for one in concerns):
        seen.refused.add(host.host)
    for concern, cause in found.items():
        if concern != HOST:
            seen.by_cause.setdefault(cause, set()).add(host.host)
    if seen.drift:
        found = {concern: cause for concern, cause in found.items() if cause != "to apply"}
    seen.grouping.add(own, concerns, found)
    seen.peers.append(Peer(host.host, survey.facts, host.groups))
    seen.serving.append(_serving(host, survey, host.host in seen.refused))
    seen.behind += [host.host] if behind(survey, host.applied) else []
    seen.homeless += [host.host] if host.domain is None else []


def _serving(host: Observed, survey: Survey, refused: bool) -> Serving:
    """Return what a host serves; where a run would be refused, it goes on as it is."""
    return Serving(
        host=host.host,
        domain=host.domain or host.host,
        gpus=survey.facts.gpus,
        running=survey.running,
        planned=survey.running if refused else survey.wanted,
    )


def _say(findings: Iterable[Finding], own: Own, seen: _Seen) -> None:
    """Keep findings with those of other hosts that say the same."""
    for one in findings:
        plain = neutral((one.subject, one.message, one.remedy), own).texts
        about = "" if plain[0] == "{host}" else plain[0]
        key = (one.code, one.severity, about, plain[1], plain[2])
        seen.said.setdefault(key, []).append(one.about(own.name))


def _said(seen: _Seen) -> Iterator[Finding]:
    """Yield one finding for all hosts that say the same, errors first."""
    for key, found in sorted(seen.said.items(), key=lambda item: by_severity(item[1][0])):
        _code, _severity, about, message, remedy = key
        hosts = list(dict.fromkeys(one.subject for one in found))
        first = found[0]
        if len({one.message for one in found}) == 1:
            message, remedy = first.message, first.remedy
        subject = fold(hosts) + (f": {about}" if about else "")
        yield first.about(subject).reworded(message=message, remedy=remedy)


def _totals(seen: _Seen, changes: Sequence[ChangeGroup], groups: Sequence[HostGroup]) -> Totals:
    reboots = {one.name for one in changes if one.reboot}
    hosts = sum(len(group.hosts) for group in groups)
    changing = {host for group in groups if group.changes for host in group.hosts} - seen.refused
    return Totals(
        hosts=hosts + len(seen.unseen),
        unchanged=hosts - len(changing) - len(seen.refused),
        changing=len(changing),
        refused=len(seen.refused),
        unseen=len(seen.unseen),
        rebooting=sum(
            len(set(group.hosts) & changing) for group in groups if reboots & set(group.changes)
        ),
        drifted=len(seen.by_cause.get("drift", ())),
        to_apply=len(seen.by_cause.get("to apply", ())),
        unclear=len(seen.by_cause.get("unknown", ())),
        quarantined=len(seen.quarantined),
    )


def _own(seen: _Seen, capacity: Capacity) -> Iterator[Finding]:
    """Yield what only the fleet as a whole shows."""
    if seen.old:
        yield Finding(
            "FLEET-PLAN-SURVEY-OLD",
            fold(seen.old),
            "surveyed more than a day ago: hosts may have changed since",
        )
    if seen.quarantined:
        yield Finding(
            "FLEET-PLAN-QUARANTINED",
            fold(one.host for one in seen.quarantined),
            "left out by an earlier run, which failed there",
        )
    if seen.behind:
        yield Finding(
            "FLEET-PLAN-LEDGER-BEHIND",
            fold(seen.behind),
            "as the inventory asks, but by a run that the ledger does not have",
        )
    if seen.homeless and len(seen.serving) > 1:
        yield Finding(
            "FLEET-PLAN-NO-DOMAIN",
            fold(seen.homeless),
            "neither apiary_failure_domain nor apiary_rack: counted as failing alone",
        )
    yield from _single(seen, capacity)


def _single(seen: _Seen, capacity: Capacity) -> Iterator[Finding]:
    """Yield the deployments that a single failure domain takes away whole."""
    for one in capacity.deployments:
        if one.planned and one.lost == one.planned and len(seen.serving) > 1:
            yield Finding(
                "FLEET-PLAN-ONE-DOMAIN",
                one.deployment,
                f"all {one.planned} replicas would be in the failure domain {one.worst}",
            )


REPLICAS = "replicas:"


def causes(survey: Survey, applied: Mapping[str, Applied]) -> dict[str, Cause]:
    """Return the cause of each unsettled concern; ``applied`` is the host's ledger by concern.

    Without a ledger, what runs is taken for what was applied; of a host where nothing runs, all is
    to be applied. A concern that a ledger does not have is new.
    """
    new = bool(applied) or not survey.running
    return {
        one.concern: _cause(one, survey, applied.get(one.concern), new)
        for one in survey.concerns
        if not one.settled
    }


def _cause(one: ConcernSurvey, survey: Survey, applied: Applied | None, new: bool) -> Cause:
    name = one.concern.removeprefix(REPLICAS)
    if name != one.concern:
        running = {each.deployment: each.plan for each in survey.running}.get(name)
        wanted = {each.deployment: each.plan for each in survey.wanted}.get(name)
        if applied and applied.plan and running != applied.plan:
            return "drift"  # somebody else has put another plan there, or none
        if running is not None and running == wanted:
            return "drift"  # the same plan, and yet files or units are not as it has them
        if applied is None:
            return "to apply"
    if applied is None:
        return "to apply" if new else "unknown"
    if applied.asked and one.asked:
        return "drift" if applied.asked == one.asked else "to apply"
    return "unknown"


def behind(survey: Survey, applied: Mapping[str, Applied]) -> tuple[str, ...]:
    """Return the deployments that are as asked, but by a run that the ledger does not have."""
    running = {each.deployment: each.plan for each in survey.running}
    settled = {one.concern for one in survey.concerns if one.settled}
    return tuple(
        concern.removeprefix(REPLICAS)
        for concern, note in applied.items()
        if concern in settled
        and note.plan
        and running.get(concern.removeprefix(REPLICAS), note.plan) != note.plan
    )


@dataclass(frozen=True)
class Serving:
    """One host: its GPUs, what runs there, and what would.

    ``domain`` is what fails as one, its own name where nothing else is known.
    """

    host: str
    domain: str
    gpus: int
    running: tuple[Served, ...]
    planned: tuple[Served, ...]


def fleet_capacity(hosts: Sequence[Serving]) -> Capacity:
    """Return what hosts serve."""
    names = dict.fromkeys(
        served.deployment for host in hosts for served in (*host.planned, *host.running)
    )
    idle = {host.host: max(0, host.gpus - _gpus(host.planned)) for host in hosts}
    return Capacity(
        gpus=sum(host.gpus for host in hosts),
        used_now=sum(_gpus(host.running) for host in hosts),
        used=sum(_gpus(host.planned) for host in hosts),
        idle=sum(idle.values()),
        idle_hosts=tuple(host for host, count in idle.items() if count),
        deployments=tuple(_deployment(name, hosts) for name in names),
    )


def _gpus(served: Iterable[Served]) -> int:
    return sum(item.replicas * item.gpus_per_replica for item in served)


def _replicas(served: Iterable[Served]) -> int:
    return sum(item.replicas for item in served)


def _deployment(name: str, hosts: Sequence[Serving]) -> DeploymentCapacity:
    running = [item for host in hosts for item in host.running if item.deployment == name]
    planned = [(host, item) for host in hosts for item in host.planned if item.deployment == name]
    served = [item for _host, item in planned]
    domains: Counter[str] = Counter()
    for host, item in planned:
        domains[host.domain] += item.replicas
    worst, lost = domains.most_common(1)[0] if domains else ("", 0)
    up = [item.up for item in running if item.up is not None]
    return DeploymentCapacity(
        deployment=name,
        model=", ".join(dict.fromkeys(item.model for item in served or running)),
        engines=tuple(dict.fromkeys(item.engine for item in served)),
        layouts=tuple(dict.fromkeys(item.layout for item in served)),
        hosts=len(served),
        up=sum(up) if up or not _replicas(running) else None,
        running=_replicas(running),
        planned=_replicas(served),
        gpus=_gpus(served),
        worst=worst,
        lost=lost,
    )
