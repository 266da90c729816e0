# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a controller, judged from facts: no I/O, no clock."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

from apiary.help.doctor.types import AnsibleFacts, Area, Artifacts, Check, Controller, Outcome

HERE = "this machine"
Known = Mapping[str, Any]


def check(area: Area, name: str, message: str, findings: Iterable[Finding] = ()) -> Check:
    """Return a check whose outcome is the worst of its findings."""
    result = tuple(findings)
    severities = {item.severity for item in result}
    outcome: Outcome = (
        "error" if "error" in severities else "warning" if "warning" in severities else "ok"
    )
    return Check(area, name, outcome, message, result)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's leading numbers, to be compared."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def judge_controller(
    seen: Controller, artifacts: Artifacts | None, hosts: int
) -> tuple[Check, ...]:
    """Return the checks of this machine; ``hosts`` are how many it is to manage."""
    limits: Known = knowledge("doctor.yml")
    ansible = seen.ansible
    version = f"ansible-core {ansible.version}" if ansible.version else "does not start"
    when = datetime.datetime.fromtimestamp(seen.now, datetime.UTC)
    locale = "Ansible refuses it" if _of_locale(ansible) else "UTF-8"
    checks = [
        check("controller", "Python", f"{seen.version} ({seen.python})"),
        check("controller", "locale", locale, _locale(ansible)),
        # A locale that it refuses has a finding of its own.
        Check("controller", "Ansible", "skipped", version)
        if ansible.version is None and _of_locale(ansible)
        else check("controller", "Ansible", version, _ansible(seen, limits["ansible_core"])),
        check("controller", "ansible.cfg", ansible.config or "none", _config(ansible)),
        _collections(ansible, limits["collections"]),
        check("controller", "SSH client", seen.ssh or "not found", _ssh(seen)),
        check("controller", "SSH keys", _keys_said(seen), _keys(seen)),
        _open_files(seen, limits["open_files"]),
        check("controller", "clock", f"{when:%Y-%m-%d %H:%M} UTC", _clock(when, limits["clock"])),
    ]
    if artifacts is not None:
        room = "" if artifacts.free_megabytes is None else f", {artifacts.free_megabytes} MB free"
        reported = f"{artifacts.path}{room}"
        checks.append(
            check("controller", "artifacts", reported, _room(artifacts, hosts, limits["disk"]))
        )
    return tuple(checks)


def _of_locale(ansible: AnsibleFacts) -> bool:
    reported = ansible.refused or ""
    return "locale" in reported or "encoding" in reported


def _locale(ansible: AnsibleFacts) -> Iterator[Finding]:
    if _of_locale(ansible):
        yield Finding("DOCTOR-LOCALE", HERE, f"Ansible does not start: {ansible.refused}")


def _ansible(seen: Controller, limits: Known) -> Iterator[Finding]:
    ansible = seen.ansible
    if ansible.version is None or (ansible.refused and not _of_locale(ansible)):
        why = f" ({ansible.refused})" if ansible.refused else ""
        yield Finding("DOCTOR-ANSIBLE", HERE, f"ansible-core cannot be started{why}")
        return
    actual, least, tried = map(numbers, (ansible.version, limits["minimum"], limits["tried"]))
    if actual < least:
        yield Finding(
            "DOCTOR-ANSIBLE",
            HERE,
            f"ansible-core {ansible.version} is older than {limits['minimum']}",
        )
    elif actual[:2] > tried[:2]:
        yield Finding(
            "DOCTOR-ANSIBLE-NEWER",
            HERE,
            f"ansible-core {ansible.version} is newer than {limits['tried']}, which Apiary is"
            " tested with",
            tried=limits["tried"],
        )
    if seen.playbook is None:
        path = (seen.expected or "").rpartition("/")[0] or "…/bin"
        yield Finding(
            "DOCTOR-ANSIBLE-PATH", HERE, "ansible-playbook is not on PATH", directory=path
        )
    elif seen.expected and seen.playbook != seen.expected:
        yield Finding(
            "DOCTOR-ANSIBLE-PATH",
            HERE,
            f"PATH leads to {seen.playbook}, another Ansible than Apiary's {seen.expected}",
            directory=seen.expected.rpartition("/")[0],
        )


