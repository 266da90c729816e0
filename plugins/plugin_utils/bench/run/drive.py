# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop of a benchmark: each load of the protocol is measured, kept in a file, evaluated."""

from __future__ import annotations

import glob
import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ...documents import dumps, from_document, knowledge, to_document
from ...files import read_text, write_bytes, write_text
from ...findings import ApiaryError, error, has_errors
from ..ledger import GoneError, Outcome, Rules, Steps
from ..protocol import protocol
from ..types import Bench, Level, Load, Raw, Requested, Target
from ..validity.evaluate import evaluate
from ..words import between, found_text, level_text, load_text


class Unable(Exception):  # noqa: N818 - it carries the refusal
    """The load host, its client or a restart fails, so no further level can be measured."""

    def __init__(self, refusal: ApiaryError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(frozen=True)
class Progress:
    """One step of a run: ``level`` is None before it is measured; ``done`` were before it."""

    load: Load
    done: int
    replayed: bool
    level: Level | None = None


def words(progress: Progress) -> str:
    """Return one line of what begins, or of what has just been measured."""
    if progress.level is None:
        load = progress.load
        return f"{load.phase}: {load.workload.name}, {load_text(load)}, {load.requests} requests"
    return level_text(progress.level) + (" (measured before)" if progress.replayed else "")


def lines(bench: Bench) -> list[str]:
    """Return a benchmark in lines: its levels, then what each search found."""
    # Each engine has told its metrics, or how many there are is not known.
    engines = len(bench.target.metrics) if any(one.engine for one in bench.levels) else 0
    searches = [
        f"SLO of {found.workload}: {found_text(found)}"
        + (f"; {between(found.request_rate, 'requests/s')} served" if found.request_rate else "")
        + (
            f"; router_queueing.within_slo: {max(1, int(found.best / engines))} of a replica,"
            " with its ttft_seconds"
            if found.best and found.by == "concurrency" and engines
            else ""
        )
        for found in bench.searches
    ]
    return [*map(level_text, bench.levels), *searches]


def silent(_progress: Progress) -> None:
    """Show nothing."""


def _serving(_load: Load) -> None:
    """Take the engines as they are."""


@dataclass
class Drive:
    """Measures what is requested, a level a load, whatever happens to it.

    A raw result that is already in the store is evaluated again instead of measured, so that an
    interrupted run goes on where it ended; _again says which are measured once more. A load
    that was begun before has the next ``attempt``, and so other prompts than the engine may know.
    ``run`` raises ApiaryError for a level that failed, Unable where it ends all of them: that is
    ``stopped`` then. ``ready`` is called before a load is begun, and restarts the engine where
    load.engine_run rises; ``engine_run`` is the present one: what is retained of those before
    stands.
    """

    requested: Requested
    run: Callable[[Load], Raw]
    store: RawStore
    progress: Callable[[Progress], None] = silent
    ready: Callable[[Load], None] = _serving
    engine_run: int = 0
    evaluate: Callable[..., Level] = evaluate
    levels: list[Level] = field(default_factory=list)
    stopped: ApiaryError | None = None

    def bench(
        self,
        name: str,
        created: str,
        target: Target,
        environment: Mapping[str, Any],
        rules: Rules | None = None,
    ) -> Bench:
        """Measure every level that the protocol yields; return the whole benchmark."""
        outcome = self._outcome(rules)
        return Bench(
            name=name,
            created=created,
            target=target,
            requested=self.requested,
            levels=tuple(self.levels),
            searches=outcome.searches,
            saturation=outcome.saturation,
            environment=dict(environment),
            findings=outcome.findings,
        )

    def _outcome(self, rules: Rules | None) -> Outcome:
        steps = protocol(self.requested, rules)
        try:
            load = next(steps)
            while True:
                load = steps.send(self._level(load))
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        except Unable as failure:
            self.stopped = failure.refusal
            return _cut(steps, failure.refusal)

    def _level(self, load: Load) -> Level:
        """Return the level of a load: replayed, measured, or FAILED with the reason."""
        raw = self._stored(load)
        level = self._evaluated(load, raw, self.store.name(load.key)) if raw is not None else None
        replayed = level is not None and raw is not None and self._stands(level, raw)
        done = len(self.levels)
        self.progress(Progress(load, done, replayed))
        if level is None or not replayed:
            level = self._measured(load)
        self.progress(Progress(load, done, replayed, level))
        self.levels.append(level)
        return level

    def _stands(self, level: Level, raw: Raw) -> bool:
        """Return whether a kept level is replayed; one of an earlier run cannot be had again."""
        return level.load.engine_run < self.engine_run or not _again(level, raw)

    def _measured(self, load: Load) -> Level:
        """Run a load; its raw result is stored before it is evaluated."""
        self.ready(load)
        try:
            raw = self.run(replace(load, attempt=self.store.begin(load.key)))
        except ApiaryError as refusal:
            return Level(load, "FAILED", None, findings=refusal.findings)
        # A full disk ends the run: it is no fault of the level.
        return self._evaluated(load, raw, self.store.put(load.key, raw))

    def _evaluated(self, load: Load, raw: Raw, file: str) -> Level:
        try:
            level = self.evaluate(raw, self.requested.slo, load.key)
            return replace(level, load=load, raw=file)
        except ApiaryError as refusal:
            return Level(load, "FAILED", None, findings=refusal.findings, raw=file)

    def _stored(self, load: Load) -> Raw | None:
        raw = self.store.get(load.key)
        if raw is not None and replace(from_document(Load, raw.load, load.key), attempt=0) != load:
            raise error(
                "BENCH-RESUME", load.key, "the results here are of another load with that name"
            )
        return raw


def _cut(steps: Steps[Outcome], refusal: ApiaryError) -> Outcome:
    """End a protocol before its time; return what its levels say, and why there are no more."""
    first, *others = refusal.findings
    try:
        steps.throw(GoneError(first))
    except StopIteration as end:
        outcome: Outcome = end.value
        return replace(outcome, findings=(*outcome.findings, *others))
    return Outcome(findings=refusal.findings)


def _again(level: Level, raw: Raw) -> bool:
    """Return whether a kept level tells of circumstances that may be over, not of its load.

    Knowledge bench/protocol.yml `resume` names them. A load under which the engine died in each of
    some attempts is evidence: it is what that load does.
    """
    facts = knowledge("bench/protocol.yml")["resume"]
    codes = {finding.code for finding in level.findings if has_errors([finding])}
    if level.status == "FAILED":
        served = level.measured.completed if level.measured is not None else 0
        if not served or level.load.phase == "warmup":
            # Nothing answered: a stopped engine is no evidence once it runs again.
            return True
        died = bool(codes & set(facts["died"])) or any(map(_fell_silent, raw.shards))
        return died and int(raw.load.get("attempt", 0)) + 1 < facts["attempts"]
    return level.status == "INVALID" and bool(codes & set(facts["again"]))


def _fell_silent(shard: Mapping[str, Any]) -> bool:
    """Return whether a process got no answer any more from some moment until its end.

    An engine that is only too busy still answers some of its last requests.
    """
    errors = list(shard.get("errors") or ())
    starts = shard.get("start_times") or ()
    if len(starts) == len(errors):
        order = sorted(range(len(errors)), key=lambda place: starts[place] or 0.0)
        errors = [errors[place] for place in order]
    last = sum(1 for _one in takewhile(bool, reversed(errors)))
    share = float(knowledge("bench/protocol.yml")["resume"]["silent_share"])
    return last >= max(1, share * len(errors))


SUFFIX = ".json.gz"
BEGUN = "begun.json"


@dataclass(frozen=True)
class RawStore:
    """A directory with the raw result of each level, by the key of its load."""

    directory: Path

    def path(self, key: str) -> Path:
        """Return the file of a load's raw result."""
        return self.directory / (re.sub(r"[^A-Za-z0-9._-]", "_", key) + SUFFIX)

    def name(self, key: str) -> str:
        """Return that file's name relative to the benchmark's directory."""
        return f"{self.directory.name}/{self.path(key).name}"

    def get(self, key: str) -> Raw | None:
        """Return what was measured before; None where nothing was, or only half of it."""
        path = self.path(key)
        try:
            data = json.loads(gzip.decompress(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zlib.error) as failure:
            raise error(
                "BENCH-RAW", str(path), f"cannot be read as a raw result: {failure}"
            ) from failure
        return from_document(Raw, data, str(path))

    def begin(self, key: str) -> int:
        """Note that a load is about to be sent; return how often it was before."""
        path = self.directory.with_name(BEGUN)
        try:
            begun = json.loads(read_text(str(path))) if path.exists() else {}
            before = int(begun.get(key, 0))
        except (ValueError, TypeError, AttributeError) as failure:
            problem = f"cannot be read as a count of what was begun: {failure}"
            raise error("BENCH-RAW", str(path), problem) from failure
        write_text(path, dumps({**begun, key: before + 1}))
        return before

    def put(self, key: str, raw: Raw) -> str:
        """Keep a raw result; return its file's name relative to the benchmark's directory.

        What an earlier attempt gave stays beside it, as NAME.attempt-0.json.gz and so on.
        """
        path = self.path(key)
        if path.exists():
            stem = path.name.removesuffix(SUFFIX)
            number = len(list(path.parent.glob(f"{glob.escape(stem)}.attempt-*{SUFFIX}")))
            path.replace(path.with_name(f"{stem}.attempt-{number}{SUFFIX}"))
        write_packed(path, to_document(raw))
        return self.name(key)


def write_packed(path: Path, document: Any) -> None:
    """Write a document as gzip JSON in one step; equal documents make equal files."""
    text = json.dumps(document, separators=(",", ":")).encode()
    write_bytes(path, gzip.compress(text, 6, mtime=0))
