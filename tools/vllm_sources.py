# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what a vLLM release's source tree states, without importing any of it.

Registries of parsers, speculative methods, model classes with a data-parallel encoder, metrics, the
AMD pipeline's jobs, the pins of the ROCm image, and which of our log patterns the sources still
have. tools/vllm_read.py imports a release for what only its own parser can say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
KNOWLEDGE = ROOT / "plugins/plugin_utils/knowledge"
PARSERS = {
    "TOOL_PARSERS": ("vllm/tool_parsers", "vllm/entrypoints/openai/tool_parsers"),
    "REASONING_PARSERS": ("vllm/reasoning",),
}
# What of docker/Dockerfile.rocm_base and Dockerfile.rocm decides which kernels an image has.
PINS = {
    "BASE_IMAGE": "base",
    "AITER_BRANCH": "aiter",
    "TRITON_BRANCH": "triton",
    "PYTORCH_BRANCH": "torch",
    "TORCH_VERSION": "torch",
    "FA_BRANCH": "flash_attention",
    "MORI_BRANCH": "mori",
    "ROCM_SDK_VERSION": "rocm",
    "PYTORCH_ROCM_ARCH": "gpu_targets",
    "AITER_ROCM_ARCH": "aiter_targets",
}
# Documents with patterns that are put to an engine's log, and where they stand in them.
LOG_PATTERNS = {
    "serving/life.yml": ("phases", "idle_lines"),
    "serving/causes.yml": ("causes",),
}
_METRIC = re.compile(r"""["'](vllm:[a-z0-9_:]+)["']""")
_ONE_TEXT = re.compile(
    r"""["'][ \t]*\n[ \t]*[fr]?["']"""
)  # a literal that goes on in the next line
_SHORTEST_MARK = 12  # of a pattern's longest literal; a shorter one is in any source


def sections(sources: Path) -> dict[str, Any]:
    """Return all of it, in the shapes that tools/vllm_matrix.py keeps."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in _modules(sources)]
    lines = [_ONE_TEXT.sub("", text) for text in texts]
    return {
        "literals": {
            **{name: _parsers(sources, places) for name, places in PARSERS.items()},
            "SPECULATIVE_METHODS": _speculative(sources),
            "ENCODER_DATA_CLASSES": sorted(_encoder_classes(texts)),
        },
        "metrics": sorted({name for text in texts for name in _METRIC.findall(text)}),
        "jobs": jobs(sources),
        "pins": pins(sources),
        "log": [pattern for pattern, mark in log_marks() if any(mark in text for text in lines)],
    }


def _modules(sources: Path) -> list[Path]:
    return sorted((sources / "vllm").rglob("*.py"))


def _parsers(sources: Path, places: tuple[str, ...]) -> list[str]:
    """Return the names of a parser registry: a table, or decorators on the classes themselves."""
    names: set[str] = set()
    for path in (path for place in places for path in (sources / place).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                target = node.targets[0]
                if isinstance(target, ast.Name) and target.id.endswith("_PARSERS_TO_REGISTER"):
                    names |= {str(ast.literal_eval(key)) for key in node.value.keys if key}
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".register_module"):
                first = node.args[0] if node.args else None
                given = first or next((k.value for k in node.keywords if k.arg == "name"), None)
                if given is not None and not isinstance(given, ast.Name):
                    value = ast.literal_eval(given)
                    names |= {value} if isinstance(value, str) else set(value or ())
    return sorted(names)


def _speculative(sources: Path) -> list[str]:
    """Return the methods of SpeculativeConfig, whose literal is made of others."""
    path = sources / "vllm/config/speculative.py"
    if not path.is_file():
        return []
    literals: dict[str, ast.expr] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            literals[node.targets[0].id] = node.value

    def values(node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name) and node.id in literals:
            yield from values(literals[node.id])
        elif isinstance(node, ast.Subscript):
            yield from values(node.slice)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                yield from values(item)

    return sorted(set(values(ast.Name("SpeculativeMethod"))))


def _encoder_classes(texts: list[str]) -> Iterator[str]:
    """Yield the model classes that can run their encoder by data parallelism, heirs included."""
    bases: dict[str, set[str]] = {}
    says: dict[str, bool] = {}
    for text in texts:
        if "ForConditionalGeneration" not in text and "supports_encoder_tp_data" not in text:
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            for item in node.body:
                if match := re.fullmatch(
                    r"supports_encoder_tp_data = (True|False)", ast.unparse(item)
                ):
                    says[node.name] = match[1] == "True"

    def can(name: str) -> bool:
        if name in says:
            return says[name]
        return any(can(base) for base in bases.get(name, ()) if base != name)

    yield from (name for name in bases if can(name))


def jobs(sources: Path) -> dict[str, list[str]]:
    """Return the AMD pipeline's active jobs by GPU; what is commented out is not there."""
    path = sources / ".buildkite/test-amd.yaml"
    result: dict[str, set[str]] = {}
    steps = yaml.safe_load(path.read_text(encoding="utf-8"))["steps"] if path.is_file() else []
    for step in steps:
        pool = str(step.get("agent_pool", ""))
        gpu = re.match(r"mi\d+", pool)
        if gpu and "label" in step and not step.get("no_gpu"):
            label = re.sub(r":\w+:|\(?\bMI\d+\w*(?: \w+)?\)|%N|#.*| Tests?\b", " ", step["label"])
            label = re.sub(r"\(\s*[-\s]*\)", " ", label)
            result.setdefault(gpu[0].upper(), set()).add(" ".join(label.split()))
    return {gpu: sorted(labels) for gpu, labels in sorted(result.items())}


def pins(sources: Path) -> dict[str, str]:
    """Return the pins of the ROCm image, from its base's Dockerfile."""
    path = sources / "docker/Dockerfile.rocm_base"
    result: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        match = re.match(r'(?:ARG|ENV) (\w+)="?([^"#\s]+)"?', line)
        if match and match[1] in PINS and not match[2].startswith("$"):
            result.setdefault(PINS[match[1]], match[2])
    image = re.search(r":(\d+\.\d+(?:\.\d+)?)-", result.get("base", ""))
    if image:
        result.setdefault("rocm", image[1])
    return dict(sorted(result.items()))


def log_marks() -> list[tuple[str, str]]:
    """Return each pattern that we read engines' logs by, with the longest literal in it."""
    found: set[str] = set()
    for name, keys in LOG_PATTERNS.items():
        document = yaml.safe_load((KNOWLEDGE / name).read_text(encoding="utf-8"))
        for key in keys:
            found |= set(_patterns(document[key]))
    marks = ((pattern, _longest_literal(pattern)) for pattern in sorted(found))
    return [(pattern, mark) for pattern, mark in marks if len(mark) >= _SHORTEST_MARK]


def _patterns(node: Any) -> Iterator[str]:
    """Yield the texts below any key `pattern` or `patterns`."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("pattern", "patterns"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from _patterns(value)
    elif isinstance(node, list):
        for item in node:
            yield from _patterns(item)


def _longest_literal(pattern: str) -> str:
    """Return the longest run of plain text in a regular expression."""
    plain = re.sub(
        r"\(\?[a-z]+\)|\(\?P<\w+>|\(\?:|\[[^\]]*\][*+?]?|\\[dwsSDW][*+?]?", "\0", pattern
    )
    plain = re.sub(r"\\([.\[\](){}|+*?/-])", r"\1", re.sub(r"(?<!\\)[.^$*+?(){}|]", "\0", plain))
    return max(plain.split("\0"), key=len).strip()
