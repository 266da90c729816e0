# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the hosts of a fleet: outliers first, findings grouped, what it means for who asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...findings import Finding, has_errors
from ..judge import judge
from ..names import fold
from ..runs import FleetRollout
from .outliers import Peer, odd_of, shared_of
from .types import STATES, FleetReport, Group, HostInput, HostReport, HostState, Outcome

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
