# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The longest sequence that a model was made for, and how its rotary positions are scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .families import LARGEST, Reader, is_size

# Types whose max_position_embeddings is the scaled length already, as vLLM's
# _get_and_verify_max_len takes them (config/model.py, 0.32.0).
_SCALED = ("su", "longrope", "llama3", "mrope", "default")
_YARN = ("yarn", "deepseek_yarn", "deepseek_llama_scaling")


def rope_scaling(keys: Reader) -> dict[str, Any] | None:
    """Return `type`, `factor` and `original_context` of the scaling; None without one."""
    for key in ("rope_scaling", "rope_parameters"):
        given = keys.get(key)
        if isinstance(given, Mapping):
            by_kind = given.get("full_attention")  # newer files have one for each kind of layer
            return _scaling(by_kind if isinstance(by_kind, Mapping) else given)
    return None


def _scaling(given: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = given.get("rope_type") or given.get("type")
    if not isinstance(kind, str) or kind == "default":
        return None
    factor, original = given.get("factor"), given.get("original_max_position_embeddings")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        factor = None
    return {
        "type": kind,
        "factor": factor if factor is not None and 0 < factor <= LARGEST else None,
        "original_context": original if is_size(original) else None,
    }


def max_context(keys: Reader) -> int | None:
    """Return the longest sequence in tokens: max_position_embeddings, with rope scaling.

    YaRN files give the scaled length already; where one still has the original length, the factor
    over it is what the file asks for. Gemma 3's length is scaled, whatever its factor.
    """
    length = keys.integer("max_position_embeddings", needed=True)
    scaling = rope_scaling(keys)
    if length is None or scaling is None or keys.family.get("scaled_context"):
        return length
    factor, original = scaling["factor"], scaling["original_context"]
    if scaling["type"] in _SCALED or factor is None or factor <= 1:
        return length
    if scaling["type"] in _YARN:
        return max(length, min(int((original or 0) * factor), LARGEST))
    return min(int(length * factor), LARGEST)
