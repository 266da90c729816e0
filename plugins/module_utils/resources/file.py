# SPDX-License-Identifier: GPL-3.0-or-later

"""A file with this text, mode and owner; with neither content nor secret it is to be gone.

``secret`` names a value of the module's ``secrets``: it is written, and no diff shows it.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..durable import sync_directory, write_durably
from ..finding import ApiaryError, error
from .types import UNIT_FOLDERS, Difference, Host, Resource, diff_entry

ORIGINALS = "/var/lib/apiary/originals"
LARGEST = 1 << 20
NAMED_BY = "path"
OPTIONS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "secret": {"type": "str", "no_log": False},
    "mode": {"type": "str", "default": "0644"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
    "keep_original": {"type": "bool", "default": False},
}


def read(path: str) -> str | None:
    """Return a file's text, or None where it is absent."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def read_with_mode(path: str) -> tuple[str | None, str | None]:
    """Return a file's text and octal mode, or (None, None) where it is absent."""
    text = read(path)
    return text, None if text is None else f"{os.stat(path).st_mode & 0o7777:04o}"


@dataclass(frozen=True)
class FileChange:
    """One file's content and mode before and after; None is absent.

    ``unit`` is the replica that must start anew for it. A ``secret`` is told of, never shown.
    """

    path: str
    before: str | None
    after: str | None
    mode_before: str | None
    mode_after: str | None
    unit: str | None = None
    secret: bool = False

    @property
    def changed(self) -> bool:
        return (self.before, self.mode_before) != (self.after, self.mode_after)

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff entry; a change of mode alone shows as a line of its own."""
        remains = self.before is not None and self.after is not None
        modes = ("", "")
        if remains and self.mode_before != self.mode_after:
            modes = (f"# mode {self.mode_before}\n", f"# mode {self.mode_after}\n")
        before, after = _shown(self.before, self.after, self.secret)
        return diff_entry(self.path, modes[0] + before, modes[1] + after)


def removal(path: str, unit: str | None = None, secret: bool = False) -> FileChange:
    """Return the change that takes a file away."""
    before, mode = read_with_mode(path)
    return FileChange(path, before, None, mode, None, unit, secret)


def inspect(host: Host, resource: Resource) -> Difference:
    path = resource["path"]
    after = _requested(host, resource)
    try:
        before = read(path)
    except OSError as failure:
        raise _unusable(path, failure) from None
    rows = [] if before is None or after is None else properties(host, path, resource)
    if before == after and not rows:
        if path.startswith(UNIT_FOLDERS) and host.is_due(_reload(path)):
            host.note(path, after)
            host.reload_marks.append(_reload(path))
            return Difference(steps=("reload systemd",))
        return Difference()
    host.note(path, after)
    texts = _shown(before, after, secret=resource["secret"] is not None)
    sides = (
        "".join(f"# {row[0]} {row[place + 1]}\n" for row in rows) + texts[place] for place in (0, 1)
    )
    return Difference((diff_entry(path, *sides),), actual=(before, after))


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    path = resource["path"]
    if difference.actual is None:
        host.reload()
        return
    before, after = difference.actual
    if path.startswith(UNIT_FOLDERS):
        host.mark(_reload(path))
        host.reload_marks.append(_reload(path))
    try:
        if resource["keep_original"] and before is not None:
            keep_original(path, before)
        if after is None:
            os.unlink(path)
            sync_directory(os.path.dirname(path))
        else:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            owner = (resource["owner"], resource["group"])
            write(host.module, path, after, resource["mode"], *owner, change=before != after)
    except OSError as failure:
        raise _unusable(path, failure) from None


def write(
    module: AnsibleModule,
    path: str,
    text: str,
    mode: str,
    owner: str | None = None,
    group: str | None = None,
    change: bool = True,
) -> None:
    """Replace a file in one step, so that nobody reads half of it; set its mode and owner."""

    def own(temporary: str) -> None:
        if os.path.exists(path):
            status = os.stat(path)
            os.chown(temporary, status.st_uid, status.st_gid)
            context = module.selinux_context(path)
        else:
            context = module.selinux_default_context(path)
        if owner or group:
            os.chown(temporary, _id(pwd.getpwnam, owner), _id(grp.getgrnam, group))
        module.set_context_if_different(temporary, context, False)

    if change:
        # Not Ansible's atomic_move, by which a new file can be read by everybody for a moment.
        write_durably(path, text, int(mode, 8), own)
        return
    os.chmod(path, int(mode, 8))
    if owner or group:
        os.chown(path, _id(pwd.getpwnam, owner), _id(grp.getgrnam, group))


def keep_original(path: str, text: str) -> None:
    """Keep what a file had before Apiary first changed it; later changes are our own."""
    kept = ORIGINALS + path
    if os.path.exists(kept):
        return
    os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)
    write_durably(kept, text, 0o600)


def properties(host: Host, path: str, resource: Resource) -> list[tuple[str, str, str]]:
    """Return mode, owner and group that differ, each with what it is and what it is to be.

    An owner that an earlier resource brings, and that is not there yet, differs.
    """
    coming = host.installing or any(one.startswith("user ") for one in host.changed)
    status = os.stat(path)
    compared = []
    if resource["mode"] is not None:
        mode = f"{int(resource['mode'], 8):04o}"
        compared.append(("mode", f"{status.st_mode & 0o7777:04o}", mode))
    for key, number, by_name, field in (
        ("owner", status.st_uid, pwd.getpwnam, pwd.getpwuid),
        ("group", status.st_gid, grp.getgrnam, grp.getgrgid),
    ):
        wanted = resource[key]
        if wanted is None or _id(by_name, wanted, coming) == number:
            continue
        try:
            actual = field(number)[0]
        except KeyError:
            actual = str(number)
        compared.append((key, actual, wanted))
    return [row for row in compared if row[1] != row[2]]


def _id(by_name: Any, wanted: str | None, coming: bool = False) -> int:
    if wanted is None:
        return -1
    try:
        return int(by_name(wanted)[2])
    except KeyError:
        if coming:
            return -1
        message = "is no user or group of the host"
        raise error("HOST-USER", wanted, message) from None


def _requested(host: Host, resource: Resource) -> str | None:
    path = resource["path"]
    if resource["secret"] is not None:
        if resource["secret"] not in host.secrets:
            message = f"its secret {resource['secret']} was not passed"
            raise error("HOST-RESOURCES", path, message)
        return str(host.secrets[resource["secret"]])
    text: str | None = resource["content"]
    if text is not None and len(text) > LARGEST:
        message = f"has {len(text)} characters, expected at most {LARGEST}"
        raise error("HOST-RESOURCES", path, message)
    return text


def _shown(before: str | None, after: str | None, secret: bool) -> tuple[str, str]:
    """Return both texts as a diff shows them."""
    if secret:
        other = before not in (None, after)
        new = "another secret\n" if other else "a secret\n"
        return "" if before is None else "a secret\n", "" if after is None else new
    from ..evidence.host import masked

    texts = []
    for text in (before or "", after or ""):
        large = len(text) > LARGEST
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        texts.append(f"sha256 {digest}\n" if large else masked(text))
    return texts[0], texts[1]


def _unusable(path: str, failure: OSError) -> ApiaryError:
    subject = str(failure.filename or path)
    return error("HOST-FILE", subject, str(failure.strerror))


def _reload(path: str) -> str:
    return f"reload of {path}"
