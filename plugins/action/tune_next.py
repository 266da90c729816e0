# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record what trials came to, and say what each host tries next: the adapter to plugin_utils.tune.

The state is a file on the controller, written after each trial, so that a run can go on with it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ansible.utils.display import Display

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.bench.comparison import proof
from ..plugin_utils.bench.types import Bench
from ..plugin_utils.documents import dumps, from_document, to_document
from ..plugin_utils.files import read_text, write_text
from ..plugin_utils.findings import error
from ..plugin_utils.run_owner import is_dead, owner
from ..plugin_utils.tune import candidates, steps
from ..plugin_utils.tune.ending import Told, outcome_of
from ..plugin_utils.tune.trial import client_versions
from ..plugin_utils.tune.types import Trial, Tune

DISPLAY = Display()
# Who is at work on a tuning, beside its state.
LOCK = "lock"


def acquire(state: Path, take_over: bool = False) -> None:
    """Keep other runs from this tuning; raise TRIAL-LOCKED where another one is at work on it.

    The locks on hosts do not: another run may have other hosts, and the state is the same.
    """
    ours = owner()
    state.parent.mkdir(parents=True, exist_ok=True)
    with (state.parent / LOCK).open("a+", encoding="utf-8") as stream:
        # Held for these lines alone: of two runs that find a dead one's lock, one gets it.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        other = stream.read().strip()
        if other and other != ours and not is_dead(other) and not take_over:
            raise error(
                "TRIAL-LOCKED",
                str(state),
                f"{other} is at work on this tuning, or was and left its lock",
            )
        stream.truncate(0)
        stream.write(ours + "\n")


def ensure_acquired(state: Path) -> None:
    """Ensure that no other run has taken the tuning over; raises TRIAL-LOCKED."""
    if (state.parent / LOCK).exists():
        acquire(state)


def release(state: Path) -> None:
    """Let other runs go on with the tuning; one that is not ours stays."""
    path = state.parent / LOCK
    if path.exists() and path.read_text(encoding="utf-8").strip() == owner():
        path.write_text("", encoding="utf-8")


def read_state(path: str) -> Tune:
    """Return the state of a tuning from its file; raises FILE-UNREADABLE, DOC-…, TRIAL-STATE."""
    try:
        document = json.loads(read_text(path))
    except ValueError as failure:
        raise error("TRIAL-STATE", path, f"is no JSON: {failure}") from None
    return from_document(Tune, document, path)


def assignments(
    state: Tune,
    hosts: list[str],
    load_hosts: list[str],
    lost: Collection[str] = (),
    clients: Mapping[str, str] | None = None,
) -> dict[str, dict]:
    """Return what each host tries next, as a playbook needs it; empty where it is done.

    A load host measures one host at a time; without any, each host loads itself. Where all are
    ``lost``, nothing is left to be tried. ``clients`` are the versions of vLLM's client on them.
    """
    trials = steps.assign(state, hosts)
    places = [one for one in load_hosts if one not in lost]
    if not load_hosts:
        places = [one.host for one in trials]
    return {
        one.host: {
            "trial": to_document(one),
            "label": f"{state.candidate(one.candidate).label}, {one.kind}",
            "deployment": to_document(candidates.deployment_of(state, one.candidate)),
            "requested": to_document(steps.requested_of(state, one)),
            "rules": steps.rules_of(one),
            "load_host": place,
            "client_version": (clients or {}).get(place),
            "began": time.time(),
        }
        for one, place in zip(trials, places, strict=False)
    }


def record(state: Tune, assigned: dict[str, dict], reported: dict[str, dict], now: float) -> Tune:
    """Return the state with the outcome of every trial that had been assigned.

    One whose load host was lost stays open: nothing became known of the candidate.
    """
    gone = lost_load_hosts(assigned, reported)
    for host, item in assigned.items():
        if item["load_host"] in gone:
            continue
        trial = from_document(Trial, item["trial"], host)
        seen = from_document(Told, reported[host], host) if reported.get(host) else None
        state = steps.record(state, trial, outcome_of(seen, now - float(item["began"])))
    return state


def lost_load_hosts(assigned: dict[str, dict], reported: dict[str, dict]) -> list[str]:
    """Return the load hosts that could not be reached; a host that loads itself is none."""
    return [
        item["load_host"]
        for host, item in assigned.items()
        if (reported.get(host) or {}).get("stage") == "load" and item["load_host"] != host
    ]


def set_aside(directory: Path, trials: Iterable[str]) -> None:
    """Move away what an interruption left of trials: it is of another engine run."""
    for name in trials:
        left = directory / name
        if left.exists():
            place = directory / "interrupted"
            place.mkdir(exist_ok=True)
            left.rename(place / f"{name}-{len(list(place.glob(f'{name}-*'))) + 1}")


def doubted(state: Tune, directory: Path) -> Tune:
    """Return a tuning that has chosen with what keeps its numbers from being published."""
    if state.choice is None:
        return state
    paths = [one.outcome.path for one in state.trials if one.outcome and one.outcome.path]
    here = [path for path in paths if (directory / path).is_file()]
    texts = {path: read_text(str(directory / path)) for path in here}
    benches = [from_document(Bench, json.loads(text), path) for path, text in texts.items()]
    notes = proof.doubt(state.requested.deployment.name, proof.unproven(benches))
    return dataclasses.replace(state, findings=tuple(dict.fromkeys((*state.findings, *notes))))


def results_of(state: Tune, assigned: dict[str, dict]) -> list[str]:
    """Return in a line for each trial that has ended what it came to."""
    names = {item["trial"]["id"] for item in assigned.values()}
    return [
        f"{state.candidate(one.candidate).label} on {one.host} "
        + f"({one.kind}, run {one.engine_run + 1}): "
        + (one.outcome.cause or one.outcome.summary or one.outcome.status)
        for one in state.trials
        if one.id in names and one.outcome is not None
    ]


class ActionModule(Deciding):
    """The tune_next action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Record, save, and return the next trials."""
        path, check = Path(arguments["state"]).absolute(), self._task.check_mode
        assigned, reported = arguments["assigned"], arguments["reported"]
        clients = client_versions(assigned, reported, arguments["clients"])
        state = read_state(arguments["state"])
        if not check:
            ensure_acquired(path)
        if assigned and not check:
            state = record(state, assigned, reported, time.time())
            state = doubted(state, path.parent)
            write_text(path, dumps(state))
        lost = [*arguments["lost_load_hosts"], *lost_load_hosts(assigned, reported)]
        following = assignments(state, arguments["hosts"], arguments["load_hosts"], lost, clients)
        if not check:
            set_aside(path.parent, [item["trial"]["id"] for item in following.values()])
        for line in results_of(state, assigned):
            DISPLAY.display(f"  {line}")
        for name in lost:
            DISPLAY.display(f"  the load host {name} could not be reached any more")
        return {
            "assigned": following,
            "done": state.choice is not None,
            "lost_load_hosts": lost,
            "clients": clients,
        }
