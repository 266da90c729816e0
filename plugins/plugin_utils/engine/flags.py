# SPDX-License-Identifier: GPL-3.0-or-later

"""What each vLLM version accepts: flags, environment variables, config keys, names.

The facts are histories in knowledge/vllm/*.yml (written by tools/vllm_matrix.py): the state of
a thing in a version is the last one whose `from` is not newer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..findings import ApiaryError, Finding, error
from .conditions import order, parse_version

SOURCE = "knowledge/vllm/flags.yml"


@dataclass(frozen=True)
class Flag:
    """One argparse action of a version: every spelling in ``names`` + ``negative`` is accepted.

    ``names`` set it (to true, for a boolean), ``negative`` set a boolean to false, and those in
    ``hidden`` are accepted without being in --help. ``dest`` is the attribute that is set.
    ``kind`` is the argparse action (Store, Append, StoreTrue, BooleanOptional, EnableDisable, …);
    ``nargs`` is None or argparse's own (`+`, `?`). ``type`` is what its converter takes: int,
    float, text, json, config (a JSON object), json-or-text, size (1024, 32k), size-or-auto; None
    where the converter has no name. With ``optional`` the word None is taken too.
    """

    dest: str
    names: tuple[str, ...]
    kind: str
    negative: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    nargs: str | None = None
    choices: tuple[str, ...] | None = None
    type: str | None = None
    optional: bool = False
    default: str | int | float | bool | None = None
    deprecated: bool = False

    @property
    def name(self) -> str:
        """Return the spelling that recipes use: the first long one."""
        return self.names[0]

    @property
    def takes_value(self) -> bool:
        """Return whether the flag is followed by a value."""
        return self.kind not in ("StoreTrue", "BooleanOptional", "EnableDisable", "Help")


@dataclass(frozen=True)
class EnvVar:
    """One variable that a version's envs.py knows; ``choices`` only where it enforces them."""

    name: str
    type: str | None = None
    default: str | int | float | bool | None = None
    choices: tuple[str, ...] | None = None
    ignore_case: bool = False
    many: bool = False  # a comma-separated list of choices
    deprecated: bool = False


@dataclass(frozen=True)
class ResolvedVersion:
    """The known version whose facts hold for the ``requested`` one, with findings."""

    requested: str
    version: str
    findings: tuple[Finding, ...] = ()


def versions() -> tuple[str, ...]:
    """Return the known versions, oldest first."""
    return tuple(knowledge("vllm/flags.yml")["versions"])


def newest() -> str:
    """Return the newest known version."""
    return versions()[-1]


def _same_release(version: str) -> str | None:
    """Return the known version of the same release, or None.

    Post-releases and local builds (0.11.2 and 0.11.2.post2, 0.14.1 and 0.14.1+rocm700) fix
    packaging, not the interface, so they share facts; pre-releases do not.
    """
    if version in versions():
        return version
    parsed = parse_version(version)
    if parsed is None or not parsed.final:
        return None
    known = [item for item in versions() if order(item).release == parsed.release]
    return known[-1] if known else None


def nearest_below(version: str) -> str | None:
    """Return the newest known version that is older than ``version``, or None."""
    parsed = parse_version(version)
    if parsed is None:
        return None
    older = [item for item in versions() if order(item) < parsed]
    return older[-1] if older else None


def resolve_version(
    version: str, treat_as: str | None = None, subject: str = "engine.version"
) -> ResolvedVersion:
    """Return the known version whose facts hold for ``version``.

    For an unknown one that is the nearest known below, with the warning ENGINE-NEAREST-VERSION,
    or the known one that ``treat_as`` names, with ENGINE-TREATED-AS. Raises ApiaryError
    ENGINE-UNKNOWN-VERSION for what is older than all known ones, or no version.
    """
    same, first, last = _same_release(version), versions()[0], newest()

    def unknown(message: str) -> ApiaryError:
        code = "ENGINE-UNKNOWN-VERSION"
        return error(code, subject, message, source=SOURCE, first=first, last=last)

    def resolved(use: str, code: str, message: str, **values: Any) -> ResolvedVersion:
        finding = Finding(code, subject, f"vLLM {version} {message}", source=SOURCE, **values)
        return ResolvedVersion(version, use, (finding,))

    if treat_as is not None:
        use = _same_release(treat_as)
        if use is None:
            raise unknown(
                f"engine.treat_as is {treat_as}, which is not one of the known versions"
                f" ({first} to {last})"
            )
        if use != same:
            message = f"gets the rules and flags of {use}, because engine.treat_as says so"
            return resolved(use, "ENGINE-TREATED-AS", message)
    if same is not None:
        return ResolvedVersion(version, same)
    below = nearest_below(version)
    if below is None:
        raise unknown(
            f"vLLM {version} is not known, and no known version is older; the {len(versions())}"
            f" known ones go from {first} to {last}"
        )
    message = f"is not known: it gets the rules and flags of {below}, the nearest below"
    return resolved(below, "ENGINE-NEAREST-VERSION", message, below=below)


