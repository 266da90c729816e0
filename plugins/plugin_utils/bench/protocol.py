# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which levels a benchmark measures, each decided by those before it."""

from __future__ import annotations

from collections.abc import Callable

from . import saturation
from .ledger import By, GoneError, Ledger, Outcome, Steps, mean_rate
from .rules import Rules
from .rules import rules as known_rules
from .search import Edge, Search, conclude, edge, keeps, searches
from .types import Asked, Found, Level, Phase, Saturation, Workload
from .workloads import concurrency_of


def protocol(asked: Asked, rules: Rules | None = None) -> Steps[Outcome]:
    """Yield each load that is to be measured, be sent its level, and return what they say.

    Every engine run repeats the phases; a later search starts from the edge of the one
    before. A load that was measured in an engine run serves every phase that needs it.
    """
    run = _Run(Ledger(asked, rules or known_rules()))
    try:
        for life in range(asked.lives):
            run.ledger.life = life
            yield from run.life()
    except GoneError as gone:
        run.ledger.findings.append(gone.finding)
    return run.outcome()


class _Run:
    """One run of the protocol."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.asked, self.rules = ledger, ledger.asked, ledger.rules
        # The engine runs in which a search ended.
        self.searched: dict[By, list[int]] = {by: [] for by in searches(ledger.asked)}

    def life(self) -> Steps[None]:
        phases: dict[Phase, Callable[[], Steps[None]]] = {
            "baseline": self._baseline,
            "fixed": self._fixed,
            "scaling": self._scaling,
            "slo": self._slo,
            "stress": self._stress,
            "saturation": self._saturation,
            "open": self._open,
            "soak": self._soak,
        }
        yield from self._warmup()
        for phase, steps in phases.items():
            if phase in self.asked.phases:
                yield from steps()

    def outcome(self) -> Outcome:
        asked, ledger = self.asked, self.ledger
        found = tuple(self._found(by, lives) for by, lives in self.searched.items() if lives)
        saturated: tuple[Saturation, ...] = ()
        if "saturation" in asked.phases:
            saturated = (saturation.conclude(ledger.levels, asked.workload.name, self.rules),)
        return Outcome(found, saturated, tuple(ledger.findings))

    def _found(self, by: By, lives: list[int]) -> Found:
        levels = [level for level in self.ledger.levels if level.load.life in lives]
        return conclude(levels, self.asked.workload.name, by)

    def _warmup(self) -> Steps[None]:
        """Warm the engine until two levels in a row have the same median latency."""
        medians: list[float] = []
        for _level in range(self.rules.warmup_most):
            level = yield from self.ledger.warm()
            spread = level.measured.e2el if level.measured else None
            medians += [spread.p50] if spread else []
            if len(medians) > 1 and _near(medians[-2], medians[-1], self.rules.warmup_agree):
                return
        message = "it was not checked that the latency has settled: that takes two warm-up levels"
        if len(medians) > 1:
            told = ", ".join(f"{median:.3g} s" for median in medians)
            message = (
                f"the median latency still changed after {len(medians)} warm-up levels: {told}"
            )
        self.ledger.find("BENCH-WARMUP", f"engine run {self.ledger.life}", message)

    def _baseline(self) -> Steps[None]:
        yield from self._level("baseline", 1)

    def _fixed(self) -> Steps[None]:
        for slots in self.asked.concurrency:
            yield from self._level("fixed", slots)
        for rate in self.asked.request_rate:
            yield from self._level("fixed", rate, by="request_rate")

    def _scaling(self) -> Steps[None]:
        """Measure the asked levels, or double until limits and throughput are left behind."""
        for slots in self.asked.concurrency:
            if not (yield from self._level("scaling", slots)):
                return
        slots = 1
        while not self.asked.concurrency:
            if not (yield from self._level("scaling", slots)) or self._enough():
                return
            if slots >= self.asked.most:
                return
            slots = min(slots * 2, self.asked.most)

    def _enough(self) -> bool:
        """Say whether doubling further can show nothing that scaling is for."""
        known = self.ledger.known(self.asked.workload, "concurrency")
        missed = [not keeps(levels) for levels in known.values()]
        if self.asked.slo and missed[-2:] == [True, True]:
            return True
        return self._saturated() is not None

    def _slo(self) -> Steps[None]:
        if not self.asked.slo:
            self.ledger.find(
                "BENCH-SLO-NOT-ASKED",
                self.asked.workload.name,
                "no limits were given, so there is none to search for",
            )
            return
        # Streams first: what they were served is where the rates begin.
        for by, lives in self.searched.items():
            search = Search(self.ledger, self.asked.workload, by, self._hint(by))
            if (yield from search.run()):
                lives.append(self.ledger.life)

    def _hint(self, by: By) -> Edge | None:
        if not self.searched[by]:
            return None
        before = self.searched[by][-1]
        levels = [level for level in self.ledger.levels if level.load.life == before]
        return edge(levels, self.asked.workload.name, by)

    def _stress(self) -> Steps[None]:
        for workload in self.asked.stress:
            yield from self._level("stress", self._stress_concurrency(workload), workload)

    def _stress_concurrency(self, workload: Workload) -> int:
        """Return what a workload was published with, within what was asked; else a good load."""
        own = concurrency_of(workload.name)
        if own is not None:
            return min(own, max(self.asked.concurrency, default=self.asked.most))
        return min(self._good_concurrency(), self.rules.stress_most)

    def _saturation(self) -> Steps[None]:
        while self._saturated() is None:
            known = self.ledger.known(self.asked.workload, "concurrency")
            highest = int(max(known, default=0))
            slots = max(highest + 1, int(highest * self.rules.gain_step))
            if slots > self.asked.most:
                self.ledger.find(
                    "BENCH-NOT-SATURATED",
                    self.asked.workload.name,
                    f"the throughput still grew at {int(max(known, default=0))} concurrent "
                    f"requests, and {self.asked.most} is the most that was asked",
                )
                return
            if not (yield from self._level("saturation", slots)):
                return

    def _saturated(self) -> Saturation | None:
        own = [level for level in self.ledger.levels if level.load.life == self.ledger.life]
        return saturation.of(own, self.asked.workload.name, self.rules)

    def _open(self) -> Steps[None]:
        best = self._best_rate()
        asked = self.asked.request_rate
        if not asked and best is None:
            return
        rates = asked or tuple(
            float(f"{share * (best or 0):.4g}") for share in self.rules.open_shares
        )
        for rate in rates:
            if not (yield from self._level("open", rate, by="request_rate")):
                return

    def _soak(self) -> Steps[None]:
        """Hold the best load; windows tell whether it slows. Once: hours are dear."""
        if self.ledger.life:
            return
        slots, windows = self._good_concurrency(), []
        known = self.ledger.known(self.asked.workload, "concurrency")
        if slots not in known:
            if not (yield from self._level("scaling", slots)):
                return
            known = self.ledger.known(self.asked.workload, "concurrency")
        rate = mean_rate(known.get(slots, ())) or 0.0
        seconds = self.asked.soak_seconds / self.rules.soak_windows
        for _window in range(self.rules.soak_windows):
            level = yield from self.ledger.measure(
                "soak", self.asked.workload, "concurrency", slots, round(rate * seconds)
            )
            if level.status in ("INVALID", "FAILED"):
                self._ended(level)
                break
            windows.append(level)
        self._drift(windows)

    def _drift(self, windows: list[Level]) -> None:
        rates = [level.measured.request_rate for level in windows if level.measured]
        if len(rates) < 2 or rates[-1] >= rates[0] * (1 - self.rules.soak_drift):
            return
        self.ledger.find(
            "BENCH-SOAK-DRIFT",
            self.asked.workload.name,
            "the same load got slower: " + ", ".join(f"{rate:.4g}" for rate in rates) + " req/s",
        )

    def _level(
        self, phase: Phase, size: float, workload: Workload | None = None, by: By = "concurrency"
    ) -> Steps[bool]:
        """Measure a size as often as was asked; False where the phase cannot go on."""
        level = yield from self.ledger.ensure(
            phase, workload or self.asked.workload, by, size, self.asked.repeats
        )
        if level.status in ("INVALID", "FAILED"):
            self._ended(level)
            return False
        return True

    def _ended(self, level: Level) -> None:
        codes = ", ".join(dict.fromkeys(finding.code for finding in level.findings))
        self.ledger.find(
            "BENCH-PHASE-ENDED",
            level.load.key,
            f"the level is {level.status} ({codes or 'no finding'}): {level.load.phase} does not "
            "go on, and it counts nowhere",
        )

    def _best_rate(self) -> float | None:
        """Return the rate at the SLO, or without one the highest that a valid level served."""
        workload = self.asked.workload
        # Of both searches that by random arrivals, which come last.
        for by in reversed(self.searched):
            rate = None
            if self.ledger.life in self.searched[by]:
                rate = self._found(by, [self.ledger.life]).request_rate
            if rate is not None:
                return rate.mean
        known = self.ledger.known(workload, "concurrency")
        rates = [mean_rate(levels) for levels in known.values()]
        return max((rate for rate in rates if rate is not None), default=None)

    def _good_concurrency(self) -> int:
        """Return the highest concurrency below the first that missed the limits; at least 1.

        Where no level of a concurrency is known it is the highest that was asked.
        """
        if not self.ledger.known(self.asked.workload, "concurrency"):
            return max(self.asked.concurrency, default=1)
        own = [level for level in self.ledger.levels if level.load.life == self.ledger.life]
        return int(edge(own, self.asked.workload.name, "concurrency").best or 1)


def _near(first: float, second: float, share: float) -> bool:
    return abs(second - first) < share * max(first, second)
