# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with an inventory and the way to its hosts, judged from facts."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold

from apiary.help.doctor.judge import check, numbers
from apiary.help.doctor.types import AnsibleFacts, Answer, Check, Inventory, Reached

# What of the findings of validate.yml is about models and engines; the rest are variables.
_MODELS = ("MODEL-", "FILE-", "DOC-")
_ENGINES = ("ENGINE-",)
# Names that a command line still reads well with.
_SHOWN = 8


def judge_inventory(seen: Inventory, ansible: AnsibleFacts) -> tuple[Check, ...]:
    """Return the checks of what the inventory says."""
    total = f"{len(seen.hosts)} hosts" if len(seen.hosts) != 1 else "1 host"
    by_kind: dict[str, list[Finding]] = {"models": [], "engines": [], "variables": []}
    for variable in seen.variables:
        reported = f"{variable.code} {variable.message}"
        kind = "variables"
        if variable.code.startswith(_ENGINES):
            kind = "engines"
        elif variable.code.startswith(_MODELS) and "model" in reported.lower():
            kind = "models"
        by_kind[kind].append(variable)
    return (
        check("inventory", "inventory", f"{', '.join(seen.sources)}: {total}", seen.problems),
        check("inventory", "groups", _groups_said(seen), _groups(seen)),
        judge_vault(seen, ansible),
        check("inventory", "variables", _found(by_kind["variables"]), by_kind["variables"]),
        check("inventory", "models", _found(by_kind["models"]), by_kind["models"]),
        check("inventory", "engine versions", _found(by_kind["engines"]), by_kind["engines"]),
    )


def _found(findings: Sequence[Finding]) -> str:
    count = sum(finding.severity != "info" for finding in findings)
    return f"{count} wrong" if count else "nothing wrong"


def _groups_said(seen: Inventory) -> str:
    limits: Mapping[str, bool] = knowledge("doctor.yml")["groups"]
    return ", ".join(f"{name} {seen.groups[name]}" for name in limits if name in seen.groups)


def _groups(seen: Inventory) -> Iterator[Finding]:
    limits: Mapping[str, bool] = knowledge("doctor.yml")["groups"]
    source = seen.sources[0] if seen.sources else "the inventory"
    for name, required in limits.items():
        if required and not seen.limited and not seen.groups.get(name):
            yield Finding(
                "DOCTOR-GROUP",
                source,
                f"no host is in the group {name}, which the playbooks address",
                name=name,
                inventory=source,
            )
    for name in sorted(seen.groups):
        near = difflib.get_close_matches(name, limits, 1, 0.85)
        if name not in limits and near and not seen.groups.get(near[0]):
            yield Finding(
                "DOCTOR-GROUP-NAME",
                source,
                f"nothing addresses the group {name}, which is named almost like {near[0]}",
                near=near[0],
                inventory=source,
            )


def judge_vault(seen: Inventory, ansible: AnsibleFacts) -> Check:
    """Judge whether what is encrypted can be read."""
    failed = {name: why for name, why in ansible.vault.items() if why}
    findings = [
        Finding("DOCTOR-VAULT", name, f"is encrypted and cannot be read: {why}")
        for name, why in failed.items()
    ]
    findings += [
        Finding(
            "DOCTOR-VAULT-OPEN", name, "holds a vault's password, and others may read it", name=name
        )
        for name in seen.open_passwords
    ]
    count = len(seen.vaulted)
    reported = (
        f"{count} encrypted file{'s' if count != 1 else ''}" if count else "nothing encrypted"
    )
    return check("inventory", "vault", reported, findings)


