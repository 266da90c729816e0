# SPDX-License-Identifier: GPL-3.0-or-later

"""Which levels a benchmark measures, each decided by those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .ledger import By, GoneError, Ledger, Outcome, Rules, Steps, by_size, mean_rate
from .ledger import rules as known_rules
from .search import Edge, Search, conclude, edge, keeps, searches
from .types import Level, Phase, Requested, Saturation, SearchResult, Workload
from .workloads import concurrency_of


def protocol(requested: Requested, rules: Rules | None = None) -> Steps[Outcome]:
    """Yield each load that is to be measured, be sent its level, and return what they say.

    Every engine run repeats the phases; a later search starts from the edge of the one
    before. A load that was measured in an engine run serves every phase that needs it.
    """
    run = _Run(Ledger(requested, rules or known_rules()))
    try:
        for engine_run in range(requested.engine_runs):
            run.ledger.engine_run = engine_run
            yield from run.engine_run()
    except GoneError as gone:
        run.ledger.findings.append(gone.finding)
    return run.outcome()


class _Run:
    """One run of the protocol."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.requested, self.rules = ledger, ledger.requested, ledger.rules
        self.name = self.requested.workload.name
        # The engine runs in which a search ended.
        self.searched: dict[By, list[int]] = {by: [] for by in searches(ledger.requested)}

    def engine_run(self) -> Steps[None]:
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
            if phase in self.requested.phases:
                yield from steps()

    def outcome(self) -> Outcome:
        requested, ledger = self.requested, self.ledger
        ended = tuple(
            self._found(by, engine_runs) for by, engine_runs in self.searched.items() if engine_runs
        )
        saturated: tuple[Saturation, ...] = ()
        if "saturation" in requested.phases:
            saturated = (conclude_saturation(ledger.levels, requested.workload.name, self.rules),)
        return Outcome(ended, saturated, tuple(ledger.findings))

    def _found(self, by: By, engine_runs: list[int]) -> SearchResult:
        levels = [level for level in self.ledger.levels if level.load.engine_run in engine_runs]
        return conclude(levels, self.name, by)

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
            texts = ", ".join(f"{median:.3g} s" for median in medians)
            message = (
                f"the median latency still changed after {len(medians)} warm-up levels: {texts}"
            )
        self.ledger.find("BENCH-WARMUP", f"engine run {self.ledger.engine_run}", message)

    def _baseline(self) -> Steps[None]:
        yield from self._level("baseline", 1)

    def _fixed(self) -> Steps[None]:
        for slots in self.requested.concurrency:
            yield from self._level("fixed", slots)
        for rate in self.requested.request_rate:
            yield from self._level("fixed", rate, by="request_rate")

    def _scaling(self) -> Steps[None]:
        """Measure the asked levels, or double until limits and throughput are left behind."""
        for slots in self.requested.concurrency:
            if not (yield from self._level("scaling", slots)):
                return
        slots = 1
        while not self.requested.concurrency:
            if not (yield from self._level("scaling", slots)) or self._enough():
                return
            if slots >= self.requested.most:
                return
            slots = min(slots * 2, self.requested.most)

    def _known(self) -> dict[float, tuple[Level, ...]]:
        """Return the closed levels of this engine run that tell anything, by concurrency."""
        return self.ledger.known(self.requested.workload, "concurrency")

    def _enough(self) -> bool:
        """Return whether doubling further can show nothing that scaling is for."""
        missed = [not keeps(levels) for levels in self._known().values()]
        if self.requested.slo and missed[-2:] == [True, True]:
            return True
        return self._saturated() is not None

    def _slo(self) -> Steps[None]:
        if not self.requested.slo:
            self.ledger.find(
                "BENCH-SLO-NOT-ASKED",
                self.name,
                "no limits were given, so there is none to search for",
            )
            return
        # Streams first: what they were served is where the rates begin.
        for by, engine_runs in self.searched.items():
            search = Search(self.ledger, self.requested.workload, by, self._hint(by))
            if (yield from search.run()):
                engine_runs.append(self.ledger.engine_run)

    def _hint(self, by: By) -> Edge | None:
        if not self.searched[by]:
            return None
        levels = self.ledger.of_run(self.searched[by][-1])
        return edge(levels, self.name, by)

    def _stress(self) -> Steps[None]:
        for workload in self.requested.stress:
            yield from self._level("stress", self._stress_concurrency(workload), workload)

    def _stress_concurrency(self, workload: Workload) -> int:
        """Return what a workload was published with, within the request; else a good load."""
        own = concurrency_of(workload.name)
        if own is not None:
            return min(own, max(self.requested.concurrency, default=self.requested.most))
        return min(self._good_concurrency(), int(self.rules.stress_most))

    def _saturation(self) -> Steps[None]:
        while self._saturated() is None:
            highest = int(max(self._known(), default=0))
            slots = max(highest + 1, int(highest * self.rules.gain_step))
            if slots > self.requested.most:
                self.ledger.find(
                    "BENCH-NOT-SATURATED",
                    self.name,
                    f"the throughput still grew at {highest} concurrent "
                    f"requests, and {self.requested.most} is the most that was asked",
                )
                return
            if not (yield from self._level("saturation", slots)):
                return

    def _saturated(self) -> Saturation | None:
        return saturation_of(self.ledger.of_run(), self.name, self.rules)

    def _open(self) -> Steps[None]:
        best = self._best_rate()
        requested = self.requested.request_rate
        if not requested and best is None:
            return
        rates = requested or tuple(
            float(f"{share * (best or 0):.4g}") for share in self.rules.open_shares
        )
        for rate in rates:
            if not (yield from self._level("open", rate, by="request_rate")):
                return

    def _soak(self) -> Steps[None]:
        """Hold the best load; windows tell whether it slows. Once: hours are dear."""
        if self.ledger.engine_run:
            return
        slots, windows = self._good_concurrency(), []
        if slots not in self._known() and not (yield from self._level("scaling", slots)):
            return
        rate = mean_rate(self._known().get(slots, ())) or 0.0
        seconds = self.requested.soak_seconds / self.rules.soak_windows
        for _window in range(self.rules.soak_windows):
            level = yield from self.ledger.measure(
                "soak", self.requested.workload, "concurrency", slots, round(rate * seconds)
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
            self.name,
            "the same load got slower: " + ", ".join(f"{rate:.4g}" for rate in rates) + " req/s",
        )

    def _level(
        self, phase: Phase, size: float, workload: Workload | None = None, by: By = "concurrency"
    ) -> Steps[bool]:
        """Measure a size as often as was asked; False where the phase cannot go on."""
        level = yield from self.ledger.ensure(
            phase, workload or self.requested.workload, by, size, self.requested.repeats
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
        # Of both searches that by random arrivals, which come last.
        for by in reversed(self.searched):
            rate = None
            if self.ledger.engine_run in self.searched[by]:
                rate = self._found(by, [self.ledger.engine_run]).request_rate
            if rate is not None:
                return rate.mean
        rates = [mean_rate(levels) for levels in self._known().values()]
        return max((rate for rate in rates if rate is not None), default=None)

    def _good_concurrency(self) -> int:
        """Return the highest concurrency below the first that missed the limits; at least 1.

        Where no level of a concurrency is known it is the highest that was asked.
        """
        if not self._known():
            return max(self.requested.concurrency, default=1)
        return int(edge(self.ledger.of_run(), self.name, "concurrency").best or 1)


def _near(first: float, second: float, share: float) -> bool:
    return abs(second - first) < share * max(first, second)


def saturation_of(levels: Iterable[Level], workload: str, rules: Rules) -> Saturation | None:
    """Return where the levels saturate, where more load brings no more; None while they do not.

    Only levels that reached their concurrency count. Either each of ``gain_times`` steps, of at
    least a doubling, gained less than ``gain``, or the engine's own metrics say why: requests
    queue, or its KV cache is full. Then it is the lowest level with that rate. An INVALID level
    counts nowhere, so that the end of a client is never taken for the end of an engine.
    """
    steps = _steps(levels, workload, rules)
    flat = 0
    for at, (slots, rate, group) in enumerate(steps):
        reason = _bottleneck(group, rules)
        if reason:
            enough = rate / (1 + rules.gain)
            knee, served = next((it[0], it[1]) for it in steps if it[1] >= enough)
            seen = "" if knee == slots else f", seen at {slots:g}"
            return Saturation(workload, int(knee), served, True, reason + seen)
        if at:
            flat = flat + 1 if rate < steps[at - 1][1] * (1 + rules.gain) else 0
        if flat == rules.gain_times:
            knee, served, _levels = steps[at - flat]
            gains = ", ".join(
                f"{after[1] / before[1] - 1:+.1%} at {after[0]:g}"
                for before, after in zip(
                    steps[at - flat : at], steps[at - flat + 1 :], strict=False
                )
            )
            return Saturation(
                workload,
                int(knee),
                served,
                True,
                f"gain below {rules.gain:.0%} {rules.gain_times} times ({gains}), each level at "
                "its concurrency",
            )
    return None


def conclude_saturation(levels: Sequence[Level], workload: str, rules: Rules) -> Saturation:
    """Return where all engine runs together saturate, or that they did not and how far they got."""
    found = saturation_of(levels, workload, rules)
    if found is not None:
        return found
    steps = _steps(levels, workload, rules)
    reached = f"up to {steps[-1][0]:g} concurrent requests" if steps else "at any level"
    return Saturation(workload, None, None, False, f"not seen {reached}")


def _steps(
    levels: Iterable[Level], workload: str, rules: Rules
) -> list[tuple[float, float, tuple[Level, ...]]]:
    """Return (concurrency, mean rate, levels), each at least a step above the one before."""
    steps: list[tuple[float, float, tuple[Level, ...]]] = []
    for size, group in by_size(levels, workload, "concurrency").items():
        rate = mean_rate(group)
        if rate and (not steps or size >= steps[-1][0] * rules.gain_step):
            steps.append((size, rate, group))
    return steps


def _bottleneck(group: Iterable[Level], rules: Rules) -> str | None:
    """Return what the engine's own metrics say of a level, where it is the bottleneck."""
    for level in group:
        engine, measured = level.engine, level.measured
        if engine is None or measured is None:
            continue
        if engine.kv_usage_max is not None and engine.kv_usage_max > rules.kv_usage:
            return f"KV cache {engine.kv_usage_max:.0%} full"
        queue, spread = engine.queue_seconds_mean, measured.e2el
        if queue is not None and spread is not None and queue > rules.queue_share * spread.mean:
            return f"{queue / spread.mean:.0%} of a request's time is spent in the engine's queue"
    return None
