# SPDX-License-Identifier: GPL-3.0-or-later

"""How hosts came out of a wave, and the run's document and ledgers, written before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet import ledger as book
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.applying import role_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Outcome
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    BAD,
    FleetRollout,
    HostRun,
    State,
    outcome_of,
    with_hosts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine

from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.rollout.store import Store


@dataclass
class Records:
    """What a run has on disk. ``playbook`` is the collection's own one that it runs, "" for none.

    A check leaves the ledgers alone: it applies nothing.
    """

    run: FleetRollout
    store: Store
    playbook: str
    now: Callable[[], datetime]

    def begin(self, hosts: Sequence[str]) -> None:
        """Write down that hosts are begun, before anything is done to them."""
        now = text(self.now())
        changed = {}
        for name in hosts:
            host = self.run.host(name)
            changed[name] = replace(
                host, outcome="begun", attempts=host.attempts + 1, begun_at=now, ended_at=None
            )
            if not self.run.asked.check:
                entry = book.Entry(
                    run=self.run.id,
                    attempt=host.attempts + 1,
                    operator=self.run.operator,
                    controller=self.run.controller,
                    asked=self.run.asked,
                    begun_at=now,
                )
                self.store.save_ledger(book.begin(self.store.ledger(name), entry))
        self.run = with_hosts(self.run, changed)
        self.store.save_run(self.run)

    def finish(self, outcomes: Mapping[str, HostOutcome]) -> None:
        """Write down how hosts came out."""
        now = text(self.now())
        changed: dict[str, HostRun] = {}
        for name, result in outcomes.items():
            host = self.run.host(name)
            changed[name] = replace(
                host,
                outcome=result.outcome,
                ended_at=now,
                task=result.task,
                reason=result.reason,
                findings=result.findings,
            )
            if self.run.asked.check:
                continue
            ledger = self.store.ledger(name)
            if ledger.open is None:
                continue
            entry = replace(
                ledger.open,
                ended_at=now,
                outcome=result.outcome,
                plan=self.store.plan_digest(name) if self.playbook else "",
                task=result.task,
                reason=result.reason,
                findings=result.findings,
            )
            applied = self._applied(name, entry) if result.outcome == "done" else ()
            self.store.save_ledger(book.end(ledger, entry, applied))
        self.run = with_hosts(self.run, changed)
        self.store.save_run(self.run)

    def _applied(self, host: str, entry: book.Entry) -> Sequence[book.Applied]:
        """Return what a host that is done has from this run, by the survey it was done from."""
        survey = self.store.survey(host)
        applies = self.playbook in ("site", "maintain")
        if not applies or survey is None or survey.collected_at < entry.begun_at:
            return ()
        tags = [word for word in entry.asked.tags.split(",") if word]
        skipped = entry.asked.skip_tags.split(",")
        plans = {f"replicas:{item.deployment}": item.plan for item in survey.wanted}
        return [
            book.Applied(
                item.concern,
                entry.ended_at or "",
                entry.run,
                item.asked,
                plans.get(item.concern, ""),
            )
            for item in survey.concerns
            if (not tags or "all" in tags or role_of(item.concern) in tags)
            and role_of(item.concern) not in skipped
        ]

    def set_wave(self, number: int, **changed: Any) -> None:
        """Change what is known of a wave, which counts from 1."""
        waves = list(self.run.waves)
        waves[number - 1] = replace(waves[number - 1], **changed)
        self.run = replace(self.run, waves=tuple(waves))
        self.store.save_run(self.run)

    def end(self, state: State, why: str, findings: Iterable[Finding]) -> FleetRollout:
        """Write down how the run ended; return it."""
        self.run = replace(
            self.run,
            state=state,
            stopped=why,
            ended_at=text(self.now()),
            findings=tuple(dict.fromkeys((*self.run.findings, *findings))),
        )
        self.store.save_run(self.run)
        return self.run


def text(moment: datetime) -> str:
    """Return a time as the documents have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class HostOutcome:
    """How one host came out, and in which words."""

    outcome: Outcome
    task: str = ""
    reason: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def bad(self) -> bool:
        """Return whether it counts as a failure."""
        return self.outcome in BAD


def host_outcomes(
    hosts: Sequence[str],
    ended: Ended,
    store: Store,
    before: Mapping[str, Quarantine | None] | None,
    must_tell: bool,
    own: bool = True,
) -> dict[str, HostOutcome]:
    """Return how each host came out of one run of a playbook.

    ``before`` are the quarantines there were, None for a playbook that makes none. ``must_tell``
    says that the playbook tells of each host it is done with, so that silence is no success.
    ``own`` playbooks put each host aside that fails, maybe in the very words of the last time; of
    another's failure a quarantine that was there says nothing.
    """
    reported = ended.custom.get("apiary_outcomes")
    reported = reported if isinstance(reported, Mapping) else {}
    result = {}
    for host in hosts:
        now = store.quarantine(host) if before is not None else None
        fresh = now if before is not None and now != before[host] else None
        failed = ended.failed.get(host)
        aside = fresh is not None or (own and now is not None and failed is not None)
        outcome = outcome_of(host, ended.counts, reported, aside, host in ended.touched)
        if outcome == "done" and host not in reported:
            if ended.status == "canceled" or (ended.aborted and not must_tell):
                outcome = "interrupted"
            elif must_tell:
                outcome = "waiting"
        result[host] = _in_words(outcome, failed, now if aside else None)
    return result


def _in_words(outcome: Outcome, failed: Failed | None, aside: Quarantine | None) -> HostOutcome:
    if outcome not in BAD:
        return HostOutcome(outcome)
    if outcome == "interrupted" and failed is None:
        return HostOutcome(
            outcome, reason="ansible-playbook ended before it was done with the host"
        )
    if aside is not None:
        findings = aside.findings or (failed.findings if failed else ())
        return HostOutcome(outcome, aside.task, aside.message.strip(), findings)
    if failed is not None:
        return HostOutcome(outcome, failed.task, failed.message, failed.findings)
    return HostOutcome(outcome, reason="the playbook says so, without a reason")
