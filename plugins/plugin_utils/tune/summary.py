# SPDX-License-Identifier: GPL-3.0-or-later

"""A tuning in words, for a terminal."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..deployment import Deployment
from ..documents import knowledge
from . import candidates, knobs, rounds, scores
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
    shown_costs = (made.candidate, state.current and state.current.id)
    for name, cost in state.costs.items():
        if name in shown_costs:
            yield from (f"  {state.candidate(name).label}: {line}" for line in cost.text)
    if made.confirmed is not None:
        yield f"  {'a repeat confirms it' if made.confirmed else 'a repeat does not confirm it'}"
    if made.candidate:
        changes = state.candidate(made.candidate).changes
        yield from (f"  {path}: {_value(value)}" for path, value in changes.items())
        for finding in state.candidate(made.candidate).findings:
            yield f"  {finding}"
    if limits := routers_limits(state):
        yield f"  routers may refuse what comes too late, by {_value(limits)}"


def routers_limits(state: Tune) -> dict[str, Any]:
    """Return the variable by which routers keep the SLO of what serves from now on, {} of none.

    Of a replica it is the least that an engine run of the finals or the repeat kept the SLO at.
    """
    requested, made = state.requested, state.choice
    first = [limit.seconds for limit in requested.slo if limit.metric == "ttft"]
    serving = (made and made.candidate) or (state.current.id if state.current else "")
    found = [
        one.outcome.within or 0.0
        for kind in ("final", "confirm")
        for one in (scores.measured(state, kind, serving) if made else ())
        if one.outcome
    ]
    # One that kept the SLO at no level leaves nothing to hold others to.
    if not min(found, default=0.0):
        return {}
    changes = state.candidate(serving).changes
    replicas = len(candidates.world_of(state).plan(changes).replicas)
    limits: dict[str, Any] = {"within_slo": max(1, int(min(found) / replicas))}
    limits |= {"ttft_seconds": max(first)} if first else {}
    name = requested.deployment.name
    return {"router_queueing": {field: {name: value} for field, value in limits.items()}}


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
        reported = scores.out(state, one.id)
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


_TEMPLATE = ("{{", "{%", "{#")


class _Dumper(yaml.SafeDumper):
    """Writes what Ansible would take for a template so that it does not."""


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    templated = any(mark in value for mark in _TEMPLATE)
    return dumper.represent_scalar("!unsafe" if templated else "tag:yaml.org,2002:str", value)


_Dumper.add_representer(str, _text)


def tuned_variables(before: Deployment, after: Deployment, evidence: str) -> tuple[str, str]:
    """Return `tuned.yml`, which has the whole deployment ``after``, and the unified diff to it.

    Defaults are left out, as an operator would leave them out; ``evidence`` names what shows it.
    """
    old, new = written(before), written(after)
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), "as deployed", "tuned.yml"
    )
    return f"---\n# Measured by playbooks/tune.yml: {evidence}\n{new}", "".join(lines)


def winner_of(state: Tune) -> str | None:
    """Return the candidate that is to replace the current configuration, if one is."""
    chosen, current = state.choice.candidate if state.choice else None, state.current
    return None if current is not None and chosen == current.id else chosen


def variables_of(state: Tune, evidence: Path) -> tuple[str, str]:
    """Return the text of `tuned.yml` and the difference; both empty where nothing is to change."""
    winner = winner_of(state)
    if winner is None:
        return "", ""
    after = candidates.deployment_of(state, winner)
    return tuned_variables(state.requested.deployment, after, shown(evidence))


def shown(path: Path) -> str:
    """Return a path as people write it who stand where the run was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def written(deployment: Deployment) -> str:
    """Return a deployment as the variable that hosts have."""
    data = {"apiary_deployment": _plain(deployment)}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    """Return plain data without what holds by default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {item.name: (item, getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {name: _plain(own) for name, (item, own) in items.items() if own != _default(item)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default
