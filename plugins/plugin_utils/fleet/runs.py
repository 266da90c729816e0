# SPDX-License-Identifier: GPL-3.0-or-later

"""One run over a fleet, and how each host came out of it: `apiary.fleet-rollout/v1`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ..documents import knowledge
from ..findings import Finding, has_errors
from .ledger import Asked, Outcome

# "running" of a run whose process is gone means that it was killed.
State = Literal["running", "done", "failed", "stopped", "interrupted"]
BAD: tuple[Outcome, ...] = ("failed", "unreachable", "rolled back", "quarantined", "interrupted")


_ENDED: dict[Outcome, str] = {
    "failed": "failed",
    "unreachable": "could not be reached",
    "rolled back": "was rolled back",
    "quarantined": "was put aside",
    "interrupted": "was interrupted",
}
# A failure and its cause, and the cause of that.
MOST_REASONS = 3
# They say what followed from a failure, not why it was one.
_WAYS_BACK = ("ROLLOUT-ROLLED-BACK", "ROLLOUT-ROLLBACK-FAILED")


@dataclass(frozen=True)
class HostRun:
    """One host of a run. ``wave`` counts from 1; ``reason`` are the words of its failure."""

    host: str
    wave: int
    outcome: Outcome = "waiting"
    attempts: int = 0
    begun_at: str | None = None
    ended_at: str | None = None
    task: str = ""
    reason: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class RunWave:
    """Hosts that change together, when they did, and by which commands anybody could do it."""

    hosts: tuple[str, ...]
    canary: bool
    why: str
    begun_at: str | None = None
    ended_at: str | None = None
    seconds: float = 0.0
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A host that the run leaves alone, and why."""

    host: str
    reason: str


@dataclass(frozen=True)
class Options:
    """How the operator wanted the run to go; what `--resume` takes over."""

    inventory: tuple[str, ...] = ()
    limit: str = ""
    pattern: str = "gpu_hosts"
    batches: tuple[str, ...] = ()
    canary: tuple[str, ...] = ()
    domains_together: int = 1
    failure_budget: int = 0
    retries: int | None = None
    forks: int | None = None
    diff: bool = False
    extra_files: tuple[str, ...] = ()
    extra_names: tuple[str, ...] = ()
    vault_password_files: tuple[str, ...] = ()
    include_quarantined: bool = False
    take_over: bool = False


