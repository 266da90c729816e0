# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Merge settings into somebody's JSON file, and take them out again: what others set stays."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .evidence.host import masked

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "settings": {"type": "dict", "default": {}},
    "remember": {"type": "path", "required": True},
    "validate": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
Path = tuple[str, ...]
# What a setting was before: a list of one value, or an empty one where it was not there.
Earlier = dict[Path, list[Any]]


def leaves(settings: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each setting by its path; an empty object and a list are settings of their own."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def found(document: Mapping[str, Any], path: Path) -> list[Any]:
    """Return a list of the value at a path, or an empty one where there is none."""
    inner: Any = document
    for key in path:
        if not isinstance(inner, dict) or key not in inner:
            return []
        inner = inner[key]
    return [inner]


def put(document: dict[str, Any], path: Path, value: list[Any]) -> None:
    """Set or remove the value at a path; objects that this leaves empty go as well."""
    inner = document
    for key in path[:-1]:
        if not isinstance(inner.get(key), dict):
            inner[key] = {}
        inner = inner[key]
    if value:
        inner[path[-1]] = value[0]
        return
    inner.pop(path[-1], None)
    if not inner and path[:-1]:
        put(document, path[:-1], [])


def merge(
    document: Mapping[str, Any], wanted: Mapping[str, Any], earlier: Earlier
) -> tuple[dict[str, Any], Earlier]:
    """Return the document with the wanted settings, and what to remember for taking them out.

    What was set by an earlier run and is no longer wanted becomes what it was before that.
    """
    result = copy.deepcopy(dict(document))
    for path, before in earlier.items():
        put(result, path, before)
    theirs = copy.deepcopy(result)
    remembered: Earlier = {}
    for path, value in leaves(wanted):
        # Another's value where we need an object is replaced as a whole, and comes back so.
        above = [path[:end] for end in range(1, len(path) + 1)]
        taken = next((one for one in above if _is_other(theirs, one)), path)
        remembered[taken] = found(theirs, taken)
        put(result, path, [value])
    return result, remembered


def _is_other(document: Mapping[str, Any], path: Path) -> bool:
    value = found(document, path)
    return bool(value) and not isinstance(value[0], dict)


def dumps(document: Mapping[str, Any]) -> str:
    """Return the document as the text of its file, in the order in which it was read."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def shown(document: Mapping[str, Any], paths: list[Path]) -> str:
    """Return the settings at these paths, a line each: a diff of nothing but what is ours."""
    lines = []
    for path in sorted(paths):
        for value in found(document, path):
            lines.append(f"{'.'.join(path)}: {masked(json.dumps(value, sort_keys=True))}\n")
    return "".join(lines)


def read_earlier(text: str | None) -> Earlier:
    """Return what an earlier run remembered; nothing where there was none."""
    entries = json.loads(text)["earlier"] if text else []
    return {tuple(entry["path"]): entry["value"] for entry in entries}


def write_earlier(earlier: Earlier) -> str:
    """Return what is remembered as the text of its file."""
    entries = [{"path": list(path), "value": value} for path, value in sorted(earlier.items())]
    return json.dumps({"earlier": entries}, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Seen:
    """What the file would be ``after``, what to remember then, and which settings change."""

    outcome: dict[str, Any]
    wanted: Mapping[str, Any]
    after: dict[str, Any]
    remembered: Earlier
    changed: list[Path]


def read(path: str) -> str | None:
    """Return a file's text, or None."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def fail(module: AnsibleModule, path: str, message: str) -> None:
    """End with what is wrong with the file."""
    module.fail_json(
        msg=(
            f"error: CONTAINER-DAEMON-JSON: {path}: {message}\n"
            "  remedy: correct the file, or the settings, and run again; nothing was changed"
        )
    )


def look(module: AnsibleModule) -> Seen:
    """Return what the module's parameters make of the file."""
    path = module.params["path"]
    wanted = module.params["settings"] if module.params["state"] == "present" else {}
    before: dict[str, Any] = {}
    earlier: Earlier = {}
    try:
        text = read(path)
        before = json.loads(text) if text and text.strip() else {}
        if not isinstance(before, dict):
            raise ValueError("expected an object")
        earlier = read_earlier(read(module.params["remember"]))
    except (OSError, ValueError) as problem:
        fail(module, path, f"cannot be read: {problem}")
    after, remembered = merge(before, wanted, earlier)
    paths = [*dict(leaves(wanted)), *earlier]
    changed = [one for one in paths if found(before, one) != found(after, one)]
    outcome = {
        "changed": bool(changed),
        "set": sorted({".".join(one) for one in changed}),
        "diff": {
            "before_header": path,
            "after_header": path,
            "before": shown(before, changed),
            "after": shown(after, changed),
        },
    }
    return Seen(outcome, wanted, after, remembered, changed)
