# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The elements of a recipe: the operator's overrides read, and every element checked and spelled
for one version."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import flags as known
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import Flag
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ElementError(Exception):
    """One element that the version does not take, with the finding that says why."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(str(finding))


@dataclass(frozen=True)
class FlagElement:
    """One flag as it will be spelled: ``argv`` with its values, ``text`` what rules compare."""

    key: str
    name: str
    argv: tuple[str, ...]
    text: str


def _problem(code: str, subject: str, message: str, remedy: str) -> ElementError:
    return ElementError(Finding(code, "error", subject, message, remedy, known.SOURCE))


def find(key: str, version: str) -> tuple[Flag, str, str]:
    """Return the flag that an override's key means, its spelling, and the config key after a dot.

    Leading dashes may be left out, and underscores stand for dashes as in vLLM's own parser.
    Raises ElementError with ENGINE-UNKNOWN-FLAG.
    """
    bare, _dot, inner = key.strip().lstrip("-").partition(".")
    bare = bare.replace("_", "-")
    accepted = known.flags(version)
    for spelling in (f"--{bare}", f"-{bare}"):
        if spelling in accepted:
            return accepted[spelling], spelling, inner
    raise _unknown("ENGINE-UNKNOWN-FLAG", f"--{bare}", version, accepted, "flags")


def seen_in(name: str) -> str:
    """Return where a flag or variable is known, as text: `0.9.2 to 0.16.0, and 0.33.0`."""
    runs: list[list[str]] = []
    previous = False
    for version in known.versions():
        there = name in known.flags(version) or name in known.env_vars(version)
        if there and previous:
            runs[-1].append(version)
        elif there:
            runs.append([version])
        previous = there
    return ", and ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _unknown(
    code: str, name: str, version: str, candidates: Iterable[str], group: str
) -> ElementError:
    """Return the refusal: since when it is gone and what replaces it, or the nearest name."""
    seen, advice = seen_in(name), knowledge("vllm/renamed.yml")[group].get(name)
    message = f"vLLM {version} does not know it"
    if seen:
        message += f"; it is known in {seen}"
    close = difflib.get_close_matches(name, list(candidates), n=1)
    if advice:
        remedy = advice
    elif close:
        remedy = f"did you mean {close[0]}? Otherwise remove it"
    else:
        remedy = "remove it"
    return _problem(code, name, message, remedy)


def flag_element(key: str, value: Any, version: str) -> FlagElement:
    """Return the element for one flag and value; raises ElementError with the finding.

    True and false become the flag or its negative spelling, a mapping one JSON element, a list
    several elements where the flag takes several, else one JSON element.
    """
    flag, spelling, inner = find(key, version)
    if not flag.takes_value:
        return _boolean(flag, spelling, value, version)
    if isinstance(value, bool) and not inner:
        raise _problem(
            "ENGINE-BAD-VALUE",
            spelling,
            f"it takes a value, found {str(value).lower()}",
            "give it its value, or null to leave it out",
        )
    if inner:
        _check_keys(flag, {inner.partition(".")[0]: value}, version)
        name = f"{flag.name}.{inner}"
        text = _scalar(name, value)
        return FlagElement(f"{flag.dest}.{inner}", name, (name, text), text)
    if isinstance(value, (list, tuple)) and (flag.nargs or flag.kind == "Append"):
        texts = tuple(_scalar(spelling, item) for item in value)
        if not texts:
            raise _problem(
                "ENGINE-BAD-VALUE", spelling, "the list is empty", "use null to leave it out"
            )
    else:
        texts = (_scalar(spelling, value),)
    for text in texts:
        _check_choice(flag, spelling, text, version)
    _check_keys(flag, value, version)
    if flag.kind == "Append":
        argv = tuple(part for text in texts for part in (flag.name, text))
    else:
        argv = (flag.name, *texts)
    return FlagElement(flag.dest, flag.name, argv, " ".join(texts))


def _boolean(flag: Flag, spelling: str, value: Any, version: str) -> FlagElement:
    if not isinstance(value, bool):
        raise _problem(
            "ENGINE-BAD-VALUE",
            spelling,
            f"it takes true or false, found {value!r}",
            "use true, false, or null to leave it out",
        )
    wanted = value != (spelling in flag.negative)
    if wanted:
        return FlagElement(flag.dest, flag.name, (flag.name,), "true")
    if not flag.negative:
        raise _problem(
            "ENGINE-BAD-VALUE",
            spelling,
            f"vLLM {version} has no way to switch it off",
            "use null to leave it out",
        )
    negative = flag.negative[0]
    return FlagElement(flag.dest, negative, (negative,), "false")


def _scalar(name: str, value: Any) -> str:
    """Return a value as one argv element; mappings, lists and booleans as compact JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise _problem("ENGINE-BAD-VALUE", name, f"{value} is not a number", "use a finite number")
    if value is None or isinstance(value, (bool, Mapping, list, tuple)):
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise _problem(
                "ENGINE-BAD-VALUE", name, f"not JSON: {problem}", "use plain YAML values"
            ) from problem
    text = str(value)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise _problem(
            "ENGINE-BAD-VALUE",
            name,
            "the value holds a control character",
            "use one line of plain text",
        )
    return text


