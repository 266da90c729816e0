# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The events of a host's change by name: each takes its progress to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..documents import from_document
from ..findings import ApiaryError
from .failure import Failure, failure_of
from .maintenance import plan_maintenance, units_to_start
from .progress import (
    Progress,
    answered,
    closing,
    drained,
    failed,
    may_begin,
    returned,
    stepped,
    stranded,
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


def progress_of(document: Mapping[str, Any] | None, host: str) -> Progress:
    """Return a host's progress of what an earlier task registered."""
    told = {name: value for name, value in (document or {}).items() if name in _FIELDS}
    return from_document(Progress, told, f"{host}: progress")


def step_of(document: Mapping[str, Any], host: str) -> Step:
    """Return a step of its document, which may have more."""
    told = {item.name: document[item.name] for item in fields(Step) if item.name in document}
    return from_document(Step, told, f"{host}: step")


def server_of(host: str, unit: str) -> str:
    """Return a replica's name at the routers."""
    return f"{host}-{unit.removesuffix('.service').rpartition('-')[2]}"


def _gate(now: Progress, event: Event) -> Progress:
    return replace(now, may_begin=may_begin(event.others, event.batch, event.failure_budget))


def _inspected(now: Progress, event: Event) -> Progress:
    planned = plan_maintenance(event.host, event.results, event.due, event.reboot, event.owner)
    return replace(now, maintenance=planned)


def _leaving(now: Progress, _event: Event) -> Progress:
    return replace(now, away=bool(now.maintenance and now.maintenance.before))


def _changed(now: Progress, event: Event) -> Progress:
    if now.maintenance is None:
        return now
    start = units_to_start(now.maintenance.before, event.results)
    return replace(now, maintenance=replace(now.maintenance, start=start))


def _close(now: Progress, event: Event) -> Progress:
    findings = closing(now, event.host)
    if findings:
        raise ApiaryError(*findings)
    return now


EVENTS: Mapping[str, Callable[[Progress, Event], Progress]] = {
    "wait": lambda _now, _event: Progress(),
    "gate": _gate,
    # Of a rolling change.
    "begin": lambda now, event: replace(now, out=tuple(event.lock.get("out", ()))),
    "locked": lambda now, _event: replace(now, outcome="begun", locked=True),
    "draining": lambda now, event: drained(now, step_of(event.step, event.host)),
    "answered": lambda now, event: answered(now, event.results),
    "stepped": lambda now, event: stepped(now, step_of(event.step, event.host), event.unreached),
    "returning": lambda now, _event: replace(now, late=()),
    "returned": lambda now, event: returned(now, event.host, event.release),
    "stranded": lambda now, event: stranded(now, event.host, event.failure),
    # Of a maintenance.
    "maintain": lambda now, _event: replace(now, outcome="begun", maintaining=True),
    "inspected": _inspected,
    "leaving": _leaving,
    "changed": _changed,
    # Of both.
    "done": lambda now, _event: replace(now, outcome="done"),
    "failed": lambda now, event: failed(now, event.failure),
    "close": _close,
}
