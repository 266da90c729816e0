# SPDX-License-Identifier: GPL-3.0-or-later

"""One run over a fleet: wave after wave, with a ledger that is true at every moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    BAD,
    Again,
    FleetRollout,
    HostRun,
    State,
    failures,
    held_back,
    state_of,
    try_again,
    why_not_begin,
    why_stop,
)

from apiary.rollout.plays import Plays
from apiary.rollout.progress import Progress
from apiary.rollout.records import HostOutcome, Records, text

# How long one look at the clock, or at the signals, is apart from the next.
TICK_SECONDS = 0.2


@dataclass
class Signals:
    """How often the operator has asked for an end: first after this wave, then at once."""

    asked: int = 0

    def soon(self) -> bool:
        """Return whether no further wave is to begin."""
        return self.asked > 0

    def now(self) -> bool:
        """Return whether the wave is to end at once."""
        return self.asked > 1


@dataclass
class Conductor:
    """Takes a run from its first wave to its last; ``domains`` is what each host fails with."""

    records: Records
    plays: Plays
    shown: Progress
    signals: Signals
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    domains: Mapping[str, str | None]

    def go(self) -> FleetRollout:
        """Return the run as it ended; its document on disk says the same at every moment."""
        wrong = self.plays.validate()
        if wrong:
            self.plays.findings += wrong
            return self._end("stopped", f"the inventory is wrong: {wrong[0].code}")
        for number, wave in enumerate(self.records.run.waves, 1):
            todo = [name for name in wave.hosts if self.records.run.host(name).outcome == "waiting"]
            if not todo:
                continue
            if self.signals.soon():
                return self._end("interrupted", "the operator stopped it between two waves")
            unproven = why_not_begin(self.records.run, number)
            if unproven is not None:
                self.plays.findings.append(unproven)
                return self._end(
                    "failed", f"{unproven.code}: {unproven.subject}: {unproven.message}"
                )
            todo = self._not_held_back(todo)
            if not todo:
                continue
            self._wave(number, todo)
            if self.signals.now():
                return self._end("interrupted", "the operator cancelled it in the middle of a wave")
            stop = why_stop(self.records.run, number) or self._broken()
            if stop is not None:
                self.plays.findings.append(stop)
                return self._end("failed", f"{stop.code}: {stop.subject}: {stop.message}")
        return self._end(state_of(self.records.run), "")

    def _not_held_back(self, hosts: list[str]) -> list[str]:
        """Return the hosts whose failure domain has none that failed; tell of the others."""
        held = held_back(self.records.run, hosts, self.domains)
        for host, failed in held.items():
            self.plays.findings.append(
                Finding(
                    "FLEET-DOMAIN-DOWN",
                    host,
                    f"is not begun: {failed} failed in the same failure domain "
                    f"({self.domains[host]})",
                    failed=failed,
                )
            )
        return [host for host in hosts if host not in held]

    # --- one wave ---------------------------------------------------------------------------

    def _wave(self, number: int, todo: list[str]) -> None:
        begun = self.now()
        self.records.set_wave(number, begun_at=text(begun))
        self.records.begin(todo)
        self.shown.wave(self.records.run, number, todo)
        held, lost = todo, list[str]()
        if not self.records.run.asked.check:
            held, lost = self._attempts(number, todo, self.plays.hold, holding=True)
        over = failures(self.records.run) > self.records.run.options.failure_budget
        if lost and held and (over or self.records.run.waves[number - 1].canary):
            self.records.finish({name: HostOutcome("waiting") for name in held})
        elif held:
            self._attempts(number, held, self.plays.change)
        if not self.records.run.asked.check:
            self.plays.release(number, held)
        ended = self.now()
        self.records.set_wave(number, ended_at=text(ended), seconds=(ended - begun).total_seconds())
        self.shown.ended(self.records.run, number)

    def _attempts(
        self,
        number: int,
        hosts: list[str],
        once: Callable[[int, list[str]], dict[str, HostOutcome]],
        holding: bool = False,
    ) -> tuple[list[str], list[str]]:
        """Do something until each host has come out of it; return those that did well, and not."""
        pending, well, lost = list(hosts), list[str](), list[str]()
        while pending:
            result = once(number, pending)
            again = {name: more for name in pending if (more := self._again(name, result[name]))}
            for name in pending:
                if name not in again:
                    (well if result[name].outcome == "done" else lost).append(name)
            # The end of a host that is held comes with what it is held for.
            ended = [name for name in pending if not holding or name not in well]
            self.records.finish({name: result[name] for name in ended})
            if not again:
                break
            for name, more in again.items():
                self.shown.note(f"{name}: {more.because}; again in {more.delay_seconds:.0f} s")
            self._pause(max(more.delay_seconds for more in again.values()))
            if self.signals.soon():
                lost += again
                break
            pending = list(again)
            self.records.begin(pending)
        return well, lost

    def _again(self, name: str, result: HostOutcome) -> Again | None:
        """Return whether a host gets another try, None where it is done, or that would not help."""
        if result.outcome not in ("failed", "unreachable", "quarantined") or self.signals.soon():
            return None
        return try_again(
            result.reason,
            result.findings,
            unreachable=result.outcome == "unreachable",
            attempt=self.records.run.host(name).attempts,
            most=self.records.run.options.retries,
        )

    def _end(self, state: State, why: str) -> FleetRollout:
        return self.records.end(state, why, self.plays.findings)

    def _pause(self, seconds: float) -> None:
        until = self.now() + timedelta(seconds=seconds)
        while self.now() < until and not self.signals.soon():
            self.sleep(TICK_SECONDS)

    # --- small things -----------------------------------------------------------------------

    def _broken(self) -> Finding | None:
        return next((finding for finding in self.plays.findings if finding.code in _STOPPING), None)


_STOPPING = ("FLEET-OTHER-FAILED", "FLEET-RUN-FAILED")


def not_done(run: FleetRollout) -> list[HostRun]:
    """Return the hosts that have not ended well, failures first."""
    rest = [host for host in run.hosts if host.outcome != "done"]
    return sorted(rest, key=lambda host: host.outcome not in BAD)
