# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn a vLLM flag matrix into the per-version facts under knowledge/vllm/.

Usage: python tools/vllm_matrix.py MATRIX.json plugins/plugin_utils/knowledge/vllm

MATRIX.json has the schema `vllm-flag-matrix/1`: option strings, environment variables, config
keys, enum members and literals of several releases, read off each release's own parser and
modules. Every output file is `{source, versions, <name>}`, and every fact in it is a history: a
list of states, each valid `from` its version on until the next one, `absent: true` where the
thing is not there. So adding a release only adds lines.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

SCHEMA = "vllm-flag-matrix/1"
SOURCE = (
    "vllm-flag-matrix/1: each release's own `vllm serve` argparse object, envs.py and config"
    " classes (Python sources of the wheel or the source distribution)"
)
HEADER = """\
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
---
# Made by tools/vllm_matrix.py; regenerate it instead of editing it.
"""
STATE = dict[str, Any]
# Long defaults are cut off in the matrix (whole config objects as text): a cut one is no fact.
LONGEST_DEFAULT = 59


class Span:
    """Which of the matrix's versions a `seen` list such as `[0.9.2..0.16.0, 0.33.0]` covers."""

    def __init__(self, versions: list[str]) -> None:
        self.versions = versions
        self.index = {version: number for number, version in enumerate(versions)}

    def of(self, seen: Iterable[str]) -> set[int]:
        """Return the covered version numbers; KeyError for a version the matrix does not have."""
        numbers: set[int] = set()
        for part in seen:
            first, _, last = part.partition("..")
            numbers.update(range(self.index[first], self.index[last or first] + 1))
        return numbers

    def states(self, entry: Mapping[str, Any]) -> dict[int, STATE]:
        """Return the entry's whole state for each version number it is there in."""
        result: dict[int, STATE] = {}
        seen = self.of(entry["seen"])
        state: STATE = {}
        changes = {self.index[item["from"]]: item for item in entry.get("history", [])}
        for number in range(len(self.versions)):
            change = changes.get(number, {})
            state = {
                key: value for key, value in state.items() if key not in change.get("dropped", ())
            } | {key: value for key, value in change.items() if key not in ("from", "dropped")}
            if number in seen:
                result[number] = state
        return result

    def history(self, states: Mapping[int, STATE]) -> list[STATE]:
        """Return only the changes: the form that is written."""
        result: list[STATE] = []
        previous: STATE | None = None
        for number, version in enumerate(self.versions):
            state = states.get(number)
            if state == previous:
                continue
            result.append({"from": version, **({"absent": True} if state is None else state)})
            previous = state
        return result


def default_of(state: Mapping[str, Any]) -> Any:
    """Return a default that is a whole scalar, else None."""
    default = state.get("default")
    if isinstance(default, str) and (len(default) >= LONGEST_DEFAULT or "/root" in default):
        return None  # cut off, or a path of the machine the matrix was made on
    return default if isinstance(default, (bool, int, float, str)) else None


def flag_state(states: Mapping[str, STATE]) -> STATE:
    """Return one argparse action from the states of all its option strings in one version."""
    first = next(iter(states.values()))
    kind, dest = first["kind"], first["dest"]
    # Recipes use the first: the long spelling that says what the attribute is called.
    own = "--" + dest.replace("_", "-")
    spellings = sorted(states, key=lambda name: (name != own, not name.startswith("--"), name))
    negative: list[str] = []
    if kind in ("BooleanOptional", "EnableDisable"):
        # A long spelling that is not the dest itself (--no-x, the enable/disable twin) sets False.
        negative = [
            name
            for name in spellings
            if name.startswith("--") and name[2:].replace("-", "_") != dest
        ]
    deprecated = "deprecated" in first or re.search(
        r"is deprecated|\[DEPRECATED\]", first.get("help_deprecated", "")
    )
    state: STATE = {"names": [name for name in spellings if name not in negative], "kind": kind}
    optional: STATE = {
        "negative": sorted(negative, key=lambda name: (bool(states[name].get("hidden")), name)),
        "hidden": [name for name in spellings if states[name].get("hidden")],
        "nargs": first.get("nargs") or None,
        "choices": first.get("choices"),
        "default": default_of(first),
        "deprecated": True if deprecated else None,
    }
    return state | {key: value for key, value in optional.items() if value not in (None, [])}


def flags(matrix: Mapping[str, Any], span: Span) -> dict[str, list[STATE]]:
    """Group option strings into argparse actions by `dest`; return each action's history."""
    actions: dict[str, dict[int, dict[str, STATE]]] = {}
    for name, entry in matrix["flags"].items():
        for number, state in span.states(entry).items():
            actions.setdefault(state["dest"], {}).setdefault(number, {})[name] = state
    return {
        dest: span.history({number: flag_state(names) for number, names in numbers.items()})
        for dest, numbers in sorted(actions.items())
    }


