# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether results are of one thing, by knowledge/bench/protocol.yml `same`, or of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...documents import knowledge, to_document
from ...findings import error
from ..types import Bench, Level


@dataclass(frozen=True)
class Difference:
    """One fact that two results do not share; None is unknown."""

    what: str
    a: str | None
    b: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.a or 'unknown'} against {self.b or 'unknown'}"


def question(bench: Bench) -> dict[str, str | None]:
    """Return what a benchmark asked: only answers to one question can be compared."""
    return _named(bench, knowledge("bench/protocol.yml")["same"]["question"])


def conditions(bench: Bench) -> dict[str, str | None]:
    """Return under what a benchmark was measured: hardware, software, layout, client."""
    return _named(bench, knowledge("bench/protocol.yml")["same"]["conditions"])


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the facts that are not equal, in the order of the first."""
    return tuple(Difference(name, a[name], b.get(name)) for name in a if a[name] != b.get(name))


def one_question(benches: Sequence[Bench]) -> None:
    """Refuse results that answer different questions, with BENCH-QUESTION."""
    for bench in benches[1:]:
        unlike = differences(question(benches[0]), question(bench))
        if unlike:
            raise error(
                "BENCH-QUESTION",
                bench.name,
                f"it answers another question than {benches[0].name}: {listed(unlike)}",
            )


def one_configuration(benches: Sequence[Bench]) -> None:
    """Refuse results that shall be runs of one configuration and are not, with BENCH-MIXED."""
    if not benches:
        raise error("BENCH-MIXED", "results", "there are none")
    one_question(benches)
    for bench in benches[1:]:
        unlike = differences(conditions(benches[0]), conditions(bench))
        if unlike:
            raise error(
                "BENCH-MIXED",
                bench.name,
                f"it is of another configuration than {benches[0].name}: {listed(unlike)}",
            )


def listed(unlike: Iterable[Difference]) -> str:
    """Return differences as one line."""
    return "; ".join(map(str, unlike))


def _named(bench: Bench, names: Iterable[str]) -> dict[str, str | None]:
    requested = bench.requested
    limits = sorted(f"{it.metric}:{it.percentile}:{it.seconds:g}s" for it in requested.slo)
    own: dict[str, Any] = {
        "model": bench.target.model,
        "workload": to_document(requested.workload),
        "slo": ",".join(limits) or None,
        "gpus": bench.target.gpus,
        "hosts": bench.target.hosts,
    }
    client = next((level.client for level in bench.levels if level.client is not None), None)
    if client is not None:
        own |= {"client.backend": client.backend, "client.version": client.version}
    values = {
        name: own[name] if name in own else _inside(bench.environment, name) for name in names
    }
    return {name: None if value is None else _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    """Return a fact as a short text; a workload is told by its name and what is not usual."""
    if not isinstance(value, Mapping):
        return str(value)
    usual: tuple[Any, ...] = (None, 0, [], "random")
    rest = {key: item for key, item in value.items() if key != "name" and item not in usual}
    return f"{value.get('name', '')} {rest}".strip()


def _inside(data: Any, name: str) -> Any:
    """Return what a dotted name leads to; None where it leads nowhere."""
    for part in name.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def merged(benches: Sequence[Bench]) -> tuple[Level, ...]:
    """Return the levels of several benchmarks as of one, their engine runs numbered over all.

    Two are the same run where benchmarks are equal, or engines began at the same moment at the same
    addresses. Engines that do not say when are taken by what the benchmark calls an engine run.
    """
    levels: list[Level] = []
    numbers: dict[object, int] = {}
    count = 0
    for bench in benches:
        same = benches.index(bench)
        for engine_run, own in by_engine_run(bench.levels).items():
            marks: list[object] = [
                (bench.target.urls, level.engine.started)
                for level in own
                if level.engine and level.engine.started
            ]
            marks.append((same, engine_run, "engine_run"))
            number = min((numbers[mark] for mark in marks if mark in numbers), default=count)
            numbers |= dict.fromkeys(marks, number)
            count += 1
            levels += (replace(one, load=replace(one.load, engine_run=number)) for one in own)
    return tuple(levels)


def by_engine_run(levels: Iterable[Level]) -> dict[int, list[Level]]:
    """Return the levels of each engine run, the first run first."""
    runs: dict[int, list[Level]] = {}
    for level in levels:
        runs.setdefault(level.load.engine_run, []).append(level)
    return dict(sorted(runs.items()))
