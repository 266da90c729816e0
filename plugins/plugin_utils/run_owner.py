# SPDX-License-Identifier: GPL-3.0-or-later

"""Who a run is, for the locks that it leaves on hosts and on the controller; for the adapters."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from ..module_utils.durable import write_durably
from .fleet.saved import FLEET

# A run shows so often that it is alive; one that has not for so long is dead, wherever it was. What
# says of an ended one that it has is there until nobody remembers its locks.
SHOWN_SECONDS, DEAD_SECONDS, FORGOTTEN_SECONDS = 30, 600, 30 * 86400
# It makes the file itself once it watches the process, and goes on where a file system fails.
_KEEPER = """
import contextlib, os, select, sys
path, ended = sys.argv[2], select.poll()
def touch():
    with contextlib.suppress(OSError):
        open(path, "a").close()
        os.utime(path)
ended.register(os.pidfd_open(int(sys.argv[1])), select.POLLIN)
touch()
if os.fork():
    os._exit(0)
while not ended.poll(float(sys.argv[3]) * 1000):
    touch()
os.utime(path, (0, 0))
"""


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
    keep_sign(sign_of(Path(os.path.realpath(artifacts), FLEET), owner()), os.getppid())


def keep_sign(sign: Path, process: int) -> None:
    """Have a file touched while a process lives, unless it is; it is untouched when that ends."""
    with contextlib.suppress(OSError):
        sign.parent.mkdir(parents=True, exist_ok=True)
        now = _now(sign.parent)
        for each in sign.parent.iterdir():
            if now - each.stat().st_ctime > FORGOTTEN_SECONDS:
                each.unlink()
    silent = silent_seconds(sign)
    if silent is not None and silent < 2 * SHOWN_SECONDS:
        return
    with contextlib.suppress(OSError):
        subprocess.run(
            [sys.executable, "-c", _KEEPER, str(process), str(sign), str(SHOWN_SECONDS)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def sign_of(place: Path, holder: str) -> Path:
    """Return the file that is touched while somebody lives."""
    return place / "alive" / hashlib.sha256(holder.encode()).hexdigest()[:16]


def silent_seconds(sign: Path) -> float | None:
    """Return for how long a sign was not touched; None where there is none, which says nothing."""
    with contextlib.suppress(OSError), sign.open(encoding="utf-8") as stream:
        return untouched_seconds(stream)
    return None


def untouched_seconds(stream: TextIO) -> float:
    """Return for how long nobody has touched a file, by the clock of its own file system."""
    touched = os.fstat(stream.fileno()).st_mtime
    with contextlib.suppress(OSError):
        return _now(Path(stream.name).parent) - touched
    return 0.0


def _now(place: Path) -> float:
    with tempfile.TemporaryFile(dir=place) as file:
        return os.fstat(file.fileno()).st_mtime


def is_dead(holder: str, artifacts: str) -> bool:
    """Return whether the owner of a lock was a run that has ended.

    One on this very controller shows it by its process, unless that is in a container of the same
    name; one elsewhere shows it in the artifacts.
    """
    where = owner().rpartition(" ")[0] + " "
    process = holder[len(where) :]
    here = holder.startswith(where) and process.isdigit()
    if here and (os.path.exists(f"/proc/{process}") or not os.path.exists("/proc/self")):
        return False
    silent = silent_seconds(sign_of(Path(os.path.realpath(artifacts), FLEET), holder))
    return here if silent is None else silent > DEAD_SECONDS
