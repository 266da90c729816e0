# SPDX-License-Identifier: GPL-3.0-or-later

"""A tuning step by step: which trials come next, and what an outcome changes.

Nothing but the document decides, so a run that was interrupted goes on from it to the same choice.
Rounds: one candidate on every host; the layouts by successive halving; each knob around the best
so far, likewise; then the finals with restarts, and a repeat of what they chose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..bench.types import Requested
from ..documents import from_document, knowledge, to_document
from ..findings import Finding, error
from ..model.types import Architecture
from ..plan.types import Plan
from ..topology.types import Topology
from . import alike, candidates, knobs, rounds, scores
from .types import Host, Kind, Outcome, Question, Round, Trial, Tune

# Finals on several hosts would compare the hosts.
_ONE_HOST: tuple[Kind, ...] = ("final", "confirm")
GONE = "TRIAL-HOST-GONE"
# By host: a trial with what its host needs, and what the trial's last step returned.
Assigned = Mapping[str, Mapping[str, Any]]
Ended = Mapping[str, Mapping[str, Any]]


def begin(
    question: Question,
    architecture: Architecture,
    topology: Topology,
    others: tuple[Plan, ...] = (),
    findings: tuple[Finding, ...] = (),
) -> Tune:
    """Return a tuning that has measured nothing yet; ``others`` are plans that stay on the hosts.

    ``findings`` are those of alike.alike and of gone: hosts that differ from the first, or cannot
    be reached, take no part.
    Raises ApiaryError: TRIAL-BUDGET, TRIAL-NOTHING, TRIAL-NODES, TRIAL-LAYOUT, and what planning
    refuses.
    """
    budget, problem = question.budget, ""
    if budget.engine_runs < 2 or budget.confirm_engine_runs < 0 or budget.confirm_engine_runs == 1:
        runs = f"{budget.engine_runs}, confirm_engine_runs: {budget.confirm_engine_runs}"
        problem = "a single run has no spread, so two configurations could not be compared by it"
        problem = f"engine_runs: {runs}: {problem}"
    elif budget.repeats is not None and budget.repeats < 1:
        problem = f"repeats: {budget.repeats}: a level that is not measured tells nothing"
    if problem:
        raise error("TRIAL-BUDGET", "tune_budget", problem)
    world = candidates.World(question, architecture, topology, others)
    queue = candidates.layouts(world)
    state = Tune(
        requested=question,
        architecture=architecture,
        topology=topology,
        others=others,
        candidates=queue.candidates,
        hosts=tuple(_host(name, findings) for name in question.hosts or (topology.host,)),
        not_tried=queue.not_tried,
        findings=findings,
    )
    return rounds.advance(state)


def _host(name: str, findings: tuple[Finding, ...]) -> Host:
    out = (alike.CODE, GONE)
    why = [one.message for one in findings if one.code in out and one.subject == name]
    return Host(name, not why, "; ".join(why))


def gone(names: Sequence[str]) -> tuple[Finding, ...]:
    """Return that hosts cannot be reached, so that they take no part from now on."""
    message = "could not be reached, so it takes no part"
    return tuple(Finding(GONE, name, message, accepted=True) for name in names)


def without(state: Tune, names: Sequence[str]) -> Tune:
    """Return a tuning that goes on without these hosts; as it was where none of them takes part.

    Raises TRIAL-HOST-GONE where no other host takes part.
    """
    used = [one.name for one in state.hosts if one.used]
    lost = [name for name in used if name in names]
    if not lost or state.choice is not None:
        return state
    if lost == used:
        raise error(
            GONE,
            ", ".join(lost),
            "could not be reached, and no other host takes part in this tuning",
        )
    findings = gone(lost)
    hosts = tuple(_host(one.name, findings) if one.name in lost else one for one in state.hosts)
    left = dataclasses.replace(state, hosts=hosts, findings=(*state.findings, *findings))
    return rounds.advance(left)


def assign(state: Tune, hosts: Sequence[str]) -> tuple[Trial, ...]:
    """Return what to measure next, at most one trial a host; () when the choice is made.

    The same document and hosts give the same trials. () is also the answer while no host that
    takes part is there.
    """
    used = {one.name for one in state.hosts if one.used}
    free = [name for name in hosts if name in used]
    if state.choice is not None or not state.rounds or not free:
        return ()
    current = state.rounds[-1]
    if current.kind == "alike":
        control = current.candidates[0]
        return tuple(
            rounds.trial(state, current, control, host)
            for host in free
            if rounds.open_on(state, current, host)
        )
    if current.kind in _ONE_HOST:
        home = rounds.home(state, current, free)
        missing = rounds.missing(state, current, home)
        return tuple(
            rounds.trial(state, current, name, home, engine_run) for name, engine_run in missing[:1]
        )
    return tuple(_spread(state, current, free))


def _spread(state: Tune, current: Round, free: list[str]) -> Iterator[Trial]:
    """Yield trials for the free hosts; one that was lost goes to another host if it can."""
    for name, engine_run in rounds.missing(state, current):
        if not free:
            return
        lost = {one.host for one in scores.tried(state, current.kind, name, engine_run)}
        host = next((one for one in free if one not in lost), free[0])
        free.remove(host)
        yield rounds.trial(state, current, name, host, engine_run)


def record(state: Tune, trial: Trial, outcome: Outcome) -> Tune:
    """Return the tuning with a trial's outcome, and with what follows from it.

    A trial that is recorded already stays as it was.
    """
    if any(one.id == trial.id for one in state.trials):
        return state
    ended = dataclasses.replace(trial, outcome=outcome)
    return rounds.advance(dataclasses.replace(state, trials=(*state.trials, ended)))


def requested_of(state: Tune, trial: Trial) -> Requested:
    """Return the benchmark of a trial: one engine run, prompts of its own seed.

    Candidates of a round get the same prompts in the same engine run.
    """
    entry: dict[str, Any] = knowledge("tune.yml")["rounds"][trial.kind]
    question = state.requested
    again = trial.engine_run + (100 if trial.kind == "confirm" else 0)
    return Requested(
        workload=question.workload,
        slo=question.slo,
        phases=("slo",) if question.slo else ("fixed",),
        concurrency=() if question.slo else (question.concurrency,),
        repeats=question.budget.repeats or entry["repeats"],
        seed=question.seed + again,
        search_by=question.search_by,
    )


def rules_of(trial: Trial) -> dict[str, Any]:
    """Return what of the protocol's rules differs for a trial, by the names of bench.rules."""
    changes: dict[str, Any] = knowledge("tune.yml")["rounds"][trial.kind]["rules"]
    return dict(changes)


