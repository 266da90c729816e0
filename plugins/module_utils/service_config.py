# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A service's configuration: judge it aside, put it in place, and have the service take it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from .host_files import ORIGINALS, compare
from .replicas.units import FileChange, read_file

UNITS = "/etc/systemd/system/"
STAMPS = "/run/apiary"
PROPERTIES = "--property=ActiveState,UnitFileState,NeedDaemonReload,LoadState"
_ITEM = {"path": {"type": "path", "required": True}}
ARGUMENTS: dict[str, Any] = {
    "service": {"type": "str", "required": True},
    "main": {"type": "path", "required": True},
    "check": {"type": "list", "elements": "str", "default": []},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            **_ITEM,
            "mode": {"type": "str", "default": "0644"},
            "content": {"type": "str"},
        },
    },
    "secrets": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "no_log": False,
        "options": {
            **_ITEM,
            "mode": {"type": "str", "default": "0600"},
            "content": {"type": "str", "no_log": True},
        },
    },
    "mark": {"type": "str", "default": "Managed by Apiary"},
    "socket": {"type": "path"},
    "reload": {"type": "bool", "default": True},
    "restarts": {"type": "list", "elements": "path", "default": []},
    "area": {"type": "str", "choices": ["ROUTER", "MONITORING"], "default": "ROUTER"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}

# Runs a command: (exit code, stdout, stderr).
Run = Callable[[list[str]], "tuple[int, str, str]"]


@dataclass(frozen=True)
class Steps:
    """What systemd has to do, in this order; ``take`` is start, restart, reload or nothing."""

    daemon_reload: bool
    enable: bool
    take: str | None

    @property
    def changed(self) -> bool:
        return self.daemon_reload or self.enable or self.take is not None

    def announce(self, service: str) -> str:
        """Return what happens to the service, a line each, for --diff."""
        lines = ["reload systemd\n"] if self.daemon_reload else []
        lines += [f"enable: {service}\n"] if self.enable else []
        lines += [f"{self.take}: {service}\n"] if self.take else []
        return "".join(lines)


