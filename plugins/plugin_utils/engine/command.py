# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody's engine command, read out of a shell script: variables, flags with lines, model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..documents import knowledge
from ..findings import Finding, error
from .flags import Flag, flags
from .shell import ShellError, Word, commands

_RUNTIMES = ("docker", "podman", "nerdctl")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class Given:
    """One flag as it was written: its spelling, its values, and the line."""

    name: str
    values: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class EngineCommand:
    """What a script starts: ``env`` by name with lines, ``flags`` in order, the model.

    ``findings`` say what could not be read.
    """

    env: Mapping[str, tuple[str, int]]
    flags: tuple[Given, ...]
    model: str | None
    line: int
    findings: tuple[Finding, ...] = field(default=())


def read_command(text: str, version: str, file: str = "command") -> EngineCommand:
    """Return the first command of a shell text that starts a vLLM server.

    ``version`` says which flags take values. Raises ApiaryError with ENGINE-RECIPE-SYNTAX for what
    no shell would read, and ENGINE-RECIPE-EMPTY where nothing starts vLLM.
    """
    try:
        for variables, words in commands(text):
            engine = _engine(variables, words)
            if engine is not None:
                return _read(*engine, version, file)
    except ShellError as wrong:
        raise error("ENGINE-RECIPE-SYNTAX", f"{file}:{wrong.line}", wrong.message) from wrong
    raise error(
        "ENGINE-RECIPE-EMPTY",
        file,
        "found no command that starts vLLM: `vllm serve`, `python -m"
        " vllm.entrypoints.openai.api_server`, or `docker run` with a vLLM image",
    )


def _engine(
    variables: Mapping[str, Word], words: Sequence[Word]
) -> tuple[dict[str, Word], list[Word]] | None:
    """Return the variables and arguments of the server that a command starts, or None."""
    env = dict(variables)
    rest = list(words)
    while rest:
        first = rest[0].text.rpartition("/")[2]
        if first in _RUNTIMES:
            return _container(env, rest[1:])
        if first == "vllm" and len(rest) > 1 and rest[1].text == "serve":
            return env, rest[2:]
        if _is_python(first):
            arguments = _module(rest[1:])
            if arguments is not None:
                return env, arguments
        if _ASSIGNED.match(rest[0].text):  # `env NAME=VALUE …`
            name, _equals, value = rest[0].text.partition("=")
            env[name] = Word(value, rest[0].line, rest[0].unset)
        rest = rest[1:]
    return None


def _is_python(name: str) -> bool:
    return re.fullmatch(r"python[0-9.]*", name) is not None


def _module(rest: list[Word]) -> list[Word] | None:
    """Return the arguments of `python -m vllm.entrypoints.openai.api_server`, or None."""
    for index, word in enumerate(rest):
        if word.text == "-m" and len(rest) > index + 1:
            module = rest[index + 1].text
            entries = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
            if module in entries:
                return rest[index + 2 :]
            after = [item.text for item in rest[index + 2 : index + 3]]
            serves = module in ("vllm", "vllm.entrypoints.cli.main") and after == ["serve"]
            return rest[index + 3 :] if serves else None
        if not word.text.startswith("-"):
            return None
    return None


def _container(env: dict[str, Word], rest: list[Word]) -> tuple[dict[str, Word], list[Word]] | None:
    """Return the variables and arguments of the server in a `docker run` command, or None."""
    if not rest or rest[0].text not in ("run", "create", "exec"):
        return None
    inside: dict[str, Word] = {}
    facts = knowledge("vllm/containers.yml")
    index = 1
    while index < len(rest) and rest[index].text.startswith("-"):
        name, equals, value = rest[index].text.partition("=")
        word = rest[index]
        if not equals and not _is_switch(name, facts["switches"]):
            index += 1
            if index >= len(rest):
                return None
            word, value = rest[index], rest[index].text
        if name in ("-e", "--env"):
            variable, separator, text = value.partition("=")
            if separator:
                inside[variable] = Word(text, word.line, word.unset)
            elif variable in env:  # `-e NAME` passes the shell's own on
                inside[variable] = env[variable]
        index += 1
    if index >= len(rest):
        return None
    image, arguments = rest[index].text, rest[index + 1 :]
    inner_engine = _engine(inside, arguments)
    if inner_engine is not None:
        return inner_engine
    shell = _shell_argument(arguments)
    if shell is not None:
        for variables, words in commands(shell.text):
            inner = _engine({**inside, **variables}, words)
            if inner is not None:
                return inner[0], [Word(item.text, shell.line, item.unset) for item in inner[1]]
    if any(part in image for part in facts["serving_images"]) and arguments:
        return inside, list(arguments)
    return None


def _is_switch(name: str, switches: Sequence[str]) -> bool:
    """Say whether an option of `docker run` stands alone."""
    if name in switches:
        return True
    return re.fullmatch(r"-[a-z]+", name) is not None and set(name[1:]) <= set("ditP")


def _shell_argument(arguments: list[Word]) -> Word | None:
    """Return the text of `bash -c TEXT`, or None."""
    for word, following in itertools.pairwise(arguments):
        if re.fullmatch(r"-[a-z]*c", word.text):
            return following
    return None


def _read(
    variables: Mapping[str, Word], words: list[Word], version: str, file: str
) -> EngineCommand:
    findings = [
        _unresolved(file, word.line, name)
        for word in (*variables.values(), *words)
        for name in word.unset
    ]
    overrides: list[Given] = []
    positional: list[Word] = []
    accepted = flags(version)
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("-") or word.text in ("-", "--"):
            positional.append(word)
            continue
        name, equals, value = word.text.partition("=")
        values = [value] if equals else []
        if not equals:
            most = _takes(accepted.get(_plain(name)), name)
            while index < len(words) and len(values) < most and _is_value(words[index].text):
                values.append(words[index].text)
                index += 1
        overrides.append(Given(name, tuple(values), word.line))
    named = [item for item in overrides if _plain(item.name) == "--model" and item.values]
    model = positional[0].text if positional else named[0].values[0] if named else None
    return EngineCommand(
        env={name: (word.text, word.line) for name, word in variables.items()},
        flags=tuple(item for item in overrides if item not in named),
        model=model,
        line=words[0].line if words else 1,
        findings=tuple(dict.fromkeys(findings)),
    )


def _unresolved(file: str, line: int, name: str) -> Finding:
    return Finding(
        "ENGINE-RECIPE-UNRESOLVED",
        f"{file}:{line}",
        f"${name} has no value in this text, so what it stands for was not checked",
        name=name,
    )


def _plain(name: str) -> str:
    """Return a flag's spelling with dashes for underscores, without a config key."""
    bare = name.partition(".")[0]
    return "--" + bare[2:].replace("_", "-") if bare.startswith("--") else bare


def _takes(flag: Flag | None, name: str) -> int:
    """Return how many values may follow a flag; an unknown one takes what looks like a value."""
    if "." in name:
        return 1
    if flag is None:
        return 1
    if not flag.takes_value:
        return 0
    return 10**6 if flag.nargs in ("+", "*") else 1


def _is_value(text: str) -> bool:
    return not text.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", text) is not None
