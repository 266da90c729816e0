# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's document and its hosts' ledgers, written before and after each thing that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet import ledger as book
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.applying import role_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    HostRun,
    State,
    with_hosts,
)

from apiary.rollout.outcomes import HostOutcome
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
