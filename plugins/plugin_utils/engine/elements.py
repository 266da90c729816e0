# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The elements of a command: each flag and variable found, checked and spelled for one version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from . import flags as known
from .flags import Flag
from .problems import ElementError, Problem, wrong_element
from .values import check_env, check_flag, nearest, scalar
from .versions import read_span

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN = "Unknown"


@dataclass(frozen=True)
class FlagElement:
    """One flag as it will be spelled: ``argv`` with its values, ``text`` what rules compare.

    ``keys`` are the single keys of a JSON value, as rules see them.
    """

    key: str
    name: str
    argv: tuple[str, ...]
    text: str
    keys: Mapping[str, str] | None = None


@dataclass(frozen=True)
class EnvElement:
    """One environment variable with its text."""

    name: str
    text: str


def _say(problems: list[Problem] | None, problem: Problem | None) -> None:
    """Note a problem where there is a list for it, else raise it."""
    if problem is None:
        return
    if problems is None:
        raise ElementError(problem)
    problems.append(problem)


def find(key: str, version: str, problems: list[Problem] | None = None) -> tuple[Flag, str, str]:
    """Return the flag that a key means, its spelling, and the config key after a dot.

    Leading dashes may be left out, and underscores stand for dashes as in vLLM's own parser. An
    unknown flag is a problem, and is taken as it is written.
    """
    bare, _dot, inner = key.strip().lstrip("-").partition(".")
    bare = bare.replace("_", "-")
    accepted = known.flags(version)
    for spelling in (f"--{bare}", f"-{bare}"):
        if spelling in accepted:
            return accepted[spelling], spelling, inner
    spelling = f"--{bare}"
    problem = _unknown("ENGINE-UNKNOWN-FLAG", spelling, version, accepted, "flags", "parser")
    if not re.fullmatch(r"--[a-zA-Z][a-zA-Z0-9-]*", spelling):
        raise ElementError(problem)
    _say(problems, problem)
    return Flag(bare.replace("-", "_"), (spelling,), _UNKNOWN), spelling, inner


def _unknown(
    code: str, name: str, version: str, candidates: Iterable[str], group: str, stage: str | None
) -> Problem:
    """Return the problem: since when it is gone and what replaces it, or the nearest name."""
    seen, advice = known.seen_in(name), knowledge("vllm/renamed.yml")[group].get(name)
    message = f"vLLM {version} does not know it"
    if seen:
        message += f"; it is known in {seen}"
    close = nearest(name, candidates)
    advice = advice or (f"perhaps {close} is meant" if close else "nothing is spelled like it")
    return wrong_element(code, name, message, stage, advice=advice)


def flag_element(
    key: str, value: Any, version: str, problems: list[Problem] | None = None
) -> FlagElement:
    """Return the element for one flag and value.

    True and false become the flag or its negative spelling, a mapping one JSON element, a list
    several elements where the flag takes several, else one JSON element. What is wrong goes to
    ``problems``; without such a list, or where nothing could be written, ElementError is raised.
    """
    flag, spelling, inner = find(key, version, problems)
    if not flag.takes_value or (flag.kind == _UNKNOWN and isinstance(value, bool)):
        return _boolean(flag, spelling, value, version)
    if isinstance(value, bool) and not inner:
        raise _bad(spelling, f"it takes a value, found {str(value).lower()}")
    if inner:
        _check_keys(flag, {inner.partition(".")[0]: value}, version, problems)
        name = f"{flag.name}.{inner}"
        text = scalar(name, value)
        return FlagElement(f"{flag.dest}.{inner}", name, (name, text), text)
    if isinstance(value, (list, tuple)) and (flag.nargs or flag.kind == "Append"):
        texts = tuple(scalar(spelling, item) for item in value)
        if not texts:
            raise _bad(spelling, "the list is empty")
    else:
        texts = (scalar(spelling, value),)
    for text in texts if flag.kind != _UNKNOWN else ():
        _say(problems, check_flag(flag, spelling, text, version))
    keys = _check_keys(flag, value, version, problems)
    if flag.kind == "Append":
        argv = tuple(part for text in texts for part in (flag.name, text))
    else:
        argv = (flag.name, *texts)
    return FlagElement(flag.dest, flag.name, argv, " ".join(texts), keys)


