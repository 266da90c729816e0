# SPDX-License-Identifier: GPL-3.0-or-later

"""What a running protocol has measured so far, and how it asks for one more level."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from ..documents import knowledge
from ..findings import Finding, error, has_errors
from .comparison.statistics import mean
from .types import Level, Load, Phase, Requested, Saturation, SearchResult, Workload

_SECTIONS = ("requests", "warmup", "heal", "saturation", "slo", "open", "stress", "soak")


class Rules(SimpleNamespace):
    """How many requests, repeats and levels; what each means stands in the file."""


def rules(**changes: Any) -> Rules:
    """Return the protocol's numbers, with ``changes`` of them.

    Raises BENCH-RULES for a name that is none, and for a number below the file's floor: a level
    would be all ramp and no steady state, or a phase would go on at the same load.
    """
    facts = knowledge("bench/protocol.yml")
    known = {name: value for section in _SECTIONS for name, value in facts[section].items()}
    for name, value in changes.items():
        floor = facts["floors"].get(name, 0)
        if name not in known or name == "source":
            raise error("BENCH-RULES", name, "is no number of the protocol")
        # Written so that NaN is refused as well.
        possible = isinstance(value, int | float) and floor <= value < math.inf
        if not possible and not isinstance(known[name], list):
            raise error("BENCH-RULES", name, f"{value}, expected a number of at least {floor:g}")
    return Rules(**known | changes)


T = TypeVar("T")
Steps = Generator[Load, Level, T]
By = Literal["concurrency", "request_rate"]
# One number of a level, None where it has none.
Figure = Callable[[Level], float | None]
# Not evidence of a load: cold, or at its end after hours of others.
_ASIDE = ("warmup", "soak")


@dataclass(frozen=True)
class Outcome:
    """What the levels of a whole run say together."""

    searches: tuple[SearchResult, ...] = ()
    saturation: tuple[Saturation, ...] = ()
    findings: tuple[Finding, ...] = ()


class GoneError(Exception):
    """The engine no longer answers the smallest load; it never leaves the protocol."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def size_of(load: Load, by: By) -> float | None:
    """Return a load's concurrency or request rate; None for a load of the other kind."""
    if by == "concurrency":
        return load.concurrency
    return load.request_rate if load.concurrency is None else None


def evidence(level: Level) -> bool:
    """Return whether a level tells anything of its load: it is valid, or overload."""
    if level.status != "INVALID":
        return True
    slo = knowledge("bench/protocol.yml")["slo"]
    misses, beside = set(slo["misses"]), set(slo["beside"])
    codes = {finding.code for finding in level.findings if has_errors([finding])}
    if level.load.concurrency is not None or not codes <= misses | beside:
        return False
    # A queue begins empty, so that a longer level would have missed the limits by more.
    return bool(codes & misses) or bool(level.missed)


def by_size(levels: Iterable[Level], workload: str, by: By) -> dict[float, tuple[Level, ...]]:
    """Return what is evidence of one workload, by size from the smallest."""
    groups: dict[float, list[Level]] = {}
    for level in levels:
        size = size_of(level.load, by)
        if not evidence(level) or level.load.phase in _ASIDE or size is None:
            continue
        if level.load.workload.name == workload:
            groups.setdefault(size, []).append(level)
    return {size: tuple(groups[size]) for size in sorted(groups)}


def rate_of(level: Level) -> float | None:
    """Return the request rate of a level; None where nothing was served or it is invalid."""
    return level.measured.request_rate if level.measured is not None and level.valid else None


def mean_rate(levels: Iterable[Level], figure: Figure = rate_of) -> float | None:
    """Return the mean request rate of levels, or of another figure; None where none has it."""
    values = [value for value in map(figure, levels) if value is not None]
    return mean(values) if values else None


