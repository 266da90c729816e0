# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Set one value in the text of a YAML file and leave every other line as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

Step = str | int
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_TEMPLATE = ("{{", "{%", "{#")


class CannotEditError(Exception):
    """A place that must not be changed by a program; the text says why."""


class _Tolerant(yaml.SafeLoader):
    """Reads what Ansible does; of tags that only it knows (!vault, !unsafe) the text."""


def _tagged(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Any:
    del loader
    return (tag, node.value if isinstance(node, yaml.ScalarNode) else str(node))


_Tolerant.add_multi_constructor("", _tagged)


def parse(text: str) -> Any:
    """Return the data of a YAML text; raises CannotEditError where it is none."""
    try:
        return yaml.load(text, Loader=_Tolerant)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError as problem:
        raise CannotEditError(f"it is no YAML: {' '.join(str(problem).split())}") from None


def compose(text: str) -> yaml.Node:
    """Return the one document of a text with its marks."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as problem:
        raise CannotEditError(f"it is no YAML: {' '.join(str(problem).split())}") from None
    if root is None:
        raise CannotEditError("it is empty")
    return root


def is_template(value: Any) -> bool:
    """Say whether Ansible would template a value."""
    return isinstance(value, str) and any(mark in value for mark in _TEMPLATE)


def written(value: Any) -> str:
    """Return a value as YAML on one line, good inside braces as well."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{written(str(k))}: {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and yaml.safe_load(value) == value and value[0] != "-":
            return value
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):  # YAML's needs a dot, unlike JSON's
        return yaml.safe_dump(value).partition("\n")[0]
    return json.dumps(value)


def assign(text: str, path: Sequence[Step], value: Any) -> str:
    """Return the text with the value at a path set; sections that are missing are added.

    A mapping takes the place of another key by key. Raises CannotEditError where the place is
    templated, tagged, or shared with another one by an anchor.
    """
    root = compose(text)
    node, shared = root, _shared(root)
    for depth, step in enumerate(path):
        _editable(text, node, shared, path[:depth])
        found = _member(node, step)
        if found is None:
            return _added(text, node, list(path[depth:]), value, path[:depth])
        node = found
    if isinstance(value, Mapping) and isinstance(node, yaml.MappingNode) and node.value:
        return _merged(text, path, node, value)
    _editable(text, node, shared, path, leaf=True)
    if written(parse(_span(text, node))) == written(value):
        return text
    return _replaced(text, node, written(value))


def _in_braces(node: yaml.Node) -> bool:
    return bool(getattr(node, "flow_style", False))


def _span(text: str, node: yaml.Node) -> str:
    return text[node.start_mark.index : node.end_mark.index]


def _replaced(text: str, node: yaml.Node, new: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, yaml.ScalarNode) and not _in_braces(node):
        raise CannotEditError("a block takes the place of a single value")
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        raise CannotEditError("the value is written as a block of text")
    # Nothing at all stands behind the colon of an empty value.
    gap = " " if start == end and text[start - 1 : start] == ":" else ""
    return text[:start] + gap + new + text[end:]


def _member(node: yaml.Node, step: Step) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        found = [item for key, item in node.value if key.value == step]
        return found[-1] if found else None
    return None


