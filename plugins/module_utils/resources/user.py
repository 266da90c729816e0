# SPDX-License-Identifier: GPL-3.0-or-later

"""A user, created where it is missing; groups are added to those it has.

With ``comment`` it is Apiary's alone, with a group of its own: another's user of that name is
refused, and ``state: absent`` removes the user whose comment it is.
"""

from __future__ import annotations

import grp
import pwd
from typing import Any

from ..finding import error
from .types import Difference, Host, Resource

NAMED_BY = "name"
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "home": {"type": "path"},
    "shell": {"type": "path"},
    "system": {"type": "bool", "default": False},
    "groups": {"type": "list", "elements": "str", "default": []},
    "comment": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def inspect(host: Host, resource: Resource) -> Difference:
    user, groups, present = resource["name"], resource["groups"], resource["state"] == "present"
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if not present:
            return Difference()
        return Difference(steps=(f"create the user {user}",), actual=_create(resource))
    own = resource["comment"] in (None, entry.pw_gecos)
    if not present:
        gone = (f"remove the user {user}",) if own else ()
        return Difference(steps=gone, actual=["userdel", user])
    if not own:
        raise error("HOST-USER", user, "is a user that others made, expected one of Apiary's alone")
    steps, words = [], []
    for key, actual in (("home", entry.pw_dir), ("shell", entry.pw_shell)):
        if resource[key] is not None and resource[key] != actual:
            steps.append(f"set {resource[key]} as {key} of {user}")
            words += [f"--{key}", resource[key]]
    missing = [group for group in groups if not _is_member(user, entry.pw_gid, group)]
    steps += [f"put {user} into the group {group}" for group in missing]
    words += ["--append", "--groups", ",".join(missing)] if missing else []
    return Difference(steps=tuple(steps), actual=["usermod", *words, user])


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    code, out, err = host.run(difference.actual)
    if code:
        message = f"{difference.actual[0]} ended with {code}: {(err or out).strip()}"
        raise error("HOST-USER", resource["name"], message)


def _create(resource: Resource) -> list[str]:
    words = ["useradd", "--no-create-home", *(["--system"] if resource["system"] else [])]
    for key in ("home", "shell", "comment"):
        words += [f"--{key}", resource[key]] if resource[key] is not None else []
    if resource["comment"] is not None:
        # One that is there a user left behind who was removed.
        words += ["--gid", resource["name"]] if _group(resource["name"]) else ["--user-group"]
    groups = resource["groups"]
    return [*words, *(["--groups", ",".join(groups)] if groups else []), resource["name"]]


def _group(group: str) -> grp.struct_group | None:
    try:
        return grp.getgrnam(group)
    except KeyError:
        return None


def _is_member(user: str, own: int, group: str) -> bool:
    entry = _group(group)
    return entry is not None and (user in entry.gr_mem or entry.gr_gid == own)