def _check_choice(flag: Flag, spelling: str, text: str, version: str) -> None:
    choices = flag.choices
    looked_up = knowledge("vllm/rules.yml")["looked_up"].get(flag.dest)
    if looked_up:
        enum, literal = looked_up.get("enum"), looked_up.get("literal")
        choices = known.enum_names(version, enum) if enum else known.literals(version, literal)
    if not choices or text in choices:
        return
    advice = knowledge("vllm/renamed.yml")["values"].get(flag.dest, {}).get(text)
    close = difflib.get_close_matches(text, choices, n=1)
    raise _problem(
        "ENGINE-BAD-CHOICE",
        spelling,
        f"vLLM {version} does not take {text!r}; it takes {', '.join(choices)}",
        advice or (f"use {close[0]}" if close else f"use one of {', '.join(choices)}"),
    )


def _config_class(flag: Flag, version: str) -> str | None:
    """Return the config class that a JSON flag fills: --compilation-config, CompilationConfig."""
    bare = flag.dest.replace("_", "")
    classes = knowledge("vllm/config_keys.yml")["config_keys"]
    return next((name for name in classes if name.lower() == bare), None)


def _check_keys(flag: Flag, value: Any, version: str) -> None:
    """Refuse keys that the flag's config class does not have in this version."""
    config = _config_class(flag, version)
    if config is None:
        return
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as problem:
            raise _problem(
                "ENGINE-BAD-VALUE",
                flag.name,
                f"column {problem.colno}: {problem.msg}",
                "write the value as JSON, or as a mapping",
            ) from problem
    keys = known.config_keys(version, config)
    if not isinstance(value, Mapping) or not keys:
        return
    for key in value:
        if key in keys:
            continue
        advice = knowledge("vllm/renamed.yml")["config_keys"].get(config, {}).get(key)
        close = difflib.get_close_matches(str(key), list(keys), n=1)
        raise _problem(
            "ENGINE-UNKNOWN-KEY",
            flag.name,
            f"{config} of vLLM {version} has no key {key}",
            advice or (f"did you mean {close[0]}?" if close else f"remove {key}"),
        )


def env_element(name: str, value: Any, version: str) -> str:
    """Return the text of one environment variable; raises ElementError with the finding.

    Names that begin with VLLM_ must be known to the version; others are not vLLM's to check.
    """
    if not _ENV_NAME.fullmatch(name):
        raise _problem(
            "ENGINE-BAD-VALUE", name, "not a variable name", "use letters, digits and underscores"
        )
    variable = known.env_vars(version).get(name)
    if variable is None and name.startswith("VLLM_"):
        names = [item for item in known.env_vars(version) if item.startswith("VLLM_")]
        raise _unknown("ENGINE-UNKNOWN-ENV", name, version, names, "env")
    text = str(int(value)) if isinstance(value, bool) else _scalar(name, value)
    if variable is None or variable.choices is None:
        return text
    given = text.split(",") if variable.many else [text]
    fold = str.lower if variable.ignore_case else str
    allowed = {fold(choice) for choice in variable.choices}
    wrong = [item for item in given if fold(item.strip()) not in allowed]
    if wrong:
        raise _problem(
            "ENGINE-BAD-CHOICE",
            name,
            f"vLLM {version} does not take {wrong[0]!r}; it takes {', '.join(variable.choices)}",
            f"use one of {', '.join(variable.choices)}",
        )
    return text


def switch(name: str, text: str, version: str) -> str:
    """Return the text that rules compare: of a boolean variable 1 or 0, whatever its spelling."""
    variable = known.env_vars(version).get(name)
    if variable is None or variable.type != "bool":
        return text
    return {"true": "1", "false": "0"}.get(text.lower(), text)
