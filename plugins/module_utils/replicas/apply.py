# SPDX-License-Identifier: GPL-3.0-or-later

"""Let systemd run what was decided, in an order that keeps a working replica working."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from ..finding import error
from ..resources.file import FileChange, write
from ..resources.types import Host
from .units import Systemctl, unit_states

if TYPE_CHECKING:
    from .inspection import Changes

DUE = "/run/apiary/due"
# systemd reports no need to reload of a unit that is gone.
UNREAD = "reload after removed replicas"
# A file server that fails over is back within a minute: starts are tried again, as systemd does.
MOUNT_SECONDS, NOT_MOUNTED = 60, {("error", "REPLICA-WEIGHTS"), ("error", "WEIGHTS-ABSENT")}


def systemctl_of(host: Host) -> Systemctl:
    """Return a host's systemctl."""
    return lambda words: host.run(["systemctl", "--no-ask-password", *words])


def must(host: Host, *arguments: str) -> None:
    """Run systemctl; refuse where it does not obey."""
    code, output = host.systemctl(*arguments)
    if code:
        raise error("REPLICA-SYSTEMCTL", f"systemctl {' '.join(arguments)}", output.strip())


def due_units(states: dict[str, dict[str, str]]) -> frozenset[str]:
    """Return the replicas that still run what an earlier run of ours has replaced.

    A mark holds the run it was set in: a unit that has started anew since needs nothing.
    """
    due = set()
    for name, state in states.items():
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(DUE, name), encoding="ascii") as stream:
                same = stream.read() == state.get("InvocationID", "")
            if same or state.get("NeedDaemonReload") == "yes":
                due.add(name)
    return frozenset(due)


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
    """Applies file and unit changes on this host; refuses where systemd does not obey."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def apply(self, changes: Changes) -> None:
        """Apply everything.

        A restarted unit's files are written right before its restart, so that a run that ends
        early leaves the rest to the next one. A run cut off right between leaves a mark.
        """
        umask = os.umask(0o022)  # a strict login umask would close what we create to the service
        try:
            self._apply(changes)
        finally:
            os.umask(umask)
        self._host.reload_due = False

    def _apply(self, changes: Changes) -> None:
        self._write_secrets(changes)
        decided = changes.units
        if decided.remove:
            must(self._host, "disable", "--now", "--", *decided.remove)
        if decided.move:
            must(self._host, "stop", "--", *decided.move)
        self._remove(changes)
        for item in changes.files:
            if item.unit not in decided.restart:
                self._write(item)
        if decided.reload:
            must(self._host, "daemon-reload")
            self._host.settle(UNREAD)
        if decided.enable:
            must(self._host, "enable", "--", *decided.enable)
        for name in decided.restart:
            mark_due(name, changes.states[name])
            for item in changes.files:
                if item.unit == name:
                    self._write(item)
            must(self._host, "daemon-reload")
            # Not `restart`: that keeps the runtime directory, where failed starts are counted.
            must(self._host, "stop", "--", name)
            self._start([name])
        if decided.move or decided.start:
            self._start([*decided.move, *decided.start])

    def _write_secrets(self, changes: Changes) -> None:
        for directory in changes.directories:
            if directory.changed:
                os.makedirs(directory.path, mode=int(directory.mode_after, 8), exist_ok=True)
                os.chmod(directory.path, int(directory.mode_after, 8))
        for name in changes.outdated:
            mark_due(name, changes.states[name])
        for item in changes.secrets:
            if item.after is None:
                os.unlink(item.path)
            self._write(item)

    def _remove(self, changes: Changes) -> None:
        gone = [item for item in changes.files if item.after is None and item.before is not None]
        shadowed = sorted(
            {
                item.unit
                for item in gone
                if item.unit
                and item.unit not in changes.units.remove
                and item.path.endswith(".service")
            }
        )
        if shadowed:
            must(self._host, "disable", "--", *shadowed)
        if gone and changes.units.reload:
            self._host.mark(UNREAD)
        for item in gone:
            os.unlink(item.path)

    def _write(self, item: FileChange) -> None:
        if item.changed and item.after is not None and item.mode_after is not None:
            different = item.before != item.after
            write(self._host.module, item.path, item.after, item.mode_after, change=different)

    def _start(self, names: list[str]) -> None:
        """Start units, also those that had failed for good."""
        states = unit_states(systemctl_of(self._host), names)
        unknown = [name for name in names if states[name].get("LoadState") == "not-found"]
        if unknown:
            raise error(
                "REPLICA-NO-UNIT",
                ", ".join(unknown),
                "systemd has no such unit: the generator refused its file",
            )
        self._host.systemctl("reset-failed", "--", *names)
        begun, since = time.monotonic(), int(time.time())
        while self._host.systemctl("start", "--", *names)[0] != 0:
            states = unit_states(systemctl_of(self._host), names)
            broken = [name for name in names if states[name].get("ActiveState") != "active"]
            name = (broken or names)[0]
            journal = self._journal(name, since)
            late = time.monotonic() - begun > MOUNT_SECONDS
            # The supervisor paces the starts, and each mounts anew.
            begins = {tuple(line.split(": ", 2)[:2]) for line in journal.splitlines()}
            if late or not NOT_MOUNTED & begins:
                self._refuse_start(name, journal)
            since = int(time.time())
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(DUE, name))

    def _journal(self, name: str, since: int) -> str:
        """Return the replica's own last words: systemctl only says that a job failed."""
        # Only this start's lines: the previous run's say nothing about it. With --since alone -n
        # counts from there, so the last ones come by --reverse.
        command = ["journalctl", "--unit", name, f"--since=@{since}", "--no-pager", "-n", "20"]
        _code, journal, _err = self._host.run([*command, "--reverse", "--output=cat"])
        return "\n".join(reversed(journal.splitlines()))

    def _refuse_start(self, name: str, journal: str) -> None:
        properties = "--property=Result,ExecMainStatus,ActiveState"
        _code, status = self._host.systemctl("show", properties, "--", name)
        raise error(
            "REPLICA-START-FAILED", name, f"did not start ({', '.join(status.split())})\n{journal}"
        )