def _config(ansible: AnsibleFacts) -> Iterator[Finding]:
    for text in ansible.warnings:
        yield Finding("DOCTOR-CONFIG-IGNORED", "ansible.cfg", text)
    if ansible.config is None and ansible.refused is None and not ansible.warnings:
        yield Finding(
            "DOCTOR-CONFIG",
            "ansible.cfg",
            "no ansible.cfg is in effect, so Ansible runs with 5 forks and a login for each task",
        )
    for name in ansible.prompts:
        yield Finding(
            "DOCTOR-PROMPT",
            f"{name} in Ansible's configuration",
            "has Ansible ask for a password, and `apiary rollout` and others have nobody to ask",
            name=name.upper(),
        )


def _collections(ansible: AnsibleFacts, needed: Iterable[str]) -> Check:
    """Judge whether the collections are found, and which copy of ours."""
    matches = {name: ansible.collections.get(name) for name in needed}
    if ansible.refused is not None:
        return Check("controller", "collections", "skipped", "Ansible does not start")
    findings = []
    for name, entry in matches.items():
        if entry is None:
            findings.append(
                Finding("DOCTOR-COLLECTION", name, "Ansible does not find this collection")
            )
    ours, expected = matches.get("apiary.instinct"), ansible.expected
    if ours and expected and ours[0] != expected:
        findings.append(
            Finding(
                "DOCTOR-COLLECTION-VERSION",
                "apiary.instinct",
                f"Ansible finds {ours[0]} in {ours[1]}, and this command is {expected}",
                path=ours[1],
            )
        )
    reported = ", ".join(f"{name} {entry[0]}" for name, entry in matches.items() if entry)
    return check("controller", "collections", reported or "none found", findings)


def _ssh(seen: Controller) -> Iterator[Finding]:
    if seen.ssh is None:
        yield Finding("DOCTOR-SSH", HERE, "there is no ssh, by which Ansible reaches hosts")


def _keys_said(seen: Controller) -> str:
    agent = "no agent" if seen.agent is None else f"agent with {seen.agent}"
    return f"{agent}, {len(seen.keys)} in files"


def _keys(seen: Controller) -> Iterator[Finding]:
    for name in seen.open_keys:
        yield Finding(
            "DOCTOR-KEY-OPEN",
            name,
            "ssh ignores this private key, because others may read it",
            name=name,
        )


def _open_files(seen: Controller, limits: Known) -> Check:
    forks = seen.ansible.forks
    need = limits["base"] + limits["each_fork"] * forks
    findings = []
    if seen.open_files is not None and seen.open_files < need:
        findings.append(
            Finding(
                "DOCTOR-OPEN-FILES",
                HERE,
                f"a process may open {seen.open_files} files, and {forks} forks want {need}",
                limit=max(1024, need),
            )
        )
    limit = "no limit" if seen.open_files is None else str(seen.open_files)
    return check("controller", "open files", f"{limit}, {forks} forks", findings)


def _room(artifacts: Artifacts, hosts: int, limits: Known) -> Iterator[Finding]:
    if not artifacts.directory:
        yield Finding(
            "DOCTOR-ARTIFACTS",
            artifacts.path,
            "is to be the directory for the hosts' documents, and a file is in its way",
            path=artifacts.path,
        )
    elif not artifacts.writable:
        yield Finding(
            "DOCTOR-ARTIFACTS",
            artifacts.path,
            "the directory for the hosts' documents cannot be written to",
            path=artifacts.path,
        )
    need = limits["base_megabytes"] + limits["each_host_megabytes"] * hosts
    if artifacts.free_megabytes is not None and artifacts.free_megabytes < need:
        yield Finding(
            "DOCTOR-DISK",
            artifacts.path,
            f"{artifacts.free_megabytes} MB are free, and documents and logs of {hosts} hosts may"
            f" take {need} MB",
            minor=artifacts.free_megabytes * 4 >= need,
            path=artifacts.path,
        )


def _clock(when: datetime.datetime, limits: Known) -> Iterator[Finding]:
    if f"{when:%Y-%m-%d}" < limits["not_before"]:
        yield Finding(
            "DOCTOR-CLOCK",
            HERE,
            f"the clock says {when:%Y-%m-%d}, which is before Apiary was made",
            command="sudo timedatectl set-ntp true",
        )
