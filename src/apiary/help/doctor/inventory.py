# SPDX-License-Identifier: GPL-3.0-or-later

"""How an inventory's hosts would be reached, what it says of them, and what they answer."""

from __future__ import annotations

import datetime
import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    from_host,
)

from apiary.app.inventory import choose
from apiary.app.runner import Ended, run_playbook
from apiary.fleet.hosts import Hosts, read_hosts
from apiary.help.doctor.types import AnsibleFacts, Answer, Reached
from apiary.host.ssh.config import SshOptions, settings_of, target_of
from apiary.host.ssh.keys import known_keys, offers
from apiary.host.ssh.probe import ProbeRequest

PARALLEL = 32
# What Ansible says of names that it cannot look up is the resolver's own.
_SKIPPED = {"PROBE-NOT-SSH", "PROBE-OPTION", "PROBE-INVENTORY-SAID"}


@dataclass(frozen=True)
class Scope:
    """What the operator gave: sources, a pattern, vault passwords."""

    sources: tuple[str, ...]
    limit: str | None = None
    vault: tuple[str, ...] = ()


def read_inventory(scope: Scope) -> Hosts:
    """Return all hosts of the inventory that the limit leaves; raise PROBE-INVENTORY and others."""
    return read_hosts(scope.sources, scope.limit, "all", scope.vault)


def inspect_ways(
    scope: Scope, ansible: AnsibleFacts, step: Callable[[], None] = lambda: None
) -> tuple[list[Reached], list[Finding]]:
    """Return how each host is reached, by the inventory's variables and ssh_config."""
    options = SshOptions()
    chosen = choose(scope.sources, scope.limit, (), options, scope.vault)
    problems = [request for request in chosen.findings if request.code not in _SKIPPED]
    reached: list[Reached] = []
    for refused in chosen.refused:
        result = refused.failure.findings if refused.failure else ()
        if all(request.code == "PROBE-NOT-SSH" for request in result):
            reached.append(Reached(refused.host, local=True))
        else:
            problems += result

    def inspect(request: ProbeRequest) -> Reached | ApiaryError:
        try:
            return _way(request, ansible)
        except ApiaryError as failure:
            return failure
        finally:
            step()

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        for found_way in pool.map(inspect, chosen.requests):
            if isinstance(found_way, ApiaryError):
                problems += found_way.findings
            else:
                reached.append(found_way)
    reached.sort(key=lambda request: request.name)
    return reached, list(dict.fromkeys(problems))


def _way(request: ProbeRequest, ansible: AnsibleFacts) -> Reached:
    """Return how one host is reached; raise PROBE-CONFIG, PROBE-TARGET or FILE-UNREADABLE."""
    if request.target is None:
        return Reached(request.name, local=True)
    options = request.options
    settings = settings_of(target_of(request.target, options), options, options.arguments)
    direct = not settings.jumps and not settings.command
    notes: list[str] = []
    with ExitStack() as stack:
        has_key = next(iter(offers(settings, request.options, stack, notes)), None) is not None
    trusted = known_keys(settings, request.options)
    files = [name for name in settings.known_hosts if name != os.devnull]
    return Reached(
        name=request.name,
        address=settings.hostname,
        port=settings.port,
        user=settings.user,
        direct=direct,
        unresolved=_unresolved(settings.hostname, settings.family) if direct else None,
        known=bool(trusted.trusted or trusted.authorities),
        lenient=not ansible.host_key_checking
        or settings.checking in ("no", "off", "accept-new", "false"),
        known_hosts=files[0] if files else "~/.ssh/known_hosts",
        # Ansible logs in by a password or a key of the inventory, too.
        log_in=has_key or request.secret,
    )


def _unresolved(name: str, family: int) -> str | None:
    """Return why a name has no address."""
    try:
        socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except OSError as failure:
        return failure.strerror or str(failure)
    return None


def validate_variables(scope: Scope, names: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings of the variables, as playbooks/validate.yml tells them."""
    ended = run(scope, names, connect=False)
    reported_findings = ended.custom.get("doctor_findings")
    if reported_findings is None:
        reported = ended.output or "; ".join(item.message for item in ended.failed.values())
        return (
            Finding(
                "DOCTOR-VALIDATE",
                ", ".join(scope.sources),
                "Ansible ended before it came to the variables: "
                + " ".join(reported.split())[-600:],
                sources=scope.sources[0],
            ),
        )
    return tuple(Finding.from_fields(**item) for item in reported_findings)


def run(
    scope: Scope,
    names: Sequence[str],
    connect: bool,
    on_event: Callable[[object], None] | None = None,
    fetches: str | None = None,
) -> Ended:
    """Run playbooks/doctor.yml; only where ``connect`` says so, hosts are asked.

    What each host fetches is written to the directory ``fetches``.
    """
    listed = {} if fetches is None else {"doctor_fetches": fetches}
    with tempfile.TemporaryDirectory(prefix="apiary-doctor-") as directory:
        return run_playbook(
            "doctor",
            inventory=scope.sources,
            extra_vars={"doctor_hosts": list(names), "doctor_connect": connect, **listed},
            artifacts=Path(directory) / "run",
            on_event=on_event,
            vault_password_files=scope.vault,
            # A prompt is a finding of its own; here nobody is asked.
            environment={"ANSIBLE_ASK_PASS": "0", "ANSIBLE_BECOME_ASK_PASS": "0"},
        )


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
