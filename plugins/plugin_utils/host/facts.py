# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What evidence says of a host's system: release, kernel, command line, guest or not."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

# Other units of ours (tuning at boot, naming GPUs) serve nothing.
_REPLICA = re.compile(r"apiary-.+-\d+\.service$")
_UP = ("active", "activating", "reloading")


@dataclass(frozen=True)
class OsRelease:
    """/etc/os-release: ``id`` is debian, ubuntu, rhel, ol, sles …; ``version`` is VERSION_ID."""

    id: str
    version: str
    codename: str | None
    name: str

    @property
    def major(self) -> str:
        """The version up to its first dot."""
        return self.version.split(".")[0]


def os_release(evidence: Evidence) -> OsRelease:
    """Return the host's release; raise HOST-NO-RELEASE where the host does not tell."""
    values = {}
    for line in evidence.files.get("/etc/os-release", "").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            words = shlex.split(value, comments=False) if value.count('"') % 2 == 0 else [value]
            values[key.strip()] = " ".join(words)
    if "ID" not in values:
        raise error(
            "HOST-NO-RELEASE",
            evidence.host,
            "has no readable /etc/os-release with an ID",
            "collect the evidence again, with a scope beside gpu",
        )
    return OsRelease(
        id=values["ID"],
        version=values.get("VERSION_ID", ""),
        codename=values.get("VERSION_CODENAME") or None,
        name=values.get("PRETTY_NAME", values["ID"]),
    )


def kernel_release(evidence: Evidence) -> str | None:
    """Return the running kernel's release, as `uname -r` prints it."""
    return evidence.files.get("/proc/sys/kernel/osrelease", "").strip() or None


def boot_id(evidence: Evidence) -> str | None:
    """Return the identity of this boot."""
    return evidence.files.get("/proc/sys/kernel/random/boot_id", "").strip() or None


def kernel_arguments(evidence: Evidence) -> tuple[str, ...]:
    """Return the words of the running kernel's command line."""
    return tuple(evidence.files.get("/proc/cmdline", "").split())


def virtualization(evidence: Evidence) -> str | None:
    """Return what systemd-detect-virt says ("none", "kvm", "docker" …), or None if it did not."""
    said = evidence.commands.get("virtualization")
    return (said.stdout.strip() or None) if said else None


def is_guest(evidence: Evidence) -> bool:
    """Say whether the host is a virtual machine; its GPUs then are virtual functions.

    A container counts as its machine: the simulated hosts of the lab are containers.
    """
    machines: list[str] = knowledge("host/virtualization.yml")["virtual_machines"]
    return virtualization(evidence) in machines


def command(evidence: Evidence, name: str) -> CommandOutput | None:
    """Return a command that ended with exit code 0, the first of its forms that did."""
    for label, said in sorted(evidence.commands.items()):
        if (label == name or re.fullmatch(re.escape(name) + r"_\d+", label)) and said.exit == 0:
            return said
    return None


def serving_replicas(evidence: Evidence) -> tuple[str, ...]:
    """Return the replica units that are up or coming up: apiary-DEPLOYMENT-NUMBER.service."""
    said = evidence.commands.get("replicas")
    units = []
    for line in (said.stdout if said else "").splitlines():
        words = line.split()
        if len(words) > 2 and _REPLICA.match(words[0]) and words[2] in _UP:
            units.append(words[0])
    return tuple(units)