@dataclass(frozen=True)
class FleetRollout:
    """A run: what was asked, in which waves, how it went and, in ``stopped``, why it ended early.

    Times are UTC. ``pid`` is the process on ``controller`` while ``state`` is "running".
    """

    SCHEMA: ClassVar[str] = "apiary.fleet-rollout/v1"

    id: str
    state: State
    asked: Asked
    options: Options
    operator: str
    controller: str
    pid: int
    begun_at: str
    ended_at: str | None = None
    waves: tuple[RunWave, ...] = ()
    hosts: tuple[HostRun, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    resumed_at: tuple[str, ...] = ()
    stopped: str = ""
    findings: tuple[Finding, ...] = ()

    def host(self, name: str) -> HostRun:
        """Return one host of the run; KeyError for another."""
        for one in self.hosts:
            if one.host == name:
                return one
        raise KeyError(name)


def with_hosts(run: FleetRollout, changed: Mapping[str, HostRun]) -> FleetRollout:
    """Return the run with some hosts as they are now."""
    return replace(run, hosts=tuple(changed.get(one.host, one) for one in run.hosts))


def failures(run: FleetRollout) -> int:
    """Return how many hosts count against the failure budget: not those put aside before."""
    return len(_bad(run))


def _bad(run: FleetRollout) -> list[HostRun]:
    aside = {one.host for one in run.skipped}
    return [one for one in run.hosts if one.outcome in BAD and one.host not in aside]


def why_stop(run: FleetRollout, wave: int) -> Finding | None:
    """Return why no further wave may begin after the ``wave``-th (from 1), None where one may.

    A canary is there to stop a change, whatever the failure budget says.
    """
    bad = _bad(run)
    here = [one for one in bad if one.wave == wave]
    first = here[0] if here else bad[0] if bad else None
    if first is None:
        return None
    said = _in_words(first)
    if run.waves[wave - 1].canary and here:
        return Finding(
            "FLEET-CANARY-FAILED", first.host, f"the canary {_ENDED[first.outcome]}: {said}"
        )
    if len(bad) > run.options.failure_budget:
        hosts = "host" if len(bad) == 1 else "hosts"
        return Finding(
            "FLEET-BUDGET",
            first.host,
            f"it {_ENDED[first.outcome]}: {said}; {len(bad)} {hosts} failed, "
            f"{run.options.failure_budget} may",
        )
    return None


def why_not_begin(run: FleetRollout, wave: int) -> Finding | None:
    """Return why the ``wave``-th (from 1) may not begin: no canary has shown that it goes well.

    So a resumed run does not pass a canary that was put aside, or that is gone.
    """
    if run.waves[wave - 1].canary:
        return None
    first = {host for one in run.waves if one.canary for host in one.hosts}
    missing = [one for one in run.hosts if one.host in first and one.outcome != "done"]
    if not missing:
        return None
    one = missing[0]
    return Finding(
        "FLEET-CANARY-MISSING",
        one.host,
        f"the canary has not gone well ({_ENDED.get(one.outcome, one.outcome)}), so no other host "
        "is begun",
    )


def held_back(
    run: FleetRollout, hosts: Sequence[str], domains: Mapping[str, str | None]
) -> dict[str, str]:
    """Return which of a wave's hosts may not begin, each with the host whose failure holds it.

    A failure budget lets a run go on past a failed host, but its failure domain then lacks that
    host already: no more of one domain change than ``domains_together`` less those that failed.
    """
    held: dict[str, str] = {}
    changing: dict[str, int] = {}
    for host in hosts:
        domain = domains.get(host)
        if domain is None:
            continue
        failed = [
            one.host
            for one in run.hosts
            if one.outcome in BAD and one.host != host and domains.get(one.host) == domain
        ]
        room = run.options.domains_together - len(failed)
        if failed and changing.get(domain, 0) >= room:
            held[host] = failed[0]
        else:
            changing[domain] = changing.get(domain, 0) + 1
    return held


def outcome_of(
    host: str,
    counts: Mapping[str, Mapping[str, int]],
    told: Mapping[str, Any],
    quarantined: bool,
    touched: bool,
) -> Outcome:
    """Return how a host came out of one run of a playbook.

    ``counts`` are Ansible's numbers by host, ``told`` what the playbook itself says in
    `apiary_outcomes` ({"h1": "done"}), ``quarantined`` whether it put the host aside in this run.
    """
    own = str(told.get(host, ""))
    numbers = counts.get(host, {})
    if own in ("waiting", "rolled back"):
        return "waiting" if own == "waiting" else "rolled back"
    if numbers.get("dark"):
        return "unreachable"
    if quarantined and (own == "failed" or numbers.get("failures")):
        return "quarantined"
    if numbers.get("failures") or own == "failed":
        return "failed"
    if not numbers:
        return "interrupted" if touched else "waiting"
    return "done" if own in ("", "done") else "failed"


def _in_words(one: HostRun) -> str:
    """Return why a host failed, and where it was taken back to."""
    why = [finding for finding in one.findings if finding.code not in _WAYS_BACK]
    back = [finding.message for finding in one.findings if finding.code in _WAYS_BACK]
    if why:
        said = "; ".join(f"{one.code}: {one.message}" for one in why[:MOST_REASONS])
    else:
        said = one.reason.splitlines()[0] if one.reason else f"at the task {one.task!r}"
    return "; ".join([said, *back])


def state_of(run: FleetRollout) -> State:
    """Return how a run that has no wave left has ended."""
    outcomes: Sequence[Outcome] = [one.outcome for one in run.hosts]
    if all(one == "done" for one in outcomes):
        return "done"
    return "failed" if any(one in BAD for one in outcomes) else "stopped"


@dataclass(frozen=True)
class Again:
    """One more attempt, after ``delay_seconds``."""

    delay_seconds: float
    because: str
    rule: str


def try_again(
    message: str,
    findings: Iterable[Finding],
    *,
    unreachable: bool,
    attempt: int,
    most: int | None = None,
) -> Again | None:
    """Return whether a host that failed at its ``attempt``-th try gets another, None for no.

    ``most`` is how many further attempts the operator allows, None for what the rule says.
    What was refused with a finding stays refused: to ask again changes nothing.
    """
    for rule in knowledge("fleet_retry.yml")["rules"]:
        if unreachable:
            fits = bool(rule.get("unreachable"))
        else:
            fits = any(re.search(pattern, message) for pattern in rule.get("messages", ()))
        if not fits:
            continue
        if not unreachable and has_errors(findings):
            return None
        allowed = int(rule["attempts"]) if most is None else most + 1
        if attempt >= allowed:
            return None
        return Again(float(rule["delay_seconds"]), str(rule["because"]), str(rule["id"]))
    return None
