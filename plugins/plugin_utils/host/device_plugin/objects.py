# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of a cluster: knowledge/host/kubernetes_objects.yml with values in their places, as YAML.

A value takes its place whole, so that nothing in it can be a field or an object of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ...documents import knowledge, to_document

_WHEN = "$when"


def objects(name: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the objects of one name; a value of None leaves its field out."""
    return tuple(_filled(knowledge("host/kubernetes_objects.yml")[name], values))


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, str) and part.startswith("$"):
        return values[part[1:]]
    if isinstance(part, list):
        return [_filled(item, values) for item in part if _is_there(item, values)]
    if not isinstance(part, dict):
        return part
    filled = {key: _filled(item, values) for key, item in part.items() if key != _WHEN}
    return {key: item for key, item in filled.items() if item is not None}


def _is_there(item: Any, values: Mapping[str, Any]) -> bool:
    conditional = isinstance(item, dict) and _WHEN in item
    return not conditional or bool(values[item[_WHEN]])


def to_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as one YAML stream, in the order in which they are given."""
    # Ansible's strings are subclasses, which YAML does not know.
    plain = json.loads(json.dumps([to_document(one) for one in documents]))
    return yaml.safe_dump_all(
        plain,
        sort_keys=False,
        default_flow_style=False,
        explicit_start=True,
        width=10_000,
    )
