# SPDX-License-Identifier: GPL-3.0-or-later

"""What was decided for a host and applied to it, when, by whom: `apiary.ledger/v1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ..findings import Finding, error

# "begun" has no end yet: the run is at it, or was killed. "waiting" was never touched.
Outcome = Literal[
    "begun", "done", "failed", "unreachable", "rolled back", "quarantined", "interrupted", "waiting"
]


@dataclass(frozen=True)
class Asked:
    """What a run was asked to do: equal ones may be resumed.

    ``playbook`` is its name or path, ``content`` the digest of its file and of the collection,
    ``variables`` that of all -e values, ``inventory`` that of the inventory's files; sha256, "" for
    none. ``commit`` is that of the checkout, with "+" where it has changes of its own, "" where
    there is none.
    """

    playbook: str
    tags: str = ""
    skip_tags: str = ""
    check: bool = False
    content: str = ""
    variables: str = ""
    inventory: str = ""
    collection: str = ""
    ansible_core: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Entry:
    """One attempt to apply something to the host. Times are UTC, "2026-11-22T09:00:00Z".

    ``ended_at`` is None until it ends. ``plan`` is the digest (sha256) of the plan.json that
    the controller has of the host after it, "" for none. ``reason`` are the words of the failure.
    """

    run: str
    attempt: int
    operator: str
    controller: str
    asked: Asked
    begun_at: str
    ended_at: str | None = None
    outcome: Outcome = "begun"
    plan: str = ""
    task: str = ""
    reason: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Applied:
    """A concern of the host that was last applied well by the run ``run``, at ``at`` (UTC).

    ``asked`` is ConcernSurvey.asked of the survey it was applied from, ``plan`` Served.plan of a
    deployment; "" where not known.
    """

    concern: str
    at: str
    run: str
    asked: str = ""
    plan: str = ""


@dataclass(frozen=True)
class Decided:
    """A plan that this controller decided for the host, or brought back to it, at ``at`` (UTC).

    ``plan`` is the sha256 of its plan.json. Routers and what watches a fleet follow these plans.
    ``earlier`` are those of the plans before, the last one first: a release that the host goes back
    to has one of them.
    """

    deployment: str
    plan: str
    at: str
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """All attempts on one host, oldest first, and what was last applied of each concern.

    ``decided`` are the plans of the host's deployments, by name.
    """

    SCHEMA: ClassVar[str] = "apiary.ledger/v1"

    host: str
    entries: tuple[Entry, ...] = ()
    applied: tuple[Applied, ...] = ()
    decided: tuple[Decided, ...] = ()

    @property
    def open(self) -> Entry | None:
        """The last entry where nobody has written its end."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.ended_at is None else None


def begin(ledger: Ledger, entry: Entry) -> Ledger:
    """Return the ledger with one more entry; one left open before it was interrupted.

    What is there stays as it is: only an open last entry gets its end.
    """
    before = ledger.entries
    if ledger.open is not None:
        left = replace(
            ledger.open,
            ended_at=entry.begun_at,
            outcome="interrupted",
            reason=f"nobody wrote its end; run {entry.run} found it",
        )
        before = (*before[:-1], left)
    return replace(ledger, entries=(*before, entry))


def end(ledger: Ledger, entry: Entry, applied: Iterable[Applied] = ()) -> Ledger:
    """Return the ledger with its open entry ended as ``entry`` says.

    Raises FLEET-LEDGER where the open entry is another run's, or there is none.
    """
    open_ = ledger.open
    if open_ is None or (open_.run, open_.attempt) != (entry.run, entry.attempt):
        raise error(
            "FLEET-LEDGER",
            ledger.host,
            f"its ledger has no open entry of run {entry.run}, attempt {entry.attempt}",
        )
    latest = {one.concern: one for one in (*ledger.applied, *applied)}
    return replace(
        ledger,
        entries=(*ledger.entries[:-1], entry),
        applied=tuple(latest[name] for name in sorted(latest)),
    )


def outcome_in(ledger: Ledger, run: str) -> Outcome | None:
    """Return how the host last came out of a run; None where it took no part."""
    mine = [entry for entry in ledger.entries if entry.run == run]
    return mine[-1].outcome if mine else None


def still_to_do(
    hosts: Iterable[str], ledgers: Mapping[str, Ledger], run: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the hosts that a resumed run has yet to do, and those that are done.

    One that was begun and has no end is done again: nobody knows how far it got.
    """
    todo: list[str] = []
    done: list[str] = []
    for host in hosts:
        outcome = outcome_in(ledgers[host], run) if host in ledgers else None
        (done if outcome == "done" else todo).append(host)
    return tuple(todo), tuple(done)


def check_same(before: Asked, now: Asked, run: str) -> None:
    """Raise FLEET-RESUME-CHANGED where a run would go on with something else than it began with."""
    names = {
        "playbook": "the playbook's name",
        "tags": "--tags",
        "skip_tags": "--skip-tags",
        "check": "--check",
        "content": "the playbook, or Apiary's own roles and modules",
        "variables": "the variables given with -e",
        "inventory": "the inventory's files",
    }
    other = [words for name, words in names.items() if getattr(before, name) != getattr(now, name)]
    if other:
        raise error(
            "FLEET-RESUME-CHANGED",
            run,
            f"began with something else than there is now: {', '.join(other)}",
        )
