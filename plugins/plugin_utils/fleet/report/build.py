# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the hosts of a fleet: outliers first, findings grouped, what it means for who asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...findings import Finding, Severity, by_severity, errors_of, has_errors
from ...host.types import Check
from ...numbers import age_text
from ..ledger import Ledger
from ..names import fold
from ..runs import BAD, FleetRollout
from ..types import HostFacts, Survey
from .outliers import Peer, odd_of, shared_of
from .types import (
    STATES,
    CheckCount,
    FleetReport,
    Group,
    HostInput,
    HostReport,
    HostState,
    LastRun,
    Odd,
    Outcome,
    Pending,
)

_SEVERITIES = ("error", "warning", "info")
# What a state means for acceptance: code, what is said of the hosts, and what to do.
_REFUSED: dict[HostState, tuple[str, str]] = {
    "failing": ("FLEET-REPORT-FAILING", "not accepted"),
    "quarantined": ("FLEET-REPORT-QUARANTINED", "in quarantine: a run failed there"),
    "unreached": ("FLEET-REPORT-UNREACHED", "not reached"),
    "unknown": ("FLEET-REPORT-UNKNOWN", "without an acceptance"),
}


def fleet_report(
    given: Sequence[HostInput],
    created: str,
    run: FleetRollout | None = None,
    *,
    stale_seconds: int | None = None,
    allow_unreached: bool = False,
) -> FleetReport:
    """Return the report of a fleet: every host that is given is in it, whatever is known of it.

    ``run`` is the last rollout. ``accepted`` is False where a host fails or is in
    quarantine, and, unless ``allow_unreached``, where one was not reached or has no acceptance.
    """
    # Of a host that was not reached, nothing is known that could differ.
    peers = [
        Peer(one.host, one.survey.facts, one.groups)
        for one in given
        if one.survey and one.survey.reached
    ]
    odd = odd_of(peers)
    judged = [judge(one, odd.get(one.host, ()), stale_seconds) for one in given]
    rank = {state: place for place, state in enumerate(STATES)}
    hosts = sorted(judged, key=lambda one: (rank[one.state], -len(one.odd)))
    findings = tuple(_refusals(hosts, allow_unreached))
    counts = Counter(one.state for one in hosts)
    return FleetReport(
        created=created,
        accepted=not has_errors(findings),
        counts=tuple((state, counts[state]) for state in STATES if counts[state]),
        hosts=tuple(hosts),
        groups=_groups(hosts),
        shared=shared_of(peers),
        rollout=_outcome(run),
        findings=findings,
    )


def _refusals(hosts: Sequence[HostReport], allow_unreached: bool) -> Iterator[Finding]:
    """Yield one finding a state that is no acceptance."""
    for state, (code, said) in _REFUSED.items():
        named = [one.host for one in hosts if one.state == state]
        if named:
            verb = "is" if len(named) == 1 else "are"
            yield Finding(
                code,
                "fleet",
                f"{len(named)} of {len(hosts)} hosts {verb} {said}: {fold(named)}",
                accepted=allow_unreached,
            )


def _groups(hosts: Sequence[HostReport]) -> tuple[Group, ...]:
    """Return findings by code: the severest first, then those of most hosts."""
    found: dict[str, list[tuple[str, Finding]]] = {}
    for host in hosts:
        told = host.quarantined.findings if host.quarantined else ()
        for finding in (*host.findings, *told):
            found.setdefault(finding.code, []).append((host.host, finding))
    groups = []
    for code, pairs in found.items():
        worst = min(pairs, key=lambda pair: _SEVERITIES.index(pair[1].severity))[1]
        owners = tuple(dict.fromkeys(host for host, _finding in pairs))
        groups.append(Group(code, worst.severity, worst.message, worst.remedy, owners))
    return tuple(
        sorted(groups, key=lambda one: (_SEVERITIES.index(one.severity), -len(one.hosts), one.code))
    )


def _outcome(run: FleetRollout | None) -> Outcome | None:
    """Return how a rollout ended, or how far it is."""
    if run is None:
        return None
    counts = Counter(one.outcome for one in run.hosts)
    return Outcome(
        run.id, run.state, run.stopped, run.begun_at, run.ended_at, tuple(counts.most_common())
    )


# Checks that measured something: their figures are worth a look where they pass, too.
MEASUREMENTS = (
    "ACCEPT-CLOCK",
    "ACCEPT-NFS-THROUGHPUT",
    "ACCEPT-RCCL",
    "ACCEPT-TRANSFERBENCH",
    "ACCEPT-RVS",
)
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def judge(
    given: HostInput, odd: Sequence[Odd] = (), stale_seconds: int | None = None
) -> HostReport:
    """Return the report of one host; ``odd`` is what it does not share with its peers.

    A survey that is newer than the acceptance can only make it worse: a host is "ok" by its
    acceptance alone. Older data than ``stale_seconds`` is a warning.
    """
    survey, acceptance = given.survey, given.acceptance
    findings = _findings(given, odd, stale_seconds)
    state, why = _state(given, findings)
    checks = acceptance.checks if acceptance else ()
    return HostReport(
        host=given.host,
        state=state,
        why=why,
        place=given.place,
        facts=survey.facts if survey else HostFacts(),
        sources=given.sources,
        checks=_counts(checks),
        failed=tuple(
            sorted((one for one in checks if one.state in ("fail", "unknown")), key=_rank)
        ),
        measured=tuple(one for one in checks if one.state == "pass" and one.code in MEASUREMENTS),
        findings=findings,
        pending=tuple(
            Pending(one.concern, len(one.changes), one.reboot)
            for one in (survey.concerns if survey else ())
            if not one.settled
        ),
        wanted=survey.wanted if survey else (),
        running=survey.running if survey else (),
        odd=tuple(odd),
        quarantined=given.quarantine,
        last_run=_last_run(given.ledger),
        excerpts=acceptance.excerpts if acceptance else (),
    )


