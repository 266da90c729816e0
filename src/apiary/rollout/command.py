# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary rollout`: a playbook over a fleet, wave after wave."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    Options,
)
from click.shell_completion import CompletionItem

from apiary.app.inputs import json_option
from apiary.app.options import (
    complete_hosts,
    extra_option,
    inventory_option,
    limit_option,
    split_extra,
    vault_option,
)
from apiary.app.output import echo, exit_code, print_document, report, show
from apiary.app.runner import PLAYBOOKS, on_signals, run_playbook
from apiary.fleet.hosts import ARTIFACTS
from apiary.rollout.plays import Plays
from apiary.rollout.prepare import Prepared, Request, prepare, prepare_again
from apiary.rollout.progress import Progress, failed_table, waves_table
from apiary.rollout.records import Records, text
from apiary.rollout.run import Conductor, Signals, not_done
from apiary.rollout.store import Lock, Store

# The command sets them itself, for each wave.
OWN = {
    name: f"`apiary rollout` sets it; give {option} instead"
    for name, option in (
        ("target", "--limit"),
        ("rollout_batches", "--batches"),
        ("rollout_canary", "--canary"),
        ("rollout_failure_budget", "--failure-budget"),
        ("rollout_take_over", "--take-over"),
        ("apiary_artifacts", "--artifacts"),
        ("apiary_serial", "--batches"),
    )
}


def _complete_playbook(
    _ctx: click.Context, _argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    names = sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))
    matches = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return matches or [CompletionItem(incomplete, type="file")]  # bash shows one kind of them


