# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""knowledge/telemetry/recording.yml → the recording rules that hold for every fleet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ..documents import knowledge
from .promql import Group, Rule, filled, number

TABLE = "telemetry/recording.yml"


def recording_groups() -> tuple[Group, ...]:
    """Return the groups of recording rules, in the order in which they build on each other."""
    table = knowledge(TABLE)
    groups: dict[str, list[Rule]] = {}
    for name, entry in expanded(table):
        groups.setdefault(name, []).append(Rule(entry["record"], _expression(entry, table["join"])))
    return tuple(Group(f"apiary-{name}", tuple(rules)) for name, rules in groups.items())


def expanded(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each series of a table with its group's name, templates filled in."""
    for group in table["groups"]:
        each: Mapping[str, list[Any]] = group.get("each", {})
        for chosen in itertools.product(*each.values()):
            values = {f"%{{{key}}}": str(value) for key, value in zip(each, chosen, strict=True)}
            for entry in group["series"]:
                yield group["name"], replaced(entry, values)


def replaced(one: Any, values: Mapping[str, str]) -> Any:
    """Return texts, lists or mappings with values in the place of their names."""
    if isinstance(one, str):
        for key, value in values.items():
            one = one.replace(key, value)
        return one
    if isinstance(one, list):
        return [replaced(item, values) for item in one]
    if isinstance(one, dict):
        return {key: replaced(item, values) for key, item in one.items()}
    return one


def _expression(entry: Mapping[str, Any], join: Mapping[str, str]) -> str:
    """Return a series' PromQL; AMD's is joined with what the host says of the GPU."""
    if "expr" in entry:
        return filled(entry["expr"], {})
    if "amd" not in entry:
        return filled(join[entry["join"]], {})
    scale = entry.get("scale", 1)
    metric = filled(entry["amd"], {})
    joined = filled(join["expr"], {"metric": metric})
    if scale != 1:
        joined = f"({joined}) * {number(scale)}"
    if "also" in entry:
        return f"{joined} or on (host, gpu) {filled(join['also'], {'metric': entry['also']})}"
    return joined