def judge(changes: list[FileChange], check: list[str], main: str, run: Run) -> str | None:
    """Have the service's own program judge the new files, aside; return what it refuses with.

    Every new file is written below a directory that only root reads, and is named there by the
    others; a file that is not among them is the one in place.
    """
    aside = tempfile.mkdtemp(prefix="apiary-judge-")
    try:
        paths = sorted((one.path for one in changes if one.after is not None), key=len)
        for one in changes:
            if one.after is None:
                continue
            text = one.after
            for path in reversed(paths):  # the longest first, for one may begin another
                text = text.replace(path, aside + path)
            os.makedirs(os.path.dirname(aside + one.path), mode=0o700, exist_ok=True)
            handle = os.open(aside + one.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
        code, out, err = run([*check, aside + main])
        if code == 0:
            return None
        lines = [line for line in (out + err).replace(aside, "").splitlines() if line.strip()]
        return "\n".join(lines[:12]) or f"exit status {code}"
    finally:
        shutil.rmtree(aside)


def read_by(changes: list[FileChange], main: str) -> list[FileChange]:
    """Return the files that the running service reads: ``main``, and those that it names.

    A file below ``main``'s directory may be named from there on.
    """
    text = next((one.after or one.before or "" for one in changes if one.path == main), "")
    below = os.path.dirname(main) + "/"
    return [
        one
        for one in changes
        if one.path == main
        or one.path in text
        or (one.path.startswith(below) and one.path[len(below) :] in text)
    ]


def read_at_start(changes: list[FileChange], restarts: frozenset[str] | None) -> list[FileChange]:
    """Return the files that only a start reads: those named by ``restarts``, all if it is None."""
    return [one for one in changes if restarts is None or one.path in restarts]


def fingerprint(
    changes: list[FileChange], main: str, restarts: frozenset[str] | None = frozenset()
) -> str:
    """Return what tells one configuration of the service from another.

    A second word tells what was read at its start, where something is.
    """
    parts = [read_by(changes, main)]
    if restarts is None or restarts:
        parts.append(read_at_start(changes, restarts))
    return " ".join(_digest(part) for part in parts)


def _digest(changes: list[FileChange]) -> str:
    digest = hashlib.sha256()
    for one in changes:
        if one.after is not None:
            digest.update(f"{one.path}\0{one.after}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def plan_steps(
    changes: list[FileChange],
    main: str,
    properties: dict[str, str],
    taken: str,
    was_ours: bool,
    restarts: frozenset[str] | None = frozenset(),
) -> Steps:
    """Decide from the files, systemd's view of the service, and what it last took.

    ``taken`` is the fingerprint of the configuration that the running service took, empty where it
    started by itself, from the files, as at boot. A service that ran somebody else's configuration
    is restarted, ours is reloaded, but for changes in ``restarts``, None for all files.
    """
    active = properties.get("ActiveState") in ("active", "reloading")
    units = any(one.changed and one.path.startswith(UNITS) for one in changes)
    rewritten = any(one.changed for one in read_by(changes, main))
    now = fingerprint(changes, main, restarts)
    stale = taken != "" and taken.split()[1:] != now.split()[1:]
    take = None
    if not active:
        take = "start"
    elif stale or any(one.changed for one in read_at_start(changes, restarts)):
        take = "restart"
    elif rewritten or taken not in ("", now):
        take = "reload" if was_ours else "restart"
    return Steps(
        daemon_reload=units or properties.get("NeedDaemonReload") == "yes",
        enable=properties.get("UnitFileState") != "enabled",
        take=take,
    )


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties that `systemctl show` prints."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def with_originals(changes: list[FileChange]) -> list[FileChange]:
    """Return changes that bring back what was there before Apiary, where that was kept."""
    back = []
    for one in changes:
        kept = ORIGINALS + one.path
        if os.path.exists(kept):
            with open(kept, encoding="utf-8", errors="surrogateescape") as stream:
                one = FileChange(one.path, one.before, stream.read(), one.mode_before, "0644")
        back.append(one)
    return back


def remove_empty(directory: str) -> None:
    """Remove a directory of ours, or of drop-ins, once nothing is in it."""
    if os.path.basename(directory) == "apiary" or directory.endswith(".d"):
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def differences(changes: list[FileChange], secret: frozenset[str]) -> list[dict[str, str]]:
    """Return Ansible's diff; of a secret file only that it changes."""
    shown = []
    for one in changes:
        if not one.changed:
            continue
        diff = one.diff()
        if one.path in secret:
            diff["before"] = "" if one.before is None else f"# mode {one.mode_before}, secret\n"
            diff["after"] = "" if one.after is None else f"# mode {one.mode_after}, secret, new\n"
        shown.append(diff)
    return shown


def result(
    changes: list[FileChange], secret: frozenset[str], service: str, steps: Steps
) -> dict[str, Any]:
    """Return the module's result: what changed, or in check mode would change, and the diff."""
    diffs = [{"prepared": steps.announce(service)}] if steps.changed else []
    diffs += differences(changes, secret)
    return {
        "changed": bool(diffs),
        "diff": diffs,
        "written": [one.path for one in changes if one.changed and one.after is not None],
        "removed": [one.path for one in changes if one.changed and one.after is None],
        "action": steps.take or "",
    }


@dataclass(frozen=True)
class Looked:
    """What a service's files and systemd show: what would change, and what is to be done."""

    changes: list[FileChange]
    secret: frozenset[str]
    main: FileChange | None
    was_ours: bool
    restarts: frozenset[str] | None
    steps: Steps

    def outcome(self, service: str) -> dict[str, Any]:
        return result(self.changes, self.secret, service, self.steps)


def stamp_of(service: str) -> str:
    """Return the file that tells what the running service took."""
    return os.path.join(STAMPS, f"{service}.config")


def look(module: AnsibleModule) -> Looked:
    """Return what a service that is to be present lacks."""
    given = module.params
    # Secrets first: what names them comes after.
    changes = compare([*given["secrets"], *given["files"]])
    main = next((one for one in changes if one.path == given["main"]), None)
    was_ours = main is not None and given["mark"] in (main.before or "")
    restarts = frozenset(given["restarts"]) if given["reload"] else None
    shown = module.run_command(
        ["systemctl", "--no-ask-password", "show", PROPERTIES, given["service"]]
    )[1]
    steps = plan_steps(
        changes,
        given["main"],
        parse_properties(shown),
        read_file(stamp_of(given["service"]))[0] or "",
        was_ours,
        restarts,
    )
    secret = frozenset(one["path"] for one in given["secrets"])
    return Looked(changes, secret, main, was_ours, restarts, steps)
