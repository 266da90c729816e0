# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an unclean end of this replica left behind: processes of its unit, locks in its caches."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import signal
import time

from ....module_utils.kfd import read
from .context import Context
from .problems import replica_error


def own_group(context: Context) -> str | None:
    """Return the directory of the unit's control group; None where we run outside of the unit.

    Source: cgroups(7): 0::PATH with version 2, N:name=systemd:PATH with version 1.
    """
    unified = legacy = None
    for line in read(os.path.join(context.root, "proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        # Never another's processes: only a group that is named as the unit is.
        if os.path.basename(path) != context.spec.unit:
            continue
        if number == "0":
            unified = path
        elif controllers == "name=systemd":
            legacy = path
    places = [("systemd", legacy), ("unified", unified), ("", unified)]
    for base, group in places:
        directory = os.path.join(context.root, "sys/fs/cgroup", base, (group or "").lstrip("/"))
        if group and os.path.exists(os.path.join(directory, "cgroup.procs")):
            return directory
    return None


def end_processes(context: Context) -> None:
    """Kill what runs beside us in the unit's control group; raises REPLICA-LEFTOVER."""
    group = own_group(context)
    if group is None:
        return
    deadline = time.monotonic() + context.life["leftovers"]["limit_seconds"]
    signalled = False
    while True:
        listed = read(os.path.join(group, "cgroup.procs")).split()
        others = [int(pid) for pid in listed if pid != str(os.getpid())]
        if not others:
            return
        names = ", ".join(f"{pid} ({_name(context, pid)})" for pid in others)
        if not signalled:
            context.journal.say(f"ending processes that an earlier run left: {names}")
            signalled = True
        if time.monotonic() >= deadline:
            raise replica_error(
                "REPLICA-LEFTOVER", f"process {names} of an earlier run does not end"
            )
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        context.pause(0.1)


def _name(context: Context, pid: int) -> str:
    return read(os.path.join(context.root, "proc", str(pid), "comm")) or "gone"


# What newer AITER writes into its lock: the holder's process number and host.
_OWNER = re.compile(r"\d{1,10}\n[\w.-]{1,255}\n?")


def _is_baton(path: str) -> bool:
    size = os.path.getsize(path)
    return size == 0 or (size < 300 and _OWNER.fullmatch(read(path) + "\n") is not None)


def remove_locks(context: Context) -> list[str]:
    """Remove stale locks of compilers below this replica's own caches; return their paths.

    $CACHE_DIRECTORY names those of the unit. Nobody else uses them, and our engine doesn't run.
    """
    removed = []
    names = context.life["leftovers"]["locks"]["names"]
    for top in filter(None, context.environment.get("CACHE_DIRECTORY", "").split(":")):
        for directory, _folders, files in os.walk(top):
            for name in files:
                if not any(fnmatch.fnmatchcase(name, pattern) for pattern in names):
                    continue
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    if not os.path.islink(path) and _is_baton(path):
                        os.unlink(path)
                        removed.append(path)
    if removed:
        context.journal.say(f"removed stale locks: {', '.join(removed)}")
    return removed