def most(state: Tune, hosts: int = 1) -> int:
    """Return an upper bound of how often trials are still to be assigned and recorded."""
    if state.choice is not None:
        return 0
    facts, budget = knowledge("tune.yml"), state.requested.budget
    stages = [
        sum(one.stage in (candidates.CURRENT, candidates.LAYOUTS) for one in state.candidates)
    ]
    stages += [len(values) + 1 for values in knobs.wanted(state.requested.knobs).values()]
    engine_runs = [facts["rounds"][kind]["engine_runs"] for kind in ("short", "longer")]
    trials = sum(stages) * sum(engine_runs)
    if budget.trials is not None:
        trials = min(trials, budget.trials + hosts)
    finals = (facts["finalists"] + 1) * budget.engine_runs + 2 * budget.confirm_engine_runs
    alike = len(state.candidates) if len(state.hosts) > 1 else 0
    return int((trials + finals + alike) * facts["attempts"])


def assignments(
    state: Tune,
    hosts: list[str],
    load_hosts: list[str],
    lost: Collection[str] = (),
    clients: Mapping[str, str] | None = None,
    now: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """Return what each host tries next, as a playbook needs it; empty where it is done.

    A load host measures one host at a time; without any, each host loads itself. Where all are
    ``lost``, nothing is left to be tried. ``clients`` are the versions of vLLM's client on them.
    """
    trials = assign(state, hosts)
    places = [one for one in load_hosts if one not in lost]
    if not load_hosts:
        places = [one.host for one in trials]
    client = state.requested.measured_by
    return {
        one.host: {
            "trial": to_document(one),
            "label": f"{state.candidate(one.candidate).label}, {one.kind}",
            "deployment": to_document(candidates.deployment_of(state, one.candidate)),
            "requested": to_document(requested_of(state, one)),
            "rules": {**rules_of(one), **client.get("rules", {})},
            "command": client.get("command"),
            "load_host": place,
            "client_version": (clients or {}).get(place),
            "began": now,
        }
        for one, place in zip(trials, places, strict=False)
    }


def record_all(state: Tune, assigned: Assigned, ended: Ended, now: float) -> Tune:
    """Return the state with the outcome of every trial that had been assigned.

    A host that is not among ``ended`` could not be reached any more. One whose load host was lost
    stays open: nothing became known of the candidate.
    """
    gone = lost_load_hosts(assigned, ended)
    lost = Outcome("lost", cause="the host could not be reached any more")
    for host, item in assigned.items():
        if item["load_host"] in gone:
            continue
        trial = from_document(Trial, item["trial"], host)
        outcome = from_document(Outcome, ended[host]["outcome"], host) if host in ended else lost
        outcome = dataclasses.replace(outcome, seconds=now - float(item["began"]))
        state = record(state, trial, outcome)
    return state


def lost_load_hosts(assigned: Assigned, ended: Ended) -> list[str]:
    """Return the load hosts that could not be reached; a host that loads itself is none."""
    return [
        item["load_host"]
        for host, item in assigned.items()
        if ended.get(host, {}).get("load_lost") and item["load_host"] != host
    ]


def client_versions(assigned: Assigned, ended: Ended, before: Mapping[str, str]) -> dict[str, str]:
    """Return the version of vLLM's client on each load host."""
    versions = {
        item["load_host"]: ended[host]["client"]
        for host, item in assigned.items()
        if ended.get(host, {}).get("client")
    }
    return {**versions, **before}


def results_of(state: Tune, assigned: Assigned) -> Iterator[str]:
    """Yield a line for each trial that has ended, with its result."""
    names = {item["trial"]["id"] for item in assigned.values()}
    for one in state.trials:
        if one.id in names and one.outcome is not None:
            why = one.outcome.cause or one.outcome.summary or one.outcome.status
            label = state.candidate(one.candidate).label
            yield f"{label} on {one.host} ({one.kind}, run {one.engine_run + 1}): {why}"
