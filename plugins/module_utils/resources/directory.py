# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory with this mode and owner; with state absent it is to be gone with all below it.

With ``purge``, a pattern of names, its files that match it and are not among ``keep`` are removed;
state absent then removes those alone.
"""

from __future__ import annotations

import glob
import grp
import os
import pwd
import shutil
from typing import Any

from ..finding import error
from .file import properties
from .types import Difference, Host, Resource, diff_entry

NAMED_BY = "path"
OPTIONS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "mode": {"type": "str"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
    "purge": {"type": "str"},
    "keep": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
# As many as the kernel follows.
MOST_LINKS = 40


def inspect(host: Host, resource: Resource) -> Difference:
    path = resource["path"]
    if resource["state"] == "present":
        path = _followed(path)
    exists = os.path.isdir(path)
    strays = _strays(resource) if exists else []
    if resource["state"] == "absent":
        gone = [path] if exists and resource["purge"] is None else strays
        return Difference(steps=tuple(f"remove {each}" for each in gone), actual=gone)
    if not exists:
        return Difference((diff_entry(path, "", f"mode {resource['mode'] or '0755'}\n"),))
    rows = properties(host, path, resource)
    sides = ("".join(f"{row[0]} {row[place]}\n" for row in rows) for place in (1, 2))
    steps = tuple(f"remove {each}" for each in strays)
    return Difference((diff_entry(path, *sides),) if rows else (), steps, actual=strays)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    for each in difference.actual or ():
        if os.path.isdir(each) and not os.path.islink(each):
            shutil.rmtree(each)
        else:
            os.unlink(each)
    if resource["state"] == "absent":
        return
    path = _followed(resource["path"])
    owner = pwd.getpwnam(resource["owner"]).pw_uid if resource["owner"] else -1
    group = grp.getgrnam(resource["group"]).gr_gid if resource["group"] else -1
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as failure:
        raise error("HOST-FILE", path, f"is no directory of its own: {failure.strerror}") from None
    try:
        if resource["mode"] is not None:
            os.fchmod(handle, int(resource["mode"], 8))
        os.fchown(handle, owner, group)
    finally:
        os.close(handle)


def _followed(path: str) -> str:
    """Return where a directory is, by links that root alone can have put there, as to a disk."""
    for _link in range(MOST_LINKS):
        path = os.path.normpath(path)
        if not os.path.islink(path):
            return path
        above = os.path.dirname(path)
        status = os.stat(above)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            break
        path = os.path.join(above, os.readlink(path))
    raise error("HOST-FILE", path, "is a link to itself, or one that others can put there")


def _strays(resource: Resource) -> list[str]:
    """Return the files that match ``purge`` and are not to be kept."""
    if resource["purge"] is None:
        return []
    paths = glob.glob(os.path.join(glob.escape(resource["path"]), resource["purge"]))
    named = [each for each in paths if os.path.basename(each) not in resource["keep"]]
    return sorted(each for each in named if os.path.isfile(each))
