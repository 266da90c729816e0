# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop of a benchmark: each load of the protocol is measured, kept, then evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...documents import from_document
from ...findings import ApiaryError, error
from ...slo import Limit
from ..ledger import GoneError, Outcome, Steps
from ..protocol import protocol
from ..raw import Raw
from ..rules import Rules
from ..types import Bench, Level, Load, Requested, Target
from ..validity.evaluate import evaluate as evaluate_raw
from . import resume


class Unable(Exception):  # noqa: N818 - it carries the refusal
    """The load host, its client or a restart fails, so no further level could be measured.

    ``bench`` is what was measured until then, once drive has been left by it.
    """

    def __init__(self, refusal: ApiaryError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.bench: Bench | None = None


class Store(Protocol):
    """Where raw results are kept by Load.key, and how often each load was begun."""

    def begin(self, key: str) -> int:
        """Note that a load is about to be sent; return how often it was before."""

    def get(self, key: str) -> Raw | None:
        """Return what is kept under a key."""

    def put(self, key: str, raw: Raw) -> str:
        """Keep a raw result; return the name of its file."""

    def name(self, key: str) -> str:
        """Return the name of the file under a key."""


class Evaluate(Protocol):
    """validity.evaluate, the only maker of levels."""

    def __call__(self, raw: Raw, slo: tuple[Limit, ...], name: str | None = None) -> Level:
        """Return the level of a raw result."""


@dataclass(frozen=True)
class Progress:
    """One step of a run: ``level`` is None before it is measured; ``done`` were before it."""

    load: Load
    done: int
    replayed: bool
    level: Level | None = None


def drive(
    requested: Requested,
    run: Callable[[Load], Raw],
    store: Store,
    progress: Callable[[Progress], None] | None = None,
    *,
    name: str,
    created: str,
    target: Target,
    evaluate: Evaluate | None = None,
    environment: Mapping[str, Any] | None = None,
    rules: Rules | None = None,
    ready: Callable[[Load], None] | None = None,
    engine_run: int = 0,
) -> Bench:
    """Measure everything that is asked and return the whole benchmark.

    A raw result that is already in the store is evaluated again instead of measured, so that an
    interrupted run goes on where it ended; resume.again says which are measured once more. A load
    that was begun before has the next ``attempt``, and so other prompts than the engine may know.
    ``run`` raises ApiaryError for a level that failed; whatever else it raises ends the run, and
    what is stored stays; Unable has what the levels until then say. ``ready`` is called before a
    load is begun, and restarts the engine where load.engine_run rises; ``engine_run`` is the
    present one: what is retained of those before stands.
    """
    driver = _Driver(requested, run, store, evaluate or evaluate_raw, progress, ready, engine_run)
    steps = protocol(requested, rules)
    stopped: Unable | None = None
    outcome = Outcome()
    try:
        load = next(steps)
        while True:
            load = steps.send(driver.level(load))
    except StopIteration as end:
        outcome = end.value
    except Unable as failure:
        stopped, outcome = failure, _cut(steps, failure)
    bench = Bench(
        name=name,
        created=created,
        target=target,
        requested=requested,
        levels=tuple(driver.levels),
        searches=outcome.searches,
        saturation=outcome.saturation,
        environment=dict(environment or {}),
        findings=outcome.findings,
    )
    if stopped is not None:
        stopped.bench = bench
        raise stopped
    return bench


def _cut(steps: Steps[Outcome], failure: Unable) -> Outcome:
    """End a protocol before its time; return what its levels say, and why there are no more."""
    first, *others = failure.refusal.findings
    try:
        steps.throw(GoneError(first))
    except StopIteration as end:
        outcome: Outcome = end.value
        return replace(outcome, findings=(*outcome.findings, *others))
    return Outcome(findings=failure.refusal.findings)


class _Driver:
    """What turns one load into one level, whatever happens to it."""

    def __init__(
        self,
        requested: Requested,
        run: Callable[[Load], Raw],
        store: Store,
        evaluate: Evaluate,
        progress: Callable[[Progress], None] | None,
        ready: Callable[[Load], None] | None,
        engine_run: int,
    ) -> None:
        self.requested, self.run, self.store, self.evaluate = requested, run, store, evaluate
        self.progress, self.ready, self.engine_run = progress, ready, engine_run
        self.levels: list[Level] = []

    def level(self, load: Load) -> Level:
        """Return the level of a load: replayed, measured, or FAILED with the reason."""
        raw = self._stored(load)
        level = self._evaluated(load, raw, self.store.name(load.key)) if raw is not None else None
        replayed = level is not None and raw is not None and self._stands(level, raw)
        self._say(load, replayed)
        if level is None or not replayed:
            level = self._measured(load, resume.attempt_of(raw) + 1 if raw is not None else 0)
        self._say(load, replayed, level)
        self.levels.append(level)
        return level

    def _stands(self, level: Level, raw: Raw) -> bool:
        """Return whether a kept level is replayed; one of an earlier run cannot be had again."""
        return level.load.engine_run < self.engine_run or not resume.again(level, raw)

    def _measured(self, load: Load, least: int) -> Level:
        """Run a load, as attempt ``least`` or later; its raw result is kept before that."""
        if self.ready is not None:
            self.ready(load)
        attempt = max(self.store.begin(load.key), least)
        try:
            raw = self.run(replace(load, attempt=attempt))
        except ApiaryError as refusal:
            return Level(load, "FAILED", None, findings=refusal.findings)
        # A full disk ends the run: it is no fault of the level.
        return self._evaluated(load, raw, self.store.put(load.key, raw))

    def _evaluated(self, load: Load, raw: Raw, file: str) -> Level:
        try:
            return replace(self.evaluate(raw, self.requested.slo, load.key), load=load, raw=file)
        except ApiaryError as refusal:
            return Level(load, "FAILED", None, findings=refusal.findings, raw=file)

    def _stored(self, load: Load) -> Raw | None:
        raw = self.store.get(load.key)
        if raw is not None and replace(from_document(Load, raw.load, load.key), attempt=0) != load:
            raise error(
                "BENCH-RESUME", load.key, "the results here are of another load with that name"
            )
        return raw

    def _say(self, load: Load, replayed: bool, level: Level | None = None) -> None:
        if self.progress is not None:
            self.progress(Progress(load, len(self.levels), replayed, level))
