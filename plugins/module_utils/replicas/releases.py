# SPDX-License-Identifier: GPL-3.0-or-later

"""Releases that a host keeps: one directory each, two symlinks that are switched by rename.

``<directory>/<deployment>/<id>/`` has ``release.json`` and ``files/<absolute path>``. A release is
made beside its place and renamed to it, so that one that is there is whole. Values of secrets are
in none of them: their files are not rendered.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

from ..durable import sync_directory, write_durably
from ..finding import ApiaryError, error
from ..host_plan import parse_host_plan

SCHEMA = "apiary.release/v1"
UNFINISHED = ".new-"
_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True)
class Shelf:
    """What a host keeps of one deployment: releases by id, oldest first, and the two links."""

    releases: dict[str, dict[str, Any]]
    current: str | None
    previous: str | None
    unfinished: tuple[str, ...]


@dataclass(frozen=True)
class ShelfChange:
    """What has to happen to a shelf; ``create`` says whether ``current`` must be written first.

    ``number`` is its place in the order then.
    """

    create: bool
    current: str
    previous: str | None
    removed: tuple[str, ...]
    unfinished: tuple[str, ...]
    number: int


def content_digest(files: list[dict[str, Any]]) -> str:
    """Return the sha256 of all that is rendered; the order of the files does not count."""
    ordered = sorted(files, key=lambda item: str(item["path"]))
    text = json.dumps(ordered, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return _sha256(text)


def read_shelf(directory: str) -> Shelf:
    """Return what is kept below a deployment's directory; what is no release is left out."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        names = []
    read = {}
    for name in names:
        if not _ID.fullmatch(name):
            continue
        try:
            with open(os.path.join(directory, name, "release.json"), encoding="utf-8") as stream:
                read[name] = dict(json.load(stream))
        except (OSError, ValueError, TypeError):
            continue
    # By number, for a clock may have been set back; those of earlier versions have none.
    releases = dict(sorted(read.items(), key=lambda item: (_number(item[1]), item[0])))
    return Shelf(
        releases,
        _link(directory, "current", releases),
        _link(directory, "previous", releases),
        tuple(name for name in names if name.startswith(UNFINISHED)),
    )


def plan_record(shelf: Shelf, digest: str, now: str, keep: int) -> ShelfChange:
    """Decide what recording some content means; content that is kept already is not kept twice.

    ``now`` is UTC as in 20260722T101500Z, ``keep`` how many releases stay besides the linked ones.
    """
    known = [name for name, release in shelf.releases.items() if release.get("sha256") == digest]
    if shelf.current in known:
        return _change(shelf, str(shelf.current), False, keep)
    return _change(shelf, known[-1] if known else f"{now}-{digest[:8]}", not known, keep)


def plan_switch(shelf: Shelf, name: str, keep: int) -> ShelfChange:
    """Decide what it means to make a kept release the current one."""
    return _change(shelf, resolve(shelf, name), False, keep)


def resolve(shelf: Shelf, name: str) -> str:
    """Return the id of a release: by its id, by the hash in it, or current, or previous.

    Raises ApiaryError: RELEASE-NONE, RELEASE-UNKNOWN.
    """
    if name in ("current", "previous"):
        linked = shelf.current if name == "current" else shelf.previous
        if linked is None:
            raise error(
                "RELEASE-NONE", name, f"the host retains no such release; it has {_listed(shelf)}"
            )
        return linked
    found = [one for one in shelf.releases if name in (one, one.rpartition("-")[2])]
    if not found:
        raise error("RELEASE-UNKNOWN", name, f"is not retained; the host has {_listed(shelf)}")
    return found[-1]


def default_rollback(shelf: Shelf) -> str | None:
    """Return the release that a rollback goes to where none is named; None where it is there.

    A previous release that is newer than the current one was left by a rollback: doing the same
    once more must not go forward again. Raises ApiaryError: RELEASE-NONE.
    """
    back = resolve(shelf, "previous")
    order = list(shelf.releases)
    newer = shelf.current is None or order.index(back) > order.index(shelf.current)
    return None if newer else back


def describe(
    name: str,
    deployment: str,
    files: list[dict[str, Any]],
    units: dict[str, Any],
    by: str,
    number: int = 0,
) -> dict[str, Any]:
    """Return a release's document; what it serves is read from the plan among its files."""
    release = {
        "schema": SCHEMA,
        "id": name,
        "deployment": deployment,
        "created_at": name.partition("-")[0],
        "number": number,
        "by": by,
        "sha256": content_digest(files),
        "units": units,
        "files": [
            {
                **{key: value for key, value in item.items() if key != "content"},
                "sha256": _sha256(item["content"]),
            }
            for item in files
        ],
        "plan_sha256": None,
        "engine": None,
        "image": None,
        "model": None,
        "replicas": [],
    }
    for item in files:
        if item["path"] != f"/etc/apiary/{deployment}/plan.json":
            continue
        try:
            plan = parse_host_plan(item["content"])
        except ValueError as failure:
            raise error("RELEASE-PLAN", item["path"], f"is no plan: {failure}") from failure
        release |= {
            "engine": plan.engine,
            "image": plan.image,
            "model": plan.model,
            "replicas": [{"unit": one.unit, "port": one.port} for one in plan.replicas],
            "plan_sha256": _sha256(item["content"]),
        }
    return release


