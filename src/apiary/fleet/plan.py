# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary plan --inventory`: look at a fleet, or at its last surveys; say what would change."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    Finding,
    error,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import Observed, fleet_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    attempt,
    host_directory,
    ledger_path,
    load_quarantine,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import FleetPlan, Survey
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import (
    age_seconds,
    age_text,
    time_of,
)
from rich.progress import Progress

from apiary.app import output
from apiary.app.output import EXIT_FINDINGS, print_document, report, show
from apiary.app.runner import Ended, on_signals, run_playbook
from apiary.fleet.hosts import FleetHost, read_hosts
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


@dataclass(frozen=True)
class Lost:
    """Why the run of the survey left nothing for a host."""

    why: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Run:
    """The survey that was just made: when it began, and whom it lost; None began: it was not."""

    began: datetime | None = None
    lost: Mapping[str, Lost] = field(default_factory=dict)


def observed(hosts: Sequence[FleetHost], run: Run, now: datetime) -> Iterator[Observed]:
    """Yield what is known of each host, one at a time; a file that cannot be read is a finding."""
    for host in hosts:
        yield _observed(host, run, now)


def _observed(host: FleetHost, run: Run, now: datetime) -> Observed:
    directory = host_directory(Path(host.artifacts), host.name)
    findings: list[Finding] = []
    survey = attempt(Survey, directory / "survey.json", findings)
    if survey is not None and survey.host != host.name:
        findings.append(_no_survey(host.name, f"{directory} has the survey of {survey.host}"))
        survey = None
    made = time_of(survey.collected_at) if survey else None
    age = age_seconds(survey.collected_at, now) if survey else None
    why = ""
    if survey is None or (run.began is not None and (made is None or made < run.began)):
        why = _why(host.name, run, age, survey is not None)
        lost = run.lost.get(host.name)
        if lost is not None and lost.findings:
            findings += lost.findings
        elif not findings:
            findings.append(_no_survey(host.name, why))
        survey = None
    ledger = attempt(Ledger, ledger_path(directory), findings)
    quarantined = load_quarantine(directory, findings)
    return Observed(
        host=host.name,
        survey=survey,
        why=why,
        age_seconds=age,
        addresses=host.addresses,
        groups=host.groups,
        domain=host.domain,
        quarantined=quarantined,
        applied={item.concern: item for item in ledger.applied} if ledger else {},
        findings=tuple(findings),
    )


def _why(host: str, run: Run, age: int | None, there: bool) -> str:
    lost = run.lost.get(host)
    if lost is not None:
        return lost.why
    if not there:
        return "has no survey"
    old = "of an unknown time" if age is None else f"{age_text(age)} old"
    return f"was not surveyed; its last survey is {old}"


def _no_survey(host: str, why: str) -> Finding:
    return Finding("FLEET-PLAN-NO-SURVEY", host, why)
