# SPDX-License-Identifier: GPL-3.0-or-later

"""Knobs: fields of a deployment that tuning varies, and deployments with some of them changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..deployment import Deployment
from ..documents import from_document, knowledge, to_document
from ..findings import error

Knobs = dict[str, tuple[Any, ...]]
# What may be varied: anything else would be another model, another engine or another address.
SECTIONS = ("limits.", "engine.args.", "engine.env.")


def defaults() -> Knobs:
    """Return the knobs that are varied unless the operator says otherwise, by path, in order."""
    entries = knowledge("tune.yml")["knobs"].values()
    return {one["path"]: tuple(one["values"]) for one in entries}


def wanted(requested: Knobs | None) -> Knobs:
    """Return what is varied, in order: as in knowledge/tune.yml, other paths by name after it.

    The order must not hang on a document's, whose keys are sorted when it is written.
    """
    known = defaults()
    if requested is None:
        return known
    order = {path: place for place, path in enumerate(known)}
    paths = sorted(requested, key=lambda path: (order.get(path, len(order)), path))
    return {path: requested[path] for path in paths}


def read(requested: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, Knobs | None]:
    """Return the layouts and the knobs that an operator wants, None where all of them are meant.

    Whoever names anything wants no other knobs, and all layouts unless some are named.
    Keys are names of knowledge/tune.yml or paths of the deployment; below `env` and `args` names
    of variables and flags, below `layouts` names such as DP2/TP4/EP4. Raises ApiaryError
    TRIAL-KNOB.
    """
    flat: dict[str, Any] = {}
    for name, value in requested.items():
        if name in ("env", "args"):
            if not isinstance(value, Mapping):
                raise _wrong(name, "takes names with lists of values")
            flat |= {f"engine.{name}.{key}": values for key, values in value.items()}
        else:
            flat[name] = value
    layouts = _values("layouts", flat.pop("layouts")) if "layouts" in flat else None
    known = knowledge("tune.yml")["knobs"]
    knobs: Knobs = {}
    for name, values in flat.items():
        path = known[name]["path"] if name in known else name
        if not path.startswith(SECTIONS) or path.endswith("."):
            raise _wrong(name, f"is no knob; known are layouts, {', '.join(known)}")
        knobs[path] = _values(name, values)
    return None if layouts is None else tuple(map(str, layouts)), knobs if requested else None


def _values(name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise _wrong(name, f"is {values!r}, expected a list of values")
    return tuple(values)


def _wrong(name: str, message: str) -> Exception:
    return error("TRIAL-KNOB", f"tune_knobs.{name}", message)


def label(path: str, value: Any) -> str:
    """Return a change as people write it: max_num_seqs=256."""
    name = path.removeprefix("limits.").removeprefix("engine.env.").removeprefix("engine.args.")
    return f"{name} left out" if value is None else f"{name}={value}"


def changed(deployment: Deployment, changes: Mapping[str, Any]) -> Deployment:
    """Return the deployment with values by path; raises ApiaryError (DOC-…) for a wrong one.

    A name below engine.args or engine.env may have dots itself. A layout is replaced as a whole.
    """
    document = to_document(deployment)
    for path, value in changes.items():
        *parents, last = parts(path)
        section = document
        for name in parents:
            section = section[name]
        section[last] = value
    return from_document(Deployment, document, deployment.name)


def parts(path: str) -> list[str]:
    """Return the keys that a path leads along."""
    for section in SECTIONS[1:]:
        if path.startswith(section):
            return ["engine", section.split(".")[1], path.removeprefix(section)]
    return path.split(".")


def of(deployment: Deployment, path: str) -> Any:
    """Return the value that a deployment has at a path; None where it has none."""
    value: Any = to_document(deployment)
    for name in parts(path):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