def restore(directory: str, shelf: Shelf, name: str) -> dict[str, Any]:
    """Return a release with the contents of its files, as the kind replicas takes them.

    Raises ApiaryError: RELEASE-NONE, RELEASE-UNKNOWN, RELEASE-DAMAGED.
    """
    found = resolve(shelf, name)
    release = shelf.releases[found]
    files = []
    for item in release["files"]:
        path = _inside(os.path.join(directory, found), item["path"])
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                content = stream.read()
        except OSError as failure:
            raise _damaged(path, failure.strerror or str(failure)) from failure
        if _sha256(content) != item["sha256"]:
            raise _damaged(path, "its text is not what was recorded")
        kept = {key: value for key, value in item.items() if key != "sha256"}
        files.append({**kept, "content": content})
    return {**release, "files": files}


def write_release(directory: str, release: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """Put a release beside its place, all of it, then rename it there."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=UNFINISHED, dir=directory)
    for item in files:
        path = _inside(temporary, item["path"])
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_durably(path, item["content"], int(str(item.get("mode", "0644")), 8))
    text = json.dumps(release, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_durably(os.path.join(temporary, "release.json"), text, 0o600)
    place = os.path.join(directory, release["id"])
    shutil.rmtree(place, ignore_errors=True)  # no release: read_shelf found no whole one there
    os.rename(temporary, place)
    sync_directory(directory)


def switch(directory: str, link: str, target: str | None) -> None:
    """Have a symlink lead to a release, by rename, so that nobody sees none; None removes it."""
    path = os.path.join(directory, link)
    if target is None:
        if os.path.lexists(path):
            os.unlink(path)
        return
    temporary = os.path.join(directory, f"{UNFINISHED}{link}")
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
    sync_directory(directory)


def clear(directory: str, names: tuple[str, ...]) -> None:
    """Remove releases that are kept no longer, and what an interrupted run left."""
    for name in names:
        path = os.path.join(directory, name)
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        else:
            shutil.rmtree(path, ignore_errors=True)  # what stays, the next run removes


def listing(current: str | None, previous: str | None, names: list[str]) -> str:
    """Return a shelf as text, for --diff."""
    lines = [f"current: {current}", f"previous: {previous}", *(f"kept: {one}" for one in names)]
    return "".join(f"{line}\n" for line in lines)


def _change(shelf: Shelf, current: str, create: bool, keep: int) -> ShelfChange:
    previous = shelf.previous if current == shelf.current else shelf.current
    names = [*shelf.releases, *([current] if create else [])]
    kept = {*names[-keep:], current, previous}
    removed = tuple(name for name in names if name not in kept)
    number = max(map(_number, shelf.releases.values()), default=0) + 1
    return ShelfChange(create, current, previous, removed, shelf.unfinished, number)


def _number(release: dict[str, Any]) -> int:
    number = release.get("number")
    return number if isinstance(number, int) else 0


def _link(directory: str, name: str, releases: dict[str, dict[str, Any]]) -> str | None:
    try:
        target = os.readlink(os.path.join(directory, name))
    except OSError:
        return None
    return target if target in releases else None


def _listed(shelf: Shelf) -> str:
    return ", ".join(shelf.releases) or "none"


def _damaged(path: str, why: str) -> ApiaryError:
    return error("RELEASE-DAMAGED", path, why)


def _inside(directory: str, path: str) -> str:
    """Return the place of a file in a release; a path must be absolute and lead nowhere else."""
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise error("RELEASE-PATH", repr(path), "is no plain absolute path")
    return os.path.join(directory, "files", path.lstrip("/"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


LOCK_SCHEMA = "apiary.rollout-lock/v1"


def read_lock(path: str) -> dict[str, Any] | None:
    """Return the lock, or None where nobody holds it; one that can't be read is of nobody known.

    One that is ``torn`` a power cut left, of a run that may have drained anything.
    """
    unknown = {"owner": "unknown", "since": "unknown", "out": []}
    try:
        with open(path, encoding="utf-8") as stream:
            lock = json.load(stream)
    except FileNotFoundError:
        return None
    except OSError:
        return unknown
    except ValueError:
        lock = None
    return lock if isinstance(lock, dict) else {**unknown, "torn": True}


def wanted_lock(
    held: dict[str, Any] | None, owner: str, out: list[str], now: str, stopped: bool = False
) -> dict[str, Any]:
    """Return the lock as it is to be; who holds it already goes on from the same time."""
    same = held is not None and held.get("owner") == owner
    since = held["since"] if held is not None and same else now
    lock = {"schema": LOCK_SCHEMA, "owner": owner, "since": since, "out": sorted(out)}
    return {**lock, "stopped": True} if stopped else lock


def take_lock(path: str, told: dict[str, Any], fresh: bool) -> bool:
    """Write the lock; ``fresh`` says nobody may hold it. Return whether it is ours now."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    try:
        write_durably(path, text, 0o600, exclusive=fresh)
    except FileExistsError:
        return False
    return True
