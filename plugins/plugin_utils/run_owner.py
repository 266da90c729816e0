# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who a run is, for the locks that it leaves on hosts and on the controller; for the adapters."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from ..module_utils.durable import write_durably
from .fleet.saved import FLEET

# A run shows so often that it is alive; one that has not for so long is dead, wherever it was.
SHOWN_SECONDS, DEAD_SECONDS = 30, 600
_KEEPER = """
import os, select, sys
ended = select.poll()
ended.register(os.pidfd_open(int(sys.argv[1])), select.POLLIN)
while not ended.poll(float(sys.argv[3]) * 1000):
    os.utime(sys.argv[2])
os.unlink(sys.argv[2])
"""
_OWNER = re.compile(r"(?P<where>.+@.+), process (?P<process>\d+)")


def owner() -> str:
    """Return who this run is; actions run in children of the run's own process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getppid()}"


def controller(artifacts: str) -> str:
    """Return who keeps these artifacts, by the name that the first run beside them had.

    Containers of jobs have names of their own, and share the directory. A copy is another one.
    """
    place = Path(os.path.realpath(artifacts), FLEET)
    path, name = place / "controller", f"{socket.gethostname()}:{place.parent}"
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        here = f"inode {place.stat().st_ino} of {place}"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines[1:] == [here]:
            return lines[0]
        write_durably(str(path), f"{name}\n{here}\n")
    return name


def show_alive(artifacts: str) -> None:
    """Have a process touch a file while this run lives, for those who can't see its own process."""
    path = _sign(artifacts, owner())
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
        subprocess.Popen(
            [sys.executable, "-c", _KEEPER, str(os.getppid()), str(path), str(SHOWN_SECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _sign(artifacts: str, holder: str) -> Path:
    place = Path(os.path.realpath(artifacts), FLEET, "alive")
    return place / hashlib.sha256(holder.encode()).hexdigest()[:16]


def untouched_seconds(stream: TextIO) -> float:
    """Return for how long nobody has touched a file, by the clock of its own file system."""
    touched = os.fstat(stream.fileno()).st_mtime
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=Path(stream.name).parent) as now:
        return os.fstat(now.fileno()).st_mtime - touched
    return 0.0


def is_dead(holder: str, artifacts: str) -> bool:
    """Return whether the owner of a lock was a run that has ended.

    One on this very controller shows it by its process, one elsewhere in the artifacts.
    """
    theirs = _OWNER.fullmatch(holder)
    ours = _OWNER.fullmatch(owner())
    if theirs and ours and theirs["where"] == ours["where"]:
        return not os.path.exists(f"/proc/{theirs['process']}") and os.path.exists("/proc/self")
    with contextlib.suppress(OSError), _sign(artifacts, holder).open(encoding="utf-8") as sign:
        return untouched_seconds(sign) > DEAD_SECONDS
    return False