@functools.cache
def _ranks() -> Mapping[str, int]:
    return {version: number for number, version in enumerate(versions())}


def _state(history: list[dict[str, Any]], version: str) -> dict[str, Any] | None:
    """Return the state that holds in a known version, without its `from`; None if absent."""
    ranks = _ranks()
    current: dict[str, Any] | None = None
    for state in history:
        if ranks[state["from"]] > ranks[version]:
            break
        current = state
    if current is None or current.get("absent"):
        return None
    return {key: value for key, value in current.items() if key != "from"}


def _choices(values: list[Any] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(value) for value in values)


@functools.cache
def actions(version: str) -> tuple[Flag, ...]:
    """Return each flag of a known version once, sorted by ``dest``; KeyError if not known."""
    result = []
    for dest, history in knowledge("vllm/flags.yml")["flags"].items():
        state = _state(history, version)
        if state is None:
            continue
        state["choices"] = _choices(state.get("choices"))
        for name in ("names", "negative", "hidden"):
            state[name] = tuple(state.get(name, ()))
        result.append(Flag(dest=dest, **state))
    return tuple(result)


@functools.cache
def flags(version: str) -> Mapping[str, Flag]:
    """Return the flags of a known version by every spelling it accepts, hidden ones too."""
    return {name: flag for flag in actions(version) for name in flag.names + flag.negative}


@functools.cache
def env_vars(version: str) -> Mapping[str, EnvVar]:
    """Return the variables that a known version's envs.py knows, by name.

    Most begin with VLLM_; vLLM reports only unknown ones with that prefix.
    """
    result = {}
    for name, history in knowledge("vllm/env.yml")["env"].items():
        state = _state(history, version)
        if state is None:
            continue
        enum = state.pop("choices_enum", None)
        choices = enum_names(version, enum) if enum else _choices(state.pop("choices", None))
        result[name] = EnvVar(name=name, choices=choices, **state)
    return result


def config_keys(version: str, config: str) -> Mapping[str, str | None]:
    """Return a config class's keys in a known version with their types; empty if not there."""
    keys = knowledge("vllm/config_keys.yml")["config_keys"].get(config, {})
    states = {key: _state(history, version) for key, history in keys.items()}
    return {key: state.get("type") for key, state in states.items() if state is not None}


@functools.cache
def _members(name: str, group: str, version: str) -> tuple[str, ...]:
    values = knowledge(f"vllm/{group}.yml")[group].get(name, {})
    return tuple(value for value, history in values.items() if _state(history, version) is not None)


def enum_names(version: str, name: str) -> tuple[str, ...]:
    """Return an enum's members in a known version (AttentionBackendEnum, CUDAGraphMode, …)."""
    return _members(name, "enums", version)


def literals(version: str, name: str) -> tuple[str, ...]:
    """Return a Literal's values in a known version (QuantizationMethods, CacheDType, …)."""
    return _members(name, "literals", version)


def pins(version: str) -> Mapping[str, str]:
    """Return what a known version's ROCm image is built with, by name."""
    pinned = knowledge("vllm/pins.yml")["pins"]
    states = {name: _state(history, version) for name, history in pinned.items()}
    return {name: state["is"] for name, state in states.items() if state is not None}


@functools.cache
def seen_in(name: str) -> str:
    """Return where a flag or variable is known, as text: `0.9.2 to 0.16.0, and 0.33.0`."""
    runs: list[list[str]] = []
    previous = False
    for version in versions():
        there = name in flags(version) or name in env_vars(version)
        if there and previous:
            runs[-1].append(version)
        elif there:
            runs.append([version])
        previous = there
    return ", and ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
