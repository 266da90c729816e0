# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the running kernel, remembered before the first change; state absent restores them."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ..finding import ApiaryError, error
from .file import write
from .types import PATH, REQUIRED, Difference, Host, Resource, diff_entry, entries

NAMED_BY = "remember"
OPTIONS: dict[str, Any] = {
    "settings": entries({"path": PATH, "value": REQUIRED}, required=True),
    "remember": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
CHOSEN = re.compile(r"\[([^][]*)\]")


def read(path: str) -> str:
    """Return a value as it reads, the chosen one where the file shows choices."""
    with open(path, encoding="utf-8") as stream:
        text = " ".join(stream.read().split())
    chosen = CHOSEN.search(text)
    return chosen.group(1) if chosen else text


def put(path: str, value: str) -> None:
    """Set a value."""
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(value + "\n")


def inspect(host: Host, resource: Resource) -> Difference:
    earlier = _remembered(resource["remember"])
    if resource["state"] == "present":
        requested = {each["path"]: each["value"] for each in resource["settings"]}
    else:
        requested = {path: value for path, value in earlier.items() if os.path.exists(path)}
    actual = {}
    for path in requested:
        try:
            actual[path] = read(path)
        except OSError as failure:
            raise _refused(path, f"cannot be read: {failure.strerror}") from None
    changed = {path: value for path, value in requested.items() if actual[path] != value}
    diff = [diff_entry(path, f"{actual[path]}\n", f"{changed[path]}\n") for path in changed]
    # What is remembered goes with the last value that is restored.
    forgets = resource["state"] == "absent" and bool(earlier) and not changed
    steps = (f"forget {resource['remember']}",) if forgets else ()
    return Difference(tuple(diff), steps, actual=(changed, actual, earlier))


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    changed, actual, earlier = difference.actual
    memory, present = resource["remember"], resource["state"] == "present"
    if changed and present:
        before = {**{path: actual[path] for path in changed}, **earlier}
        os.makedirs(os.path.dirname(memory), mode=0o755, exist_ok=True)
        text = json.dumps(before, indent=2, sort_keys=True) + "\n"
        write(host.module, memory, text, "0644")
    for path, value in changed.items():
        try:
            put(path, value)
            now = read(path)
        except OSError as failure:
            raise _refused(path, f"cannot be set to {value}: {failure.strerror}") from None
        if now != value:
            raise _refused(path, f"was set to {value} and reads {now}")
    if not present and earlier:
        os.unlink(memory)


def _remembered(path: str) -> dict[str, str]:
    """Return the earlier values by path; none where nothing was ever changed."""
    try:
        with open(path, encoding="utf-8") as stream:
            return dict(json.load(stream))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as failure:
        raise _refused(path, f"does not have the earlier values: {failure}") from None


def _refused(path: str, message: str) -> ApiaryError:
    return error("HOST-LIVE-SETTING", path, message)