def _state(given: HostInput, findings: Sequence[Finding]) -> tuple[HostState, str]:
    survey, acceptance = given.survey, given.acceptance
    current = _current(given)
    errors = errors_of(findings)
    warnings = [one for one in findings if one.severity == "warning"]
    if given.quarantine:
        return "quarantined", _line(given.quarantine.message) or "a run left it out"
    if current and not current.reached:
        return "unreached", _line(errors[0].message) if errors else "could not be reached"
    if acceptance and not acceptance.accepted:
        fallen = errors or warnings
        return "failing", _first(fallen) or "not accepted"
    if errors:
        return "failing", _first(errors)
    if current and current.facts.health == "sick":
        return "failing", "a GPU is missing, cannot be used, or counted uncorrectable errors"
    if acceptance is None:
        return "unknown", "no acceptance" if survey else "no data"
    if warnings:
        return "warning", _first(warnings)
    return "ok", f"accepted: {sum(one.state == 'pass' for one in acceptance.checks)} checks pass"


def _current(given: HostInput) -> Survey | None:
    """Return the survey where it is newer than the acceptance: what it says holds then."""
    survey, acceptance = given.survey, given.acceptance
    older = survey and acceptance and survey.collected_at < acceptance.collected_at
    return None if older else survey


def _findings(
    given: HostInput, odd: Sequence[Odd], stale_seconds: int | None
) -> tuple[Finding, ...]:
    """Return what a person should know of a host, errors first, each once."""
    found = [*given.problems]
    if given.acceptance:
        found += given.acceptance.findings
    current = _current(given)
    if current:
        found += current.findings
        found += [one for concern in current.concerns for one in concern.findings]
        found += _replicas_down(current)
    found += [_stands_out(given.host, one) for one in odd]
    found += _rollout(given)
    if stale_seconds is not None:
        found += _stale(given, stale_seconds)
    return tuple(sorted(dict.fromkeys(found), key=by_severity))


def _replicas_down(survey: Survey) -> Iterator[Finding]:
    for one in survey.running:
        if one.up is not None and one.up < one.replicas:
            yield Finding(
                "FLEET-REPORT-REPLICAS",
                f"{survey.host}: {one.deployment}",
                f"{one.up} of {one.replicas} replicas are active",
                deployment=one.deployment,
            )


def _rollout(given: HostInput) -> Iterator[Finding]:
    """Yield that the last rollout did not end well, where nothing newer says what came of it."""
    last = _last_run(given.ledger)
    if last is None or last.outcome not in (*BAD, "begun"):
        return
    if given.acceptance and given.acceptance.collected_at > last.at:
        return
    at = f" at the task {last.task!r}" if last.task else ""
    came = f"came out {last.outcome}{at}{f': {last.why}' if last.why else ''}"
    if last.outcome == "begun":
        came = "has begun it and noted no end: it is at it, or was killed"
    yield Finding("FLEET-REPORT-ROLLOUT", given.host, f"rollout {last.run} {came}")
    if given.ledger:
        yield from given.ledger.entries[-1].findings


def _stands_out(host: str, odd: Odd) -> Finding:
    return Finding(
        "FLEET-REPORT-STANDS-OUT",
        host,
        f"{odd.fact} is {odd.value}; {odd.hosts} of its peers have {odd.usual}",
    )


def _stale(given: HostInput, seconds: int) -> Iterator[Finding]:
    for one in given.sources:
        if one.kind == "acceptance" and one.age_seconds is not None and one.age_seconds > seconds:
            yield Finding(
                "FLEET-REPORT-STALE",
                given.host,
                f"its acceptance is {age_text(one.age_seconds)} old",
            )


def _counts(checks: Sequence[Check]) -> tuple[CheckCount, ...]:
    """Return how the checks ended, by code; codes with failures first."""
    seen: dict[str, Counter[str]] = {}
    for one in checks:
        seen.setdefault(one.code, Counter())[one.state] += 1
    counted = [
        CheckCount(code, many["pass"], many["fail"], many["skip"], many["unknown"])
        for code, many in seen.items()
    ]
    return tuple(sorted(counted, key=lambda one: (-one.failed, -one.unknown, one.code)))


def _rank(check: Check) -> tuple[bool, int]:
    return check.state != "fail", _ORDER[check.severity]


def _first(findings: Sequence[Finding]) -> str:
    """Return the first finding in a line, and how many more there are."""
    if not findings:
        return ""
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].code}: {_line(findings[0].message)}{more}"


def _line(text: str) -> str:
    """Return a text as one line that a table has room for."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def _last_run(ledger: Ledger | None) -> LastRun | None:
    """Return the last attempt on a host; None where there is no ledger or nothing in it."""
    if ledger is None or not ledger.entries:
        return None
    last = ledger.entries[-1]
    told = last.reason or (last.findings[0].message if last.findings else "")
    return LastRun(
        last.run,
        last.ended_at or last.begun_at,
        last.outcome,
        last.task,
        _line(told),
        tuple(one.concern for one in ledger.applied),
    )
