# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The winner in the variables of its deployment, as a diff that a person reviews."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..findings import ApiaryError, error
from . import knobs, yaml_edit
from .yaml_edit import CannotEditError, Step

ONE, SEVERAL = "apiary_deployment", "apiary_deployments"
_NO_NEWLINE = "\n\\ No newline at end of file\n"
_MARK = "# Measured by playbooks/tune.yml: "


def winner_diff(
    text: str, path: str, name: str, changes: Mapping[str, Any], evidence: str
) -> tuple[str, str]:
    """Return a variables file with changes to one deployment, and the unified diff.

    ``text`` has `apiary_deployment` or `apiary_deployments`; ``changes`` are values by path of the
    deployment called ``name``, ``evidence`` names the file that shows them. Nothing else changes.
    Without changes the text stays. Raises ApiaryError TRIAL-VARIABLES, with what to write by hand.
    """
    try:
        new = _edited(text, name, changes, evidence) if changes else text
    except CannotEditError as problem:
        raise _by_hand(path, name, changes, str(problem)) from None
    before, after = (one.splitlines(keepends=True) for one in (text, new))
    lines = difflib.unified_diff(before, after, path, path)
    return new, "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def _edited(text: str, name: str, changes: Mapping[str, Any], evidence: str) -> str:
    """Return the new text, having read it again: it says the changes and nothing else new."""
    if any(yaml_edit.is_template(value) for value in changes.values()):
        raise CannotEditError("a value would be templated")
    start = _place(text, name)
    new = text
    for path, value in changes.items():
        new = yaml_edit.assign(new, (*start, *knobs.parts(path)), value)
    wanted = _changed(yaml_edit.parse(text), start, changes)
    if yaml_edit.parse(new) != wanted:
        raise CannotEditError("it would say more or less than the changes")
    if new == text:
        return text
    for marked in _marked(new, text, f"{_MARK}{evidence}"):
        try:
            if yaml_edit.parse(marked) == wanted:
                return marked
        except CannotEditError:
            continue
    raise CannotEditError("a comment has no place in it")


def _place(text: str, name: str) -> tuple[Step, ...]:
    """Return the path of the deployment in its file."""
    root = yaml_edit.compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise CannotEditError("it is no file of variables")
    members = {key.value: item for key, item in root.value}
    for variable in (ONE, SEVERAL):
        node = members.get(variable)
        if isinstance(node, yaml.ScalarNode):
            raise CannotEditError(f"{variable} is a template or a single value")
    if _is_called(members.get(ONE), name):
        return (ONE,)
    several = members.get(SEVERAL)
    for index, item in enumerate(several.value if isinstance(several, yaml.SequenceNode) else ()):
        if _is_called(item, name):
            return (SEVERAL, index)
    raise CannotEditError(f"neither {ONE} nor {SEVERAL} has a deployment written as name: {name}")


def _is_called(node: yaml.Node | None, name: str) -> bool:
    if not isinstance(node, yaml.MappingNode):
        return False
    return any(key.value == "name" and item.value == name for key, item in node.value)


def _changed(data: Any, start: tuple[Step, ...], changes: Mapping[str, Any]) -> Any:
    """Return the data of the file as it should be."""
    wanted = copy.deepcopy(data)  # what anchors share in the file is to change at one place alone
    section = wanted
    for step in start:
        section = section[step]
    for path, value in changes.items():
        *parents, last = knobs.parts(path)
        part = section
        for name in parents:
            if part.get(name) is None:
                part[name] = {}
            part = part[name]
        part[last] = value
    return wanted


def _marked(new: str, old: str, mark: str) -> Iterator[str]:
    """Yield the text with the comment: above the first changed line, else above all."""
    newline = "\r\n" if "\r\n" in new else "\n"
    lines = new.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old.splitlines(keepends=True), lines, autojunk=False)
    first = next((after for tag, _a, _b, after, _end in matcher.get_opcodes() if tag != "equal"), 0)
    line = lines[first] if first < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())].rstrip("\r\n")
    tail = "".join(lines[first:])
    if first and lines[first - 1].lstrip().startswith(_MARK):
        first -= 1  # of an earlier tuning
    head = "".join(lines[:first])
    if head and not head.endswith("\n"):
        head += newline
    yield f"{head}{indent}{mark}{newline}{tail}"
    yield f"{mark}{newline}{new}"


def _by_hand(path: str, name: str, changes: Mapping[str, Any], problem: str) -> ApiaryError:
    section: dict[str, Any] = {}
    for one, value in changes.items():
        *parents, last = knobs.parts(one)
        part = section
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    lines = yaml.safe_dump(section, sort_keys=False, default_flow_style=False)
    return error(
        "TRIAL-VARIABLES",
        path,
        f"cannot be changed by a program: {problem}",
        f"write into the deployment {name} yourself:\n{lines}",
    )
