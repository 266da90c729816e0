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

    # A replica that is still starting would go on with the old unit.
    again = [name for name in services if name in rewritten and is_up(name, "activating")]
    handed_over = any(
        devices(rewritten[name].before) != devices(rewritten[name].after) for name in again
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
    files: list[FileChange], removed: list[FileChange], units: UnitChanges
) -> dict[str, Any]:
    """Return the module's result: what changed, or in check mode would change, and the diff."""
    changed = [item for item in [*files, *removed] if item.changed]
    return {
        "changed": bool(changed) or units.changed,
        "diff": [item.diff() for item in changed],
        "written": [item.path for item in files if item.changed],
        "removed": units.remove,
        "enabled": units.enable,
        "restarted": [*units.move, *units.restart],
        "started": units.start,
    }
