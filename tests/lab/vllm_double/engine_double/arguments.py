# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of one vLLM version, rebuilt from its flag table with argparse itself."""

from __future__ import annotations

import argparse
import json
import re
import typing

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_int(text: str) -> int:
    """Read 32768, 32k (decimal) or 32K (binary), as vLLM does for its large numbers."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {suffix}. "
            f"Did you mean to use {number}{suffix.lower()} instead?"
        )
    return int(number) * _BINARY[suffix]


def human_int_or_auto(text: str) -> int:
    """Read what human_int reads, or `auto` (-1)."""
    return -1 if text.strip().lower() in ("auto", "-1") else human_int(text)


# argparse names the reader in "invalid ... value"; these are vLLM's names for it.
human_int.__name__ = "human_readable_int"
human_int_or_auto.__name__ = "human_readable_int_or_auto"


def port(text: str) -> int:
    """Read a TCP port that an unprivileged server may bind."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("Port must be an integer") from None
    if not 1024 <= value <= 65535:
        raise argparse.ArgumentTypeError("Port must be between 1024 and 65535")
    return value


def json_value(text: str) -> typing.Any:
    """Read JSON; an empty value or None is None."""
    if text in ("", "None"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Value {text} cannot be converted to <function loads>."
        ) from None


def json_or_text(text: str) -> typing.Any:
    """Read JSON when it is an object, else keep the text."""
    return json_value(text) if re.fullmatch(r"(?s)\s*{.*}\s*", text) else text


