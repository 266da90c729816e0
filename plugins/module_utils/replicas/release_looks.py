# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeping a release, or going back to one, would do on this host."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule

from . import releases

ARGUMENTS: dict[str, Any] = {
    "deployment": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "dict"},
    "units": {"type": "dict", "default": {}},
    "release": {"type": "str"},
    "by": {"type": "str", "default": ""},
    "keep": {"type": "int", "default": 5},
    "directory": {"type": "path", "default": "/var/lib/apiary/releases"},
}


@dataclass(frozen=True)
class Seen:
    """The module's result, and what it takes to apply it."""

    outcome: dict[str, Any]
    directory: str
    shelf: releases.Shelf
    change: releases.ShelfChange
    told: dict[str, Any] | None


def unwritable(module: AnsibleModule, failure: OSError, directory: str) -> NoReturn:
    """End with what the file system refused."""
    module.fail_json(
        msg=(
            f"error: RELEASE-UNWRITABLE: {failure.filename or directory}: {failure.strerror}\n"
            "  remedy: make room, and the directory writable for root; then run again"
        )
    )
    raise failure


def look(module: AnsibleModule) -> Seen:
    """Return what the parameters of replica_release make of the releases that are kept."""
    parameters = module.params
    directory = os.path.join(parameters["directory"], parameters["deployment"])
    try:
        shelf, change, told = _planned(parameters, directory)
    except releases.ReleaseError as refusal:
        module.fail_json(msg=str(refusal))
        raise
    except OSError as failure:
        unwritable(module, failure, directory)
    names = sorted({*shelf.releases, change.current} - set(change.removed))
    before = releases.listing(shelf.current, shelf.previous, list(shelf.releases))
    after = releases.listing(change.current, change.previous, names)
    outcome = {
        "changed": before != after or bool(change.unfinished),
        "diff": {
            "before_header": directory,
            "after_header": directory,
            "before": before + "".join(f"unfinished: {one}\n" for one in change.unfinished),
            "after": after,
        },
        "current": change.current,
        "previous": change.previous,
        "removed": list(change.removed),
    }
    return Seen(outcome, directory, shelf, change, told)


def _planned(
    parameters: dict[str, Any], directory: str
) -> tuple[releases.Shelf, releases.ShelfChange, dict[str, Any] | None]:
    keep = max(parameters["keep"], 1)
    shelf = releases.read_shelf(directory)
    if parameters["release"]:
        return shelf, releases.plan_switch(shelf, parameters["release"], keep), None
    files = parameters["files"] or []
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    change = releases.plan_record(shelf, releases.content_digest(files), now, keep)
    if not change.create:
        return shelf, change, None
    units, by = parameters["units"], parameters["by"]
    told = releases.describe(change.current, parameters["deployment"], files, units, by)
    return shelf, change, told
