# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring unit files and units to a wanted state: read, compare, then apply only the difference."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable

# A systemctl call: its arguments in, (exit code, stdout, stderr) out.
Systemctl = Callable[[list[str]], "tuple[int, str, str]"]

PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload")


@dataclass(frozen=True)
class FileChange:
    """One file's content and mode before and after; None is absent."""

    path: str
    before: str | None
    after: str | None
    mode_before: str | None
    mode_after: str | None

    @property
    def changed(self) -> bool:
        return (self.before, self.mode_before) != (self.after, self.mode_after)

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff entry; a change of mode alone shows as a line of its own."""

        kept = self.before is not None and self.after is not None
        chmod = kept and self.mode_before != self.mode_after

        def text(content: str | None, mode: str | None) -> str:
            return (f"# mode {mode}\n" if chmod else "") + (content or "")

        return {
            "before_header": self.path,
            "after_header": self.path,
            "before": text(self.before, self.mode_before),
            "after": text(self.after, self.mode_after),
        }


@dataclass(frozen=True)
class DirectoryChange:
    """One of our directories and its mode before; None is absent. All are to be 0755."""

    path: str
    mode_before: str | None

    @property
    def changed(self) -> bool:
        return self.mode_before != "0755"

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff entry."""
        before = f"mode {self.mode_before}\n" if self.mode_before else ""
        return {
            "before_header": self.path,
            "after_header": self.path,
            "before": before,
            "after": "mode 0755\n",
        }


@dataclass(frozen=True)
class UnitChanges:
    """What has to happen to units, in this order.

    ``remove`` are stopped for good. ``move`` are stopped together and started again, because
    their devices change hands; ``restart`` one after the other, so that the rest serves on.
    """

    remove: list[str] = field(default_factory=list)
    enable: list[str] = field(default_factory=list)
    move: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    reload: bool = False

    @property
    def changed(self) -> bool:
        lists = (self.remove, self.enable, self.move, self.restart, self.start)
        return self.reload or any(lists)

    def announce(self) -> str:
        """Return what happens to units, a line each, for --diff."""
        steps = (
            ("stop and remove", self.remove),
            ("enable", self.enable),
            ("stop, then start", self.move),
            ("restart", self.restart),
            ("start", self.start),
        )
        lines = [f"{verb}: {' '.join(names)}\n" for verb, names in steps if names]
        return "".join(lines) or "reload systemd\n"


def read_file(path: str) -> tuple[str | None, str | None]:
    """Return a file's text and octal mode, or (None, None) where it is absent."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read(), f"{os.stat(path).st_mode & 0o7777:04o}"
    except FileNotFoundError:
        return None, None


def compare_files(wanted: list[dict[str, str]]) -> list[FileChange]:
    """Return one change per wanted file, changed or not, in the given order."""
    changes = []
    for item in wanted:
        before, mode = read_file(item["path"])
        changes.append(FileChange(item["path"], before, item["content"], mode, item["mode"]))
    return changes


def compare_directories(files: list[FileChange]) -> list[DirectoryChange]:
    """Return one change per directory of ours that files lie in, outermost first.

    Ours are those called apiary and what is below them; a strict umask must not close them.
    """
    wanted: dict[str, None] = {}
    for item in files:
        parts = os.path.dirname(item.path).split(os.sep)
        if "apiary" in parts:
            for end in range(parts.index("apiary") + 1, len(parts) + 1):
                wanted[os.sep.join(parts[:end])] = None
    changes = []
    for path in wanted:
        try:
            mode = f"{os.stat(path).st_mode & 0o7777:04o}"
        except FileNotFoundError:
            mode = None
        changes.append(DirectoryChange(path, mode))
    return changes


def taken_devices(
    directory: str,
    files: list[FileChange],
    services: list[str],
    stale: list[str],
    systemctl: Systemctl,
) -> dict[str, str]:
    """Return {device: unit} for devices of the plan that another deployment's running unit has."""
    wanted = {line for item in files for line in devices(item.after)}
    holders: dict[str, frozenset[str]] = {}
    for name in stale_units(directory, r"apiary-.*\.service", [*services, *stale]):
        content, _mode = read_file(os.path.join(directory, name))
        shared = devices(content) & wanted
        if shared:
            holders[name] = shared
    states = unit_states(systemctl, sorted(holders))
    return {
        line.split("=", 1)[1].split()[0]: name
        for name, lines in sorted(holders.items())
        if states[name].get("ActiveState") not in ("inactive", "failed")
        for line in sorted(lines)
    }


def stale_units(directory: str, pattern: str, wanted: list[str]) -> list[str]:
    """Return the unit files that match the pattern as a whole and are no longer wanted."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [name for name in names if re.fullmatch(pattern, name) and name not in wanted]


def unit_states(systemctl: Systemctl, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the properties of each unit; a unit systemd has never heard of is there too."""
    states: dict[str, dict[str, str]] = {name: {} for name in names}
    if not names:
        return states
    _code, out, _err = systemctl(["show", "--property=" + ",".join(PROPERTIES), "--", *names])
    for block in out.strip().split("\n\n"):
        found = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if found.get("Id") in states:
            states[found["Id"]] = found
    return states


def devices(unit: str | None) -> frozenset[str]:
    """Return the devices that a unit file allows."""
    lines = (unit or "").splitlines()
    return frozenset(line for line in lines if line.startswith("DeviceAllow=/dev/dri/"))


def plan_units(
    files: list[FileChange],
    stale: list[str],
    services: list[str],
    target: str,
    states: dict[str, dict[str, str]],
) -> UnitChanges:
    """Decide from files and states alone what systemd has to be told.

    A service is restarted only if its own unit file changes: a new launcher counts from the next
    start on, and a serving replica is not interrupted for it.
    """
    rewritten = {os.path.basename(item.path): item for item in files if item.changed}
    wanted = [*services, target]

    def state(name: str, key: str) -> str:
        return states.get(name, {}).get(key, "")

    def is_up(name: str, *more: str) -> bool:
        return state(name, "ActiveState") in ("active", "reloading", *more)

    def is_outdated(name: str) -> bool:
        # What systemd has loaded differs from the file: an earlier run ended before its restart.
        return name in rewritten or state(name, "NeedDaemonReload") == "yes"

    # A replica that is still starting would go on with the old unit.
    again = [name for name in services if is_outdated(name) and is_up(name, "activating")]
    handed_over = any(
        devices(rewritten[name].before) != devices(rewritten[name].after)
        for name in again
        if name in rewritten
    )
    return UnitChanges(
        remove=stale,
        enable=[name for name in wanted if state(name, "UnitFileState") != "enabled"],
        move=again if handed_over else [],
        restart=[] if handed_over else again,
        start=[name for name in wanted if name not in again and not is_up(name)],
        reload=bool(stale)
        or any(name in rewritten for name in wanted)
        or any(state(name, "NeedDaemonReload") == "yes" for name in wanted),
    )


def result(
    directories: list[DirectoryChange],
    files: list[FileChange],
    removed: list[FileChange],
    units: UnitChanges,
) -> dict[str, Any]:
    """Return the module's result: what changed, or in check mode would change, and the diff."""
    diffs = [{"prepared": units.announce()}] if units.changed else []
    diffs += [item.diff() for item in directories if item.changed]
    diffs += [item.diff() for item in [*files, *removed] if item.changed]
    return {
        "changed": bool(diffs) or units.changed,
        "diff": diffs,
        "written": [item.path for item in files if item.changed],
        "removed": units.remove,
        "enabled": units.enable,
        "restarted": [*units.move, *units.restart],
        "started": units.start,
    }
