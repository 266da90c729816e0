# SPDX-License-Identifier: GPL-3.0-or-later

"""How an inventory's hosts would be reached, and what it says of them; no host is asked."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding

from apiary.app.inventory import choose
from apiary.app.runner import Ended, run_playbook
from apiary.fleet.hosts import Hosts, read_hosts
from apiary.help.doctor.types import AnsibleFacts, Reached
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
