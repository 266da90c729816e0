# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules of the role `rocm` request of apt and dnf, by the same verbs.

A trial is a directory with the sources, lists and caches of repositories that the system does not
know yet, so that a repository is proven before any of its files is written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Callable, ClassVar

from ansible.module_utils.basic import AnsibleModule

# A command: argv in, (exit code, output and errors in one text) out.
Run = Callable[[list[str]], "tuple[int, str]"]

# apt awaits dpkg's locks by itself, but neither that of its lists nor that of its archives, which
# apt-daily holds in a machine's first hour; dpkg awaits none.
LOCK_SECONDS = 600
PAUSE_SECONDS = 2.0
LOCKED = re.compile(
    r"Could not get lock /var/|Unable to lock (?:directory|the download directory)"
    r"|Unable to acquire the dpkg frontend lock|lock was locked by another process"
)
TAIL = 25
MAKE_LOGS = "/var/lib/dkms/amdgpu"
# How apt, dpkg and dnf begin what went wrong.
ERROR_LINE = re.compile(r"(?i)E: |W: GPG|error[: ]|dpkg: error|- |GPG check failed")


def runner(module: AnsibleModule) -> Run:
    """Return what runs a command on the host, in English, without questions, when it may.

    A package manager that another one keeps out is tried again for ten minutes.
    """
    environment = {
        "LC_ALL": "C.UTF-8",
        "LANGUAGE": "C",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_MODE": "l",
    }

    def run(argv: list[str]) -> tuple[int, str]:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            code, out, err = module.run_command(argv, environ_update=environment)
            locked = code != 0 and LOCKED.search(out + err)
            if not locked or time.monotonic() >= deadline:
                return code, out + err
            time.sleep(PAUSE_SECONDS)

    return run


def last_words(output: str) -> str:
    """Return what a tool gave as its errors, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR_LINE.match(line)]
    return " | ".join((errors or lines[-1:] or ["(no output)"])[-3:]).rstrip(".")


_LOCK = ("-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}")
_OLD_FILES = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
_CHANGE = ("apt-get", "-q", "-y", *_LOCK, *_OLD_FILES)


class Manager:
    """What differs between the two; the words are those of AMD's own instructions."""

    name = ""
    sources = ""
    suffixes: tuple[str, ...] = ()
    # Patterns of its errors, by what they mean; the first that fits counts.
    meanings: tuple[tuple[str, str], ...] = ()
    # How commands begin. `readable` fails where it does not take all its sources together; an
    # upgrade leaves alone what is held; what is removed loses its configuration.
    verbs: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, run: Run) -> None:
        self.run = run

    def is_source(self, path: str) -> bool:
        """Return whether a file names repositories."""
        return path.startswith(self.sources) and path.endswith(self.suffixes)

    def prepare(self, trial: str) -> None:
        """Make the directories of a trial; apt's own user reads them."""
        for part in ("sources", "keys", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(trial, part), mode=0o755, exist_ok=True)

    def prove(self, trial: str, source: str) -> tuple[int, str]:
        """Fetch what the repositories of one source file offer."""
        raise NotImplementedError

    def versions(self, name: str, trial: str | None = None) -> list[str]:
        """Return the versions of a package that can be had."""
        raise NotImplementedError

    def command(self, verb: str, words: Sequence[str] = ()) -> list[str]:
        """Return the command of a verb: readable, refresh, install, remove, hold or unhold."""
        return [*self.verbs[verb], *words]

    def exact(self, spec: str, name: str, version: str) -> str:
        """Return how one version of a package is requested; only dnf matches its glob."""
        del spec
        return f"{name}={version}"

    def shown(self, argv: list[str]) -> list[str]:
        """Return a command as a person would type it."""
        return argv


