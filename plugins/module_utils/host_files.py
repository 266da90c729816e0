# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a host's own files to wanted contents: read, compare, write only what differs."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .evidence.host import masked
from .replicas.units import FileChange, read_file

ORIGINALS = "/var/lib/apiary/originals"
ARGUMENTS: dict[str, Any] = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "content": {"type": "str"},
        },
    },
    "keep_originals": {"type": "bool", "default": False},
}


def compare(wanted: list[dict[str, Any]]) -> list[FileChange]:
    """Return one change per file, changed or not; a file without content is to be gone."""
    changes = []
    for item in wanted:
        before, mode = read_file(item["path"])
        after = item["content"]
        changes.append(
            FileChange(item["path"], before, after, mode, None if after is None else item["mode"])
        )
    return changes


def write_file(module: AnsibleModule, path: str, content: str, mode: str) -> None:
    """Replace a file in one step, so that nobody reads half of it."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".apiary-")
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(content)
    os.chmod(temporary, int(mode, 8))
    module.atomic_move(temporary, path)
    module.set_mode_if_different(path, mode, False)


def keep_original(change: FileChange) -> None:
    """Keep what a file held before Apiary first changed it; later changes are our own."""
    kept = ORIGINALS + change.path
    if change.before is None or os.path.exists(kept):
        return
    os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)
    handle = os.open(kept + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(change.before)
    os.rename(kept + ".part", kept)


def apply(module: AnsibleModule, changes: list[FileChange], keep: bool) -> None:
    """Write and remove what differs, in the given order."""
    for change in changes:
        if not change.changed:
            continue
        if keep:
            keep_original(change)
        if change.after is None or change.mode_after is None:
            os.unlink(change.path)
            continue
        os.makedirs(os.path.dirname(change.path), mode=0o755, exist_ok=True)
        write_file(module, change.path, change.after, change.mode_after)


def result(changes: list[FileChange]) -> dict[str, Any]:
    """Return the module's result: what changed, or in check mode would change, and the diff."""
    diffs = []
    for change in changes:
        if change.changed:
            diff = change.diff()
            diffs.append(
                {key: masked(text) for key, text in diff.items()},
            )
    return {
        "changed": bool(diffs),
        "diff": diffs,
        "written": [one.path for one in changes if one.changed and one.after is not None],
        "removed": [one.path for one in changes if one.changed and one.after is None],
    }


def fail(module: AnsibleModule, failure: OSError) -> None:
    """End with what the file system refused."""
    module.fail_json(
        msg=(
            f"error: HOST-FILE: {failure.filename}: {failure.strerror}\n"
            "  remedy: make the directory writable for root and run again"
        )
    )


def look(module: AnsibleModule) -> list[FileChange]:
    """Return a change for each of the module's files."""
    changes: list[FileChange] = []
    try:
        changes = compare(module.params["files"])
    except OSError as failure:
        fail(module, failure)
    return changes