def _words(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@click.command(name="rollout")
@click.argument("playbook", required=False, shell_complete=_complete_playbook)
@inventory_option("Repeatable.")
@limit_option()
@click.option("--hosts", "pattern", default="gpu_hosts", show_default=True, metavar="PATTERN")
@click.option(
    "--batches",
    default="",
    metavar="SIZES",
    callback=_words,
    help="Hosts of each wave: 1,10%,100%; the last repeats.",
)
@click.option(
    "--canary",
    default="",
    metavar="HOSTS",
    callback=_words,
    shell_complete=complete_hosts,
    help="Names, or how many: the first wave.",
)
@click.option(
    "--domains-together",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Hosts of one failure domain in one wave.",
)
@click.option(
    "--failure-budget",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Failed hosts after which no further wave begins.",
)
@click.option("--retries", type=click.IntRange(0), help="Further tries of a host; else by failure.")
@click.option("--resume", is_flag=False, flag_value="last", metavar="[RUN]", help="Go on with it.")
@click.option("--status", is_flag=False, flag_value="last", metavar="[RUN]", help="Show a run.")
@click.option("--check", is_flag=True, help="Change nothing; say what would change.")
@click.option("--diff", is_flag=True, help="Show differences in the output of each wave.")
@click.option("--forks", type=click.IntRange(1), help="Hosts at a time within a wave.")
@extra_option()
@click.option("--tags", metavar="TAGS")
@click.option("--skip-tags", metavar="TAGS")
@vault_option()
@click.option("--include-quarantined", is_flag=True, help="Also hosts that were put aside.")
@click.option("--take-over", is_flag=True, help="Take locks of others that are dead for sure.")
@click.option("--artifacts", type=click.Path(file_okay=False), help="Else apiary_artifacts.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def rollout(
    playbook: str | None,
    sources: tuple[str, ...],
    limit: str | None,
    resume: str | None,
    status: str | None,
    check: bool,
    extra: tuple[str, ...],
    tags: str | None,
    skip_tags: str | None,
    vault: tuple[str, ...],
    artifacts: str | None,
    yes: bool,
    as_json: bool,
    **more: Any,
) -> int:
    """Run PLAYBOOK over a fleet: canary first, never two hosts of one failure domain at once.

    PLAYBOOK is replicas (a change of the deployment, the default), site, another playbook of
    Apiary by its name, or a file.

    \b
    apiary rollout -i inventory/prod                       replicas, as ansible-playbook rollout.yml
    apiary rollout site -i inventory/prod --canary gpu-001 --batches 10%,50%
    apiary rollout --resume                                go on after an interruption
    apiary rollout --status                                what the last run did, and why it stopped
    """
    if status is not None:
        return _status(Store(Path(artifacts or ARTIFACTS)), status, as_json)
    files, inline = split_extra(extra, OWN)
    options = Options(
        inventory=sources,
        limit=limit or "",
        extra_files=tuple(files),
        extra_names=tuple(sorted(inline)),
        vault_password_files=vault,
        **more,
    )
    request = Request(playbook, options, inline, tags, skip_tags, check, artifacts)
    if resume is None:
        return _conduct(prepare(request), yes, as_json)
    store = Store(Path(artifacts or ARTIFACTS))
    before = (store.last_change() if resume == "last" else None) or store.load_run(resume)
    return _conduct(prepare_again(request, before, store), yes, as_json)


def _conduct(prepared: Prepared, yes: bool, as_json: bool) -> int:
    """Take the lock, show the plan, ask, and go."""
    run, store = prepared.run, prepared.store
    lock = Lock(store.fleet / "lock")
    since = text(_now())
    with contextlib.ExitStack() as stack:
        if not run.asked.check:
            stack.enter_context(lock.held(run.id, since, run.options.take_over))
            prepared.check_unmoved()
        if not as_json:
            what = f"{run.asked.playbook}: {len(run.hosts)} hosts in {len(run.waves)} waves"
            show(waves_table(run, what))
            report(prepared.findings, as_json)
        if not run.hosts:
            echo("no host is left to do", err=True)
            return exit_code(prepared.findings)
        if not run.asked.check and not yes:
            _confirm()
        progress = Progress(quiet=as_json)
        signals = Signals()
        plays = Plays(
            records=Records(run, store, prepared.path.stem if prepared.own else "", _now),
            play=run_playbook,
            path=prepared.path,
            own=prepared.own,
            inline=prepared.inline,
            outside=prepared.outside,
            stop=signals.now,
            on_event=_both(progress.event, None if run.asked.check else lock),
            findings=list(prepared.findings),
        )
        conductor = Conductor(
            records=plays.records,
            plays=plays,
            shown=progress,
            signals=signals,
            now=_now,
            sleep=time.sleep,
            domains=prepared.domains,
        )
        stack.callback(progress.close)

        def stop() -> None:
            signals.asked += 1
            # It may come in the middle of a line that is being written.
            with contextlib.suppress(RuntimeError):
                progress.note(
                    "ends after this wave; once more ends it at once"
                    if signals.asked == 1
                    else "ends at once: hosts of this wave are left as they are"
                )

        with on_signals(stop, signal.SIGINT, signal.SIGTERM):
            ended = conductor.go()
    return _tell(ended, store, as_json)


def _now() -> datetime:
    return datetime.now(UTC)


def _both(
    shown: Callable[[Mapping[str, Any]], None], lock: Lock | None
) -> Callable[[Mapping[str, Any]], None]:
    """Return what takes an event of Ansible: for the eye, and for who comes after a kill."""

    def take(event: Mapping[str, Any]) -> None:
        if lock is not None and event.get("event") == "playbook_on_start":
            lock.child(int(event["pid"]))
        shown(event)

    return take


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to ask; say --yes, or see it with --check")
    click.confirm("Go ahead?", abort=True, err=True)


def _tell(run: FleetRollout, store: Store, as_json: bool) -> int:
    """Print how a run ended; return the exit code."""
    if as_json:
        print_document(run)
    else:
        echo(f"run {run.id}: {run.state}" + (f": {run.stopped}" if run.stopped else ""))
        show(waves_table(run, "Waves"))
        left = not_done(run)
        if left:
            show(failed_table(left))
        for item in run.skipped:
            echo(f"skipped: {item.host}: {item.reason}")
        echo(f"details: {store.run_directory(run.id)}")
        if run.state != "done":
            where = shlex.join(["--artifacts", str(store.artifacts)])
            more = "" if str(store.artifacts) == ARTIFACTS else f" {where}"
            echo(f"go on: apiary rollout --resume {run.id}{more}")
    report([finding for finding in run.findings if finding.severity != "info"], as_json)
    return 0 if run.state == "done" else max(1, exit_code(run.findings))


def _status(store: Store, which: str, as_json: bool) -> int:
    """Show a run from its files."""
    run = store.load_run(which)
    if run.state == "running":
        holder = Lock(store.fleet / "lock").holder()
        if holder.get("run") != run.id:
            gone = Finding(
                "FLEET-RUN-GONE",
                run.id,
                f"its process {run.pid} on {run.controller} has gone without an end",
            )
            report([gone], as_json)
    if as_json:
        print_document(run)
        return 0
    return _tell(run, store, as_json) and 0