def judge_ways(hosts: Sequence[Reached], sources: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of addresses, host keys and logins, nobody being asked."""
    remote = [host for host in hosts if not host.local]
    unnamed = {item.name: item.unresolved for item in remote if item.unresolved}
    unknown = [item for item in remote if not item.known and not item.lenient]
    named = len(remote) - len(unnamed)
    return (
        check(
            "hosts",
            "addresses",
            f"{named} of {len(remote)} resolve" if remote else "no host is remote",
            _each(
                "DOCTOR-NAME",
                unnamed,
                lambda why: f"has no address: {why}",
                lambda name: {"address": _of(remote, name)},
            ),
        ),
        check(
            "hosts",
            "host keys",
            f"{len(remote) - len(unknown)} of {len(remote)} known or taken",
            _host_keys(unknown, sources),
        ),
        check(
            "hosts",
            "logins",
            f"{sum(item.log_in for item in remote)} of {len(remote)} have a key",
            _each(
                "DOCTOR-NO-KEY",
                {item.name: item.user for item in remote if not item.log_in},
                lambda user: f"there is no key to log in with as {user or 'the login user'}",
                lambda name: {"login": _login(remote, name)},
            ),
        ),
    )


def _of(hosts: Iterable[Reached], name: str) -> str:
    return next((host.address or name for host in hosts if host.name == name), name)


def _login(hosts: Iterable[Reached], name: str) -> str:
    way = next(host for host in hosts if host.name == name)
    port = f"-p {way.port} " if way.port != 22 else ""
    user = f"{way.user}@" if way.user else ""
    return f"{port}{user}{way.address or name}"


def _reach(hosts: Iterable[Reached], name: str) -> str:
    """Return what ssh is told to come to a host; ssh knows nothing of an inventory's names."""
    limits = [host for host in hosts if host.name == name]
    return _login(limits, name) if limits else name


def _host_keys(unknown: Sequence[Reached], sources: Sequence[str]) -> Iterator[Finding]:
    """Yield one finding for the hosts of each file; ssh-keyscan takes many at once."""
    files: defaultdict[tuple[str, int], list[Reached]] = defaultdict(list)
    for item in unknown:
        files[item.known_hosts, item.port].append(item)
    for (file, port), hosts in files.items():
        names = [host.name for host in hosts]
        addresses = " ".join(dict.fromkeys(host.address or host.name for host in hosts))
        port_option = f"-p {port} " if port != 22 else ""
        scan = f"ssh-keyscan {port_option}{addresses}"
        # ssh-keyscan knows no ansible_host: names will do only where they are the addresses.
        if len(hosts) > _SHOWN and all(host.address in ("", host.name) for host in hosts):
            listed = " ".join(["ansible all", *(f"-i {source}" for source in sources)])
            scan = f"{listed} --list-hosts | tail -n +2 | ssh-keyscan {port_option}-f -"
        yield Finding(
            "DOCTOR-HOST-KEY",
            _whom(names),
            f"the host key is not in {file}, so Ansible would ask for each host",
            scan=scan,
            file=file,
        )


def judge_answers(
    answers: Sequence[Answer], sources: Sequence[str] = (), ways: Sequence[Reached] = ()
) -> tuple[Check, ...]:
    """Return the checks of what hosts said when they were asked."""
    run = " ".join(["ansible", *(f"-i {source}" for source in sources)])
    limits: Mapping[str, Any] = knowledge("doctor.yml")
    total = len(answers)

    def count(bad: Mapping[str, Any], asked: int) -> str:
        return f"{asked - len(bad)} of {asked}"

    closed = {answer.name: answer.port for answer in answers if answer.port}
    open_ = [answer for answer in answers if not answer.port]
    refused = {item.name: item.login for item in open_ if item.login}
    inside = [item for item in open_ if not item.login]
    powerless = {item.name: item.root for item in inside if item.root}
    old = {
        item.name: item.python
        for item in inside
        if item.python and numbers(item.python) < numbers(limits["host_python"]["minimum"])
    }
    return (
        check(
            "hosts",
            "SSH ports",
            f"{count(closed, total)} open",
            _each(
                "DOCTOR-PORT",
                closed,
                lambda why: f"its SSH port cannot be connected to: {why}",
                lambda name: {"target": _reach(ways, name)},
            ),
        ),
        check(
            "hosts",
            "Ansible",
            f"{count(refused, len(open_))} run a task",
            _each(
                "DOCTOR-LOGIN",
                refused,
                lambda why: f"Ansible cannot run anything there: {why}",
                lambda name: {"ansible": f"{run} {name}"},
            ),
        ),
        check(
            "hosts",
            "root",
            f"{count(powerless, len(inside))} grant it",
            _each(
                "DOCTOR-SUDO",
                powerless,
                lambda why: f"Ansible may not become root there: {why}",
                lambda name: {"ansible": f"{run} {name}"},
            ),
        ),
        check(
            "hosts",
            "Python",
            f"{count(old, len(inside))} new enough",
            _each(
                "DOCTOR-HOST-PYTHON",
                old,
                lambda version: (
                    f"has Python {version}, older than {limits['host_python']['minimum']}"
                ),
                lambda name: {"ansible": f"{run} {name}"},
            ),
        ),
        _clocks(inside, limits["clock"], run),
    )


def _clocks(answers: Sequence[Answer], limits: Mapping[str, Any], run: str) -> Check:
    off = {
        answer.name: answer.ahead
        for answer in answers
        if answer.ahead is not None and abs(answer.ahead) > limits["tolerated_seconds"]
    }
    findings = [
        Finding(
            "DOCTOR-CLOCK",
            name,
            f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this"
            " machine's; repositories and certificates are refused then",
            minor=abs(ahead) <= limits["wrong_seconds"],
            command=f"{run} {name} -b -a 'timedatectl set-ntp true'",
        )
        for name, ahead in off.items()
    ]
    answered = sum(answer.ahead is not None for answer in answers)
    return check("hosts", "clocks", f"{answered - len(off)} of {answered} as this one", findings)


def _each(
    code: str,
    bad: Mapping[str, str | None],
    message: Callable[[str], str],
    values: Callable[[str], Mapping[str, Any]],
) -> Iterator[Finding]:
    """Yield a finding for each reason; hosts that share it are told together."""
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in bad.items():
        hosts[why or ""].append(name)
    for why, names in hosts.items():
        yield Finding(code, _whom(names), message(why), **values(names[0]))


def _whom(names: Sequence[str]) -> str:
    folded = fold(list(names))
    return folded if len(names) == 1 else f"{len(names)} hosts, {folded}"
