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
    """What has to happen to units, in this order."""

    stop: list[str] = field(default_factory=list)
    enable: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    reload: bool = False

    @property
    def changed(self) -> bool:
        return bool(self.stop or self.enable or self.restart or self.start or self.reload)


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
    rewritten = {os.path.basename(item.path) for item in files if item.changed}
    wanted = [*services, target]

    def state(name: str, key: str) -> str:
        return states.get(name, {}).get(key, "")

    running = [name for name in services if state(name, "ActiveState") in ("active", "reloading")]
    return UnitChanges(
        stop=stale,
        enable=[name for name in wanted if state(name, "UnitFileState") != "enabled"],
        restart=[name for name in running if name in rewritten],
        start=[name for name in services if name not in running]
        + ([] if state(target, "ActiveState") == "active" else [target]),
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
        "stopped": units.stop,
        "enabled": units.enable,
        "restarted": units.restart,
        "started": units.start,
    }