def config_reader(
    name: str, keys: dict[str, typing.Any], forbids: bool
) -> typing.Callable[[str], typing.Any]:
    """Return the reader of one config object: JSON whose unknown keys are refused or ignored."""

    def read(text: str) -> typing.Any:
        try:
            value = json.loads(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(
                f"1 validation error for {name}\n  Invalid JSON: {problem} [type=json_invalid, "
                f"input_value={text!r}, input_type=str]"
            ) from None
        # Until 0.11.2 -O3 is short for {"level": 3}.
        if isinstance(value, int) and "level" in keys:
            value = {"level": value}
        if not isinstance(value, dict):
            raise argparse.ArgumentTypeError(
                f"1 validation error for {name}\n  Input should be a dictionary or an instance "
                f"of {name} [type=dataclass_type, input_value={value!r}]"
            )
        unknown = [key for key in value if key not in keys]
        if forbids and unknown:
            lines = [f"{len(unknown)} validation error{'s' * (len(unknown) > 1)} for {name}"]
            for key in unknown:
                lines += [
                    key,
                    "  Unexpected keyword argument [type=unexpected_keyword_argument, "
                    f"input_value={value[key]!r}, input_type={type(value[key]).__name__}]",
                ]
            raise argparse.ArgumentTypeError("\n".join(lines))
        return value

    return read


READERS: dict[str, typing.Callable[[str], typing.Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "human_int": human_int,
    "human_int_or_auto": human_int_or_auto,
    "port": port,
    "json": json_value,
    "json_or_str": json_or_text,
}


def _positive(name: str) -> bool:
    words = name.lstrip("-").replace("_", "-").split("-")
    return sum(word in ("no", "disable") for word in words[:2]) % 2 == 0


def toggle_value(option: str, dest: str) -> bool:
    """Say what a switch's spelling sets ``dest`` to: --no-x and --disable-x mean the opposite of x.

    A dest may be negative itself: --no-disable-x sets disable_x to False.
    """
    return _positive(option) == _positive(dest)


class _Toggle(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, **keywords: typing.Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **keywords)

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        setattr(namespace, self.dest, toggle_value(option_string, self.dest))


def add_flag(
    parser: argparse.ArgumentParser, flag: dict[str, typing.Any], data: dict[str, typing.Any]
) -> None:
    """Add one flag of the table to the parser."""
    options, kind = flag["options"], flag["kind"]
    if kind == "Help":
        parser.add_argument(*options, action="help")
        return
    keywords: dict[str, typing.Any] = {"dest": flag["dest"], "default": argparse.SUPPRESS}
    if kind in ("StoreTrue", "BooleanOptional", "EnableDisable"):
        parser.add_argument(*options, action=_Toggle, **keywords)
        return
    if flag.get("config"):
        config = data["config_keys"][flag["config"]]
        keywords["type"] = config_reader(flag["config"], config["keys"], config["forbids"])
    else:
        keywords["type"] = READERS[flag["type"]]
    if kind == "Append":
        keywords["action"] = "append"
    if flag.get("nargs") is not None:
        keywords["nargs"] = flag["nargs"]
    if flag.get("choices") is not None:
        keywords["choices"] = flag["choices"]
    parser.add_argument(*options, **keywords)


def serve_parser(data: dict[str, typing.Any]) -> argparse.ArgumentParser:
    """Return `vllm` with its `serve` subcommand for the version that ``data`` describes."""
    root = argparse.ArgumentParser(prog="vllm")
    root.add_argument("-v", "--version", action="version", version=data["version"])
    commands = root.add_subparsers(dest="subparser")
    serve = commands.add_parser("serve", usage="vllm serve [model_tag] [options]")
    serve.conflict_handler = "resolve"
    for action in list(serve._actions):  # the table brings its own -h
        serve._handle_conflict_resolve(None, [(name, action) for name in action.option_strings])  # type: ignore[arg-type]
    serve.add_argument("model_tag", nargs="?", default=None)
    for flag in data["flags"]:
        add_flag(serve, flag, data)
    return root


def normalise(arguments: list[str], data: dict[str, typing.Any]) -> list[str]:
    """Undo vLLM's liberties: underscores, -O3, and --config.key=value for parts of a JSON value."""
    spelled = []
    has_level = any("--optimization-level" in flag["options"] for flag in data["flags"])
    level = "--optimization-level" if has_level else "-O"
    for argument in arguments:
        if argument.startswith("--"):
            key, equals, value = argument.partition("=")
            head, dot, tail = key.partition(".")
            spelled.append(head.replace("_", "-") + dot + tail + equals + value)
        elif argument.startswith("-O"):
            spelled += [level, *([argument[2:].lstrip("=")] if argument != "-O" else [])]
        else:
            spelled.append(argument)
    kept: list[str] = []
    nested: dict[str, dict[str, typing.Any]] = {}
    rest = iter(spelled)
    for argument in rest:
        key, equals, text = argument.partition("=")
        if not (key.startswith("-") and "." in key):
            kept.append(argument)
            continue
        text = text if equals else next(rest, "")
        path = key.split(".")
        if key.endswith("+"):
            path[-1] = path[-1][:-1]
            text = json.dumps(text.split(","))
        place = nested.setdefault(path[0], {})
        for name in path[1:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = _dotted_value(text)
    for key, parts in nested.items():
        kept += [key, json.dumps(parts)]
    return kept


def _dotted_value(text: str) -> typing.Any:
    for reader in (json.loads, human_int):
        try:
            return reader(text)
        except (ValueError, argparse.ArgumentTypeError):
            continue
    return text


def parse(
    arguments: list[str], data: dict[str, typing.Any]
) -> tuple[dict[str, typing.Any], dict[str, typing.Any], list[str]]:
    """Return (every setting by dest, those the caller gave, deprecation warnings).

    Exits with status 2 and argparse's message where the version's own parser does.
    """
    if "--model" in arguments[1:-1] and arguments[0] == "serve":
        at = arguments.index("--model")
        arguments = ["serve", arguments[at + 1], *arguments[1:at], *arguments[at + 2 :]]
    namespace = serve_parser(data).parse_args(normalise(arguments, data))
    given = {name: value for name, value in vars(namespace).items() if name != "subparser"}
    settings = {flag["dest"]: flag.get("default") for flag in data["flags"]}
    settings.update(given)
    warnings = [
        f"argument '{flag['dest']}' is deprecated"
        for flag in data["flags"]
        if flag.get("deprecated")
        and given.get(flag["dest"], flag.get("default")) != flag.get("default")
    ]
    if given.get("model_tag") is None:
        given.pop("model_tag", None)
    settings["subcommand"] = namespace.subparser
    return settings, given, warnings
