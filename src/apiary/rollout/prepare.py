# SPDX-License-Identifier: GPL-3.0-or-later

"""From what the operator requests to a run: hosts, waves, and what is resumed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import collection_version
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import (
    Asked,
    check_same,
    still_to_do,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.order import Member, order_hosts
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import (
    FleetRollout,
    HostRun,
    Options,
    RunWave,
    Skipped,
)

from apiary.app.ask_ansible import inventory_files
from apiary.app.runner import PLAYBOOKS, playbook_path
from apiary.fleet.hosts import FleetHost, Hosts, read_hosts
from apiary.rollout.store import Store, controller, operator

# What people call it is what it does; rollout.yml is how.
NAMES = {"replicas": "rollout"}
# What a run that goes on takes from the command line where it is there.
_ANEW = ("inventory", "vault_password_files", "extra_files", "forks")


@dataclass(frozen=True)
class Prepared:
    """A run that may begin, and what it needs besides its document."""

    run: FleetRollout
    store: Store
    path: Path
    own: bool
    domains: Mapping[str, str | None]
    inline: Mapping[str, Any]
    outside: tuple[str, ...]
    findings: tuple[Finding, ...]
    before: FleetRollout | None = None

    def check_unmoved(self) -> None:
        """Raise FLEET-LOCKED where somebody else took it up before this run had the lock."""
        directory = self.store.run_directory(self.run.id)
        known = (directory / "run.json").exists()
        now = self.store.load_run(self.run.id) if known else None
        if now != self.before:
            raise error(
                "FLEET-LOCKED", str(directory), "another rollout went on with this run in between"
            )


def prepare(request: Request) -> Prepared:
    """Return a new run; raise ApiaryError for what cannot be done."""
    options = request.options
    name = request.playbook or "replicas"
    path = playbook_path(NAMES.get(name, name))
    result = _hosts(options, request.inline)
    store = Store(Path(request.artifacts or result.hosts[0].artifacts))
    hosts, skipped = _without_quarantined(result.hosts, store, options.include_quarantined)
    if not hosts:
        first = skipped[0]
        raise error(
            "FLEET-ALL-SKIPPED",
            first.host if len(skipped) == 1 else f"{len(skipped)} hosts, {first.host} first",
            f"nothing is left to roll out to: {first.reason}",
        )
    sizes = options.batches or tuple(map(str, knowledge("rollout.yml")["batches"]["value"]))
    order = order_hosts(
        [Member(host.name, host.domain, host.rack) for host in hosts],
        sizes,
        options.canary,
        options.domains_together,
    )
    now = datetime.now(UTC)
    run = FleetRollout(
        id=_new_id(store, now),
        state="running",
        asked=asked_of(name, path, request),
        options=replace(options, batches=sizes),
        operator=operator(),
        controller=controller(),
        pid=os.getpid(),
        begun_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        waves=tuple(RunWave(wave.hosts, wave.canary, wave.why) for wave in order.waves),
        hosts=tuple(
            HostRun(host, number)
            for number, wave in enumerate(order.waves, 1)
            for host in wave.hosts
        ),
        skipped=skipped,
        findings=order.findings,
    )
    return _prepared(request, run, store, path, result, (*order.findings, *_told(skipped)))


def prepare_again(request: Request, before: FleetRollout, store: Store) -> Prepared:
    """Return the rest of a run; raise FLEET-RESUME-CHANGED where it would be another one."""
    given = request.options
    if request.playbook and request.playbook != before.asked.playbook:
        raise click.UsageError(f"run {before.id} is one of {before.asked.playbook}")
    if given.limit or given.batches or given.canary:
        raise click.UsageError("--resume keeps the run's own --limit, --batches and --canary")
    options = replace(
        before.options,
        **{name: value for name in _ANEW if (value := getattr(given, name))},
        extra_names=given.extra_names,
        failure_budget=max(given.failure_budget, before.options.failure_budget),
        retries=before.options.retries if given.retries is None else given.retries,
        include_quarantined=given.include_quarantined,
        take_over=given.take_over,
    )
    missing = sorted({*before.options.extra_names} - {*given.extra_names})
    if missing:
        raise click.UsageError(
            f"run {before.id} had -e {' '.join(f'{item}=…' for item in missing)}; their values are "
            "kept nowhere, so give them again"
        )
    name = before.asked.playbook
    path = playbook_path(NAMES.get(name, name))
    again = replace(
        request,
        options=options,
        tags=before.asked.tags or None,
        skip_tags=before.asked.skip_tags or None,
        check=before.asked.check,
    )
    asked = asked_of(name, path, again)
    check_same(before.asked, asked, before.id)
    result = _hosts(options, request.inline)
    known = {host.name for host in result.hosts}
    names = [host.host for host in before.hosts]
    ledgers = {host: store.ledger(host) for host in names}
    todo, _done = still_to_do(names, ledgers, before.id)
    if before.asked.check:
        todo = tuple(host.host for host in before.hosts if host.outcome != "done")
    gone = tuple(
        Skipped(host, "is not in the inventory any more") for host in todo if host not in known
    )
    hosts, aside = _without_quarantined(
        [host for host in result.hosts if host.name in todo], store, options.include_quarantined
    )
    waiting = {host.name for host in hosts}
    run = replace(
        before,
        state="running",
        asked=asked,
        options=options,
        operator=operator(),
        pid=os.getpid(),
        ended_at=None,
        stopped="",
        hosts=tuple(
            _as_resumed(host, host.host in waiting, host.host in todo) for host in before.hosts
        ),
        skipped=tuple(dict.fromkeys((*aside, *gone))),
        resumed_at=(*before.resumed_at, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")),
        findings=(),
    )
    findings = [*_told(run.skipped)]
    if before.asked.commit != asked.commit or before.asked.ansible_core != asked.ansible_core:
        findings.append(
            Finding(
                "FLEET-RESUME-OTHER-CODE",
                before.id,
                f"began with commit {before.asked.commit or 'unknown'} and ansible-core "
                f"{before.asked.ansible_core}, goes on with {asked.commit or 'unknown'} and "
                f"{asked.ansible_core}",
            )
        )
    outcome = _prepared(again, run, store, path, result, tuple(findings))
    return replace(outcome, before=before)


def _prepared(
    request: Request,
    run: FleetRollout,
    store: Store,
    path: Path,
    hosts: Hosts,
    findings: tuple[Finding, ...],
) -> Prepared:
    own = path.parent == PLAYBOOKS
    outside = (*(hosts.beside if own else ()), *(() if hosts.localhost else ("localhost",)))
    domains = {host.name: host.domain for host in hosts.hosts}
    return Prepared(run, store, path, own, domains, request.inline, outside, findings)


def _hosts(options: Options, inline: Mapping[str, Any]) -> Hosts:
    return read_hosts(
        options.inventory,
        options.limit or None,
        options.pattern,
        options.vault_password_files,
        options.extra_files,
        inline,
    )


def _as_resumed(host: HostRun, waiting: bool, todo: bool) -> HostRun:
    if waiting:
        return replace(host, outcome="waiting")
    return host if todo else replace(host, outcome="done")


def _without_quarantined(
    hosts: Sequence[FleetHost], store: Store, include: bool
) -> tuple[list[FleetHost], tuple[Skipped, ...]]:
    """Return the hosts that are not put aside, and those that are, with the reason."""
    chosen, skipped = [], []
    for item in hosts:
        entry = None if include else store.quarantine(item.name)
        if entry is None:
            chosen.append(item)
            continue
        reported = entry.message.strip().splitlines()
        skipped.append(
            Skipped(item.name, f"in quarantine: {reported[0] if reported else 'no reason given'}")
        )
    return chosen, tuple(skipped)


def _told(skipped: Sequence[Skipped]) -> tuple[Finding, ...]:
    return tuple(
        Finding("FLEET-SKIPPED", item.host, f"is left alone: {item.reason}") for item in skipped
    )


def _new_id(store: Store, now: datetime) -> str:
    """Return an id that sorts by time and that no run has yet."""
    name = base = now.strftime("%Y%m%dT%H%M%SZ")
    number = 1
    while store.run_directory(name).exists():
        number += 1
        name = f"{base}-{number}"
    return name


@dataclass(frozen=True)
class Request:
    """What the operator requests. ``inline`` are variables of -e that are given by value."""

    playbook: str | None
    options: Options
    inline: Mapping[str, Any]
    tags: str | None
    skip_tags: str | None
    check: bool
    artifacts: str | None


def asked_of(name: str, path: Path, request: Request) -> Asked:
    """Return what a run of this playbook is asked to do."""
    values = hashlib.sha256()
    collection = collection_version(PLAYBOOKS.parent) or ""
    files, inline = request.options.extra_files, request.inline
    for file in files:
        values.update(Path(file[1:]).read_bytes())
    values.update(json.dumps(inline, sort_keys=True, default=str).encode())
    return Asked(
        playbook=name,
        tags=request.tags or "",
        skip_tags=request.skip_tags or "",
        check=request.check,
        content=hashlib.sha256(path.read_bytes() + collection.encode()).hexdigest(),
        variables=values.hexdigest() if files or inline else "",
        inventory=_inventory_digest(request.options.inventory or configured_inventory()),
        collection=collection,
        ansible_core=version("ansible-core"),
        commit=_commit(path),
    )


def configured_inventory() -> list[str]:
    """Return the inventory that Ansible's configuration names."""
    from ansible import constants  # slow to import, and mostly not needed

    return [str(source) for source in constants.DEFAULT_HOST_LIST]


def _inventory_digest(sources: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        if "," in source:
            digest.update(source.encode())
        for path in inventory_files(source):
            digest.update(f"{os.path.relpath(path, source)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _commit(path: Path) -> str:
    """Return the commit of the playbook's checkout, with "+" where it is changed; "" for none."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(path.resolve().parent), *words],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    if not head:
        return ""
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
