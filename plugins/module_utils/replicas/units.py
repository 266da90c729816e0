# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring unit files and units to a wanted state: read, compare, then apply only the difference."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Callable

from ..resources.file import FileChange, read_with_mode

# A systemctl call: its arguments in, (exit code, stdout, stderr) out.
Systemctl = Callable[[list[str]], "tuple[int, str, str]"]

PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "InvocationID")


@dataclass(frozen=True)
class DirectoryChange:
    """A directory that files lie in and its mode before; None is absent."""

    path: str
    mode_before: str | None
    mode_after: str = "0755"

    @property
    def changed(self) -> bool:
        return self.mode_before != self.mode_after

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff entry."""
        before = f"mode {self.mode_before}\n" if self.mode_before else ""
        return {
            "before_header": self.path,
            "after_header": self.path,
            "before": before,
            "after": f"mode {self.mode_after}\n",
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

    def steps(self) -> tuple[str, ...]:
        """Return what happens to units, in words."""
        steps = (
            ("stop and remove", self.remove),
            ("enable", self.enable),
            ("stop, then start", self.move),
            ("restart", self.restart),
            ("start", self.start),
        )
        words = tuple(f"{verb}: {' '.join(names)}" for verb, names in steps if names)
        return words or (("reload systemd",) if self.reload else ())


def compare_files(wanted: list[dict[str, str]]) -> list[FileChange]:
    """Return one change per wanted file, changed or not, in the given order."""
    changes = []
    for item in wanted:
        before, mode = read_with_mode(item["path"])
        changes.append(
            FileChange(item["path"], before, item["content"], mode, item["mode"], item.get("unit"))
        )
    return changes


def compare_directories(files: list[FileChange]) -> list[DirectoryChange]:
    """Return one change per directory that files need, outermost first.

    Ours are those called apiary and what is below them; a strict umask must not close them, and
    those of secrets must not be open. Of others only the missing ones count.
    """
    planned: dict[str, str] = {}
    for item in files:
        parts = os.path.dirname(item.path).split(os.sep)
        ours = parts.index("apiary") if "apiary" in parts else len(parts)
        for end in range(2, len(parts) + 1):
            path = os.sep.join(parts[:end])
            if end > ours or not os.path.isdir(path):
                closed = item.secret and end == len(parts)
                planned[path] = "0700" if closed else planned.get(path, "0755")
    changes = []
    for path, mode_after in planned.items():
        try:
            mode = f"{os.stat(path).st_mode & 0o7777:04o}"
        except FileNotFoundError:
            mode = None
        changes.append(DirectoryChange(path, mode, mode_after))
    return changes


def unit_states(systemctl: Systemctl, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the properties of each unit; a unit systemd has never heard of is there too."""
    states: dict[str, dict[str, str]] = {name: {} for name in names}
    if not names:
        return states
    _code, out, _err = systemctl(["show", "--property=" + ",".join(PROPERTIES), "--", *names])
    for block in out.strip().split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if properties.get("Id") in states:
            states[properties["Id"]] = properties
    return states


def plan_units(
    files: list[FileChange],
    services: list[str],
    target: str | None,
    states: dict[str, dict[str, str]],
    stale: list[str],
    due: frozenset[str] = frozenset(),
    handed_over: bool = False,
) -> UnitChanges:
    """Decide from files and states alone what systemd has to be told.

    A service starts anew when a file of its own changes, or when it is ``due`` (a secret of its
    changes, or an earlier run was cut off). A new supervisor counts from the next start on, and a
    serving replica is not interrupted for it. With ``handed_over`` devices change hands.
    """
    outdated = due | {item.unit for item in files if item.unit and item.before != item.after}
    own = {os.path.basename(item.path) for item in files}
    planned = [*services, *([target] if target else [])]

    def state(name: str, key: str) -> str:
        return states.get(name, {}).get(key, "")

    def is_up(name: str, *more: str) -> bool:
        return state(name, "ActiveState") in ("active", "reloading", *more)

    # A replica that is still starting would go on with the old unit.
    again = [name for name in services if name in outdated and is_up(name, "activating")]
    return UnitChanges(
        remove=stale,
        # What a generator makes of another file is enabled by that file.
        enable=[
            name for name in planned if name in own and state(name, "UnitFileState") != "enabled"
        ],
        move=again if handed_over else [],
        restart=[] if handed_over else again,
        start=[name for name in planned if name not in again and not is_up(name)],
        reload=bool(stale)
        or any(item.changed and is_unit(item.path) for item in files)
        # Also after a run that ended between a unit's file and the reload.
        or any(state(name, "NeedDaemonReload") == "yes" for name in states)
        or any(state(name, "LoadState") == "not-found" for name in planned),
    )


def is_unit(path: str) -> bool:
    """Say whether systemd, or one of its generators, reads the file."""
    suffixes = (".service", ".target", ".slice", ".container", ".network", ".volume", ".mount")
    return path.endswith(suffixes)
