# SPDX-License-Identifier: GPL-3.0-or-later

"""The events of a host's change by name: each takes its progress to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..documents import from_document
from ..findings import ApiaryError, Finding, error
from ..plan.types import replica_number, server_name
from .progress import (
    Failure,
    Outcome,
    Progress,
    closing,
    failure_of,
    may_begin,
    plan_maintenance,
    serving,
    units_to_start,
)
from .types import Step

_FIELDS = {item.name for item in fields(Progress)}


@dataclass(frozen=True)
class Event:
    """What happened, with what its function needs: the action's options, and the other hosts'.

    ``lock`` is the one that the host had when it was inspected, ``release`` what it is to serve;
    ``task`` and ``result`` are of the task that failed, ``results`` of a loop.
    """

    host: str
    owner: str = ""
    others: Mapping[str, Progress] = field(default_factory=dict)
    lock: Mapping[str, Any] = field(default_factory=dict)
    release: str = ""
    task: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    batch: Collection[str] = ()
    failure_budget: int = 0
    step: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[Mapping[str, Any]] = ()
    unreached: Collection[str] = ()
    due: Sequence[str] = ()
    reboot: bool = False

    @property
    def failure(self) -> Failure:
        """Return why a task failed."""
        return failure_of(self.task, self.result)

    @property
    def parsed_step(self) -> Step:
        """Return the step of its document, which has more."""
        step = {item.name: self.step[item.name] for item in fields(Step) if item.name in self.step}
        return from_document(Step, step, f"{self.host}: step")


def progress_of(document: Mapping[str, Any] | None, host: str) -> Progress:
    """Return a host's progress of what an earlier task registered."""
    progress = {name: value for name, value in (document or {}).items() if name in _FIELDS}
    return from_document(Progress, progress, f"{host}: progress")


def server_of(host: str, unit: str) -> str:
    """Return a replica's name at the routers, whatever a unit is called; raise ROLLOUT-PLAN."""
    replica = replica_number(unit)
    if replica is None:
        raise error("ROLLOUT-PLAN", host, f"names a unit that is no replica's: {unit!r:.100}")
    return server_name(host, replica)


def deployment_of(unit: str) -> str:
    """Return the deployment of a replica's unit."""
    return unit.removeprefix("apiary-").rpartition("-")[0]


def _gate(now: Progress, event: Event) -> Progress:
    return replace(now, may_begin=may_begin(event.others, event.batch, event.failure_budget))


def _draining(now: Progress, event: Event) -> Progress:
    """Note what leaves the routers, before it does."""
    return replace(now, out=_union(now.out, event.parsed_step.drain))


def _answered(now: Progress, event: Event) -> Progress:
    """Note how replicas answered before they are replaced."""
    names = ("answers", "stable", "first_token_seconds")
    baselines = {
        str(result["__unit"]): {name: result[name] for name in names}
        for result in event.results
        if "answers" in result
    }
    return replace(now, before={**now.before, **baselines})


def _stepped(now: Progress, event: Event) -> Progress:
    """Note that a step is done; what returns later is out no longer, for the lock's purpose."""
    step = event.parsed_step
    returned = (set(step.drain) - set(step.later)) | set(step.undrain)
    return replace(
        now,
        out=tuple(unit for unit in now.out if unit not in returned),
        late=_union(now.late, step.later),
        unreached=_union(now.unreached, event.unreached),
    )


def _returned(now: Progress, event: Event) -> Progress:
    """Note that a host serves its former release again, of itself or because others failed."""
    message = f"the change failed; the host serves release {event.release} again"
    finding = Finding("ROLLOUT-ROLLED-BACK", event.host, message)
    outcome: Outcome = "back" if now.outcome == "done" else now.outcome
    return replace(now, outcome=outcome, way_back=finding, release=event.release)


def _stranded(now: Progress, event: Event) -> Progress:
    """Note that there was no way back: the host stays out of the routers, and locked."""
    failure = event.failure
    first = failure.message.splitlines()[:1]
    finding = Finding(
        "ROLLOUT-ROLLBACK-FAILED",
        event.host,
        f"it could not be brought back ({failure.task}: {''.join(first)}); "
        f"out of the routers: {', '.join(now.out) or 'nothing'}",
    )
    return replace(
        now,
        outcome="failed",
        stranded=True,
        failure=now.failure or replace(failure, findings=()),
        way_back=finding,
    )


def _inspected(now: Progress, event: Event) -> Progress:
    planned = plan_maintenance(event.host, event.results, event.due, event.reboot, event.owner)
    return replace(now, maintenance=planned)


def _leaving(now: Progress, _event: Event) -> Progress:
    return replace(now, away=bool(now.maintenance and now.maintenance.before))


def _changed(now: Progress, event: Event) -> Progress:
    if now.maintenance is None:
        return now
    start = units_to_start(now.maintenance.before, event.results, event.host)
    back = serving(event.results, event.host)
    return replace(now, maintenance=replace(now.maintenance, start=start, back=back))


def _close(now: Progress, event: Event) -> Progress:
    findings = closing(now, event.host)
    if findings:
        raise ApiaryError(*findings)
    return now


def _union(first: Collection[str], second: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))


EVENTS: Mapping[str, Callable[[Progress, Event], Progress]] = {
    "wait": lambda _now, _event: Progress(),
    "gate": _gate,
    # Of a rolling change.
    "begin": lambda now, event: replace(now, out=tuple(event.lock.get("out", ()))),
    "locked": lambda now, _event: replace(now, outcome="begun", locked=True),
    "draining": _draining,
    "answered": _answered,
    "stepped": _stepped,
    "returning": lambda now, _event: replace(now, late=()),
    "returned": _returned,
    "stranded": _stranded,
    # Of a maintenance.
    "maintain": lambda now, _event: replace(now, outcome="begun", maintaining=True),
    "inspected": _inspected,
    "leaving": _leaving,
    "changed": _changed,
    # Of both.
    "done": lambda now, _event: replace(now, outcome="done"),
    "failed": lambda now, event: replace(now, outcome="failed", failure=event.failure),
    "close": _close,
}
