# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models of upstream's verified recipes, and the commands that Apiary makes of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Features,
    Layout,
    Limits,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from engine import cases
from engine import models as published
from engine.models import Model

# What the deployment may switch on, judged with the recipe's own; each is an element of its own.
FEATURES = (
    Features(),
    Features(speculation="mtp", text_only=True, kv_offload_gib=64),
    Features(speculation="ngram", encoder_data_parallel=False, eplb=True),
)


def models(home: Path) -> dict[str, Model]:
    """Return the models by name, each with its directory."""
    result, configs = {}, published.published()
    for name, own in published.recipes().items():
        text, directory = json.dumps(configs[own]), home / "models" / "upstream" / name
        published._write(directory, text)
        result[name] = Model(name, read_config(text, name), directory)
    return result


def sizes(architecture: Architecture, entry: Mapping[str, Any]) -> list[int]:
    """Return upstream's tensor parallelism, or all that the model's heads allow, widest first."""
    named = entry.get("tensor_parallel")
    wide = [size for size in (8, 4, 2, 1) if not (architecture.heads or 8) % size]
    return [named] if isinstance(named, int) else wide


def commands(version: str, gpu: str, known: dict[str, Model], small: bool) -> Iterator[cases.Case]:
    """Yield each model's command in upstream's layout, and with features switched on."""
    recipes = knowledge("vllm/recipes.yml")["recipes"]
    for name, model in known.items():
        entry = recipes[name]
        if order(version) < order(entry.get("since", "0")) or not model.fits(version):
            continue
        # The operator has read what the checkpoint brings, as upstream has.
        yes = {"trust-remote-code": True} if "--trust-remote-code" in entry.get("args", ()) else {}
        for features in FEATURES[:1] if small else FEATURES:
            together = features.eplb and bool(model.architecture.experts)
            made = []
            for size in sizes(model.architecture, entry):
                words = [f"TP{size}", *(["EP"] if together else []), features.speculation]
                deployment = dataclasses.replace(
                    cases._deployment(model, version, Layout(size, 1, together), Limits(), yes),
                    features=features,
                )
                title = f"upstream {name} {' '.join(words)}"
                made += cases._assessed(title, model, gpu, deployment)
            # Where upstream names no size: the widest of those that least is said against.
            if made:
                yield min(made, key=lambda one: len(one.refused))
