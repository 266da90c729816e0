# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount points of a host: what is mounted, what closes them, who else holds them."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import struct
from dataclasses import dataclass, field
from typing import Any

from .readahead import device_of, unescape

UNITS = "/etc/systemd/system"
# <linux/fs.h>: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_IMMUTABLE_FL, on 64-bit machines.
GET_FLAGS, SET_FLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10


@dataclass(frozen=True)
class Found:
    """What a host has at one mount point, before a step is taken."""

    mounted: int
    unit: dict[str, str] = field(default_factory=dict)
    readahead_kib: int | None = None
    links: tuple[str, ...] = ()


def mounts_at(path: str, root: str = "/") -> int:
    """Return how many mounts lie on each other at a path."""
    with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8") as stream:
        rows = [line.split(" ") for line in stream]
    return sum(len(words) > 4 and unescape(words[4]) == path for words in rows)


def readahead_of(path: str, root: str = "/") -> int | None:
    """Return the readahead of what is mounted at a path, in KiB."""
    try:
        device = device_of(path, root)
        with open(
            os.path.join(root, f"sys/class/bdi/{device}/read_ahead_kb"), encoding="ascii"
        ) as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return None


def wanted_by(unit: str, units: str) -> tuple[str, ...]:
    """Return the links that start a unit at boot, also where its file is gone."""
    folders = glob.glob(os.path.join(units, "*.wants")) + glob.glob(
        os.path.join(units, "*.requires")
    )
    paths = (os.path.join(folder, unit) for folder in folders)
    return tuple(sorted(path for path in paths if os.path.islink(path)))


def lines(step: dict[str, Any], found: Found) -> list[str]:
    """Return what a step has to do, a line each; none where all is as it should be."""
    told = [f"take {step['path']} out of /etc/fstab"] if step["fstab"] else []
    told += [f"remove {name}" for name in step["automounts"]]
    why = f" ({'; '.join(step['reasons'])})" if step["reasons"] else ""
    if step["action"] == "unmount":
        told += [f"unmount {step['path']}"] if found.mounted else []
        return told + ([f"disable {step['unit']}"] if found.links else [])
    if step["action"] != "keep":
        told.append(f"{step['action']} {step['path']}{why}")
    if found.unit.get("UnitFileState") != "enabled":
        told.append(f"enable {step['unit']}")
    wanted = step["readahead_kib"]
    if wanted is not None and (step["action"] != "keep" or found.readahead_kib != wanted):
        told.append(f"read {wanted} KiB ahead on {step['path']}")
    return told


def close(path: str) -> bool:
    """Close a directory on which nothing is mounted; return whether it held anything.

    Nothing is written there by accident then, and it never looks like an empty model store.
    """
    os.makedirs(path, mode=0o755, exist_ok=True)
    filled = bool(os.listdir(path))
    set_immutable(path, False)
    os.chmod(path, 0)
    set_immutable(path, True)
    return filled


def reopen(path: str) -> None:
    """Undo `close`; a directory that is empty goes."""
    if not os.path.isdir(path):
        return
    set_immutable(path, False)
    os.chmod(path, 0o755)  # noqa: S103 - an ordinary directory again
    if not os.listdir(path):
        os.rmdir(path)


def set_immutable(path: str, wanted: bool) -> None:
    """Set or clear a directory's immutable flag, on file systems that have it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = struct.unpack("l", fcntl.ioctl(handle, GET_FLAGS, struct.pack("l", 0)))[0]
        changed = flags | IMMUTABLE if wanted else flags & ~IMMUTABLE
        if changed != flags:
            fcntl.ioctl(handle, SET_FLAGS, struct.pack("l", changed))
    except OSError as failure:
        # Not every file system has it, and not every container may; the mode remains.
        if failure.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS):
            raise
    finally:
        os.close(handle)


def without(fstab: str, path: str) -> str:
    """Return the text of /etc/fstab without the entries of a mount point."""

    def holds(line: str) -> bool:
        words = line.split()
        if len(words) < 2 or words[0].startswith("#"):
            return False
        return (unescape(words[1]).rstrip("/") or "/") == path

    return "".join(line for line in fstab.splitlines(keepends=True) if not holds(line))
