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

from ansible_collections.apiary.instinct.plugins.module_utils.host_files import ORIGINALS
from ansible_collections.apiary.instinct.plugins.module_utils.units import FileChange

UNITS = "/etc/systemd/system/"
STAMPS = "/run/apiary"

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
    """Return the files that the running service reads: ``main``, and those that it names."""
    text = next((one.after or "" for one in changes if one.path == main), "")
    return [one for one in changes if one.path == main or one.path in text]


def fingerprint(changes: list[FileChange], main: str) -> str:
    """Return what tells one configuration of the service from another."""
    digest = hashlib.sha256()
    for one in read_by(changes, main):
        if one.after is not None:
            digest.update(f"{one.path}\0{one.after}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def plan_steps(
    changes: list[FileChange], main: str, properties: dict[str, str], taken: str, was_ours: bool
) -> Steps:
    """Decide from the files, systemd's view of the service, and what it last took.

    ``taken`` is the fingerprint of the configuration that the running service took, empty where it
    started by itself, from the files, as at boot. A service that ran somebody else's configuration
    is restarted, ours is reloaded.
    """
    active = properties.get("ActiveState") in ("active", "reloading")
    units = any(one.changed and one.path.startswith(UNITS) for one in changes)
    rewritten = any(one.changed for one in read_by(changes, main))
    take = None
    if not active:
        take = "start"
    elif rewritten or taken not in ("", fingerprint(changes, main)):
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
