# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a tuning on the controller: a file that is written after each trial, and its lock.

Nothing that decides imports this.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Iterable
from pathlib import Path

from ..bench.comparison import compare
from ..bench.cost import cost_of
from ..bench.types import Bench
from ..documents import from_document
from ..files import read_text
from ..findings import error
from ..run_owner import is_dead, owner
from .types import Tune

# Who is at work on a tuning, beside its state.
LOCK = "lock"


def place_of(artifacts: str, name: str) -> Path:
    """Return the file of the state."""
    return Path(artifacts, "tune", name, "state.json").absolute()


def read_state(path: Path) -> Tune:
    """Return the state of a tuning from its file; raises FILE-UNREADABLE, DOC-…, TRIAL-STATE."""
    try:
        document = json.loads(read_text(str(path)))
    except ValueError as failure:
        raise error("TRIAL-STATE", str(path), f"is no JSON: {failure}") from None
    return from_document(Tune, document, str(path))


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
        gone = is_dead(other, str(state.parents[2]))
        if other and other != ours and not gone and not take_over:
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


def set_aside(directory: Path) -> None:
    """Move what an earlier tuning left into a directory of its own: its raw results stay."""
    left = [path for path in directory.glob("*") if path.name not in ("earlier", LOCK)]
    if left:
        place = directory / "earlier" / str(len(list(directory.glob("earlier/*"))) + 1)
        place.mkdir(parents=True)
        for path in left:
            path.rename(place / path.name)


def set_trials_aside(directory: Path, trials: Iterable[str]) -> None:
    """Move away what an interruption left of trials: it is of another engine run."""
    for name in trials:
        left = directory / name
        if left.exists():
            place = directory / "interrupted"
            place.mkdir(exist_ok=True)
            left.rename(place / f"{name}-{len(list(place.glob(f'{name}-*'))) + 1}")


def doubted(state: Tune, directory: Path) -> Tune:
    """Return a tuning that has chosen with its costs, and what keeps it from being published."""
    if state.choice is None:
        return state
    runs: dict[str, list[Bench]] = {}
    benches = []
    for one in state.trials:
        path = directory / ((one.outcome and one.outcome.path) or "")
        if path.is_file():
            benches.append(from_document(Bench, json.loads(read_text(str(path))), str(path)))
            decided = one.kind in ("final", "confirm")
            if decided and one.outcome and one.outcome.status == "measured":
                runs.setdefault(one.candidate, []).append(benches[-1])
    found = ((name, cost_of(own, state.requested.search_by)) for name, own in runs.items())
    costs = {name: cost for name, cost in found if cost is not None}
    notes = compare.doubt(state.requested.deployment.name, compare.unproven(benches))
    findings = tuple(dict.fromkeys((*state.findings, *notes)))
    return dataclasses.replace(state, findings=findings, costs=costs)
