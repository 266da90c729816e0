# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host itself says, beside its GPUs: system, kernel, packages, mounts, services.

A scope is what one concern needs; the document is `apiary.evidence/v1`, verbatim as always.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.apiary.instinct.plugins.module_utils import evidence
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import (
    Commands,
    Files,
    Runner,
)

# A repository or mirror address may carry a password.
CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+(?=@)")


@dataclass(frozen=True)
class Scope:
    """What one concern needs to know: commands, file patterns, patterns of symbolic links."""

    commands: Commands = ()
    files: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


# What every concern needs.
COMMON = Scope(
    commands=(
        ("uname", (("uname", "-srvm"),)),
        ("virtualization", (("systemd-detect-virt",),)),
        # Replicas that serve: nothing disruptive happens beside them.
        (
            "replicas",
            (("systemctl", "list-units", "--plain", "--no-legend", "--all", "apiary-*.service"),),
        ),
    ),
    files=(
        "/etc/os-release",
        "/proc/cmdline",
        "/proc/meminfo",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/random/boot_id",
    ),
)
ROCM = Scope()
TUNING = Scope()
WEIGHTS = Scope()
CONTAINER = Scope()
KUBERNETES = Scope()
ACCEPTANCE = Scope()
REBOOT = Scope(files=("/var/lib/apiary/reboot.json",))

SCOPES = {
    "rocm": ROCM,
    "tuning": TUNING,
    "weights": WEIGHTS,
    "container": CONTAINER,
    "kubernetes": KUBERNETES,
    "acceptance": ACCEPTANCE,
    "reboot": REBOOT,
}


def collect_host(
    scopes: list[str], run: Runner = evidence.run_command, root: str = "/"
) -> dict[str, Any]:
    """Return the evidence of the named scopes; "gpu" stands for all that evidence.collect gives."""
    started = datetime.datetime.now(datetime.timezone.utc)
    gathered = evidence.collect(run, root) if "gpu" in scopes else None
    wanted = [COMMON, *(SCOPES[name] for name in scopes if name != "gpu")]
    if wanted == [COMMON] and gathered:
        return gathered
    commands = evidence.collect_commands(
        run, tuple(each for one in wanted for each in one.commands)
    )

    def read_all(found: Files) -> None:
        for scope in wanted:
            for pattern in scope.files:
                found.read_all(pattern)
            for pattern in scope.links:
                for path in found.paths(pattern):
                    found.link(path)

    found = evidence.in_time(root, read_all)
    found.files = {path: CREDENTIALS.sub("***", text) for path, text in found.files.items()}
    told = evidence.document(started, commands, found)
    if gathered:
        for part in ("commands", "files", "links", "unreadable"):
            told[part] = {**told[part], **gathered[part]}
    return told
