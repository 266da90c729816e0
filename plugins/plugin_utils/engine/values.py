# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of flags and variables: as text, and checked against what a version takes."""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from . import flags as known
from .flags import SOURCE, EnvVar, Flag

_SIZE = re.compile(r"[+-]?\d+|\d+(\.\d+)?[kKmMgGtT]")
_SWITCHES = ("0", "1", "true", "false")


@dataclass(frozen=True)
class Check:
    """One built-in check of elements, with the code of its finding; see checks.yml.

    ``forcible`` says whether `force` may name it: the command can be written all the same.
    """

    id: str
    code: str
    reason: str
    source: str
    forcible: bool = False


@dataclass(frozen=True)
class Problem:
    """What one check says of one element, and the ``stage`` at which vLLM itself stops on it.

    Stages: parser, config, backend (the choice of attention backends), load (weights, layers and
    caches), run; None where vLLM goes on.
    """

    check: str
    finding: Finding
    stage: str | None


class ElementError(Exception):
    """An element that cannot be written down at all, with what is wrong."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem.finding))


@functools.cache
def checks() -> tuple[Check, ...]:
    """Return the built-in checks."""
    entries: list[Mapping[str, Any]] = knowledge("vllm/checks.yml")["checks"]
    return tuple(Check(**entry) for entry in entries)


@functools.cache
def check_of(code: str) -> Check:
    """Return the check that a finding's code belongs to."""
    return next(check for check in checks() if check.code == code)


def wrong_element(
    code: str, subject: str, message: str, stage: str | None, **values: Any
) -> Problem:
    """Return a problem with its finding."""
    finding = Finding(code, subject, message, source=SOURCE, **values)
    return Problem(check_of(code).id, finding, stage)


def scalar(name: str, value: Any) -> str:
    """Return a value as one argv element; mappings, lists and booleans as compact JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, f"{value} is not a number")
    if value is None or isinstance(value, (bool, Mapping, list, tuple)):
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as wrong:
            raise bad_value(name, f"not JSON: {wrong}") from wrong
    text = str(value)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise bad_value(name, "the value holds a control character")
    return text


def bad_value(name: str, message: str) -> ElementError:
    """Return the error of a value that no element can be made of."""
    return ElementError(wrong_element("ENGINE-BAD-VALUE", name, message, "parser"))


def nearest(text: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the text may be a slip of, or None."""
    close = difflib.get_close_matches(text, list(choices), n=1)
    return close[0] if close else None


def check_flag(flag: Flag, spelling: str, text: str, version: str) -> Problem | None:
    """Return what is wrong with a flag's value in this version, or None."""
    choices, stage = flag.choices, "parser"
    looked_up = knowledge("vllm/checks.yml")["looked_up"]["flags"].get(flag.dest)
    if looked_up and not choices:
        enum, stage = looked_up.get("enum"), looked_up["stage"]
        choices = (
            known.enum_names(version, enum)
            if enum
            else known.literals(version, looked_up["literal"])
        )
        if looked_up.get("ignore_case") and text.upper() in choices:
            return None
    if choices:
        advice = knowledge("vllm/renamed.yml")["values"].get(flag.dest, {}).get(text)
        return (
            None
            if text in choices
            else bad_choice(spelling, f"vLLM {version}", text, choices, stage, advice)
        )
    if flag.optional and text in ("", "None"):
        return None
    expected = _mismatch(flag.type, text)
    if expected is None:
        return None
    message = f"it takes {expected}, found {text!r}"
    return wrong_element("ENGINE-BAD-VALUE", spelling, message, "parser")


def bad_choice(
    name: str,
    taker: str,
    text: str,
    choices: tuple[str, ...],
    stage: str,
    advice: str | None = None,
) -> Problem:
    """Return the problem of a value that is none of the choices."""
    close, listed = nearest(text, choices), ", ".join(choices)
    return wrong_element(
        "ENGINE-BAD-CHOICE",
        name,
        f"{taker} does not take {text!r}; it takes {listed}",
        stage,
        advice=advice or (f"use {close}" if close else f"use one of {listed}"),
    )


def _mismatch(kind: str | None, text: str) -> str | None:
    """Return what a flag of this type takes when the text is not such, else None."""
    if kind == "int":
        return None if re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", text) else "a whole number"
    if kind == "float":
        try:
            float(text)
        except ValueError:
            return "a number"
    if kind in ("size", "size-or-auto"):
        if _SIZE.fullmatch(text) or (kind == "size-or-auto" and text == "auto"):
            return None
        return "a whole number, or one with k, m or g" + (" or auto" * (kind == "size-or-auto"))
    braced = kind == "json-or-text" and re.fullmatch(r"(?s)\s*\{.*\}\s*", text)
    if kind in ("json", "config") or braced:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as wrong:
            return f"JSON (column {wrong.colno}: {wrong.msg})"
        if kind == "config" and not isinstance(value, dict):
            return "a JSON object"
    return None


def check_env(variable: EnvVar, text: str, version: str) -> Problem | None:
    """Return what is wrong with a variable's value in this version, or None."""
    if variable.choices is not None:
        items = text.split(",") if variable.many else [text]
        fold = str.lower if variable.ignore_case else str
        allowed = {fold(choice) for choice in variable.choices}
        wrong = [item for item in items if fold(item.strip()) not in allowed]
        if not wrong:
            return None
        return bad_choice(variable.name, f"vLLM {version}", wrong[0], variable.choices, "load")
    expected = None
    if variable.type == "bool" and text.lower() not in _SWITCHES:
        expected = "0 or 1"
    elif variable.type in ("int", "float"):
        expected = _mismatch(variable.type, text)
    if expected is None:
        return None
    message = f"it takes {expected}, found {text!r}"
    return wrong_element("ENGINE-BAD-VALUE", variable.name, message, None)
