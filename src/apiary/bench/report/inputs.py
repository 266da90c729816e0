# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading benchmarks: their own documents, and those that a tuning's state names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.proof import counts
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Kind, Tune

from apiary.app.inputs import BENCH, read_output

# The kinds of a tuning's trials, the longest first.
KINDS: tuple[Kind, ...] = ("final", "confirm", "longer", "short", "alike")


@dataclass(frozen=True)
class Results:
    """Benchmarks in their order, and the tuning that they are of where they are all of one."""

    benches: tuple[Bench, ...]
    tuning: Tune | None = None


def load_benches(names: Iterable[str]) -> tuple[Bench, ...]:
    """Return every benchmark of the files, in their order; raise REPORT-EMPTY for none."""
    return load_results(names).benches


def load_results(names: Iterable[str]) -> Results:
    """Return what the files hold; raise REPORT-EMPTY where nothing was measured."""
    listed = list(names)
    matches: list[Bench] = []
    tunings: list[Tune] = []
    for given in listed:
        # `apiary bench` says OUT, so a directory is taken as its result.
        name = str(Path(given) / "bench.json") if Path(given).is_dir() else given
        data = _json_of(name)
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema == Tune.SCHEMA:
            tunings.append(from_document(Tune, data, name))
            matches += _of_tuning(tunings[-1], Path(name).parent)
        elif schema == Bench.SCHEMA:
            bench = from_document(Bench, data, name)
            _possible(bench, name)
            if bench not in matches:  # given twice it is no second measurement
                matches.append(bench)
        else:
            raise error(
                "DOC-SCHEMA",
                name,
                f"schema is {schema!r}, expected {Bench.SCHEMA!r} or {Tune.SCHEMA!r}",
                document="a result of `apiary bench` or the state of a tuning",
            )
    empty = next((bench.name for bench in matches if not bench.levels), None)
    if empty is not None or not matches:
        raise error("REPORT-EMPTY", empty or ", ".join(listed), "no level was measured")
    return Results(tuple(matches), tunings[0] if len(listed) == len(tunings) == 1 else None)


def _possible(bench: Bench, name: str) -> None:
    """Refuse what no benchmark writes, with REPORT-IMPOSSIBLE: a file was changed by hand."""
    for place, level in enumerate(bench.levels):
        wrong = level.valid and level.measured is None
        problem = "counts and has no numbers" if wrong else _negative(to_document(level.measured))
        if problem:
            _refuse(name, f"levels[{place}] {problem}")
    counting = {level.load.workload.name for level in bench.levels if counts(level)}
    for item in bench.searches:
        rate = item.request_rate
        if item.best is not None and item.workload not in counting:
            _refuse(name, f"found has a rate of {item.workload}, of which no level counts")
        if (rate is not None and not 0 <= rate.mean < math.inf) or _negative(to_document(item)):
            _refuse(name, f"found of {item.workload} has a rate that none can be")


def _negative(data: Any) -> str:
    """Return which number of a level is below zero or none at all, empty where each is one."""
    if not isinstance(data, Mapping):
        return ""
    for key, value in data.items():
        inner = _negative(value)
        if inner:
            return inner
        # The lower end of an interval is arithmetic, not a measurement.
        if isinstance(value, float | int) and key != "low" and not 0 <= value < math.inf:
            return f"has {key} {value}"
    return ""


def _refuse(name: str, problem: str) -> None:
    raise error("REPORT-IMPOSSIBLE", name, problem)


def _json_of(name: str) -> Any:
    try:
        return json.loads(read_output(name, BENCH))
    except ValueError as failure:
        raise error("FILE-SYNTAX", name, f"is no JSON: {failure}") from failure


def _of_tuning(state: Tune, folder: Path) -> Iterator[Bench]:
    """Yield the benchmarks of each candidate's longest trials, under the candidate's name.

    What a short trial found before is not mixed with what the finals measured.
    """
    labels = {candidate.id: candidate.label for candidate in state.candidates}
    for candidate, label in labels.items():
        kinds: dict[str, list[str]] = {}
        for trial in state.trials:
            if trial.candidate == candidate and trial.outcome and trial.outcome.path:
                kinds.setdefault(trial.kind, []).append(trial.outcome.path)
        paths = next((kinds[kind] for kind in KINDS if kind in kinds), [])
        for path in paths:
            file = str(folder / path)
            yield replace(from_document(Bench, _json_of(file), file), name=label)