def env_choices(expression: str) -> STATE:
    """Read the enforced choices out of an envs.py expression such as `env_with_choices(...)`."""
    state: STATE = {}
    if "deprecated_env(" in expression:
        state["deprecated"] = True
    enum = re.search(r"(\w+)\.__members__", expression)
    if "env_with_choices" in expression and enum:
        return state | {"choices_enum": enum.group(1)}
    found = re.search(r"env_(with|list_with|set_with)_choices\(.*", expression)
    if not found:
        return state
    text = found.group(0)
    for cut in range(len(text), 0, -1):  # the call may be an argument of another one
        try:
            call = ast.parse(text[:cut], mode="eval").body
        except SyntaxError:
            continue
        break
    else:
        return state  # cut off in the matrix: the choices are not known
    if not isinstance(call, ast.Call):
        return state
    named = {item.arg: item.value for item in call.keywords}
    choices = named.get("choices") or (call.args[2] if len(call.args) > 2 else None)
    if choices is not None:
        state["choices"] = ast.literal_eval(choices)
    if found.group(1) != "with":
        state["many"] = True
        state["default"] = None  # written as Python's text of a collection
    if "case_sensitive" in named and ast.literal_eval(named["case_sensitive"]) is False:
        state["ignore_case"] = True
    return state


def env_state(state: Mapping[str, Any]) -> STATE:
    """Return what matters of one environment variable in one version."""
    kind = re.sub(r"Optional\[(.+)\]|Union\[(.+)\]", r"\1\2", state.get("type", ""))
    kind = re.sub(r"Literal\[.*?\]", "str", kind)
    kinds = [part.split("[")[0].strip() for part in kind.split("|")]
    result: STATE = {"type": next((part for part in kinds if part not in ("", "None")), None)}
    result["default"] = default_of(state)
    result |= env_choices(state.get("expr", ""))
    return {key: value for key, value in result.items() if value is not None}


def env(matrix: Mapping[str, Any], span: Span) -> dict[str, list[STATE]]:
    """Return each environment variable's history."""
    return {
        name: span.history(
            {number: env_state(state) for number, state in span.states(entry).items()}
        )
        for name, entry in sorted(matrix["env"].items())
    }


def config_keys(matrix: Mapping[str, Any], span: Span) -> dict[str, dict[str, list[STATE]]]:
    """Return each config class's keys with their histories; types without module paths."""
    result: dict[str, dict[str, list[STATE]]] = {}
    for config, entry in sorted(matrix["config_keys"].items()):
        result[config] = {}
        for key, fact in sorted(entry["keys"].items()):
            changes = [{"from": version, "type": kind} for version, kind in fact.get("type", [])]
            states = span.states({"seen": fact["seen"], "history": changes})
            short = {
                number: {"type": re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", state["type"])}
                if "type" in state
                else {}
                for number, state in states.items()
            }
            result[config][key] = span.history(short)
    return result


def members(groups: Mapping[str, Any], span: Span) -> dict[str, dict[str, list[STATE]]]:
    """Return the histories of enum members or literal values."""
    return {
        name: {
            value: span.history({number: {} for number in span.of(seen)})
            for value, seen in sorted(values.items())
        }
        for name, values in sorted(groups.items())
    }


def flow(value: Any) -> str:
    """Return YAML on one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return text.strip().removesuffix("...").strip()


def entry_lines(name: str, history: list[STATE], indent: str) -> list[str]:
    """Return one fact: on one line while it never changed, else one line a change."""
    if len(history) == 1:
        return [f"{indent}{flow(name)}: {flow(history)}"]
    return [f"{indent}{flow(name)}:", *(f"{indent}  - {flow(state)}" for state in history)]


def document(versions: list[str], name: str, facts: Mapping[str, Any]) -> str:
    """Return one knowledge file; ``facts`` maps names to histories, or groups to such maps."""
    lines = [f"source: {flow(SOURCE)}", f"versions: {flow(versions)}", f"{name}:"]
    for key, value in facts.items():
        if isinstance(value, list):
            lines += entry_lines(key, value, "  ")
        else:
            lines.append(f"  {flow(key)}:")
            for item, history in value.items():
                lines += entry_lines(item, history, "    ")
    return HEADER + "\n".join(lines) + "\n"


def convert(matrix: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each knowledge file by its name; ValueError for another schema."""
    if matrix.get("schema") != SCHEMA:
        raise ValueError(f"schema is {matrix.get('schema')!r}, expected {SCHEMA!r}")
    versions = list(matrix["versions"])
    span = Span(versions)
    return {
        "flags.yml": document(versions, "flags", flags(matrix, span)),
        "env.yml": document(versions, "env", env(matrix, span)),
        "config_keys.yml": document(versions, "config_keys", config_keys(matrix, span)),
        "enums.yml": document(versions, "enums", members(matrix["enums"], span)),
        "literals.yml": document(versions, "literals", members(matrix["literals"], span)),
    }


def main(argv: list[str] | None = None) -> int:
    """Write the files; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("matrix", type=Path, help="a flag matrix, schema vllm-flag-matrix/1")
    parser.add_argument("outdir", type=Path, help="the knowledge/vllm directory")
    arguments = parser.parse_args(argv)
    try:
        files = convert(json.loads(arguments.matrix.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as problem:
        sys.stderr.write(f"{arguments.matrix}: {problem}\n")
        return 1
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (arguments.outdir / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
