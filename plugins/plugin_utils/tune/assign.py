# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which host measures what next and from where, and what is recorded of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..documents import from_document, to_document
from . import candidates, steps
from .types import Outcome, Trial, Tune

# By host: a trial with what its host needs, and what the trial's last step returned.
Assigned = Mapping[str, Mapping[str, Any]]
Ended = Mapping[str, Mapping[str, Any]]


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
    trials = steps.assign(state, hosts)
    places = [one for one in load_hosts if one not in lost]
    if not load_hosts:
        places = [one.host for one in trials]
    client = state.requested.measured_by
    return {
        one.host: {
            "trial": to_document(one),
            "label": f"{state.candidate(one.candidate).label}, {one.kind}",
            "deployment": to_document(candidates.deployment_of(state, one.candidate)),
            "requested": to_document(steps.requested_of(state, one)),
            "rules": {**steps.rules_of(one), **client.get("rules", {})},
            "command": client.get("command"),
            "load_host": place,
            "client_version": (clients or {}).get(place),
            "began": now,
        }
        for one, place in zip(trials, places, strict=False)
    }


def record(state: Tune, assigned: Assigned, ended: Ended, now: float) -> Tune:
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
        state = steps.record(state, trial, outcome)
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
