# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/vllm-releases.md: what each vLLM release changed for gfx942 and gfx950."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules
from rules_page import table
from vllm_matrix import FILES, expand

HEAD = """# vLLM releases

What each release that Apiary knows has changed for these GPUs, read by machine from its source
distribution ([how](../how-to/add-a-vllm-version.md)). Upstream's AMD pipeline says where it is
still tested: MI300 and MI325 are gfx942, MI350 and MI355 gfx950. A job that is gone may have been
merged into another; a job is not coverage.
"""
GFX = {"gfx942": ("MI300", "MI325"), "gfx950": ("MI350", "MI355")}
# Flags, variables and model classes of other platforms are not told one by one.
FOREIGN = ("CPU", "CUDA", "FLASHINFER", "TPU", "XPU", "NPU", "NIXL", "MARLIN", "CUTLASS", "TRTLLM")
MOST = 60  # names in one line
KINDS = {
    "flags": "flags",
    "env": "variables",
    "config_keys": "config keys",
    "metrics": "metrics",
    "MODEL_CLASSES": "model classes",
    "ROCM_QUANTIZATION": "quantizations on ROCm",
    "AttentionBackendEnum": "attention backends",
    "TOOL_PARSERS": "tool parsers",
    "REASONING_PARSERS": "reasoning parsers",
    "SPECULATIVE_METHODS": "speculative methods",
    "ENCODER_DATA_CLASSES": "classes with a data-parallel encoder",
    "log_patterns": "log lines that Apiary reads",
}
Facts = Mapping[str, Mapping[str, Mapping[Any, Mapping[str, Any]]]]


def facts() -> Facts:
    """Return the facts of every file by version."""
    return {name: expand(knowledge(f"vllm/{name}.yml"), name) for name in FILES}


def names(known: Facts, version: str) -> dict[str, dict[str, Any]]:
    """Return a release's names by kind, each with its state."""
    result: dict[str, dict[str, Any]] = {}
    for file in ("flags", "env", "config_keys", "metrics", "log_patterns"):
        states = known[file].get(version, {})
        result[file] = {
            ".".join(key) if isinstance(key, tuple) else key: state for key, state in states.items()
        }
    for file in ("enums", "literals"):
        for (group, name), state in known[file].get(version, {}).items():
            if group in KINDS:
                result.setdefault(group, {})[name] = state
    return result


def listed(items: Iterable[str]) -> str:
    """Return names as one line of bounded length."""
    ours = [item for item in sorted(items) if not any(word in item for word in FOREIGN)]
    rest = f" and {len(ours) - MOST} more" if len(ours) > MOST else ""
    return ", ".join(f"`{item}`" for item in ours[:MOST]) + rest


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield (kind, new, gone, default or choices changed)."""
    for kind, words in KINDS.items():
        old, new = before.get(kind, {}), after.get(kind, {})
        if not old and not new:
            continue
        other = [
            name for name in old.keys() & new.keys() if meaning(old[name]) != meaning(new[name])
        ]
        row = (listed(new.keys() - old.keys()), listed(old.keys() - new.keys()), listed(other))
        if any(row):
            yield (words, *row)


def meaning(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what of a state a recipe may rest on."""
    return state.get("default"), state.get("choices"), state.get("deprecated")


def pinned(known: Facts, version: str) -> dict[str, str]:
    """Return the pins of a release's ROCm image."""
    return {str(name): str(s["is"]) for name, s in known["pins"].get(version, {}).items()}


def jobs(known: Facts, version: str, gfx: str) -> set[str]:
    """Return the labels of the AMD pipeline's jobs on a GPU generation."""
    return {label for gpu, label in known["jobs"].get(version, {}) if gpu in GFX[gfx]}


def ruled(version: str) -> str:
    """Return the ids of rules that begin or end with a release."""
    begin = [rule.id for rule in rules() if rule.versions.first == version]
    end = [rule.id for rule in rules() if rule.versions.last == version]
    parts = [f"begin: {listed(begin)}"] if begin else []
    return "; ".join(parts + ([f"end here: {listed(end)}"] if end else []))


def unread(known: Facts) -> str:
    """Return why some releases have dashes."""
    read = list(known["pins"])
    wheels = " and ".join(version for version in read if not known["pins"][version])
    return (
        "A dash is what could not be read. There is no source distribution of "
        f"{wheels}: the CPU build's wheel was read, which has neither pipeline nor Dockerfiles, so"
        " their images' pins and jobs are unknown and the judge cannot take them. Of releases"
        f" before {read[0]} only what parser, variables and registries accept is known.\n"
    )


def overview(known: Facts, versions: list[str]) -> Iterator[str]:
    """Yield the table of all releases: pins, and how many jobs run on which GPUs."""
    rows = []
    for version in reversed(versions):
        pins = pinned(known, version)
        read = bool(known["jobs"].get(version))
        counts = [str(len(jobs(known, version, gfx))) if read else "–" for gfx in GFX]
        rows.append(
            # The oldest has none before it, and so no section.
            [f"[{version}](#{version.replace('.', '')})" if version != versions[0] else version]
            + [pins.get(name, "–") for name in ("rocm", "aiter", "triton", "base")]
            + counts
        )
    head = ["release", "ROCm", "AITER", "Triton", "image's base", "jobs on gfx942", "on gfx950"]
    yield from table(head, rows)


def release(known: Facts, version: str, before: str) -> Iterator[str]:
    """Yield the section of one release."""
    yield f"## {version}"
    yield ""
    yield f"Since {before}."
    old, new = pinned(known, before), pinned(known, version)
    moved = [
        f"{name} {old.get(name, '–')} → {new.get(name, '–')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if moved and old and new:
        yield f"Image: {'; '.join(moved)}."
    if told := ruled(version):
        yield f"Apiary's rules that {told}."
    yield ""
    rows = list(changes(names(known, before), names(known, version)))
    if rows:
        yield from table(["", "new", "gone", "other default or choices"], rows)
    pipelines = []
    for gfx in GFX:
        was, now = jobs(known, before, gfx), jobs(known, version, gfx)
        if now and was != now:
            pipelines.append((gfx, str(len(now)), listed(now - was), listed(was - now)))
    if pipelines:
        yield from table(["GPUs", "jobs", "new", "gone"], pipelines)


def page() -> str:
    """Return the page."""
    known = facts()
    versions = list(known["flags"])
    lines = [HEAD, unread(known), *overview(known, versions)]
    newest = versions[-1]
    for gfx in GFX:
        if here := jobs(known, newest, gfx):
            lines += [f"Jobs of {newest} on {gfx}: {', '.join(sorted(here))}.", ""]
    for before, version in reversed(list(itertools.pairwise(versions))):
        lines += release(known, version, before)
    return "\n".join(lines)
