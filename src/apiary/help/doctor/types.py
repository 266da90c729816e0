# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary doctor` knows of a controller and an inventory, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

Outcome = Literal["ok", "warning", "error", "skipped"]
Area = Literal["controller", "inventory", "hosts", "release"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what was found, and the findings where it is not right."""

    area: Area
    name: str
    outcome: Outcome
    message: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Doctor:
    """All checks; ``connected`` says whether hosts were asked, ``next`` what to run then."""

    SCHEMA: ClassVar[str] = "apiary.doctor/v1"

    checks: tuple[Check, ...]
    hosts: int
    connected: bool
    next: str


@dataclass(frozen=True)
class AnsibleFacts:
    """What Ansible itself says, started as the playbooks start it.

    ``refused`` is why it does not start (a locale, for one). ``warnings`` are of its search for
    ansible.cfg; ``settings`` those that a first run depends on; ``collections`` have their version
    and directory, None where one is not found; ``expected`` is our own version. ``vault`` has, by
    encrypted file, why it cannot be read.
    """

    refused: str | None = None
    version: str | None = None
    config: str | None = None
    warnings: tuple[str, ...] = ()
    forks: int = 5
    host_key_checking: bool = True
    prompts: tuple[str, ...] = ()
    vault_password_files: tuple[str, ...] = ()
    collections: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    expected: str | None = None
    vault: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Controller:
    """This machine. ``playbook`` is the ansible-playbook of PATH, ``expected`` the one beside us.

    ``agent`` is how many keys the SSH agent holds, None without one; ``keys`` are private keys
    that may be used, ``open_keys`` those that others may read. ``now`` is seconds since 1970.
    """

    python: str
    version: str
    ansible: AnsibleFacts
    playbook: str | None
    expected: str | None
    ssh: str | None
    agent: int | None
    keys: tuple[str, ...]
    open_keys: tuple[str, ...]
    open_files: int | None
    now: float


@dataclass(frozen=True)
class Artifacts:
    """Where documents go: the directory, whether it can be written to, and its room.

    ``directory`` is false where something else is in its place.
    """

    path: str
    writable: bool
    free_megabytes: int | None
    directory: bool = True


@dataclass(frozen=True)
class Reached:
    """How one host is reached, as far as that is known without asking it.

    ``local`` needs no SSH. ``unresolved`` is why its name has no address, ``direct`` whether this
    machine connects to it itself. ``known`` says whether its host key is known, ``lenient`` whether
    Ansible takes an unknown one, ``log_in`` whether there is a key to log in with.
    """

    name: str
    address: str = ""
    port: int = 22
    user: str = ""
    local: bool = False
    direct: bool = True
    unresolved: str | None = None
    known: bool = True
    lenient: bool = False
    known_hosts: str = ""
    log_in: bool = True

    @property
    def keyless(self) -> str | None:
        """Return the user that has no key to log in with, None where there is one."""
        return None if self.log_in else self.user or "the login user"


@dataclass(frozen=True)
class Answer:
    """What a host answered: None where it did not come to that.

    ``port`` is why its SSH port cannot be connected to, ``login`` why Ansible could not run
    anything there, ``root`` why it may not become root. ``ahead`` are the seconds that its clock
    is ahead at least (negative: behind), ``engine`` the executables of engines that are not there.
    ``survey`` is why no run could be decided for it, ``preflight`` what a run would lack there.
    """

    name: str
    port: str | None = None
    login: str | None = None
    root: str | None = None
    python: str | None = None
    ahead: float | None = None
    engine: str | None = None
    survey: tuple[Finding, ...] = ()
    preflight: tuple[Finding, ...] | None = None


@dataclass(frozen=True)
class Inventory:
    """What an inventory says. ``groups`` have their number of hosts.

    ``vaulted`` are encrypted files and files with encrypted values, ``open_passwords`` files of
    vault passwords that others may read. ``variables`` are the findings of playbooks/validate.yml,
    ``problems`` those of reading how hosts are reached. ``limited`` says that only some of its
    hosts are looked at.
    """

    sources: tuple[str, ...]
    groups: Mapping[str, int]
    hosts: tuple[Reached, ...]
    vaulted: tuple[str, ...] = ()
    open_passwords: tuple[str, ...] = ()
    variables: tuple[Finding, ...] = ()
    problems: tuple[Finding, ...] = ()
    models: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    limited: bool = False
