# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask the hosts: their SSH ports from here, then one short playbook."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, from_host

from apiary.help.doctor.inventory import PARALLEL, Scope, run
from apiary.help.doctor.types import Answer, Reached

TASK = "Log in"
SECONDS = 5.0  # for a port to answer; a login takes one


class _Times:
    """When the first task began and ended on each host, by the clock of this machine."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.step = step

    def __call__(self, event: Any) -> None:
        data: Mapping[str, Any] = event.get("event_data") or {}
        host, kind = data.get("host"), event.get("event")
        if data.get("task") != TASK or not host:
            return
        if kind == "runner_on_start":
            self.begun[host] = _seconds(event)
        elif kind in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
            self.ended[host] = _seconds(event)
            self.step()

    def ahead(self, host: str, epoch: Any) -> float | None:
        """Return how far a host's clock is ahead at least; 0 where it may be right."""
        begun, ended = self.begun.get(host), self.ended.get(host)
        if begun is None or ended is None:
            return None
        reported = float(epoch)  # whole seconds, cut off
        if reported + 1 < begun:
            return reported + 1 - begun
        return max(0.0, reported - ended)


def _seconds(event: Mapping[str, Any]) -> float:
    moment = datetime.datetime.fromisoformat(str(event["created"]))
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def ask_hosts(
    scope: Scope,
    names: Sequence[str],
    ways: Sequence[Reached],
    step: Callable[[], None] = lambda: None,
) -> tuple[Answer, ...]:
    """Return what each host answered; hosts whose port is closed are not asked further."""
    direct = [way for way in ways if not way.local and way.direct and not way.unresolved]
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        closed_ports = dict(
            zip([item.name for item in direct], pool.map(_port, direct), strict=True)
        )
    closed = {name: why for name, why in closed_ports.items() if why}
    closed |= {way.name: way.unresolved for way in ways if way.unresolved}
    reachable = [name for name in names if name not in closed]
    for _name in closed:
        step()
    times = _Times(step)
    answers = [Answer(name, port=why) for name, why in closed.items()]
    if not reachable:
        return tuple(answers)
    ended = run(scope, reachable, connect=True, on_event=times)
    moment: Mapping[str, Any] = ended.custom.get("doctor_answers") or {}
    refused: Mapping[str, Any] = ended.custom.get("doctor_refused") or {}
    ports: Mapping[str, Any] = ended.custom.get("doctor_ports") or {}
    blocked = [each for some in ports.values() for each in map(from_host, some)]
    for name in reachable:
        failed, reported = ended.failed.get(name), moment.get(name)
        if reported is None:
            why = failed.message if failed else ended.output or "it did not come to that"
            answers.append(Answer(name, login=_short(why)))
            continue
        answers.append(
            Answer(
                name,
                root=None if reported["root"] else _short(reported["why"] or "no reason was given"),
                python=reported["python"],
                ahead=times.ahead(name, reported["epoch"]),
                engine=", ".join(reported.get("engines") or ()) or None,
                survey=_refused(name, refused.get(name)),
                preflight=_findings(name, reported.get("preflight"), blocked),
            )
        )
    return tuple(answers)


def _refused(name: str, reported: Mapping[str, Any] | None) -> tuple[Finding, ...]:
    """Return why a host could not be surveyed; nothing where it was, or was not to be."""
    if reported is None:
        return ()
    findings = tuple(map(from_host, reported["findings"]))
    return findings or (Finding("FLEET-SURVEY", name, _short(reported["why"]) or "no answer"),)


def _findings(name: str, reported: Any, blocked: Sequence[Finding]) -> tuple[Finding, ...] | None:
    """Return what its preflight found, and routers of its ports; None where it had none."""
    if reported is None:
        return None
    return (*map(from_host, reported), *(each for each in blocked if each.subject == name))


def _short(text: str) -> str:
    return " ".join(text.split())[-300:]


def _port(way: Reached) -> str | None:
    """Return why a port cannot be connected to."""
    try:
        with socket.create_connection((way.address, way.port), timeout=SECONDS):
            return None
    except OSError as failure:
        return failure.strerror or str(failure)
