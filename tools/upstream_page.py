# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/upstream-recipes.md: upstream's recipes for these GPUs beside our commands."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    EngineSpec,
    Layout,
    ModelSpec,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.elements import read_flag
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import flags
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.types import Assessment
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from rules_page import table

GPU = "MI325X"
MODELS = Path(__file__).resolve().parents[1] / "tests/engine/configs.yml"
HEAD = """# Upstream's recipes

vLLM's own tree has a deployment recipe for each of {whole} models; {count} of them name {gpu} as
verified. Here each is beside the command that Apiary makes of vLLM {version}: what theirs has and
ours has not (or otherwise), and why. What ours has beyond theirs is in [the rules](rules.md) with
its reason. Features that upstream leaves to the user (`opt_in`) are left out of theirs; of KV
offload, which is none of its settings either, there is a row where it is listed as verified. "No
config.json" means that the model's dimensions could not be had here; its recipe is put to the
release's parser alone.
"""


@dataclass(frozen=True)
class Settings:
    """Flags by dest and variables by name, as text."""

    flags: Mapping[str, str]
    env: Mapping[str, str]
    unknown: tuple[str, ...] = ()


@functools.cache
def verified() -> Mapping[str, Mapping[str, Any]]:
    """Return upstream's recipes that are verified on the GPU."""
    entries = knowledge("vllm/recipes.yml")["recipes"]
    return {
        model: entry
        for model, entry in entries.items()
        if entry.get("gpus", {}).get(GPU) == "verified"
    }


@functools.cache
def corpus() -> Mapping[str, Any]:
    """Return the judge's models."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: Mapping[str, Any] = yaml.load(MODELS.read_text(encoding="utf-8"), loader)  # noqa: S506
    return document


def configs() -> Mapping[str, Any]:
    """Return the models' dimensions, as far as they could be had."""
    models, recipes = corpus()["models"], corpus()["recipes"]
    return {recipe: {"as": name, "config": models[name]} for recipe, name in recipes.items()}


