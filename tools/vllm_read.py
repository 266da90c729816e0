# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read off one vLLM release what it accepts, and write that as JSON (`vllm-snapshot/1`).

Usage: python vllm_read.py SOURCES VERSION OUTFILE

SOURCES holds the release's Python files (SOURCES/vllm/…), and this runs in a Python that has
torch and a recent release's requirements; tools/vllm_matrix.py calls it so. Flags come from the
live `vllm serve` parser, variables from envs.py evaluated with an empty environment, config keys
from the config classes, model classes and ROCm's quantization formats from the source text.
Nothing of vLLM is replaced; packages that only old releases import are stood in for.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import types
import typing
from pathlib import Path

SCHEMA = "vllm-snapshot/1"
CONFIGS = (
    *("AttentionConfig", "CacheConfig", "CompilationConfig", "EPLBConfig", "KVTransferConfig"),
    *("KernelConfig", "LoadConfig", "ObservabilityConfig", "ParallelConfig", "PassConfig"),
    *("SchedulerConfig", "SpeculativeConfig", "StructuredOutputsConfig"),
)
# Where each name has been, newest place first.
PLACES = {
    "AttentionBackendEnum": (
        "vllm.v1.attention.backends.registry",
        "vllm.attention.backends.registry",
    ),
    "_Backend": ("vllm.attention.backends.registry", "vllm.platforms.interface"),
    "CUDAGraphMode": ("vllm.config.compilation", "vllm.config"),
    "CompilationMode": ("vllm.config.compilation",),
    "All2AllBackend": ("vllm.config.parallel",),
    "CacheDType": ("vllm.config.cache", "vllm.config"),
    "DistributedExecutorBackend": ("vllm.config.parallel", "vllm.config"),
    "QuantizationMethods": ("vllm.model_executor.layers.quantization",),
    "QUANTIZATION_METHODS": ("vllm.model_executor.layers.quantization",),
    "DEPRECATED_QUANTIZATION_METHODS": ("vllm.model_executor.layers.quantization",),
    "FlexibleArgumentParser": ("vllm.utils.argparse_utils", "vllm.utils"),
}
ENUMS = ("AttentionBackendEnum", "_Backend", "CUDAGraphMode", "CompilationMode")
LITERALS = (
    *("All2AllBackend", "CacheDType", "DEPRECATED_QUANTIZATION_METHODS"),
    *("DistributedExecutorBackend", "QUANTIZATION_METHODS", "QuantizationMethods"),
)
# What a flag's converter takes, by the converter's name.
TYPES = {
    "int": "int",
    "float": "float",
    "str": "text",
    "loads": "json",
    "union_dict_and_str": "json-or-text",
    "parse_dataclass": "config",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size-or-auto",
}


class StandIn(types.ModuleType):
    """A module of which nothing is used but that its names can be imported."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the named packages, once nothing else has found them."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a stand-in for one of the names and all below it."""
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandIn:
        """Return the empty module."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: there is no source."""


def prepare(sources: Path, version: str) -> None:
    """Make the release in ``sources`` the one that is imported, and believed to be ``version``."""
    sys.path.insert(0, str(sources))
    sys.argv = ["vllm", "serve"]
    # A CPU build is what needs no GPU to be imported; the installed one may be another version.
    real = importlib.metadata.version
    importlib.metadata.version = lambda name: f"{version}+cpu" if name == "vllm" else real(name)
    import torch
    import transformers

    # 0.17 asks torch for what later builds of it no longer offer.
    if not hasattr(torch._C._cpu, "_is_avx512_supported"):
        torch._C._cpu._is_avx512_supported = lambda: False
    # Releases of 2025 register models that transformers has by now.
    for auto in (transformers.AutoConfig, transformers.AutoTokenizer):
        register = auto.register

        def lenient(*arguments: object, _register: typing.Any = register, **named: object) -> None:
            _register(*arguments, **{**named, "exist_ok": True})

        auto.register = lenient  # type: ignore[method-assign, assignment]  # with one more habit


def place(name: str) -> typing.Any:
    """Return what a name stands for in this release, or None."""
    for module in PLACES.get(name, ("vllm.config",)):
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def converter(kind: typing.Any) -> tuple[str | None, bool]:
    """Return what an argparse type takes, and whether None is among it; None if unnamed."""
    if kind is None:
        return "text", False
    name = getattr(kind, "__name__", "")
    if name in ("_optional_type", "_parse_type"):
        inner = [cell.cell_contents for cell in kind.__closure__ or ()]
        taken, _ = converter(inner[0] if inner else None)
        return taken, name == "_optional_type"
    return TYPES.get(name), False


