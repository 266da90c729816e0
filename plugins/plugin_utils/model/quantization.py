# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a config's quantization says: the format, bytes per weight, and which modules it skips."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.families import is_size

_MOST_BITS = 64
_NUMBER = r"[0-9]{1,12}"
_INDEX = re.compile(rf"(?<=\.){_NUMBER}(?=\.|$)")
# A quantization of which nothing is known.
UNKNOWN: Mapping[str, Any] = {
    "method": None,
    "bits": None,
    "block": None,
    "group": None,
    "ignore": [],
}


def read(config: Mapping[str, Any] | None, layers: int | None) -> dict[str, Any] | None:
    """Return the quantization of a model of ``layers`` layers, or None for an unquantized one.

    `method`, `bits`, `block` ([rows, columns]), `group` and `ignore` (module patterns); what the
    config does not say is None.
    """
    if not isinstance(config, Mapping) or not config:
        return None
    method = config.get("quant_method")
    if not isinstance(method, str):
        return dict(UNKNOWN)
    facts = knowledge("models/memory.yml")["weights"].get(method, {})
    result: dict[str, Any] = {
        "method": method,
        "bits": facts.get("bits"),
        "block": _block(config.get("weight_block_size")),
        "group": facts.get("group"),
        "ignore": [],
    }
    if method == "compressed-tensors":
        result |= _compressed_tensors(config)
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude"):
        if isinstance(config.get(key), list):
            result["ignore"] = condense((str(item) for item in config[key]), layers)
    return result


def _block(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and len(value) == 2 and all(map(is_size, value))
    return list(value) if whole else None


def _compressed_tensors(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return bits, group and block of a compressed-tensors scheme; unknown for mixed ones."""
    groups = config.get("config_groups")
    schemes = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    if len(schemes) != 1:
        return {}
    (weights,) = schemes
    bits, group = weights.get("num_bits"), weights.get("group_size")
    return {
        "bits": bits if is_size(bits) and bits <= _MOST_BITS else None,
        "group": group if is_size(group) else None,
        "block": _block(weights.get("block_structure")),
    }


def bytes_per_weight(quantization: Mapping[str, Any] | None) -> float | None:
    """Return the bytes of one weight of a quantized module, scales included; None if unknown."""
    facts = knowledge("models/memory.yml")
    if quantization is None:
        return float(facts["unquantized_bytes"]["value"])
    known = facts["weights"].get(quantization.get("method"))
    bits = quantization.get("bits")
    if known is None or bits is None:
        return None
    size = bits / 8
    if quantization.get("block") and "block_scale_bytes" in known:
        rows, columns = quantization["block"]
        size += known["block_scale_bytes"] / (rows * columns)
    elif quantization.get("group") and "group_scale_bytes" in known:
        size += known["group_scale_bytes"] / quantization["group"]
    return float(size)


def condense(patterns: Iterable[str], layers: int | None) -> list[str]:
    """Return ignore patterns with layer lists shortened: names that cover every layer get `*`.

    Checkpoints list each layer; one entry with `*` says the same. A list with gaps stays.
    """
    numbers: dict[str, set[int]] = {}
    members: dict[str, list[str]] = {}
    for pattern in patterns:
        found = None if pattern.startswith("re:") else _INDEX.search(pattern)
        family = pattern[: found.start()] + "*" + pattern[found.end() :] if found else pattern
        numbers.setdefault(family, set()).update({int(found.group())} if found else ())
        members.setdefault(family, []).append(pattern)

    def whole(found: set[int]) -> bool:
        return bool(layers) and len(found) == layers and max(found) == layers - 1

    return [
        name
        for family in members
        for name in ([family] if whole(numbers[family]) else members[family])
    ]


def ignored_layers(names: Iterable[str], patterns: Iterable[str], layers: int) -> int:
    """Return for how many of ``layers`` layers the ignore ``patterns`` name one of ``names``.

    ``names`` are module paths with `*` in place of the layer; a pattern is a full path, a part
    of one, a path with `*`, or `re:` and a regular expression over the path.
    """
    hit: set[int] = set()
    paths = [name.split(".") for name in names]
    for pattern in patterns:
        if pattern.startswith("re:"):
            if any(_matches(pattern[3:], name) for name in names):
                return layers
            continue
        parts = [part for part in pattern.split(".") if part != "language_model"]
        for path in paths:
            found = _within(parts, path)
            if found == -1:
                return layers
            if found is not None:
                hit.add(found)
    return min(len(hit), layers)


def _matches(expression: str, name: str) -> bool:
    try:
        return re.match(expression, name.replace("*", "0")) is not None
    except (re.error, OverflowError, RecursionError):
        return False


def _within(parts: list[str], path: list[str]) -> int | None:
    """Return the layer a pattern names within the path, -1 for all of them, None for no match."""
    number = re.compile(_NUMBER).fullmatch
    for start in range(len(path) - len(parts) + 1):
        pairs = list(zip(parts, path[start : start + len(parts)], strict=True))
        if all(part in ("*", own) or (own == "*" and number(part)) for part, own in pairs):
            layers = [int(part) for part, own in pairs if own == "*" and part != "*"]
            return layers[0] if layers else -1
    return None
