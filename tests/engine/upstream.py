# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models of upstream's verified recipes, and the commands that Apiary makes of them."""

from __future__ import annotations

import dataclasses
import hashlib
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
# Put where upstream names a draft or a template; _beside() writes what lies at the two places.
BESIDE = Features(speculation="draft", draft_model="/a/draft", chat_template="/a/template")
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}\n"
# Drafts that an operator had better not name, from a release on: they feed the rules.
GUESSES = {"method": "dflash", "model": BESIDE.draft_model, "num_speculative_tokens": 15}
MISTAKES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("zai-org/GLM-4.5", "0.11.2", {"speculative-config": GUESSES | {"method": "eagle3"}}),
    ("Qwen/Qwen3.5-397B-A17B", "0.20.0", {"speculative-config": GUESSES}),
    (
        "Qwen/Qwen3.5-397B-A17B",
        "0.20.0",
        {
            "speculative-config": GUESSES | {"num_speculative_tokens": 7},
            "attention-backend": "ROCM_AITER_UNIFIED_ATTN",
        },
    ),
    (
        "deepseek-ai/DeepSeek-V4-Flash",
        "0.25.0",
        {"speculative-config": GUESSES | {"method": "dspark"}},
    ),
)
# A draft's config.json by its method: the plainest of the kind, made to the model's sizes.
LLAMA = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "head_dim": 128,
    "hidden_act": "silu",
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}
QWEN = {
    **LLAMA,
    "block_size": 8,
    "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 2, 3]},
    "model_type": "qwen3",
}
DRAFTS = {
    "eagle3": LLAMA,
    "dflash": {**QWEN, "architectures": ["DFlashDraftModel"]},
    "dspark": {**QWEN, "architectures": ["Qwen3DSparkModel"], "markov_rank": 256},
}
ASSISTANT = {  # Gemma 4's, whose method no configuration names
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "torch_dtype": "bfloat16",
}
SHARING = {
    "architectures": None,
    "hidden_size_per_layer_input": 0,
    "layer_types": ["full_attention"],
    "model_type": "gemma4_text",
    "num_kv_shared_layers": 1,
    "vocab_size_per_layer_input": 0,
}


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
        put: list[tuple[Features, dict[str, Any]]] = [(features, {}) for features in FEATURES]
        put += [(features, {}) for features in _offered(entry)]
        put += [
            (Features(), args)
            for mistaken, since, args in MISTAKES
            if name == mistaken and order(version) >= order(since)
        ]
        for features, args in put[:1] if small else put:
            together = features.eplb and bool(model.architecture.experts)
            made = []
            for size in sizes(model.architecture, entry):
                words = [f"TP{size}", *(["EP"] if together else []), features.speculation, *args]
                layout = Layout(size, 1, together)
                deployment = dataclasses.replace(
                    cases._deployment(model, version, layout, Limits(), yes | args),
                    features=features,
                )
                title = f"upstream {name} {' '.join(words)}"
                found = cases._assessed(title, model, gpu, deployment)
                made += [_beside(case, model) for case in found]
            # Where upstream names no size: the widest of those that least is said against.
            if made:
                yield min(made, key=lambda one: len(one.refused))


def _offered(entry: Mapping[str, Any]) -> list[Features]:
    words = str([*entry.get("drafts", {}).values(), *entry.get("features", {}).values()])
    return [BESIDE] if '"model"' in words or "--chat-template" in words else []


def _beside(case: cases.Case, model: Model) -> cases.Case:
    """Return a command with a draft and a template that are there, where it names them."""
    argv = list(case.argv)
    for place, word in enumerate(argv):
        if word == BESIDE.chat_template:
            argv[place] = str(_there(model, {"tools.jinja": TEMPLATE}) / "tools.jinja")
        elif BESIDE.draft_model and BESIDE.draft_model in word:
            draft = _draft(model, json.loads(word).get("method", ""))
            directory = str(_there(model, {"config.json": json.dumps(draft)}))
            argv[place] = word.replace(BESIDE.draft_model, directory)
    return dataclasses.replace(case, argv=tuple(argv))


def _draft(model: Model, method: str) -> dict[str, Any]:
    config = json.loads((model.directory / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    sizes = {name: text[name] for name in ("hidden_size", "vocab_size")}
    if method:
        return {**DRAFTS[method], **sizes}
    small = {**LLAMA, **sizes, **SHARING}
    return {**ASSISTANT, "backbone_hidden_size": sizes["hidden_size"], "text_config": small}


def _there(model: Model, files: Mapping[str, str]) -> Path:
    """Write files beside a model; their directory has another name for other content.

    So an opinion, which is kept by the command, is kept until they change.
    """
    mark = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:12]
    directory = model.directory / "beside" / mark
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")
    return directory
