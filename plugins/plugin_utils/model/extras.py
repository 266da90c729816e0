# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that formulas state: recurrent mixers, their state, and what only some families add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..documents import knowledge, to_document
from .families import Reader
from .formula import UnknownError, Value, evaluate, scoped
from .modules import applies, module
from .types import Architecture


def extra_modules(keys: Reader, architecture: Architecture) -> dict[str, Any] | None:
    """Return `formula_modules`, and `state` where layers recur; None when a number is missing."""
    counts = (architecture.details or {}).get("attention_layers")
    if counts is None:
        return None
    result: dict[str, Any] = {}
    try:
        value = names(keys, architecture, {})
        entries = keys.family.get("extra", ())
        stated = [module(entry, value) for entry in entries if applies(entry, value)]
        if counts["linear"]:
            result["linear_kind"] = keys.family.get("linear")
            mixer = knowledge("models/mixers.yml")["mixers"][result["linear_kind"]]
            value = names(keys, architecture, mixer.get("let", {}))
            entries = ({"per": "linear", **entry} for entry in mixer["modules"])
            stated += [module(entry, value) for entry in entries if applies(entry, value)]
            result["state"] = [_state(keys, part, value) for part in mixer["state"]]
    except UnknownError:
        return None
    result["formula_modules"] = [to_document(item) for item in stated if item.parameters]
    return result


def names(keys: Reader, architecture: Architecture, let: Mapping[str, str]) -> Value:
    """Return what formulas may name: ``let``, the architecture's numbers, keys of the config."""
    details = architecture.details or {}
    counts = details.get("attention_layers") or {}
    own = ("layers", "heads", "kv_heads", "head_dim", "experts")
    derived: dict[str, int | None] = {
        **{name: getattr(architecture, name) for name in own},
        **{kind: counts.get(kind) for kind in ("full", "sliding", "linear")},
        "hidden": architecture.hidden_size,
        "dense": details.get("dense_layers"),
        "moe": details.get("moe_layers"),
        "moe_width": details.get("moe_intermediate_size"),
        "once": 1,
    }

    def value(name: str) -> int:
        if name not in derived:
            return keys.number(name)
        number = derived[name]
        if number is None:
            raise UnknownError(name)
        return number

    return scoped(let, value)


def _state(keys: Reader, part: Mapping[str, Any], value: Value) -> dict[str, Any]:
    """Return the elements of one layer's state for one sequence, their bytes, and how it splits."""
    sizes = knowledge("models/memory.yml")["dtype_bytes"]
    key = part.get("dtype_key")
    dtype = (keys.words(key) if key else None) or part.get("dtype", "bfloat16")
    return {
        "elements": evaluate(part["elements"], value),
        "bytes": sizes.get(dtype, sizes["float32"]),
        "parts": evaluate(part["parts"], value) if "parts" in part else None,
    }
