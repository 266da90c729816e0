# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of an Ansible inventory, with all that Ansible would reach them by."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)

from apiary.app.ask_ansible import ask_inventory, inventory_command
from apiary.host.ssh.config import SshOptions, Target, refusal
from apiary.host.ssh.probe import Probed, ProbeRequest, labels

SSH = {"ssh", "smart", "paramiko", "paramiko_ssh"}
ARGUMENTS = ("ssh_args", "ssh_common_args", "ssh_extra_args")
# Arguments of ssh that would change something, and that our own client does not have.
NOT_HONOURED = re.compile(r"-[LRDWwcm]|-o\s*(?i:Ciphers|MACs|KexAlgorithms|HostKeyAlgorithms)[=\s]")
DISCOVERED = re.compile(r"auto(_legacy)?(_silent)?")


@dataclass(frozen=True)
class Selection:
    """Who is to be probed, whom the inventory itself keeps from it, and what is not done."""

    requests: tuple[ProbeRequest, ...]
    refused: tuple[Probed, ...] = ()
    findings: tuple[Finding, ...] = ()


def choose(
    sources: Sequence[str],
    limit: str | None,
    hosts: Sequence[str],
    options: SshOptions,
    vault: Sequence[str] = (),
) -> Selection:
    """Return the hosts of an inventory that ``hosts`` and ``limit`` leave, patterns of Ansible.

    A host that the inventory does not have is one for SSH, as without an inventory. What
    ``options`` fixes goes before the inventory's variables, and those before ssh_config. ``vault``
    are files of vault passwords besides those that Ansible's configuration names.

    Raises FILE-UNREADABLE, PROBE-INVENTORY or PROBE-NO-HOSTS.
    """
    answer, reported = _read(sources, limit, hosts, vault)
    strangers = [name for name, names in answer["selected"].items() if names is None]
    # That these are not in the inventory is no news.
    reported = [
        note for note in reported if not note.message.endswith(tuple(f": {n}" for n in strangers))
    ]
    if not answer["hosts"] and not strangers:
        raise _nobody(sources, limit, hosts, answer["total"])
    requests: list[ProbeRequest] = []
    refused = [
        Probed(pattern, None, _nobody(sources, limit, [pattern], answer["total"]))
        for pattern, names in answer["selected"].items()
        if names == []
    ]
    ignored: dict[str, list[str]] = {}
    for name, entry in answer["hosts"].items():
        try:
            request, notes = _request(name, entry, options)
            requests.append(request)
            for note in notes:
                ignored.setdefault(note, []).append(name)
        except ApiaryError as failure:
            refused.append(Probed(name, None, failure))
    unsupported = [
        Finding(
            "PROBE-OPTION",
            names[0] if len(names) == 1 else f"{len(names)} hosts, {names[0]} first",
            note,
        )
        for note, names in ignored.items()
    ]
    for argument, label in labels(strangers).items():
        taken = label in answer["hosts"]
        requests.append(ProbeRequest(argument if taken else label, argument, options))
    return Selection(tuple(requests), tuple(refused), (*reported, *unsupported))


def _read(
    sources: Sequence[str], limit: str | None, hosts: Sequence[str], vault: Sequence[str]
) -> tuple[dict[str, Any], list[Finding]]:
    """Return what the reader answers, and Ansible's warnings as findings."""
    request = {"patterns": list(hosts), "variables": [], "connection": True}
    answer, printed = ask_inventory(sources, limit, request, vault)
    command = inventory_command(sources)
    warnings = [
        Finding("PROBE-INVENTORY-SAID", ", ".join(sources), text, command=command)
        for text in _paragraphs(printed)
    ]
    return answer, warnings


def _paragraphs(text: str) -> list[str]:
    """Return what Ansible printed on stderr, each warning unwrapped and without its label."""
    parts = re.split(r"^\[(?:DEPRECATION )?(?:WARNING|ERROR)\]: ", text, flags=re.MULTILINE)
    return list(dict.fromkeys(words for part in parts if (words := " ".join(part.split()))))


def _nobody(
    sources: Sequence[str], limit: str | None, hosts: Sequence[str], total: int
) -> ApiaryError:
    where = ", ".join(sources)
    if not total:
        return error("PROBE-NO-HOSTS", where, "the inventory has no hosts")
    requests = f"{' '.join(hosts)} " if hosts else ""
    limited = f"--limit {limit} " if limit else ""
    return error("PROBE-NO-HOSTS", where, f"{requests}{limited}leaves none of its {total} hosts")


def _request(
    name: str, entry: Mapping[str, Any], options: SshOptions
) -> tuple[ProbeRequest, list[str]]:
    """Return one host as its variables have it, and what of them is not honoured."""
    if entry["problems"]:
        raise error(
            "PROBE-VARIABLE",
            name,
            "; ".join(" ".join(problem.split()) for problem in entry["problems"])[:1000],
        )
    connection = str(entry["ansible_connection"]).rpartition(".")[2]
    python = entry["ansible_python_interpreter"]
    notes = []
    if str(entry["ansible_become"]).lower() in ("true", "yes", "1", "on"):
        notes.append("ansible_become is not honoured: the collector runs as the login user")
    if connection == "local":
        return ProbeRequest(name, None, options), notes
    if connection not in SSH:
        raise error(
            "PROBE-NOT-SSH",
            name,
            f"ansible_connection is {entry['ansible_connection']}; SSH and local are supported",
        )
    variables = entry["options"]
    arguments: list[str] = []
    for variable in ARGUMENTS:
        text = variables[variable] or ""
        try:
            words = shlex.split(text)
        except ValueError as failure:
            raise refusal(f"{name}: {variable}", f"{text}: {failure}") from failure
        arguments += words
        notes += [f"{variable}: {shown} is not honoured" for shown in _not_honoured(words)]
    notes += _unsupported(variables)
    key = variables["private_key_file"]
    if key and not options.identity:
        if not os.path.isfile(os.path.expanduser(key)):
            notes.append(f"the private key file {key} does not exist; other keys are tried")
        arguments = ["-o", f'IdentityFile "{key}"', *arguments]
    target = Target(
        str(variables["host"]),
        options.user or variables["remote_user"] or None,
        options.port or (int(variables["port"]) if variables["port"] else None),
    )
    # As with ssh itself, another ssh_config is its jump hosts' as well.
    configs = [after for flag, after in itertools.pairwise(arguments) if flag == "-F"]
    changed = replace(
        options, arguments=tuple(arguments), config=configs[0] if configs else options.config
    )
    if python and not DISCOVERED.fullmatch(python):
        changed = replace(changed, python=python)
    return ProbeRequest(
        name, target, changed, bool(variables["password"] or variables["private_key"])
    ), notes


def _not_honoured(words: Sequence[str]) -> Iterator[str]:
    """Yield the arguments of ssh that our own client does not have."""
    for word, after in itertools.pairwise((*words, "")):
        argument = f"{word} {after}" if len(word) == 2 else word
        if NOT_HONOURED.match(argument):
            yield argument


def _unsupported(variables: Mapping[str, Any]) -> list[str]:
    notes = []
    if variables["password"]:
        notes.append("the password in the inventory is not honoured: logins are by key")
    if variables["private_key"]:
        notes.append("the private key in a variable is not honoured: give ansible_private_key_file")
    if variables["host_key_checking"] is False:
        notes.append("host_key_checking false is not honoured: host keys must be known")
    if variables["ssh_executable"] not in (None, "ssh", "/usr/bin/ssh"):
        notes.append(f"ssh_executable {variables['ssh_executable']} is not honoured")
    return notes
