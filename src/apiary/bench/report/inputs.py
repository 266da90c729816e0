# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading benchmarks: their own documents, and those that a tuning's state names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.cost import with_cost
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench, Price
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
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


def load_benches(names: Iterable[str], price: Price | None) -> tuple[Bench, ...]:
    """Return every benchmark of the files, in their order; raise REPORT-EMPTY for none."""
    return load_results(names, price).benches


def load_results(names: Iterable[str], price: Price | None) -> Results:
    """Return what the files hold, with its cost, by another ``price`` than theirs if there is one.

    Raises REPORT-EMPTY where nothing was measured.
    """
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
    matches = [with_cost(bench, price) for bench in matches]
    return Results(tuple(matches), tunings[0] if len(listed) == len(tunings) == 1 else None)


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
