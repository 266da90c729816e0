# SPDX-License-Identifier: GPL-3.0-or-later

"""A mount point of weights: closed, mounted by its unit, with its readahead.

It is closed before anything is mounted there (mode 0000, and immutable where its file system has
that), so that without its mount it never looks like an empty model store. Entries of /etc/fstab and
automounts for the same path are taken out; originals are kept.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from ..finding import ApiaryError, Finding, error
from ..weights import readahead
from ..weights.readahead import device_of, unescape
from .file import keep_original, read, write
from .types import Difference, Host, Resource

NAMED_BY = "path"
OPTIONS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "unit": {"type": "str", "required": True},
    "action": {"type": "str", "choices": ["keep", "mount", "remount", "unmount"], "required": True},
    "reasons": {"type": "list", "elements": "str", "default": []},
    "readahead_kib": {"type": "int"},
    "automounts": {"type": "list", "elements": "str", "default": []},
    "fstab": {"type": "bool", "default": False},
    "timeout_seconds": {"type": "int", "default": 120},
}
FSTAB = "/etc/fstab"
POLL_SECONDS = 0.2


def inspect(host: Host, resource: Resource) -> Difference:
    path, unit = resource["path"], host.properties(resource["unit"])
    actual = Found(mounts_at(path), unit, readahead_of(path), wanted_by(resource["unit"], UNITS))
    steps = lines(resource, actual)
    if unit.get("NeedDaemonReload") == "yes":
        host.reload_due = True
        steps.append("reload systemd")
    if host.is_due(_due(resource)):
        steps.append(f"start what needs {path}")
    return Difference(steps=tuple(steps))


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    path, unit, action = resource["path"], resource["unit"], resource["action"]
    _release(host, resource)
    host.reload()
    if difference.steps == ("reload systemd",):
        return
    if action == "unmount":
        _unmount(host, path, unit)
        _forget(unit)
        reopen(path)
        host.reload_due = True
        return
    stopped = host.marked(_due(resource))
    if action == "remount":
        stopped = sorted({*stopped, *_needing(host, unit)})
        host.mark(_due(resource), *stopped)
    try:
        if action == "remount":
            _unmount(host, path, unit)
        # First: a server that does not answer now may do so later.
        host.systemctl("enable", "--", unit)
        if action != "keep":
            if close(path):
                message = "held files of its own, which the mount hides"
                host.warn(Finding("WEIGHTS-HIDDEN", path, message))
            _mount(host, path, unit, resource["timeout_seconds"])
    finally:
        # Also where nothing could be mounted: they wait for it, and each start tries it again.
        if stopped:
            host.systemctl("start", "--no-block", "--", *stopped)
        host.settle(_due(resource))
    if resource["readahead_kib"] is not None:
        _read_ahead(path, resource["readahead_kib"])
    host.reload_due = True


def _due(resource: Resource) -> str:
    return f"start of what needs {resource['path']}"


def _replace_text(host: Host, path: str, text: str | None) -> None:
    """Rewrite or remove a file, and keep what it held before."""
    before = read(path)
    if before is None or before == text:
        return
    keep_original(path, before)
    if text is None:
        os.unlink(path)
    else:
        write(host.module, path, text, f"{os.stat(path).st_mode & 0o7777:04o}")


def _release(host: Host, resource: Resource) -> None:
    """Take the mount point out of /etc/fstab, and automounts away."""
    for unit in resource["automounts"]:
        host.systemctl("stop", "--", unit)
        _forget(unit)
        _replace_text(host, os.path.join(UNITS, unit), None)
        host.reload_due = True
    text = read(FSTAB) if resource["fstab"] else None
    if text is not None:
        _replace_text(host, FSTAB, without(text, resource["path"]))
        host.reload_due = True


def _forget(unit: str) -> None:
    """Remove the links that start a unit at boot; systemctl needs its file, which may be gone."""
    for link in wanted_by(unit, UNITS):
        os.unlink(link)


def _unmount(host: Host, path: str, unit: str) -> None:
    """Unmount all that lies at a mount point; refuse where it is in use."""
    host.systemctl("stop", "--", unit)
    while mounts_at(path):
        code, _out, err = host.run(["umount", path])
        if code:
            message = f"cannot be unmounted: {err.strip()}"
            raise error("WEIGHTS-BUSY", path, message)


def _mount(host: Host, path: str, unit: str, timeout: int) -> None:
    """Mount by the unit, and wait until it is; the unit itself goes on trying."""
    host.systemctl("reset-failed", "--", unit)
    host.systemctl("start", "--no-block", "--", unit)
    deadline = time.monotonic() + timeout
    while True:
        state = host.properties(unit).get("ActiveState")
        if state == "active" and mounts_at(path):
            return
        if state == "failed" or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    journal = ["journalctl", "--no-pager", "--output=cat", "--lines=5", f"--unit={unit}"]
    output = " / ".join(line.strip() for line in host.run(journal)[1].splitlines())
    problem = "cannot be mounted" if state == "failed" else f"is not mounted after {timeout} s"
    raise error("WEIGHTS-MOUNT", path, f"{problem}: {output}")


def _needing(host: Host, unit: str) -> list[str]:
    """Return the units that run and stop with a mount, which nobody starts again."""
    properties = "--property=RequiredBy,ConsistsOf"
    _code, out = host.systemctl("show", properties, "--value", "--", unit)
    running = ("active", "activating", "reloading")
    names = sorted(set(out.split()))
    return [each for each in names if host.properties(each).get("ActiveState") in running]


def _read_ahead(path: str, kib: int) -> None:
    try:
        readahead.set_readahead(str(readahead.device_of(path)), kib)
    except OSError as failure:
        raise _no_readahead(path, kib, failure) from None


def _no_readahead(path: str, kib: int, failure: OSError) -> ApiaryError:
    message = f"cannot be set to {kib} KiB: {failure.strerror}"
    return error("WEIGHTS-READAHEAD", path, message)


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
