# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mount point of weights: closed, mounted by its unit, with its readahead.

It is closed before anything is mounted there (mode 0000, and immutable where its file system has
that), so that without its mount it never looks like an empty model store. Entries of /etc/fstab and
automounts for the same path are taken out; originals are kept.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..finding import ApiaryError, Finding, error
from ..weights import mount_points, readahead
from .file import keep_original, read, write
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "unit": {"type": "str", "required": True},
    "action": {
        "type": "str",
        "choices": ["keep", "mount", "remount", "unmount"],
        "required": True,
    },
    "reasons": {"type": "list", "elements": "str", "default": []},
    "readahead_kib": {"type": "int"},
    "automounts": {"type": "list", "elements": "str", "default": []},
    "fstab": {"type": "bool", "default": False},
    "timeout_seconds": {"type": "int", "default": 120},
}
FSTAB = "/etc/fstab"
POLL_SECONDS = 0.2


def name(resource: Resource) -> str:
    return str(resource["path"])


def inspect(host: Host, resource: Resource) -> Difference:
    path, unit = resource["path"], host.properties(resource["unit"])
    actual = mount_points.Found(
        mount_points.mounts_at(path),
        unit,
        mount_points.readahead_of(path),
        mount_points.wanted_by(resource["unit"], mount_points.UNITS),
    )
    steps = mount_points.lines(resource, actual)
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
        mount_points.reopen(path)
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
            if mount_points.close(path):
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
        _replace_text(host, os.path.join(mount_points.UNITS, unit), None)
        host.reload_due = True
    text = read(FSTAB) if resource["fstab"] else None
    if text is not None:
        _replace_text(host, FSTAB, mount_points.without(text, resource["path"]))
        host.reload_due = True


def _forget(unit: str) -> None:
    """Remove the links that start a unit at boot; systemctl needs its file, which may be gone."""
    for link in mount_points.wanted_by(unit, mount_points.UNITS):
        os.unlink(link)


def _unmount(host: Host, path: str, unit: str) -> None:
    """Unmount all that lies at a mount point; refuse where it is in use."""
    host.systemctl("stop", "--", unit)
    while mount_points.mounts_at(path):
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
        if state == "active" and mount_points.mounts_at(path):
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
