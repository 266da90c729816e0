# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules a quantization names: ignore lists and targets as checkpoints write them."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable

_NUMBER = r"[0-9]{1,12}"
_INDEX = re.compile(rf"(?<=\.){_NUMBER}(?=\.|$)")
_ROOTS = {"backbone": "model"}  # Nemotron-H
_MOST_LAYERS = 4096  # no model has more; a regular expression is tried for each


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


def named_layers(names: Iterable[str], patterns: Iterable[str], layers: int, first: int = 0) -> int:
    """Return for how many of ``layers`` layers, none before ``first``, patterns name a module.

    ``names`` are module paths with `*` in place of the layer; a pattern is a full path, a part
    of one, a path with `*`, or `re:` and a regular expression over the path.
    """
    return _named_layers(tuple(names), tuple(patterns), layers, first)


@functools.lru_cache(maxsize=4096)
def _named_layers(
    names: tuple[str, ...], patterns: tuple[str, ...], layers: int, first: int
) -> int:
    hit: set[int] = set()
    paths = [name.split(".") for name in names]
    for pattern in patterns:
        if pattern.startswith("re:"):
            hit |= _matched(pattern[3:], names, range(first, first + layers))
            continue
        parts = [_ROOTS.get(part, part) for part in pattern.split(".") if part != "language_model"]
        for path in paths:
            found = _within(parts, path)
            if found == -1:
                return layers
            if found is not None:
                hit.add(found)
    return min(sum(layer >= first for layer in hit), layers)


def _matched(expression: str, names: tuple[str, ...], layers: range) -> set[int]:
    """Return the layers whose path the expression matches from its start, as vLLM matches it."""
    try:
        match = re.compile(expression).match
        return {
            layer
            for layer in layers[:_MOST_LAYERS]
            if any(match(name.replace("*", str(layer), 1).replace("*", "0")) for name in names)
        }
    except (re.error, OverflowError, RecursionError):
        return set()


def _within(parts: list[str], path: list[str]) -> int | None:
    """Return the layer a pattern names within the path, -1 for all of them, None for no match."""
    number = re.compile(rf"{_NUMBER}|0\*").fullmatch  # no other layer begins with 0
    for start in range(len(path) - len(parts) + 1):
        pairs = list(zip(parts, path[start : start + len(parts)], strict=True))
        if all(_same(part, own) or (own == "*" and number(part)) for part, own in pairs):
            layers = [int(part.strip("*")) for part, own in pairs if own == "*" and number(part)]
            return layers[0] if layers else -1
    return None


def _same(part: str, own: str) -> bool:
    return part in ("*", own) or ("*" in part and fnmatch.fnmatchcase(own, part))