def _bad(name: str, message: str) -> ElementError:
    return ElementError(wrong_element("ENGINE-BAD-VALUE", name, message, "parser"))


def _boolean(flag: Flag, spelling: str, value: Any, version: str) -> FlagElement:
    if not isinstance(value, bool):
        raise _bad(spelling, f"it takes true or false, found {value!r}")
    requested = value != (spelling in flag.negative)
    if requested:
        return FlagElement(flag.dest, flag.name, (flag.name,), "true")
    if not flag.negative:
        raise _bad(spelling, f"vLLM {version} has no way to switch it off")
    negative = flag.negative[0]
    return FlagElement(flag.dest, negative, (negative,), "false")


def _config_class(flag: Flag) -> str | None:
    """Return the config class that a JSON flag fills: --compilation-config, CompilationConfig."""
    bare = flag.dest.replace("_", "")
    classes = knowledge("vllm/config_keys.yml")["config_keys"]
    return next((name for name in classes if name.lower() == bare), None)


def _check_keys(
    flag: Flag, value: Any, version: str, problems: list[Problem] | None
) -> Mapping[str, str] | None:
    """Return the keys of a JSON value; those its config class does not have are problems."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None  # the flag's type said so
    if not isinstance(value, Mapping):
        return None
    config = _config_class(flag)
    keys = known.config_keys(version, config) if config else {}
    for key, item in value.items():
        if keys and key not in keys:
            _say(problems, _unknown_key(flag, config or "", str(key), list(keys), version))
        else:
            _say(problems, _check_member(flag, str(key), item, keys.get(key), version))
    return {str(key): scalar(flag.name, item) for key, item in value.items()}


def _check_member(
    flag: Flag, key: str, value: Any, kind: str | None, version: str
) -> Problem | None:
    """Return what is wrong with a key's value where its type is an enum, or None."""
    enum = next(
        (name for name in ("CUDAGraphMode", "AttentionBackendEnum") if name in (kind or "")), None
    )
    members = known.enum_names(version, enum) if enum else ()
    if not members or not isinstance(value, str) or value.upper() in members:
        return None
    close, listed = nearest(value, members), ", ".join(members)
    return wrong_element(
        "ENGINE-BAD-CHOICE",
        flag.name,
        f"{key} of vLLM {version} does not take {value!r}; it takes {listed}",
        "parser",
        advice=f"use {close}" if close else f"use one of {listed}",
    )


def _unknown_key(flag: Flag, config: str, key: str, keys: list[str], version: str) -> Problem:
    advice = knowledge("vllm/renamed.yml")["config_keys"].get(config, {}).get(key)
    close = nearest(key, keys)
    strict = knowledge("vllm/checks.yml")["strict_configs"].get(config)
    stage = strict["stage"] if strict and read_span(strict).covers(version) else None
    return wrong_element(
        "ENGINE-UNKNOWN-KEY",
        flag.name,
        f"{config} of vLLM {version} has no key {key}",
        stage,
        advice=advice or (f"did you mean {close}?" if close else f"remove {key}"),
    )


def env_element(
    name: str, value: Any, version: str, problems: list[Problem] | None = None
) -> EnvElement:
    """Return one environment variable; problems as for flags.

    Names that begin with VLLM_ must be known to the version; others are not vLLM's to check.
    """
    if not _ENV_NAME.fullmatch(name):
        raise _bad(name, "not a variable name")
    variable = known.env_vars(version).get(name)
    if variable is None and name.startswith("VLLM_"):
        names = [item for item in known.env_vars(version) if item.startswith("VLLM_")]
        _say(problems, _unknown("ENGINE-UNKNOWN-ENV", name, version, names, "env", None))
    text = str(int(value)) if isinstance(value, bool) else scalar(name, value)
    if variable is not None and name.startswith("VLLM_"):
        _say(problems, check_env(variable, text, version))
    return EnvElement(name, text)


def switch(name: str, text: str, version: str) -> str:
    """Return the text that rules compare: of a boolean variable 1 or 0, whatever its spelling."""
    variable = known.env_vars(version).get(name)
    if variable is None or variable.type != "bool":
        return text
    return {"true": "1", "false": "0"}.get(text.lower(), text)