def words_of(entry: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables of upstream's default deployment on the GPU."""
    variant = entry["checkpoints"].get("default", {})
    features = [
        part
        for name, part in entry.get("features", {}).items()
        if name not in entry.get("opt_in", ())
    ]
    drafts = entry.get("drafts", {}) if "spec_decoding" not in entry.get("opt_in", ()) else {}
    draft = drafts.get(entry.get("draft") or next(iter(drafts), ""), {})
    parts = [entry, entry.get("amd", {}), entry.get(GPU, {}), variant, variant.get("amd", {})]
    parts += [variant.get(GPU, {}), *features, draft]
    words: list[str] = []
    env: dict[str, str] = {}
    for part in parts:
        words += part.get("args", [])
        env |= part.get("env", {})
    return words, env


def settings(words: Sequence[str], env: Mapping[str, str], version: str) -> Settings:
    """Return a command line by what each word sets; a setting that comes twice holds as last."""
    accepted = flags(version)
    result: dict[str, str] = {}
    unknown: list[str] = []
    index = 0
    while index < len(words):
        word, _equals, inline = words[index].partition("=")
        index += 1
        values = [inline] if inline else []
        while not inline and index < len(words) and not words[index].startswith("-"):
            values.append(words[index])
            index += 1
        if word.startswith("-cc") or word.startswith("-O"):
            name = "compilation_config"
        else:
            reading = read_flag(word, tuple(values), version)
            bare = word.partition(".")[0].replace("_", "-")
            if bare not in accepted:
                unknown.append(word)
                continue
            name = accepted[bare].dest
            values = [reading.element.seen] if reading.element else values
        text = " ".join(values)
        nested = name in result and name in ("speculative_config", "compilation_config")
        result[name] = f"{result[name]} {text}" if nested else text
    return Settings(result, dict(env), tuple(unknown))


def ours(model: str, entry: Mapping[str, Any], theirs: Settings, version: str) -> Assessment | None:
    """Return Apiary's command for the same model in upstream's layout."""
    known = configs().get(model)
    if known is None:
        return None
    architecture = read_config(json.dumps(known["config"]), model)
    size = int(theirs.flags.get("tensor_parallel_size") or 0) or entry.get("tensor_parallel")
    heads = architecture.heads or 8
    sizes = [size] if isinstance(size, int) else [each for each in (8, 4, 2, 1) if not heads % each]
    together = theirs.flags.get("enable_expert_parallel") == "true"
    made = []
    for each in sizes:
        deployment = Deployment(
            name="upstream",
            model=ModelSpec(model, "/models/upstream"),
            engine=EngineSpec(version),
            layout=Layout(each, 1, together),
        )
        made.append(assess(architecture, deployment, GPU, 8000))
    # Where upstream names no size: the widest of those that least is said against.
    return min(made, key=lambda one: len(one.refused))


def differences(theirs: Settings, mine: Settings) -> Iterator[tuple[str, str, str, str]]:
    """Yield (setting, theirs, ours, why); ValueError for one that nothing explains."""
    table = knowledge("vllm/upstream_differences.yml")
    for kind in ("flags", "env"):
        left, right = getattr(theirs, kind), getattr(mine, kind)
        for name, value in left.items():
            if right.get(name, "").casefold() == value.casefold():
                continue
            why = table[kind].get(name)
            if why is None:
                raise ValueError(f"nothing explains {kind} {name}={value}")
            shown = f"--{name.replace('_', '-')}" if kind == "flags" else name
            place = " ".join(f"`{why[key]}`" for key in ("rule", "field") if key in why)
            yield f"`{shown}`", value, right.get(name, "–"), f"{why['why']} {place}".strip()


def offload(entry: Mapping[str, Any], mine: Settings) -> Iterator[tuple[str, str, str, str]]:
    """Yield what upstream lists of KV offload as verified, which is no setting of its recipe."""
    if "offload" in entry:
        kinds = {"cpu": "host memory", "fs": "files"}
        name, table = "kv_offloading_size", knowledge("vllm/upstream_differences.yml")["flags"]
        place = f"`{table[name]['rule']}` `{table[name]['field']}`"
        theirs = f"verified: {', '.join(kinds.get(kind, kind) for kind in entry['offload'])}"
        yield "KV offload", theirs, mine.flags.get(name, "–"), f"{table[name]['why']} {place}"


def of_model(model: str, entry: Mapping[str, Any], version: str) -> Iterator[str]:
    """Yield the section of one model."""
    words, env = words_of(entry)
    theirs = settings(words, env, version)
    since = f", from {entry['since']}" if "since" in entry else ""
    yield f"## {model}"
    yield ""
    yield f"`{entry['path']}`{since}."
    made = ours(model, entry, theirs, version)
    if made is None:
        yield f"No config.json. Theirs: `{' '.join(words) or 'nothing'}`."
        yield ""
        return
    other = configs()[model]["as"]
    if other != model:
        yield f"Dimensions of {other}."
    if model in corpus()["unjudged"]:
        why = corpus()["unjudged"][model]
        yield f"Planned here, but not put to the release's real parser and configuration: {why}."
    if made.refused:
        refused = ", ".join(f"`{item.rule}`" for item in made.refused)
        yield f"Wants the operator's own yes or another setting first: {refused}."
    mine = settings(made.recipe.argv[2:], made.recipe.env, version)
    rows = [*differences(theirs, mine), *offload(entry, mine)]
    if theirs.unknown:
        yield f"Upstream's recipe has what {version} does not know: {', '.join(theirs.unknown)}."
    yield ""
    if rows:
        yield from table(
            ["setting", "theirs", "ours", "why"],
            [[n, f"`{t}`", f"`{o}`", w] for n, t, o, w in rows],
        )
    else:
        yield "Ours has all of it."
        yield ""


def page() -> str:
    """Return the page."""
    document = knowledge("vllm/recipes.yml")
    entries = verified()
    lines = [
        HEAD.format(
            whole=len(document["recipes"]), count=len(entries), gpu=GPU, version=document["version"]
        )
    ]
    for model, entry in entries.items():
        lines += of_model(model, entry, document["version"])
    return "\n".join(lines)
