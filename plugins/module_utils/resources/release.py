# SPDX-License-Identifier: GPL-3.0-or-later

"""A release that the host retains, to go back to: the files of a deployment as they are applied.

With ``files`` the deployment's present content is retained, and is current; their texts are those
that resources earlier in the list write, or that the host has. With ``release`` a retained one is
made current again.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..finding import error
from ..replicas import releases
from .file import read
from .types import PATH, REQUIRED, TEXT, Difference, Host, Resource, diff_entry, entries

NAMED_BY = "deployment"
OPTIONS: dict[str, Any] = {
    "deployment": {"type": "str", "required": True},
    "files": entries({"path": PATH, "mode": REQUIRED, "unit": TEXT}),
    "units": {"type": "dict", "default": {}},
    "release": {"type": "str"},
    "by": {"type": "str", "default": ""},
    "keep": {"type": "int", "default": 5},
    "directory": {"type": "path", "default": "/var/lib/apiary/releases"},
}


def inspect(host: Host, resource: Resource) -> Difference:
    directory = _directory(resource)
    try:
        shelf = releases.read_shelf(directory)
        files = _files(host, resource)
        change = _change(shelf, resource, files)
    except OSError as failure:
        raise _unwritable(failure, directory) from None
    created = [change.current] if change.create else []
    names = [item for item in (*shelf.releases, *created) if item not in change.removed]
    before = releases.listing(shelf.current, shelf.previous, list(shelf.releases))
    before += "".join(f"unfinished: {item}\n" for item in change.unfinished)
    after = releases.listing(change.current, change.previous, names)
    if before == after:
        return Difference()
    return Difference((diff_entry(directory, before, after),), actual=(shelf, change, files))


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    directory = _directory(resource)
    shelf, change, files = difference.actual
    umask = os.umask(0o077)
    try:
        releases.clear(directory, change.unfinished)
        if change.create:
            deployment, units, by = resource["deployment"], resource["units"], resource["by"]
            number = change.number
            document = releases.describe(change.current, deployment, files, units, by, number)
            releases.write_release(directory, document, files)
        # Written, linked, then cleared: an interruption leaves releases that can be read.
        if change.previous != shelf.previous:
            releases.switch(directory, "previous", change.previous)
        if change.current != shelf.current:
            releases.switch(directory, "current", change.current)
        releases.clear(directory, change.removed)
    except OSError as failure:
        raise _unwritable(failure, directory) from None
    finally:
        os.umask(umask)


def _directory(resource: Resource) -> str:
    return os.path.join(resource["directory"], resource["deployment"])


def _files(host: Host, resource: Resource) -> list[dict[str, Any]]:
    """Return the files with their texts: those that are about to be written, or are there."""
    files = []
    for item in resource["files"] or []:
        path = item["path"]
        text = host.pending[path] if path in host.pending else read(path)
        if text is None:
            message = f"{path} is neither on the host nor written earlier in the list"
            raise error("HOST-RESOURCES", path, message)
        files.append({**item, "content": text})
    return files


def _change(
    shelf: releases.Shelf, resource: Resource, files: list[dict[str, Any]]
) -> releases.ShelfChange:
    keep = max(resource["keep"], 1)
    if resource["release"]:
        return releases.plan_switch(shelf, resource["release"], keep)
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    change = releases.plan_record(shelf, releases.content_digest(files), now, keep)
    if change.create:  # refuses what is no plan before anything is applied
        deployment, units = resource["deployment"], resource["units"]
        releases.describe(change.current, deployment, files, units, resource["by"])
    return change


def _unwritable(failure: OSError, directory: str) -> Exception:
    subject = str(failure.filename or directory)
    return error("RELEASE-UNWRITABLE", subject, str(failure.strerror))