def plain(value: object) -> object:
    """Return a default that is a scalar and holds on every machine, else None."""
    if isinstance(value, str) and (value == argparse.SUPPRESS or str(Path.home()) in value):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def flags() -> dict[str, dict[str, object]]:
    """Return each spelling of `vllm serve` with its argparse action."""
    from vllm.entrypoints.cli.serve import ServeSubcommand

    parser_class = place("FlexibleArgumentParser")
    subparsers = parser_class(prog="vllm").add_subparsers(dest="subparser")
    parser = ServeSubcommand().subparser_init(subparsers)
    deprecated = getattr(parser_class, "_deprecated", set())
    result: dict[str, dict[str, object]] = {}
    for name, action in parser._option_string_actions.items():
        kind = type(action).__name__.strip("_").removesuffix("Action")
        help_text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        takes_value = action.nargs != 0
        taken, optional = converter(action.type) if takes_value else (None, False)
        if isinstance(action.choices, (list, tuple)) or takes_value is False:
            taken = None
        entry: dict[str, object] = {
            "dest": action.dest,
            "kind": kind,
            "nargs": action.nargs,
            "choices": None if action.choices is None else [str(item) for item in action.choices],
            "default": plain(action.default),
            "type": taken,
            "optional": optional or None,
            "hidden": (name not in action.option_strings) or None,
            "deprecated": (
                action in deprecated
                or "is deprecated" in help_text
                or "[DEPRECATED]" in help_text
                or None
            ),
        }
        result[name] = {key: value for key, value in entry.items() if value is not None}
    return result


def env(sources: Path) -> dict[str, dict[str, object]]:
    """Return each variable of envs.py: its expression, declared type and default."""
    tree = ast.parse((sources / "vllm/envs.py").read_text(encoding="utf-8"))
    declared: dict[str, str] = {}
    expressions: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            declared.setdefault(node.target.id, ast.unparse(node.annotation))
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                body = value.body if isinstance(value, ast.Lambda) else value
                expressions.setdefault(key.value, ast.unparse(body))
    import vllm.envs

    result: dict[str, dict[str, object]] = {}
    for name, read in vllm.envs.environment_variables.items():
        try:
            default, again = plain(read()), plain(read())
        except Exception:  # it needs something that is set elsewhere
            default = again = None
        if name in os.environ or default != again:
            default = None  # set by a library on import, or made up anew each time
        entry = {"expr": expressions.get(name), "type": declared.get(name), "default": default}
        result[name] = {key: value for key, value in entry.items() if value is not None}
    return result


def annotation(kind: object) -> str:
    """Return a field's type as text."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__
    return str(kind).replace("typing.", "")


def config_keys() -> dict[str, dict[str, str]]:
    """Return each config class's keys with their types."""
    result = {}
    for name in CONFIGS:
        config = place(name)
        if config is not None and dataclasses.is_dataclass(config):
            result[name] = {
                field.name: annotation(field.type)
                for field in dataclasses.fields(config)
                if field.init
            }
    return result


def enums() -> dict[str, list[str]]:
    """Return the members of the enums that flags are looked up in."""
    found = {name: place(name) for name in ENUMS}
    return {name: list(getattr(enum, "__members__", ())) for name, enum in found.items() if enum}


def literals(sources: Path) -> dict[str, list[str]]:
    """Return the values of the literals that flags are looked up in."""
    result: dict[str, list[str]] = {}
    for name in LITERALS:
        found = place(name)
        if found is not None:
            result[name] = [str(item) for item in typing.get_args(found) or found]
    result["ROCM_QUANTIZATION"] = rocm_quantization(sources)
    result["MODEL_CLASSES"] = model_classes(sources)
    return result


def rocm_quantization(sources: Path) -> list[str]:
    """Return RocmPlatform.supported_quantization, as its class body has it."""
    tree = ast.parse((sources / "vllm/platforms/rocm.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id == "supported_quantization":
            return [str(item) for item in ast.literal_eval(typing.cast(ast.expr, node.value))]
    return []


def model_classes(sources: Path) -> list[str]:
    """Return the architectures that the model registry lists."""
    path = sources / "vllm/model_executor/models/registry.py"
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Dict):
            names |= {
                key.value
                for key, item in zip(value.keys, value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(item, ast.Tuple)
            }
    return sorted(names)


def snapshot(sources: Path, version: str) -> dict[str, object]:
    """Return all that is read of one release."""
    return {
        "schema": SCHEMA,
        "version": version,
        "flags": flags(),
        "env": env(sources),
        "config_keys": config_keys(),
        "enums": enums(),
        "literals": literals(sources),
    }


def main(argv: list[str]) -> int:
    """Write the snapshot; a missing third-party package is stood in for, one after the other."""
    sources, version, outfile = Path(argv[0]).resolve(), argv[1], Path(argv[2])
    missing = set(filter(None, os.environ.get("VLLM_READ_STAND_INS", "").split(",")))
    prepare(sources, version)
    sys.meta_path.append(Finder(missing))
    try:
        text = json.dumps(snapshot(sources, version), sort_keys=True)
    except ModuleNotFoundError as problem:
        name = (problem.name or "").partition(".")[0]
        if not name or name == "vllm" or name in missing:
            raise
        # Modules that failed half-way stay broken: start again.
        os.environ["VLLM_READ_STAND_INS"] = ",".join(sorted({*missing, name}))
        os.execv(sys.executable, [sys.executable, __file__, *argv])  # noqa: S606
    outfile.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
