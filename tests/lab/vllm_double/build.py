# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lay out the double of one vLLM version, as it is installed at /opt/vllm on a lab host.

    build.py VERSION OUTDIR

writes OUTDIR/bin/vllm, OUTDIR/lib/engine_double/*.py and beside them vllm_<version>.json: the
flags, environment variables, config keys and metric names of exactly that version, taken from
Apiary's knowledge and behaviour.yml. Runs on the controller; the result needs only Python 3.9.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine import flags as knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

HERE = Path(__file__).parent
SWITCHES = ("StoreTrue", "BooleanOptional", "EnableDisable", "Help")
CONFIG_CLASSES = (
    "CacheConfig",
    "CompilationConfig",
    "LoadConfig",
    "ObservabilityConfig",
    "ParallelConfig",
    "SchedulerConfig",
)


def behaviour() -> dict[str, Any]:
    """Return behaviour.yml."""
    data: dict[str, Any] = yaml.safe_load((HERE / "behaviour.yml").read_text(encoding="utf-8"))
    return data


def holds(entry: dict[str, Any], version: str) -> bool:
    """Say whether ``version`` lies between an entry's `from` and `to`, both inclusive."""
    order = knowledge.versions().index
    first, last = str(entry.get("from", "")), str(entry.get("to", ""))
    return (not first or order(first) <= order(version)) and (
        not last or order(version) <= order(last)
    )


def value_type(flag: knowledge.Flag, version: str, types: dict[str, Any]) -> str:
    """Return the name of the reader for a flag's value (see engine_double/arguments.py)."""
    dest = flag.dest
    auto = types["human_int_or_auto"]
    if dest in auto["dests"] and holds(auto, version):
        return "human_int_or_auto"
    if dest in types["human_int"]:
        return "human_int"
    for kind in ("int", "float"):
        if dest in types[kind]:
            return kind
    if dest in types["json"] or (
        dest.endswith("_config") and dest not in types["words"] and flag.kind == "Store"
    ):
        return "json"
    if flag.choices is not None:
        return "int" if all(choice.lstrip("-").isdigit() for choice in flag.choices) else "str"
    declared = _declared_type(dest, version)
    if declared is not None:
        return declared
    if isinstance(flag.default, bool) or flag.default is None:
        return "str"
    return type(flag.default).__name__


def _declared_type(dest: str, version: str) -> str | None:
    for name in CONFIG_CLASSES:
        declared = knowledge.config_keys(version, name).get(dest)
        if declared is None:
            continue
        words = declared.replace("[", " ").replace("]", " ").replace("|", " ").replace(",", " ")
        bare = [word.removeprefix("typing.").removeprefix("Optional") for word in words.split()]
        if "str" in bare or "dict" in bare:
            return "json_or_str" if "dict" in bare else "str"
        for kind in ("int", "float"):
            if kind in bare:
                return kind
    return None


def flag_entry(flag: knowledge.Flag, version: str, types: dict[str, Any]) -> dict[str, Any]:
    """Return one flag as the double reads it."""
    entry: dict[str, Any] = {
        "dest": flag.dest,
        "kind": flag.kind,
        "options": list(flag.names + flag.negative),
        "negative": list(flag.negative),
        "default": flag.default,
    }
    if flag.deprecated:
        entry["deprecated"] = True
    if flag.kind in SWITCHES:
        return entry
    entry["type"] = value_type(flag, version, types)
    config = types["configs"].get(flag.dest)
    if config is not None and knowledge.config_keys(version, config["class"]):
        entry["config"] = config["class"]
    if flag.nargs is not None:
        entry["nargs"] = flag.nargs
    if flag.choices is not None:
        numbers = entry["type"] == "int"
        entry["choices"] = [int(item) if numbers else item for item in flag.choices]
    return entry


def metric_entries(version: str, metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metric series that the version serves, buckets written out."""
    return [
        {
            **{key: value for key, value in item.items() if key not in ("from", "to")},
            **({"buckets": metrics["buckets"][item["buckets"]]} if "buckets" in item else {}),
        }
        for item in metrics["series"]
        if holds(item, version)
    ]


def version_document(version: str) -> dict[str, Any]:
    """Return everything the double of ``version`` needs; raise ApiaryError for an unknown one."""
    resolved = knowledge.resolve_version(version)
    if resolved.findings:  # the nearest known version will do for a recipe, not for a double
        raise ApiaryError(*resolved.findings)
    known = resolved.version
    extra = behaviour()
    types = extra["types"]
    configs = {
        item["class"]: {
            "keys": sorted(knowledge.config_keys(known, item["class"])),
            "forbids": holds({"from": item["forbids_from"]}, known),
        }
        for item in types["configs"].values()
    }
    return {
        "about": "made by tests/lab/vllm_double/build.py for a double of vLLM; not vLLM's own",
        "version": version,
        "flags": [flag_entry(flag, known, types) for flag in knowledge.actions(known)],
        "config_keys": configs,
        "env": {
            name: {
                "choices": list(variable.choices or ()),
                "ignore_case": variable.ignore_case,
                "many": variable.many,
            }
            for name, variable in knowledge.env_vars(known).items()
        },
        "attention_backends": list(knowledge.enum_names(known, "AttentionBackendEnum")),
        "quantization": list(knowledge.literals(known, "QuantizationMethods")),
        "deprecated_quantization": list(
            knowledge.literals(known, "DEPRECATED_QUANTIZATION_METHODS")
        ),
        "checks": {
            name: holds(item, known)
            for name, item in extra["checks"].items()
            if isinstance(item, dict)
        },
        "metrics": metric_entries(known, extra["metrics"]),
    }


def build(version: str, outdir: Path) -> Path:
    """Write the double of ``version`` below ``outdir`` and return its executable."""
    document = version_document(version)
    files = {
        module.name: module.read_text(encoding="utf-8")
        for module in sorted((HERE / "engine_double").glob("*.py"))
    }
    data = json.dumps(document, indent=1, sort_keys=True) + "\n"
    replace_directory(
        outdir / "lib" / "engine_double", {**files, f"vllm_{document['version']}.json": data}
    )
    executable = outdir / "bin" / "vllm"
    executable.parent.mkdir(exist_ok=True)
    if not executable.exists() or executable.read_bytes() != (HERE / "bin/vllm").read_bytes():
        shutil.copy(HERE / "bin" / "vllm", executable)
    executable.chmod(0o755)
    return executable


def replace_directory(directory: Path, files: dict[str, str]) -> None:
    """Have exactly these texts in a directory; who reads it meanwhile sees the old or the new.

    Hosts of other labs run from it. Left alone where nothing differs.
    """
    if directory.is_dir():
        found = {
            path.name: path.read_text(encoding="utf-8")
            for path in directory.iterdir()
            if path.is_file()
        }
        if found == files:
            return
    fresh = directory.with_name(f".{directory.name}-{os.getpid()}-new")
    stale = directory.with_name(f".{directory.name}-{os.getpid()}-old")
    fresh.mkdir(parents=True)
    for name, text in files.items():
        (fresh / name).write_text(text, encoding="utf-8")
    if directory.exists():
        directory.rename(stale)
    fresh.rename(directory)
    shutil.rmtree(stale, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="a vLLM version that Apiary knows, or `newest`")
    parser.add_argument("outdir", type=Path)
    arguments = parser.parse_args()
    version = knowledge.newest() if arguments.version == "newest" else arguments.version
    try:
        print(build(version, arguments.outdir))
    except ApiaryError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