class Apt(Manager):
    """apt and dpkg."""

    name = "apt"
    sources = "/etc/apt/sources.list.d/"
    suffixes = (".list", ".sources")
    meanings = (
        (
            r"GPG error|NO_PUBKEY|BADSIG|EXPKEYSIG|EXPSIG|REVKEYSIG|is not signed|not signed"
            r"|Clearsigned file isn't valid|couldn't be verified|invalid signature"
            r"|no valid OpenPGP|Sub-process /usr/bin/sqv|gpgv|Hash Sum mismatch",
            "ROCM-REPOSITORY-SIGNATURE",
        ),
        (r"404 +Not Found|File not found|does not have a Release file|does not have the component",
         "ROCM-REPOSITORY-MISSING"),
    )  # fmt: skip
    verbs: ClassVar[dict[str, tuple[str, ...]]] = {
        "readable": ("apt-get", "indextargets"),
        "refresh": ("apt-get", "-q", *_LOCK, "update"),
        "install": (*_CHANGE, "install", "--no-install-recommends", "--allow-downgrades"),
        "remove": (*_CHANGE, "purge"),
        "hold": ("apt-mark", "hold"),
        "unhold": ("apt-mark", "unhold"),
    }

    def _trial(self, trial: str | None) -> list[str]:
        if trial is None:
            return []
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": f"{trial}/sources",
            "Dir::State::lists": f"{trial}/lists",
            "Dir::Cache": f"{trial}/cache",
        }
        return [part for key, value in options.items() for part in ("-o", f"{key}={value}")]

    def prove(self, trial: str, source: str) -> tuple[int, str]:
        options = [
            "Dir::Etc::sourceparts=/dev/null",
            f"Dir::Etc::sourcelist={source}",
            "APT::Get::List-Cleanup=false",
            # Without it, a repository that can't be had is a mere warning.
            "APT::Update::Error-Mode=any",
            "Acquire::Retries=1",
        ]
        words = [part for option in options for part in ("-o", option)]
        return self.run(["apt-get", "-q", *self._trial(trial), *words, "update"])

    def versions(self, name: str, trial: str | None = None) -> list[str]:
        _code, output = self.run(["apt-cache", *self._trial(trial), "madison", name])
        rows = [[word.strip() for word in line.split("|")] for line in output.splitlines()]
        return [row[1] for row in rows if len(row) > 2 and row[0] == name]

    def shown(self, argv: list[str]) -> list[str]:
        options = {place for place, word in enumerate(argv) if word == "-o"}
        return [word for place, word in enumerate(argv) if not {place, place - 1} & options]


class Dnf(Manager):
    """dnf 4 and 5."""

    name = "dnf"
    sources = "/etc/yum.repos.d/"
    suffixes = (".repo",)
    meanings = (
        (r"(?i)GPG|signature|repomd.xml.asc|checksum", "ROCM-REPOSITORY-SIGNATURE"),
        (r"(?i)404|not found|Cannot download repomd.xml|No such file", "ROCM-REPOSITORY-MISSING"),
    )
    verbs: ClassVar[dict[str, tuple[str, ...]]] = {
        "readable": ("dnf", "-q", "repolist"),
        "refresh": ("dnf", "-y", "-q", "makecache"),
        "install": ("dnf", "-y", "--setopt=install_weak_deps=False", "install"),
        "remove": ("dnf", "-y", "--noautoremove", "remove"),
        "hold": ("dnf", "-y", "versionlock", "add"),
        "unhold": ("dnf", "-y", "versionlock", "delete"),
    }

    def _trial(self, trial: str | None) -> list[str]:
        if trial is None:
            return []
        return [f"--setopt=reposdir={trial}/sources", f"--setopt=cachedir={trial}/cache"]

    def prove(self, trial: str, source: str) -> tuple[int, str]:
        # Only this file's repositories: the others have their turn.
        with open(source, encoding="utf-8") as stream:
            names = re.findall(r"^\[([^\]]+)\]", stream.read(), re.MULTILINE)
        only = ["--disablerepo=*", *(f"--enablerepo={name}" for name in names)]
        strict = ["--setopt=*.skip_if_unavailable=0", "--setopt=retries=1", "--refresh"]
        return self.run(["dnf", "-y", "-q", *self._trial(trial), *only, *strict, "makecache"])

    def versions(self, name: str, trial: str | None = None) -> list[str]:
        shape = "%{epoch}:%{version}-%{release}\n"
        query = ["repoquery", "--showduplicates", "--queryformat", shape, name]
        _code, output = self.run(["dnf", "-q", *self._trial(trial), *query])
        found = [line for line in output.split() if re.match(r"\d+:(?=\S+-)\S+$", line)]
        return list(dict.fromkeys(line[2:] if line.startswith("0:") else line for line in found))

    def exact(self, spec: str, name: str, version: str) -> str:
        return spec


MANAGERS: dict[str, type[Manager]] = {kind.name: kind for kind in (Apt, Dnf)}
