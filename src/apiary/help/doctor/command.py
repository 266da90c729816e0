# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary doctor`: is all there that a first run needs, here and on the way to the hosts?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import told_here
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.options import inventory_option, limit_option, vault_option
from apiary.fleet.hosts import ARTIFACTS
from apiary.help.doctor.gather import (
    encrypted_files,
    inspect_ansible,
    inspect_artifacts,
    inspect_controller,
    open_to_others,
)
from apiary.help.doctor.inventory import (
    Scope,
    ask_hosts,
    inspect_ways,
    read_inventory,
    validate_variables,
)
from apiary.help.doctor.judge import check, judge_controller
from apiary.help.doctor.judge_hosts import judge_answers, judge_inventory, judge_vault, judge_ways
from apiary.help.doctor.release import verify_release
from apiary.help.doctor.types import Check, Doctor, Inventory

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red", "skipped": "dim"}
_TITLES = {
    "controller": "This machine",
    "inventory": "The inventory",
    "hosts": "The hosts",
    "release": "The release",
}
_PATH = click.Path(path_type=Path)


class Steps:
    """Says on stderr what is being looked at: a line that lives, or nothing where it could not."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("looking", total=None)

    def __call__(self, what: str, total: int | None = None) -> Callable[[], None]:
        """Begin a step of so many hosts; return what counts one of them."""
        self.progress.remove_task(self.task)
        self.task = self.progress.add_task(what, total=total)
        return lambda: self.progress.advance(self.task)


@contextmanager
def steps(quiet: bool) -> Iterator[Steps]:
    """Show progress on a terminal while the body runs."""
    with output.progress(quiet) as progress:
        yield Steps(progress)


@click.command()
@inventory_option("An Ansible inventory; repeatable. Without one only this machine is looked at.")
@limit_option()
@click.option("--connect", is_flag=True, help="Also ask the hosts: port, login, root, clock.")
@vault_option("For the inventory, as Ansible's; may be given often.")
@click.option(
    "--artifacts",
    type=click.Path(),
    help="Where documents go; else the inventory's apiary_artifacts.",
)
@click.option("--release", type=_PATH, help="Only verify a release: its directory, or a file.")
@click.option("--release-key", type=_PATH, help="The public key that signs it, a file.")
@json_option
def doctor(
    sources: tuple[str, ...],
    limit: str | None,
    connect: bool,
    vault: tuple[str, ...],
    artifacts: str | None,
    release: Path | None,
    release_key: Path | None,
    as_json: bool,
) -> int:
    """Check this machine, an inventory and the way to its hosts before a first run.

    Changes nothing. Without --connect no host is asked; names are looked up. Each check ends as ok,
    warning or error, and what is wrong is told with the command to run next.

    \b
    apiary doctor                                            this machine
    apiary doctor --inventory inventory/mine                 and the inventory
    apiary doctor --inventory inventory/mine --connect       and ask the hosts
    apiary doctor -i inventory/mine --limit rack1 --json     for a script
    apiary doctor --release dist --release-key signer.pub    is this release the maintainers'?

    Exit code 0: nothing of severity error; 1: something is; 2: wrong usage.
    """
    if not sources and (limit or connect):
        raise click.UsageError("--limit and --connect choose and ask hosts; give an --inventory")
    if (release and sources) or (release_key and not release):
        raise click.UsageError("--release verifies a release alone; --release-key is for it")
    scope = Scope(sources, limit, vault)
    if release:
        checks = verify_release(release, release_key)
        wrong = any(item.outcome == "error" for item in checks)
        result = Doctor(checks, 0, False, "do not install it" if wrong else "install it")
    else:
        with steps(quiet=as_json) as step:
            result = examine(scope, connect, artifacts, step)
    if as_json:
        output.print_document(result)
    else:
        output.show(_table(result.checks))
        output.echo(_sum(result))
    findings = [finding for check in result.checks for finding in check.findings]
    output.report(findings, as_json)
    if not as_json:
        output.echo(f"Next: {result.next}")
    return output.exit_code(findings)


def examine(scope: Scope, connect: bool, artifacts: str | None, step: Steps) -> Doctor:
    """Look at everything that was asked for, and judge it."""
    step("this machine")
    whole, partly = encrypted_files(scope.sources)
    ansible = inspect_ansible(whole, scope.vault)
    controller = inspect_controller(ansible)
    if not scope.sources:
        checks = judge_controller(controller, inspect_artifacts(artifacts or ARTIFACTS), 1)
        return _made(checks, 0, False, scope)
    step("the inventory")
    # Ansible tells those that it was given as well.
    passwords = tuple(dict.fromkeys((*scope.vault, *ansible.vault_password_files)))
    try:
        hosts = read_inventory(scope)
    except ApiaryError as refusal:
        checks = judge_controller(controller, inspect_artifacts(artifacts or ARTIFACTS), 1)
        unread = check("inventory", "inventory", ", ".join(scope.sources), refusal.findings)
        # Most often it is a vault that keeps it from being read.
        locked = Inventory(scope.sources, {}, (), (*whole, *partly))
        return _made((*checks, unread, judge_vault(locked, ansible)), 0, False, scope)
    names = [host.name for host in hosts.hosts]
    room = inspect_artifacts(artifacts or hosts.hosts[0].artifacts)
    checks = judge_controller(controller, room, len(names))
    ways, problems = inspect_ways(scope, ansible, step("the way to the hosts", len(names)))
    step("the variables")
    variables = _variables(scope, names, ansible.refused)
    seen = Inventory(
        sources=scope.sources,
        groups=Counter(group for host in hosts.hosts for group in host.groups),
        hosts=tuple(ways),
        vaulted=(*whole, *partly),
        open_passwords=tuple(name for name in passwords if open_to_others(name)),
        variables=variables,
        problems=tuple(problems),
        limited=scope.limit is not None,
    )
    checks += (*judge_inventory(seen, ansible), *judge_ways(seen.hosts, scope.sources))
    if connect and ansible.refused is None:
        answers = ask_hosts(scope, names, seen.hosts, step("asking the hosts", len(names)))
        checks += judge_answers(answers, scope.sources, seen.hosts)
    return _made(checks, len(names), connect, scope)


def _variables(scope: Scope, names: list[str], refused: str | None) -> tuple[Finding, ...]:
    """Return what is wrong with the variables; nothing where Ansible does not even start."""
    if refused is not None:
        return ()
    try:
        return validate_variables(scope, names)
    except ApiaryError as refusal:
        return refusal.findings


def _made(checks: tuple[Check, ...], hosts: int, connected: bool, scope: Scope) -> Doctor:
    """Return the document, with what to run next."""
    wrong = any(check.outcome == "error" for check in checks)
    words = [f"-i {source}" for source in scope.sources]
    words += [f"--limit {shlex.quote(scope.limit)}"] if scope.limit else []
    words += [f"--vault-password-file {item}" for item in scope.vault]
    arguments = " ".join(words)
    if wrong:
        following = "mend what is told above, then run `apiary doctor` again"
    elif not scope.sources:
        following = "apiary doctor --inventory inventory/mine"
    elif not connected:
        following = f"apiary doctor {arguments} --connect"
    else:
        following = told_here(f"ansible-playbook {arguments} playbooks/plan.yml")
    return Doctor(checks, hosts, connected, following)


def _table(checks: tuple[Check, ...]) -> Table:
    table = output.plain_table("", "", "")
    area = None
    for item in checks:
        if item.area != area:
            area = item.area
            table.add_row(Text(_TITLES[area], style="bold"))
        table.add_row(
            Text(f"  {item.outcome}", style=_COLOURS[item.outcome]),
            Text(item.name),
            Text(item.message),
        )
    return table


def _sum(result: Doctor) -> str:
    counts = {name: sum(check.outcome == name for check in result.checks) for name in _COLOURS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
