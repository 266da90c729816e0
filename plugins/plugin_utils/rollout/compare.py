# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a replica must answer after a change as it did before it; knowledge/rollout.yml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..documents import knowledge
from .types import Comparison

Document = Mapping[str, Any]

# On the way back from a failed change, that a replica serves again comes first.
BACK = Comparison("should", "this is the release that answered before the change", "back")


def compare_answers(before: Document | None, after: Document, unit: str) -> Comparison:
    """Return what the answers of one unit must be, from the plans before and after."""
    old = _replica(before, unit) if before else None
    new = _replica(after, unit)
    if before is None or old is None or new is None:
        return Comparison("no", "there was no such replica before", "new")
    flags = _different(_flags(old.get("argv", ())), _flags(new.get("argv", ())))
    env = _different(old.get("env", {}), new.get("env", {}))
    rules: Sequence[Document] = knowledge("rollout.yml")["compare"]["rules"]
    for rule in rules[:-1]:
        if (
            any(_at(before, path) != _at(after, path) for path in rule.get("fields", ()))
            or any(old.get(name) != new.get(name) for name in rule.get("replica", ()))
            or _matches(rule.get("flags", ()), flags)
            or _matches(rule.get("env", ()), env)
        ):
            return Comparison(rule["compare"], rule["because"], rule["id"])
    last = rules[-1]
    return Comparison(last["compare"], last["because"], last["id"])


def _replica(plan: Document, unit: str) -> Document | None:
    return next((one for one in plan.get("replicas", ()) if one.get("unit") == unit), None)


def _at(plan: Document, path: str) -> Any:
    """Return what stands at a path like deployment.engine.version, None where nothing does."""
    value: Any = plan
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _flags(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a command's flags with their values."""
    flags: dict[str, list[str]] = {}
    last: list[str] = []
    for word in argv:
        if word.startswith("-") and not re.fullmatch(r"-[\d.]+", word):
            name, equals, value = word.partition("=")
            last = flags.setdefault(name, [])
            if equals:
                last.append(value)
        else:
            last.append(word)
    return {name: tuple(values) for name, values in flags.items()}


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _matches(patterns: Iterable[str], names: set[str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns for name in names)
