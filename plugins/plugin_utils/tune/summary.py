# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tuning in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ..documents import knowledge
from . import knobs, rounds, scores, trials
from .types import Fact, Kind, NotTried, Tune

_GIB = 2**30


def summary(state: Tune) -> tuple[str, ...]:
    """Return what was found, measured and not tried, one line each."""
    return (*_verdict(state), *_candidates(state), *_left_out(state), *_hosts(state))


def _verdict(state: Tune) -> Iterator[str]:
    name = state.requested.deployment.name
    made = state.choice
    if made is None:
        current = state.rounds[-1] if state.rounds else None
        where = f"{current.stage}, {current.kind}" if current else "not begun"
        yield f"{name}: no choice yet ({where}; {len(state.trials)} trials)"
        yield from _to_come(state)
        return
    label = state.candidate(made.candidate).label if made.candidate else "the current configuration"
    yield f"{name}: {label} ({made.verdict})"
    yield f"  {made.reason}"
    if made.score is not None:
        yield f"  {label}: {scores.told(made.score)} a host"
    if made.confirmed is not None:
        yield f"  {'a repeat confirms it' if made.confirmed else 'a repeat does not confirm it'}"
    if made.candidate:
        changes = state.candidate(made.candidate).changes
        yield from (f"  {path}: {_value(value)}" for path, value in changes.items())
        for finding in state.candidate(made.candidate).findings:
            yield f"  {finding}"


def _value(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.partition("\n")[0]


def _to_come(state: Tune) -> Iterator[str]:
    """Yield what is still to be varied, around a best configuration that is not known yet."""
    stages = [one.stage for one in state.rounds]
    for path, values in knobs.wanted(state.requested.knobs).items():
        if path not in stages and rounds.CHOICE not in stages:
            yield f"  then, around the best: {path} in {', '.join(map(str, values))}"
    budget = state.requested.budget
    runs = budget.engine_runs
    yield f"  at last the finals, {runs} runs each, and a repeat of {budget.confirm_engine_runs}"


def _candidates(state: Tune) -> Iterator[str]:
    """Yield each candidate with its score of the longest round, or why there is none."""
    yield f"measured in {len(state.trials)} trials, requests/s of one host:"
    wide = max(len(one.label) for one in state.candidates)
    for one in state.candidates:
        kinds: tuple[Kind, ...] = ("final", "longer", "short", "alike")
        known = {kind: scores.score(state, kind, one.id) for kind in kinds}
        kind = next((kind for kind in kinds if known[kind] is not None), None)
        reported = trials.out(state, one.id)
        if reported is None and kind is None:
            reported = "not measured"
        elif reported is None and kind is not None:
            reported = f"{scores.told(known[kind])}, {kind}"
        yield f"  {one.label:<{wide}}  {reported}{' (current)' * (one.stage == 'current')}"
    yield "exact facts, which order the queue:"
    for one in state.candidates:
        if one.facts and one.stage in ("current", "layouts"):
            yield f"  {one.label}: {', '.join(map(fact, one.facts))}"


def fact(one: Fact) -> str:
    """Return a fact in words."""
    short = knowledge("tune.yml")["facts"][one.name]["short"]
    if one.unit != "bytes":
        return f"{one.figure:,.0f} {short}"
    if one.figure >= _GIB / 4:
        return f"{one.figure / _GIB:.2f} GiB {short}"
    return f"{one.figure * 1024 / _GIB:.0f} MiB {short}"


def _left_out(state: Tune) -> Iterator[str]:
    """Yield what was not tried; those that the same rules forbid together, with one reason."""
    if not state.not_tried:
        return
    yield f"not tried, {len(state.not_tried)}:"
    groups: dict[tuple[str, ...], list[NotTried]] = {}
    for one in state.not_tried:
        groups.setdefault(one.codes or (one.reason,), []).append(one)
    for codes, alike in groups.items():
        codes_text = f" [{', '.join(codes)}]" if alike[0].codes else ""
        yield f"  {', '.join(one.label for one in alike)}: {alike[0].reason}{codes_text}"


def _hosts(state: Tune) -> Iterator[str]:
    for one in state.hosts:
        if not one.used:
            yield f"host {one.name} took no part: {one.reason}"
