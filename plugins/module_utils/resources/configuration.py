# SPDX-License-Identifier: GPL-3.0-or-later

"""A service's configuration: its files, checked aside, written together, and taken by the service.

``check`` evaluates the new files aside before any is written. A running service is reloaded, or
restarted where it ran somebody else's configuration or a file of ``restarts`` changed; a reload
that it does not survive restores the former files. What the service took is recorded in /run, so
that a run cut off between writing and reloading is completed by the next one. With state absent
the service is disabled and stopped, its files go, and those that were there before come back.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import Any

from ..durable import write_durably
from ..finding import error
from . import file
from .file import FileChange, read_with_mode, removal
from .service_uptake import Service
from .types import Difference, Host, Resource

STAMPS = "/run/apiary"
MARK = "Managed by Apiary"
_FILE = {
    "path": {"type": "path", "required": True},
    "mode": {"type": "str", "default": "0644"},
    "content": {"type": "str"},
    # Names of the module's secrets that stand in the content as @secret:NAME@.
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
    # Not shown by a diff, though it has no secret: digests of keys.
    "hidden": {"type": "bool", "default": False},
}
NAMED_BY = "service"
OPTIONS: dict[str, Any] = {
    "service": {"type": "str", "required": True},
    "main": {"type": "path", "required": True},
    "check": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "list", "elements": "dict", "default": [], "options": _FILE},
    # Patterns: files that match one and are not in the list are to be gone.
    "owned": {"type": "list", "elements": "str", "default": []},
    "socket": {"type": "path"},
    "confirm_url": {"type": "str"},
    # A directory with authority.pem and monitoring.password, where the API wants them.
    "confirm_access": {"type": "path"},
    "reload": {"type": "bool", "default": True},
    "restarts": {"type": "list", "elements": "path", "default": []},
    "area": {"type": "str", "choices": ["ROUTER", "MONITORING"], "default": "ROUTER"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


@dataclass(frozen=True)
class Plan:
    """What inspect read for apply: the files, the former main file, and what systemd has to do."""

    changes: list[FileChange]
    theirs: FileChange | None
    verbs: list[str]
    stamp: str


def inspect(host: Host, resource: Resource) -> Difference:
    if resource["state"] == "absent":
        return _inspect_absent(host, resource)
    changes = compare(host, resource)
    service = Service(host, resource)
    main = next((item for item in changes if item.path == resource["main"]), None)
    is_ours = main is not None and MARK in (main.before or "")
    restarts = frozenset(resource["restarts"]) if resource["reload"] else None
    taken = file.read(_stamp(resource)) or ""
    properties = host.properties(service.name)
    verbs = []
    if properties.get("UnitFileState") != "enabled":
        verbs.append("enable")
    verb = uptake(changes, resource["main"], properties, taken, is_ours, restarts)
    verbs += [verb] if verb else []
    unread = properties.get("NeedDaemonReload") == "yes"
    # A run that was cut off may have left any unit of the service unread.
    host.reload_due = host.reload_due or unread or taken == "taking"
    written = any(item.changed and item.after is not None for item in changes)
    check = resource["check"]
    # Before its package is installed there is no program to ask.
    if check and (written or verb) and host.module.get_bin_path(check[0]):
        output = evaluate_aside(host, changes, check, resource["main"])
        if output:
            message = f"the new configuration is refused; nothing was changed\n{output}"
            raise service.refusal("config", message)
    stamp = fingerprint(changes, resource["main"], restarts)
    plan = Plan(changes, None if is_ours else main, verbs, stamp)
    return _difference(host, resource, plan, ["reload systemd"] * unread)


def _difference(host: Host, resource: Resource, plan: Plan, before: list[str]) -> Difference:
    for item in plan.changes:
        if item.changed:
            host.note(item.path, item.after)
    diff = tuple(item.diff() for item in plan.changes if item.changed)
    words = [*before, *(f"{verb} {resource['service']}" for verb in plan.verbs)]
    return Difference(diff, tuple(words), actual=plan)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    service, plan = Service(host, resource), difference.actual
    if resource["state"] == "absent":
        _apply_absent(host, resource, service, plan)
        return
    _record(resource, "taking")
    write(host, plan.changes, plan.theirs)
    host.reload()
    for verb in plan.verbs:
        if verb != "reload":
            service.must(verb)
        elif not service.reload():
            _restore(host, resource, service, plan)
    if plan.verbs and not service.confirmed():
        if "reload" in plan.verbs:
            _restore(host, resource, service, plan)
        message = f"runs and does not confirm its configuration\n{service.journal()}"
        raise service.refusal("service", message)
    _record(resource, plan.stamp)


def _restore(host: Host, resource: Resource, service: Service, plan: Plan) -> None:
    """Bring the former files back and refuse the resource."""
    journal = service.journal()
    former = [
        replace(
            item,
            before=item.after,
            mode_before=item.mode_after,
            after=item.before,
            mode_after=item.mode_before,
        )
        for item in plan.changes
    ]
    write(host, former, None)
    host.reload()
    service.reload()
    _record(resource, "")
    message = f"does not take the new configuration; the former one is back\n{journal}"
    raise service.refusal("reload", message)


def compare(host: Host, resource: Resource) -> list[FileChange]:
    """Return each file as it is and as it is to be, then the owned files that are to be gone."""
    listed = [_compared(host, item) for item in resource["files"]]
    paths = {item.path for item in listed}
    strays = sorted(path for pattern in resource["owned"] for path in glob.glob(pattern))
    gone = [path for path in strays if path not in paths and os.path.isfile(path)]
    return listed + [removal(path) for path in gone]


def _compared(host: Host, item: dict[str, Any]) -> FileChange:
    path, after = item["path"], item["content"]
    before, mode = read_with_mode(path)
    for secret in item["secrets"]:
        if not host.secrets.get(secret):
            message = f"its secret {secret} was not passed"
            raise error("HOST-RESOURCES", path, message)
        after = (after or "").replace(f"@secret:{secret}@", str(host.secrets[secret]))
    secret = item["hidden"] or bool(item["secrets"])
    mode_after = None if after is None else item["mode"]
    return FileChange(path, before, after, mode, mode_after, secret=secret)


def write(host: Host, changes: list[FileChange], theirs: FileChange | None) -> None:
    """Write what differs; what ``theirs`` held before is kept, and nothing of ours."""
    for item in changes:
        if not item.changed:
            continue
        host.note(item.path, item.after)
        try:
            if item is theirs and item.before is not None:
                file.keep_original(item.path, item.before)
            if item.after is None or item.mode_after is None:
                os.unlink(item.path)
                continue
            os.makedirs(os.path.dirname(item.path), mode=0o755, exist_ok=True)
            file.write(host.module, item.path, item.after, item.mode_after)
        except OSError as failure:
            subject = str(failure.filename or item.path)
            raise error("HOST-FILE", subject, str(failure.strerror)) from None


def evaluate_aside(
    host: Host, changes: list[FileChange], check: list[str], main: str
) -> str | None:
    """Return what the service's own program refuses the new files with, None where it does not.

    Every new file is written below a directory that only root reads, and is named there by the
    others; a file that is not among them is the one in place.
    """
    aside = tempfile.mkdtemp(prefix="apiary-check-")
    try:
        paths = sorted((item.path for item in changes if item.after is not None), key=len)
        for item in changes:
            if item.after is None:
                continue
            text = item.after
            for path in reversed(paths):  # the longest first, for one may begin another
                text = text.replace(path, aside + path)
            os.makedirs(os.path.dirname(aside + item.path), mode=0o700, exist_ok=True)
            handle = os.open(aside + item.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
        code, out, err = host.run([*check, aside + main])
        if code == 0:
            return None
        lines = [line for line in (out + err).replace(aside, "").splitlines() if line.strip()]
        return "\n".join(lines[:12]) or f"exit status {code}"
    finally:
        shutil.rmtree(aside)


def read_by(changes: list[FileChange], main: str) -> list[FileChange]:
    """Return the files that the running service reads: ``main``, and those that it names.

    A file below ``main``'s directory may be named from there on.
    """
    text = next((item.after or item.before or "" for item in changes if item.path == main), "")
    below = os.path.dirname(main) + "/"
    return [
        item
        for item in changes
        if item.path == main
        or item.path in text
        or (item.path.startswith(below) and item.path[len(below) :] in text)
    ]


def read_at_start(changes: list[FileChange], restarts: frozenset[str] | None) -> list[FileChange]:
    """Return the files that only a start reads: those named by ``restarts``, all if it is None."""
    return [item for item in changes if restarts is None or item.path in restarts]


def fingerprint(
    changes: list[FileChange], main: str, restarts: frozenset[str] | None = frozenset()
) -> str:
    """Return a digest of what the running service reads, and one of what its start read."""
    parts = [read_by(changes, main)]
    if restarts is None or restarts:
        parts.append(read_at_start(changes, restarts))
    return " ".join(_digest(part) for part in parts)


def _digest(changes: list[FileChange]) -> str:
    digest = hashlib.sha256()
    for item in changes:
        if item.after is not None:
            digest.update(f"{item.path}\0{item.after}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def uptake(
    changes: list[FileChange],
    main: str,
    properties: dict[str, str],
    taken: str,
    is_ours: bool,
    restarts: frozenset[str] | None = frozenset(),
) -> str | None:
    """Return how the service takes its files: start, restart, reload or None.

    ``taken`` is the fingerprint of the configuration that the running service took, empty where it
    started by itself, from the files, as at boot.
    """
    if properties.get("ActiveState") not in ("active", "reloading"):
        return "start"
    now = fingerprint(changes, main, restarts)
    stale = taken != "" and taken.split()[1:] != now.split()[1:]
    if stale or any(item.changed for item in read_at_start(changes, restarts)):
        return "restart"
    rewritten = any(item.changed for item in read_by(changes, main))
    if rewritten or taken not in ("", now):
        return "reload" if is_ours else "restart"
    return None


def _inspect_absent(host: Host, resource: Resource) -> Difference:
    gone = [{**item, "content": None, "secrets": []} for item in resource["files"]]
    changes = compare(host, {**resource, "files": gone})
    main = next((item for item in changes if item.path == resource["main"]), None)
    ours = main is not None and MARK in (main.before or "")
    # Somebody else's, or gone already: the rest of ours goes, the service is not touched. The main
    # file comes last: until it is gone, the next run knows that the rest is ours.
    changes = [item for item in changes if item is not main] + ([main] if main and ours else [])
    changes = [_with_original(item) for item in changes]
    properties = host.properties(resource["service"])
    is_running = properties.get("ActiveState") not in ("inactive", "failed", None)
    is_enabled = properties.get("UnitFileState") == "enabled"
    stop = ours and properties.get("LoadState") == "loaded" and (is_running or is_enabled)
    unread = properties.get("NeedDaemonReload") == "yes"
    host.reload_due = host.reload_due or unread
    # A run that was cut off may have left what goes at the end.
    forgets = bool(_left(resource)) and not stop and not any(item.changed for item in changes)
    before = ["reload systemd"] * unread + [
        f"forget the former files of {resource['service']}"
    ] * forgets
    plan = Plan(changes, None, ["disable --now"] if stop else [], "")
    return _difference(host, resource, plan, before)


def _left(resource: Resource) -> list[str]:
    """Return what an absent service leaves when its files are gone, in order."""
    files = [item["path"] for item in resource["files"]]
    paths = [_stamp(resource), *(file.ORIGINALS + path for path in files)]
    names = (os.path.dirname(path) for path in files)
    own = {name for name in names if os.path.basename(name) == "apiary" or name.endswith(".d")}
    empty = [name for name in sorted(own) if os.path.isdir(name) and not os.listdir(name)]
    return [path for path in paths if os.path.exists(path)] + empty


def _with_original(change: FileChange) -> FileChange:
    """Return a change that restores what was there before Apiary, where that was kept."""
    original = file.read(file.ORIGINALS + change.path)
    return change if original is None else replace(change, after=original, mode_after="0644")


def _apply_absent(host: Host, resource: Resource, service: Service, plan: Plan) -> None:
    if plan.verbs:
        service.must("disable", "--now")
    write(host, plan.changes, None)
    host.reload()
    for path in _left(resource):
        if os.path.isdir(path):
            os.rmdir(path)
        else:
            os.unlink(path)


def _stamp(resource: Resource) -> str:
    return os.path.join(STAMPS, f"{resource['service']}.config")


def _record(resource: Resource, text: str) -> None:
    """Record what the running service took; gone after a boot."""
    os.makedirs(STAMPS, mode=0o755, exist_ok=True)
    write_durably(_stamp(resource), text)
