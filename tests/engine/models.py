# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models whose recipes are judged: a config.json that vLLM reads, and how we read it."""

from __future__ import annotations

import functools
import json
import runpy
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.versions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from engine.environment import ROOT
from engine.odd import Config, odd
from support.shared import SHARED

MAKE_MODEL = ROOT / "tests" / "lab" / "real_vllm" / "make_model.py"
REAL = SHARED / "data" / "model-configs"
# The first release that can read a config.json, where no rule could say why the others cannot.
UNFIT = {
    "google/gemma-3-27b-it": "0.33.0",  # this copy has an activation that vLLM refused before
    "MiniMaxAI/MiniMax-M2": "0.20.2",  # until transformers had it, its class lay beside the weights
}
# What Apiary does not keep of a config.json, because no weight depends on it, and vLLM reads.
COMPLETE = {"Qwen/Qwen3-VL-235B-A22B-Instruct": {"text_config": {"norm_topk_prob": True}}}

# Stands in for the configuration class that some models bring beside their weights.
OWN_CLASS = """from transformers import PretrainedConfig


class {name}(PretrainedConfig):
    model_type = {model_type!r}
"""


@dataclass(frozen=True)
class Model:
    """A model by its hub ``name``; ``directory`` holds what vLLM reads of it: no weights."""

    name: str
    architecture: Architecture
    directory: Path

    def fits(self, version: str) -> bool:
        """Say whether a release can read this config.json; see UNFIT."""
        return order(version) >= order(UNFIT.get(self.name, version))


def models(home: Path, real: bool = True) -> dict[str, Model]:
    """Return the models that Apiary knows, odd ones, and real configs where they are at hand."""
    configs = _known()
    texts = {name: json.dumps(config) for name, config in (configs | odd(configs)).items()}
    if real and REAL.is_dir():
        texts |= {
            path.stem.replace("--", "/", 1): path.read_text(encoding="utf-8")
            for path in sorted(REAL.glob("*--*.json"))
        }
    result = {}
    for name, text in texts.items():
        directory = home / "models" / name
        _write(directory, text)
        try:
            result[name] = Model(name, read_config(text, name), directory)
        except ApiaryError:
            continue  # the model reader's own tests say so
    return result


def _known() -> dict[str, Config]:
    result = {}
    for path in sorted((KNOWLEDGE / "models").glob("*--*.yml")):
        entry = knowledge(f"models/{path.name}")
        config = dict(entry["config"])
        for part, values in COMPLETE.get(entry["name"], {}).items():
            config[part] = config[part] | values
        result[entry["name"]] = config
    return result


@functools.cache
def tokenizer() -> str:
    """Return a tokenizer.json: a reasoning parser, and the towers of some releases, want one."""
    return json.dumps(runpy.run_path(str(MAKE_MODEL))["tokenizer"]())


def _write(directory: Path, text: str) -> None:
    """Write a config.json, and what releases ask for beside it."""
    config: Config = json.loads(text)
    files = {"config.json": text}
    files |= {"tokenizer.json": tokenizer(), "tokenizer_config.json": "{}"}
    if own := config.get("auto_map", {}).get("AutoConfig"):
        module, _, name = own.partition(".")
        files[f"{module}.py"] = OWN_CLASS.format(name=name, model_type=config["model_type"])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")
