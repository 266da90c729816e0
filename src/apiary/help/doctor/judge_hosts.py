# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with an inventory and the way to its hosts, judged from facts."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.preflight import table

from apiary.help.doctor.judge import check, numbers
from apiary.help.doctor.types import AnsibleFacts, Answer, Check, Inventory, Reached

T = TypeVar("T", Reached, Answer)
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


def _checked(
    kind: str, hosts: Sequence[T], values: Callable[[T], Mapping[str, Any]]
) -> Iterator[Check]:
    """Yield the checks of a kind of doctor.yml; hosts that share a problem are told together."""
    for row in knowledge("doctor.yml")[kind]:
        sharing: defaultdict[str, list[T]] = defaultdict(list)
        for host in hosts:
            if problem := _problem(getattr(host, row["field"]), row.get("minimum")):
                sharing[problem].append(host)
        bad = [host for some in sharing.values() for host in some]
        findings = [
            Finding(row["code"], _whom(some), row["message"].format(why), **values(some[0]))
            for why, some in sharing.items()
        ]
        passed = f"{len(hosts) - len(bad)} of {len(hosts)} {row['passed']}"
        yield check("hosts", row["name"], passed, findings)
        if row.get("gate"):
            hosts = [host for host in hosts if host not in bad]


def _problem(value: str | None, minimum: str | None) -> str | None:
    """Return what is wrong: the value itself, or that a version is older than the least."""
    if value is None or minimum is None:
        return value
    return f"{value}, older than {minimum}" if numbers(value) < numbers(minimum) else None


def judge_ways(hosts: Sequence[Reached], sources: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of addresses, host keys and logins, nobody being asked."""
    remote = [host for host in hosts if not host.local]
    unknown = [item for item in remote if not item.known and not item.lenient]
    reported = f"{len(remote) - len(unknown)} of {len(remote)} known or taken"
    addresses, logins = _checked(
        "ways", remote, lambda way: {"address": way.address or way.name, "login": _login(way)}
    )
    return (addresses, check("hosts", "host keys", reported, _host_keys(unknown, sources)), logins)


def _login(way: Reached) -> str:
    """Return what ssh is told to come to a host; ssh knows nothing of an inventory's names."""
    port = f"-p {way.port} " if way.port != 22 else ""
    user = f"{way.user}@" if way.user else ""
    return f"{port}{user}{way.address or way.name}"


def _host_keys(unknown: Sequence[Reached], sources: Sequence[str]) -> Iterator[Finding]:
    """Yield one finding for the hosts of each file; ssh-keyscan takes many at once."""
    ansible = " ".join(["ansible", *(f"-i {source}" for source in sources)])
    files: defaultdict[tuple[str, int, bool], list[Reached]] = defaultdict(list)
    for item in unknown:
        files[item.known_hosts, item.port, item.direct].append(item)
    for (file, port, direct), hosts in files.items():
        addresses = " ".join(dict.fromkeys(host.address or host.name for host in hosts))
        port_option = f"-p {port} " if port != 22 else ""
        scan = f"ssh-keyscan {port_option}{addresses}"
        # ssh-keyscan knows no ansible_host: names will do only where they are the addresses.
        if len(hosts) > _SHOWN and all(host.address in ("", host.name) for host in hosts):
            listed = f"{ansible} all --list-hosts | tail -n +2"
            scan = f"{listed} | ssh-keyscan {port_option}-f -"
        command = f"{scan} >> {file}"
        if not direct:
            # Behind a jump host there is nothing to scan: the way of the playbooks is taken.
            names = ",".join(host.name for host in hosts) if len(hosts) <= _SHOWN else "all"
            accepting = "-o StrictHostKeyChecking=accept-new"
            command = f"{ansible} {names} -m ping -e \"ansible_ssh_extra_args='{accepting}'\""
        yield Finding(
            "DOCTOR-HOST-KEY",
            _whom(hosts),
            f"the host key is not in {file}, so Ansible would ask for each host",
            command=command,
            file=file,
        )


def judge_answers(
    answers: Sequence[Answer], sources: Sequence[str] = (), ways: Sequence[Reached] = ()
) -> tuple[Check, ...]:
    """Return the checks of what hosts said when they were asked."""
    run = " ".join(["ansible", *(f"-i {source}" for source in sources)])
    logins = {way.name: _login(way) for way in ways}

    def values(answer: Answer) -> dict[str, str]:
        target = logins.get(answer.name, answer.name)
        return {"target": target, "ansible": f"{run} {answer.name}"}

    inside = [answer for answer in answers if not answer.port and not answer.login]
    return (
        *_checked("answers", answers, values),
        _clocks(inside, knowledge("doctor.yml")["clock"], run),
        *_preflight(inside),
    )


def _preflight(answers: Sequence[Answer]) -> Iterator[Check]:
    """Yield what a run would need of hosts with GPUs: the table that site.yml begins with."""
    found = {each.name: each.preflight for each in answers if each.preflight is not None}
    refused = [finding for each in answers for finding in each.survey]
    if found or refused:
        surveyed = (
            f"{len(found)} of {len(found) + sum(bool(each.survey) for each in answers)} hosts"
        )
        yield check("hosts", "survey of a run", surveyed, dict.fromkeys(refused))
    if found:
        yield from (check("hosts", row.name, row.message, row.findings) for row in table(found))


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


def _whom(hosts: Sequence[T]) -> str:
    folded = fold(host.name for host in hosts)
    return folded if len(hosts) == 1 else f"{len(hosts)} hosts, {folded}"
