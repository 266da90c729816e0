# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings merged into somebody's JSON file, and taken out again: what others set stays.

``validate`` is a command that checks the new text (``%s``) before it is written.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ..evidence.host import masked
from ..finding import ApiaryError, error
from .file import read, write
from .types import Difference, Host, Resource, diff_entry

NAMED_BY = "path"
OPTIONS: dict[str, Any] = {
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


def inspect(host: Host, resource: Resource) -> Difference:
    path = resource["path"]
    requested = resource["settings"] if resource["state"] == "present" else {}
    try:
        text, memory = read(path), read(resource["remember"])
        before = json.loads(text) if text and text.strip() else {}
        if not isinstance(before, dict):
            raise ValueError("expected an object")
        earlier = read_earlier(memory)
    except (OSError, ValueError) as problem:
        raise _refused(path, f"cannot be read: {problem}") from None
    after, remembered = merge(before, requested, earlier)
    paths = [*dict(leaves(requested)), *earlier]
    changed = [item for item in paths if found(before, item) != found(after, item)]
    forgets = bool(set(earlier) - set(remembered)) and not changed
    steps = (f"forget the earlier settings of {path}",) if forgets else ()
    diff = diff_entry(path, shown(before, changed), shown(after, changed))
    return Difference(
        (diff,) if changed else (), steps, actual=(requested, after, earlier, remembered, changed)
    )


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    path, (requested, after, earlier, remembered, changed) = resource["path"], difference.actual
    if changed and requested and resource["validate"]:
        _validate(host, resource, dumps(after))
    # Remembered before and forgotten after: a run that ends in between can still be undone.
    if changed:
        _remember(host, resource, {**remembered, **earlier})
        gone = not after and not remembered
        _store(host, path, None if gone else dumps(after), "0644")
    _remember(host, resource, remembered)


def _remember(host: Host, resource: Resource, earlier: Earlier) -> None:
    _store(host, resource["remember"], write_earlier(earlier) if earlier else None, "0600")


def _store(host: Host, path: str, text: str | None, mode: str) -> None:
    """Bring a file to this text, which None removes; a mode that others gave it stays."""
    if text is None:
        if os.path.exists(path):
            os.unlink(path)
        return
    if text != read(path):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        retained = f"{os.stat(path).st_mode & 0o7777:04o}" if os.path.exists(path) else mode
        write(host.module, path, text, retained)


def _validate(host: Host, resource: Resource, text: str) -> None:
    """Let the program that reads the file check it, before it has to."""
    path = resource["path"]
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=host.module.tmpdir) as trial:
        trial.write(text)
        trial.flush()
        argv = [trial.name if word == "%s" else word for word in resource["validate"]]
        code, out, err = host.run(argv)
    if code != 0:
        output = (err or out).strip().replace(trial.name, path)
        raise _refused(path, f"{argv[0]} does not accept it: {output}")


def _refused(path: str, message: str) -> ApiaryError:
    return error("CONTAINER-DAEMON-JSON", path, message)
