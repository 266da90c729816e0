# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary plan --inventory`: look at a fleet, or at its last surveys; say what would change."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error, has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import fleet_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan_types import FleetPlan
from rich.progress import Progress

from apiary.app import output
from apiary.app.output import EXIT_FINDINGS, print_document, report, show
from apiary.app.runner import Ended, run_playbook
from apiary.app.signals import on_signals
from apiary.fleet.hosts import FleetHost, read_hosts
from apiary.fleet.plan_inputs import Lost, Run, observed
from apiary.fleet.plan_tables import fleet_tables

EXIT_CHANGES = 3
OF_FLEET = (
    *("--inventory", "--limit", "--offline", "--drift", "--diff", "--forks"),
    *("--extra-vars", "--vault-password-file"),
)
OF_HOST = ("--with", "--model", "--keep", "--nodes", "--interface")
# Of a task that ended, well or not; one a host is enough to say that it was reached or is not.
ENDINGS = ("runner_on_ok", "runner_on_failed", "runner_on_unreachable")
# Hosts that one ansible-playbook surveys: its memory, and each worker's, grows with them.
PART = 200


@dataclass(frozen=True)
class FleetOptions:
    """What the operator asks of a fleet's plan. ``extra_files`` are "@FILE"."""

    sources: tuple[str, ...]
    limit: str | None = None
    offline: bool = False
    drift: bool = False
    diff: bool = False
    forks: int | None = None
    out: str | None = None
    extra_files: tuple[str, ...] = ()
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    vault_password_files: tuple[str, ...] = ()


def now() -> datetime:
    """Return the time, which tests hold still."""
    return datetime.now(UTC)


def plan_fleet(options: FleetOptions, as_json: bool) -> int:
    """Show the plan of a fleet; return 0 where nothing would change, 3 where something would.

    1 says that an error keeps the answer from being whole: a host not reached, or a refusal.
    """
    hosts = read_hosts(
        options.sources,
        options.limit,
        vault_password_files=options.vault_password_files,
        extra=options.extra_files,
        extra_vars=options.extra_vars,
    ).hosts
    run = Run() if options.offline else _survey(options, hosts, quiet=as_json)
    made = fleet_plan(observed(hosts, run, now()), options.drift)
    if options.out:
        write_text(Path(options.out), dumps(made))
    _print(made, options.diff, as_json)
    if has_errors(made.findings):
        return EXIT_FINDINGS
    return EXIT_CHANGES if made.would_change else 0


def _print(made: FleetPlan, diff: bool, as_json: bool) -> None:
    """Print what failed before what is planned, and remarks after it."""
    if as_json:
        print_document(made)
        report(made.findings, as_json)
        return
    report((finding for finding in made.findings if finding.severity == "error"), as_json)
    for part in fleet_tables(made, diff):
        show(part)
    report((finding for finding in made.findings if finding.severity != "error"), as_json)


def _survey(options: FleetOptions, hosts: Sequence[FleetHost], quiet: bool) -> Run:
    """Run the survey playbook over the hosts; say when it began and which of them it lost.

    A large fleet is surveyed in parts, so that the memory for it does not grow with the fleet.
    Raises FLEET-PLAN-FAILED where it did not come to any host, click.Abort where it was stopped.
    """
    began = now().replace(microsecond=0)  # as surveys have it
    # ansible-playbook, in a session of its own, gets no signal of the terminal.
    stopped = Event()
    with (
        tempfile.TemporaryDirectory(prefix="apiary-plan-") as directory,
        output.progress(quiet) as progress,
        on_signals(stopped.set, signal.SIGINT, signal.SIGTERM),
    ):
        counter = _Counter(progress, len(hosts))
        parts = _parts(hosts)
        spanning = {host.name for host in hosts if host.spans}
        lost: dict[str, Lost] = {}
        result = False
        for number, part in enumerate(parts):
            ended = run_playbook(
                "survey",
                inventory=options.sources,
                # By name: in a file, a line is one name or group, never an expression like a:!b.
                limit=None if options.limit is None and len(parts) == 1 else part,
                extra=options.extra_files,
                extra_vars=options.extra_vars,
                artifacts=Path(directory) / f"survey-{number}",
                on_event=counter,
                forks=options.forks,
                vault_password_files=options.vault_password_files,
                skip_tags=None if spanning.intersection(part) else "look_together",
                stop=stopped.is_set,
            )
            if stopped.is_set():
                raise click.Abort
            result = result or bool(ended.counts)
            lost |= _lost(part, ended)
    if not result:
        raise error("FLEET-PLAN-FAILED", ", ".join(options.sources), _nowhere(ended))
    return Run(began, lost)


def _parts(hosts: Sequence[FleetHost]) -> list[list[str]]:
    """Return the names of hosts that are surveyed by one run, so that no run has too many of them.

    Hosts whose replicas span several are in one: each is decided by what the others told in it.
    """
    if len(hosts) <= PART:
        return [[host.name for host in hosts]]
    together = [host.name for host in hosts if host.spans]
    others = [host.name for host in hosts if not host.spans]
    apart = [others[first : first + PART] for first in range(0, len(others), PART)]
    return [together, *apart] if together else apart


def _lost(part: Sequence[str], ended: Ended) -> dict[str, Lost]:
    """Return the hosts that the run of a part lost: all where it did not come to any."""
    if not ended.counts:
        return dict.fromkeys(part, Lost(_nowhere(ended)))
    return {
        host: Lost(" ".join(failed.message.split())[:1000], failed.findings)
        for host, failed in ended.failed.items()
    }


def _nowhere(ended: Ended) -> str:
    reported = " ".join(ended.output.split())[-1500:]
    return f"the survey came to no host: {reported or f'ansible-playbook ended with {ended.rc}'}"


class _Counter:
    """Counts the hosts that a run has come to as its events go by."""

    def __init__(self, progress: Progress, hosts: int) -> None:
        self.progress, self.failed, self.seen = progress, set[str](), set[str]()
        self.task = progress.add_task("surveying", total=hosts)

    def __call__(self, event: Mapping[str, Any]) -> None:
        host = (event.get("event_data") or {}).get("host")
        if not host or event.get("event") not in ENDINGS:
            return
        if event["event"] != ENDINGS[0]:
            self.failed.add(host)
        self.seen.add(host)
        some = f", {len(self.failed)} failed" if self.failed else ""
        self.progress.update(self.task, completed=len(self.seen), description=f"surveying{some}")


def refuse_mix(given: Sequence[str], arguments: int) -> None:
    """Refuse options of the one usage with the other: a fleet's plan, and a deployment's.

    ``given`` are the options of the command line, ``arguments`` is how many files it names.
    Raises click.UsageError.
    """
    fleet, host = ([name for name in names if name in given] for names in (OF_FLEET, OF_HOST))
    usage = (
        "give DEPLOYMENT and EVIDENCE to plan one deployment on one host, or --inventory to plan "
        "a whole fleet"
    )
    if "--inventory" in fleet:
        if host or arguments:
            raise click.UsageError(f"{[*host, 'DEPLOYMENT'][0]} is not for a fleet: {usage}")
    elif fleet:
        raise click.UsageError(f"{fleet[0]} is for a fleet: {usage}")
    elif arguments < 2:
        raise click.UsageError(usage)
    if "--offline" in fleet and "--forks" in fleet:
        raise click.UsageError("--forks is for a survey, and --offline makes none")
