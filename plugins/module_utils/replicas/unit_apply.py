# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have systemd do what was decided, in an order that keeps a working replica working."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..host_files import write_file
from .units import DirectoryChange, FileChange, UnitChanges, unit_states

DUE = "/run/apiary/due"


def due_units(states: dict[str, dict[str, str]]) -> frozenset[str]:
    """Return the replicas that still run what an earlier run of ours has replaced.

    A mark holds the run it was set in: a unit that has started anew since needs nothing.
    """
    found = set()
    for name, state in states.items():
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(DUE, name), encoding="ascii") as stream:
                same = stream.read() == state.get("InvocationID", "")
            if same or state.get("NeedDaemonReload") == "yes":
                found.add(name)
    return frozenset(found)


def mark_due(name: str, state: dict[str, str]) -> None:
    """Note that the present run of a unit is outdated; lost at boot, as that run is."""
    os.makedirs(DUE, mode=0o755, exist_ok=True)
    with open(os.path.join(DUE, name), "w", encoding="ascii") as stream:
        stream.write(state.get("InvocationID", ""))


def serving(states: dict[str, dict[str, str]], names: list[str]) -> list[str]:
    """Return those of the units that are up, in order."""
    return [
        name for name in names if states.get(name, {}).get("ActiveState") in ("active", "reloading")
    ]


class Applier:
    """Applies file and unit changes on this host; ends the module where systemd does not obey."""

    def __init__(self, module: AnsibleModule, outcome: dict[str, Any]) -> None:
        self._module, self._outcome = module, outcome

    def systemctl(self, arguments: list[str]) -> tuple[int, str, str]:
        code, out, err = self._module.run_command(["systemctl", "--no-ask-password", *arguments])
        return code, out, err

    def fail(self, code: str, message: str, remedy: str) -> None:
        text = f"error: {code}: {message}\n  remedy: {remedy}"
        self._module.fail_json(msg=text, **self._outcome)

    def spare(self, names: list[str], reason: str) -> None:
        """Refuse to interrupt units that serve; check mode only tells of it."""
        if not names:
            return
        message = f"{', '.join(names)}: {reason}, which would interrupt what they serve"
        remedy = (
            "run playbooks/rollout.yml, which drains one after the other,"
            " or accept it with -e replicas_restart=true"
        )
        if self._module.check_mode:
            self._module.warn(f"REPLICA-SERVES: {message}; remedy: {remedy}")
        else:
            self.fail("REPLICA-SERVES", message, remedy)

    def must(self, *arguments: str) -> None:
        code, _out, err = self.systemctl(list(arguments))
        if code != 0:
            self.fail(
                "REPLICA-SYSTEMCTL",
                f"systemctl {' '.join(arguments)}: {err.strip()}",
                "run the same command on the host and mend what it says",
            )

    def start(self, names: list[str]) -> None:
        """Start units; a replica that used up its start limit gets a new one."""
        states = unit_states(self.systemctl, names)
        unknown = [name for name in names if states[name].get("LoadState") == "not-found"]
        if unknown:
            self.fail(
                "REPLICA-NO-UNIT",
                f"systemd has no {', '.join(unknown)}: the generator refused its file",
                "run /usr/lib/systemd/system-generators/podman-system-generator --dryrun",
            )
        self.systemctl(["reset-failed", "--", *names])
        since = int(time.time())
        if self.systemctl(["start", "--", *names])[0] != 0:
            states = unit_states(self.systemctl, names)
            broken = [name for name in names if states[name].get("ActiveState") != "active"]
            self._fail_start((broken or names)[0], since)

    def _fail_start(self, name: str, since: int) -> None:
        """End with the replica's own last words: systemctl only says that a job failed."""
        _code, status, _err = self.systemctl(
            ["show", "--property=Result,ExecMainStatus,ActiveState", "--", name]
        )
        # Only this start's lines: the previous run's say nothing about it. With --since alone -n
        # counts from there, so the last ones come by --reverse.
        command = ["journalctl", "--unit", name, f"--since=@{since}", "--no-pager", "-n", "20"]
        _code, journal, _err = self._module.run_command([*command, "--reverse", "--output=cat"])
        journal = "\n".join(reversed(journal.splitlines()))
        self.fail(
            "REPLICA-START-FAILED",
            f"{name} did not start ({', '.join(status.split())})",
            f"read its last lines below, or journalctl -u {name} on the host\n{journal}",
        )

    def write(self, change: FileChange) -> None:
        if change.changed and change.after is not None and change.mode_after is not None:
            write_file(self._module, change.path, change.after, change.mode_after)

    def apply(
        self,
        directories: list[DirectoryChange],
        files: list[FileChange],
        changes: UnitChanges,
        states: dict[str, dict[str, str]],
    ) -> None:
        """Apply everything.

        A restarted unit's files are written right before its restart, so that a run that ends
        early leaves the rest to the next one. A run cut off right between leaves a mark.
        """
        os.umask(0o022)  # a strict login umask would close what we create to the service user
        gone = [item for item in files if item.after is None and item.before is not None]
        if changes.remove:
            self.must("disable", "--now", "--", *changes.remove)
        if changes.move:
            self.must("stop", "--", *changes.move)
        shadowed = sorted(
            {
                item.unit
                for item in gone
                if item.unit and item.unit not in changes.remove and item.path.endswith(".service")
            }
        )
        if shadowed:
            self.must("disable", "--", *shadowed)
        for item in gone:
            os.unlink(item.path)
        for directory in directories:
            if directory.changed:
                os.makedirs(directory.path, exist_ok=True)
                self._module.set_mode_if_different(directory.path, directory.mode_after, False)
        for item in files:
            if item.unit not in changes.restart:
                self.write(item)
        if changes.reload:
            self.must("daemon-reload")
        if changes.enable:
            self.must("enable", "--", *changes.enable)
        for name in changes.restart:
            mark_due(name, states[name])
            for item in files:
                if item.unit == name:
                    self.write(item)
            self.must("daemon-reload")
            # Not `restart`: that keeps the runtime directory, where failed starts are counted.
            self.must("stop", "--", name)
            self.start([name])
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(DUE, name))
        if changes.move or changes.start:
            self.start([*changes.move, *changes.start])
