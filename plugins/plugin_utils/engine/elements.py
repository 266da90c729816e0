# SPDX-License-Identifier: GPL-3.0-or-later

"""The elements of a command: each flag and variable found, checked and spelled for one version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..documents import knowledge
from . import flags as known
from .conditions import read_span
from .flags import Flag
from .values import (
    ElementError,
    Problem,
    bad_choice,
    bad_value,
    check_env,
    check_flag,
    nearest,
    scalar,
    wrong_element,
)

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Element:
    """One flag or variable as it will be spelled: ``key`` is `flag dest` or `env NAME`.

    ``text`` is its value, ``seen`` what rules compare, ``argv`` a flag with its values, ``keys``
    the single keys of a JSON value as rules see them.
    """

    key: str
    name: str
    text: str
    seen: str
    argv: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(self.argv) or f"{self.name}={self.text}"


@dataclass
class Reading:
    """What one flag or variable is: its ``element``, None where none can be written.

    ``name`` is its spelling; ``key`` is empty where not even that can be written. ``flag`` is the
    one that is meant, unless it is a variable.
    """

    version: str
    name: str
    key: str = ""
    flag: Flag | None = None
    element: Element | None = None
    problems: list[Problem] = field(default_factory=list)

    def say(self, problem: Problem | None) -> None:
        """Note a problem, if it is one."""
        if problem is not None:
            self.problems.append(problem)


def read_flag(key: str, value: Any, version: str) -> Reading:
    """Return what a flag with a value is in a version; one without value (None) is left out.

    Leading dashes may be left out, and underscores stand for dashes as in vLLM's own parser. True
    and false become the flag or its negative spelling, a mapping one JSON element, a list several
    elements where the flag takes several, else one JSON element; a tuple is the words behind it on
    a command line. An unknown flag is a problem, and is taken as it is written.
    """
    reading = Reading(version, key)
    try:
        flag, inner = _find(reading, key)
        reading.flag = flag
        reading.key = f"flag {flag.dest}.{inner}" if inner else f"flag {flag.dest}"
        if isinstance(value, tuple):
            value = _of_words(flag, key, value)
        if value is not None:
            reading.element = _flag_element(reading, flag, inner, value)
    except ElementError as wrong:
        reading.say(wrong.problem)
    return reading


def read_env(name: str, value: Any, version: str) -> Reading:
    """Return what a variable with a value is in a version; one without value is left out.

    Names that begin with VLLM_ must be known to the version; others are not vLLM's to check.
    """
    reading = Reading(version, name, f"env {name}")
    try:
        if value is not None:
            reading.element = _env_element(reading, value)
    except ElementError as wrong:
        reading.say(wrong.problem)
    return reading


def _find(reading: Reading, key: str) -> tuple[Flag, str]:
    """Return the flag that a key means, and the config key after a dot."""
    bare, _dot, inner = key.strip().lstrip("-").partition(".")
    bare = bare.replace("_", "-")
    accepted = known.flags(reading.version)
    for spelling in (f"--{bare}", f"-{bare}"):
        if spelling in accepted:
            reading.name = spelling
            return accepted[spelling], inner
    reading.name = spelling = f"--{bare}"
    problem = _unknown(
        "ENGINE-UNKNOWN-FLAG", spelling, reading.version, accepted, "flags", "parser"
    )
    if not re.fullmatch(r"--[a-zA-Z][a-zA-Z0-9-]*", spelling):
        raise ElementError(problem)
    reading.say(problem)
    return Flag(bare.replace("-", "_"), (spelling,), _UNKNOWN), inner


def _of_words(flag: Flag, name: str, words: tuple[str, ...]) -> Any:
    """Return the value that the words behind a flag are."""
    if flag.takes_value and words:
        return words[0] if len(words) == 1 else list(words)
    if not words and (not flag.takes_value or flag.kind == _UNKNOWN):
        return True
    raise bad_value(
        name, f"it takes no value, found {words[0]!r}" if words else "its value is missing"
    )


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


def _flag_element(reading: Reading, flag: Flag, inner: str, value: Any) -> Element:
    spelling = reading.name
    if not flag.takes_value or (flag.kind == _UNKNOWN and isinstance(value, bool)):
        return _boolean(reading, flag, value)
    if isinstance(value, bool) and not inner:
        raise bad_value(spelling, f"it takes a value, found {str(value).lower()}")
    if inner:
        _check_keys(reading, flag, {inner.partition(".")[0]: value})
        name = f"{flag.name}.{inner}"
        text = scalar(name, value)
        return Element(reading.key, name, text, text, (name, text))
    if isinstance(value, list) and (flag.nargs or flag.kind == "Append"):
        texts = tuple(scalar(spelling, item) for item in value)
        if not texts:
            raise bad_value(spelling, "the list is empty")
    else:
        texts = (scalar(spelling, value),)
    for text in texts if flag.kind != _UNKNOWN else ():
        reading.say(check_flag(flag, spelling, text, reading.version))
    keys = _check_keys(reading, flag, value)
    if flag.kind == "Append":
        argv = tuple(part for text in texts for part in (flag.name, text))
    else:
        argv = (flag.name, *texts)
    text = " ".join(texts)
    return Element(reading.key, flag.name, text, text, argv, keys)


def _boolean(reading: Reading, flag: Flag, value: Any) -> Element:
    if not isinstance(value, bool):
        raise bad_value(reading.name, f"it takes true or false, found {value!r}")
    key = f"flag {flag.dest}"
    if value != (reading.name in flag.negative):
        return Element(key, flag.name, "true", "true", (flag.name,))
    if not flag.negative:
        raise bad_value(reading.name, f"vLLM {reading.version} has no way to switch it off")
    negative = flag.negative[0]
    return Element(key, negative, "false", "false", (negative,))


def _config_class(flag: Flag) -> str | None:
    """Return the config class that a JSON flag fills: --compilation-config, CompilationConfig."""
    bare = flag.dest.replace("_", "")
    classes = knowledge("vllm/config_keys.yml")["config_keys"]
    return next((name for name in classes if name.lower() == bare), None)


def _check_keys(reading: Reading, flag: Flag, value: Any) -> dict[str, str]:
    """Return the keys of a JSON value; those its config class does not have are problems."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {}  # the flag's type said so
    if not isinstance(value, Mapping):
        return {}
    config, version = _config_class(flag), reading.version
    keys = known.config_keys(version, config) if config else {}
    for key, item in value.items():
        if keys and key not in keys:
            reading.say(_unknown_key(flag, config or "", str(key), list(keys), version))
        else:
            reading.say(_check_member(flag, str(key), item, keys.get(key), version))
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
    return bad_choice(flag.name, f"{key} of vLLM {version}", value, members, "parser")


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


def _env_element(reading: Reading, value: Any) -> Element:
    name, version = reading.name, reading.version
    if not _ENV_NAME.fullmatch(name):
        raise bad_value(name, "not a variable name")
    variable = known.env_vars(version).get(name)
    if variable is None and name.startswith("VLLM_"):
        names = [item for item in known.env_vars(version) if item.startswith("VLLM_")]
        reading.say(_unknown("ENGINE-UNKNOWN-ENV", name, version, names, "env", None))
    text = seen = str(int(value)) if isinstance(value, bool) else scalar(name, value)
    if variable is not None and name.startswith("VLLM_"):
        reading.say(check_env(variable, text, version))
    if variable is not None and variable.type == "bool":  # one value, whatever its spelling
        seen = {"true": "1", "false": "0"}.get(text.lower(), text)
    return Element(reading.key, name, text, seen)