class Ledger:
    """The levels, findings and current engine run of one run; it names and seeds each next load."""

    def __init__(self, requested: Requested, rules: Rules) -> None:
        self.requested, self.rules = requested, rules
        self.levels: list[Level] = []
        self.findings: list[Finding] = []
        self.engine_run = 0
        self._requested_before: Counter[tuple[int, str, str, float]] = Counter()
        self._warmups: Counter[int] = Counter()

    def find(self, code: str, subject: str, message: str, **values: Any) -> None:
        """Add a finding of the protocol itself, once."""
        finding = Finding(code, subject, message, **values)
        if finding not in self.findings:
            self.findings.append(finding)

    def of_run(self, engine_run: int | None = None) -> list[Level]:
        """Return the levels of an engine run, without one of the current."""
        number = self.engine_run if engine_run is None else engine_run
        return [level for level in self.levels if level.load.engine_run == number]

    def known(self, workload: Workload, by: By) -> dict[float, tuple[Level, ...]]:
        """Return this engine run's evidence of a workload by size."""
        return by_size(self.of_run(), workload.name, by)

    def ensure(
        self, phase: Phase, workload: Workload, by: By, size: float, count: int
    ) -> Steps[Level]:
        """Measure a size until ``count`` levels of it are known; return the last."""
        known = self.known(workload, by).get(size, ())
        last = known[-1] if known else None
        for _repeat in range(count - len(known)):
            last = yield from self.measure(phase, workload, by, size)
            if last.status == "INVALID":
                break
        if last is None:
            raise ValueError("count must be at least 1")
        return last

    def measure(
        self, phase: Phase, workload: Workload, by: By, size: float, least: int = 0
    ) -> Steps[Level]:
        """Measure one level; again where it is INVALID for what a longer one can heal.

        An open loop near what the engine can serve takes several times as long to settle.
        """
        at = (self.engine_run, workload.name, by, size)
        load = self._load(phase, workload, by, size, self._requested_before[at])
        load = self._seeded(replace(load, requests=max(load.requests, least)))
        self._requested_before[at] += 1
        level = yield from self._ask(load)
        for _longer in range(self.rules.heal_times if by == "request_rate" else 1):
            if level.status != "INVALID" or not self._heals(level):
                break
            factor = self.rules.heal_factor
            load = replace(
                load, requests=load.requests * factor, warmups=max(load.warmups, 1) * factor
            )
            level = yield from self._ask(self._seeded(load))
        if level.status == "FAILED":
            yield from self._alive(level)
        return level

    def warm(self) -> Steps[Level]:
        """Measure the small load that warms an engine, or shows that it is alive."""
        concurrency = min(
            self.rules.warmup_concurrency,
            max(self.requested.concurrency, default=self.requested.most),
        )
        load = self._load(
            "warmup",
            self.requested.workload,
            "concurrency",
            concurrency,
            self._warmups[self.engine_run],
        )
        self._warmups[self.engine_run] += 1
        level = yield from self._ask(load)
        if level.status == "FAILED":
            raise GoneError(
                Finding(
                    "BENCH-ENGINE-GONE",
                    load.key,
                    f"a load of {concurrency} concurrent requests failed: {_cause(level)}",
                )
            )
        return level

    def in_flight(self, workload: Workload, rate: float) -> int:
        """Return how many requests an open loop will have in flight, by the closed levels.

        Random arrivals crowd, so it is more than a closed loop of that rate has. Above the highest
        rate it is what that rate took: how many more would gather depends on how long one waits.
        """
        known = self.known(workload, "concurrency")
        rates = {size: mean_rate(levels) or 0.0 for size, levels in known.items()}
        most = max(rates.values(), default=0.0) / (1 + self.rules.gain)
        enough = [size for size, served in rates.items() if served >= min(rate, most)]
        return math.ceil(min(enough, default=1) * float(self.rules.open_room))

    def _load(self, phase: Phase, workload: Workload, by: By, size: float, repeat: int) -> Load:
        rules = self.rules
        if by == "concurrency":
            slots = int(size)
            least = rules.requests_least
            # It counts as evidence of its size like any other level.
            least = min(least, rules.baseline_requests) if phase == "baseline" else least
            least = 0 if phase == "warmup" else least
        else:
            slots = self.in_flight(workload, size)
            least = max(rules.requests_least, math.ceil(size * rules.open_seconds))
        load = Load(
            phase=phase,
            workload=workload,
            requests=max(rules.requests_per_concurrency * slots, least),
            concurrency=slots if by == "concurrency" else None,
            request_rate=size if by == "request_rate" else None,
            warmups=slots,
            repeat=repeat,
            engine_run=self.engine_run,
        )
        return self._seeded(load)

    def _seeded(self, load: Load) -> Load:
        """Return the load with a seed of its own: prompts that repeat would be cache hits."""
        named = replace(load, seed=self.requested.seed).key
        return replace(load, seed=zlib.crc32(named.encode()) >> 1)

    def _ask(self, load: Load) -> Steps[Level]:
        level = yield load
        self.levels.append(level)
        return level

    def _heals(self, level: Level) -> bool:
        errors = [finding for finding in level.findings if has_errors([finding])]
        known = all(finding.code in self.rules.heal_codes for finding in errors)
        return bool(errors) and known and not evidence(level)

    def _alive(self, failed: Level) -> Steps[None]:
        """Ask a small load after a failed one: if that fails too, nothing more can be measured."""
        try:
            yield from self.warm()
        except GoneError as gone:
            key = failed.load.key
            message = f"the engine does not answer after {key}: {_cause(failed)}"
            raise GoneError(gone.finding.about(key).reworded(message=message)) from None


def _cause(level: Level) -> str:
    reported = [finding.message for finding in level.findings]
    return reported[0] if reported else "requests failed"