def _shared(root: yaml.Node) -> set[int]:
    """Return the nodes that stand at several places, by anchors, and all below them."""
    seen: set[int] = set()
    shared: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            shared |= {id(one) for one in _below(node)}
            continue
        seen.add(id(node))
        waiting += _children(node)
    return shared


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [item for pair in node.value for item in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _below(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield a node and all below it, each once."""
    waiting, seen = [node], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += _children(one)


def _editable(
    text: str, node: yaml.Node, shared: set[int], path: Sequence[Step], leaf: bool = False
) -> None:
    where = ".".join(map(str, path)) or "the file"
    if id(node) in shared:
        raise CannotEditError(f"{where} is shared by an anchor with another place")
    if isinstance(node, yaml.ScalarNode) and is_template(node.value):
        raise CannotEditError(f"{where} is a template")
    if text[node.start_mark.index : node.start_mark.index + 1] in ("&", "!", "*"):
        raise CannotEditError(f"{where} has an anchor or a tag")
    empty = isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")
    if not leaf and isinstance(node, yaml.ScalarNode) and not empty:
        raise CannotEditError(f"{where} is a single value")


def _added(text: str, node: yaml.Node, steps: list[Step], value: Any, path: Sequence[Step]) -> str:
    """Return the text with a key that its mapping does not have yet, and sections above it."""
    key, *rest = steps
    where = ".".join(map(str, path)) or "the file"
    if isinstance(key, int) or isinstance(node, yaml.SequenceNode):
        raise CannotEditError(f"{where} has no item {key}")
    inner = value
    for step in reversed(rest):
        inner = {step: inner}
    if isinstance(node, yaml.ScalarNode):  # a section without anything in it
        return _replaced(text, node, written({key: inner}))
    merges = any(name.tag.endswith(":merge") for name, _item in node.value)
    if merges and isinstance(inner, Mapping):
        raise CannotEditError(f"{where} takes sections from an anchor (<<), and {key} may be one")
    if _in_braces(node) or not node.value:
        if not node.value:
            return _replaced(text, node, written({key: inner}))
        end = node.value[-1][1].end_mark.index
        return f"{text[:end]}, {written(key)}: {written(inner)}{text[end:]}"
    end = _end(node)
    if end is None:
        raise CannotEditError(f"{where} ends in a block of text")
    column = node.value[0][0].start_mark.column
    return _inserted(text, end, _block(key, inner, " " * column))


def _end(node: yaml.Node) -> int | None:
    """Return where the last value of a node ends; None for a block of text, whose end is open."""
    if isinstance(node, yaml.ScalarNode):
        return None if node.style in ("|", ">") else int(node.end_mark.index)
    if _in_braces(node) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _block(key: str, value: Any, indent: str) -> list[str]:
    """Return lines of a key with its value, sections as blocks."""
    if isinstance(value, Mapping) and value:
        lines = [f"{indent}{written(key)}:"]
        for name, item in value.items():
            lines += _block(str(name), item, indent + "  ")
        return lines
    return [f"{indent}{written(key)}: {written(value)}"]


def _inserted(text: str, after: int, lines: Sequence[str]) -> str:
    """Return the text with lines behind the one in which a position lies."""
    newline = "\r\n" if "\r\n" in text else "\n"
    end = text.find("\n", after)
    if end < 0:
        return text + newline + newline.join(lines)
    return text[: end + 1] + "".join(line + newline for line in lines) + text[end + 1 :]


def _merged(
    text: str, path: Sequence[Step], node: yaml.MappingNode, value: Mapping[str, Any]
) -> str:
    """Return the text with a mapping made equal to another, key by key."""
    for name in [key.value for key, _item in node.value]:
        if name not in value:
            text = _removed(text, path, name)
    for name, item in value.items():
        text = assign(text, (*path, name), item)
    return text


def _removed(text: str, path: Sequence[Step], name: str) -> str:
    """Return the text without a key of a mapping, with the lines that were the key's alone."""
    root = compose(text)
    node, shared = root, _shared(root)
    for depth, step in enumerate(path):
        _editable(text, node, shared, path[:depth])
        found = _member(node, step)
        if found is None:
            return text
        node = found
    _editable(text, node, shared, path)
    keep = [pair for pair in node.value if pair[0].value != name]
    (pair,) = (pair for pair in node.value if pair[0].value == name)
    if _in_braces(node) or not keep:
        if "\n" in _span(text, node) and _in_braces(node):
            raise CannotEditError(f"{'.'.join(map(str, path))} is in braces over several lines")
        plain = {key.value: parse(_span(text, item)) for key, item in keep}
        if _in_braces(node):
            return _replaced(text, node, written(plain))
        raise CannotEditError(f"{'.'.join(map(str, path))} would be empty")
    end = _end(pair[1])
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    if end is None or text[start : pair[0].start_mark.index].strip():
        raise CannotEditError(f"{'.'.join(map(str, path))}.{name} cannot be taken out alone")
    after = text.find("\n", end)
    return text[:start] + (text[after + 1 :] if after >= 0 else "")
