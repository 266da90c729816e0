# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models whose recipes are judged: a config.json that vLLM reads, and how we read it."""

from __future__ import annotations

import copy
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

from engine.odd import Config, odd
from support.shared import SHARED

CONFIGS = Path(__file__).parent / "configs.yml"
REAL = SHARED / "data" / "model-configs"
# The first release that can read a config.json, where no rule could say why the others cannot.
UNFIT = {
    "google/gemma-3-27b-it": "0.33.0",  # this copy has an activation that vLLM refused before
}
UNFIT_TYPES = {
    # Earlier ones want an older transformers 5, which lets them ask for one head size of all.
    "gemma4": "0.28.0",
}
# What Apiary does not keep of a config.json, because no weight depends on it, and vLLM reads.
COMPLETE = {"Qwen/Qwen3-VL-235B-A22B-Instruct": {"text_config": {"norm_topk_prob": True}}}

# What vLLM's own processor of these models reads; its numbers are of no matter here.
KIMI = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "media_proc_cfg": {
        "fixed_output_tokens": None,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "in_patch_limit": 16384,
        "in_patch_limit_each_frame": 4096,
        "in_patch_limit_video": None,
        "merge_kernel_size": 2,
        "patch_limit_on_one_side": 512,
        "patch_size": 14,
        "sample_fps": 2,
        "temporal_merge_kernel_size": 4,
    },
}
# What some releases look for beside a tower, by model type.
PROCESSORS = {
    "qwen2_5_vl": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
    },
    "muse_glimmer": {
        "image_processor_type": "MuseGlimmerImageProcessor",
        "processor_class": "MuseGlimmerProcessor",
    },
    "kimi_k25": KIMI,  # whose own is code beside the weights
    "kimi_k3": KIMI | {"auto_map": {"AutoImageProcessor": "kimi_k3_vision_processing.Images"}},
}
# What such checkpoints call their tokenizer. Without it Transformers asks for the type's
# configuration, which that of releases up to 0.19.0 has not.
TOKENIZERS = {"deepseek_vl_v2": "LlamaTokenizerFast"}
# Stands in for the code that reads images, which older releases take from a Kimi-K3 itself.
OWN_IMAGES = """from transformers import BaseImageProcessor


class Images(BaseImageProcessor):
    def media_tokens_calculator(self, media):
        return 1
"""
# Stands in for the configuration class that some models bring beside their weights.
OWN_CLASS = """from transformers import CONFIG_MAPPING, PretrainedConfig


class Block(dict):
    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return Block(self[name]) if isinstance(self[name], dict) else self[name]


class {name}(PretrainedConfig):
    model_type = {model_type!r}

    def __init__(self, **values):
        for key in [key for key in values if key in ("llm_config", "text_config", "vision_config")]:
            known = CONFIG_MAPPING.get(values[key].get("model_type"), PretrainedConfig)
            setattr(self, key, known(**values.pop(key)))
        if "max_position_embeddings" in values:  # which scaled positions are made from
            self.max_position_embeddings = values["max_position_embeddings"]
        if "block_configs" in values:
            values["block_configs"] = [Block(block) for block in values["block_configs"]]
        super().__init__(**values)
"""
# What Nemotron-H's own class makes of the names of its layers.
OWN_LAYERS = """
    @property
    def hybrid_override_pattern(self):
        letters = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
        return "".join(map(letters.get, self.layers_block_type))
"""


@dataclass(frozen=True)
class Model:
    """A model by its hub ``name``; ``directory`` holds what vLLM reads of it: no weights."""

    name: str
    architecture: Architecture
    directory: Path

    def fits(self, version: str) -> bool:
        """Say whether a release can read this config.json; see UNFIT and unjudged()."""
        first = UNFIT_TYPES.get(self.architecture.model_type, version)
        late = order(version) >= order(UNFIT.get(self.name, first))
        return late and self.name not in unjudged()


def models(home: Path, real: bool = True, more: Path | None = None) -> dict[str, Model]:
    """Return the models that Apiary knows, odd ones, and real configs where they are at hand.

    ``more`` holds further ones: OWNER--NAME_config.json, and _hf_quant_config.json beside it.
    """
    configs = _known()
    texts = {
        name: json.dumps(config) for name, config in (configs | odd(configs, published())).items()
    }
    if real and REAL.is_dir():
        texts |= {
            path.stem.replace("--", "/", 1): path.read_text(encoding="utf-8")
            for path in sorted(REAL.glob("*--*.json"))
        }
    beside: dict[str, str] = {}
    for name, config in published().items() if real else ():
        if "hf_quant_config" in config:
            beside[name] = json.dumps(config.pop("hf_quant_config"))
        texts.setdefault(name, json.dumps(config))
    for path in sorted(more.glob("*--*_config.json")) if more else ():
        name = path.stem.replace("--", "/", 1).removesuffix("_config")
        whole = name.removesuffix("_hf_quant")
        (texts if whole == name else beside)[whole] = path.read_text(encoding="utf-8")
    result = {}
    for name, text in texts.items():
        # A small run beside a full one has its own: the two may know a model by unlike files.
        directory = home / ("models" if real else "known") / name
        quantization = beside.get(name)
        _write(directory, text, quantization)
        try:
            parsed = {"quantization_config": json.loads(quantization)} if quantization else None
            result[name] = Model(name, read_config(text, name, parsed), directory)
        except ApiaryError:
            continue  # the model reader's own tests say so
    return result


def published() -> dict[str, Config]:
    """Return the dimensions of published models; see configs.yml."""
    configs: dict[str, Config] = copy.deepcopy(_corpus()["models"])
    return configs


def recipes() -> dict[str, str]:
    """Return the model in configs.yml that has the dimensions of each of upstream's recipes."""
    names: dict[str, str] = _corpus()["recipes"]
    return names


def unjudged() -> dict[str, str]:
    """Return the models that no release can be asked about, each with the reason."""
    reasons: dict[str, str] = _corpus()["unjudged"]
    return reasons


@functools.cache
def _corpus() -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    corpus: dict[str, Any] = yaml.load(CONFIGS.read_text(encoding="utf-8"), loader)  # noqa: S506
    return corpus


def _known() -> dict[str, Config]:
    result = {}
    for path in sorted((KNOWLEDGE / "models").glob("*--*.yml")):
        entry = knowledge(f"models/{path.name}")
        config = dict(entry["config"])
        for part, values in COMPLETE.get(entry["name"], {}).items():
            config[part] = config[part] | values
        result[entry["name"]] = config
    return result


SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
# The marks of reasoning parsers, MiniMax-M3's own, and what Laguna's wants.
THOUGHTS = ("<think>", "</think>", "<assistant>", "<mm:think>", "</mm:think>")
IMAGES = ("<image>", "<img>", "</img>", "<IMG_CONTEXT>", "<|media_pad|>")  # in the place of one


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in a byte-level vocabulary.

    Bytes that print stand for themselves, the others for U+0100 upward in order (GPT-2's table).
    """
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printing else next(spare)) for byte in range(256)]


@functools.cache
def tokenizer(size: int = 0, unlike: int = 0) -> str:
    """Return a tokenizer.json of bytes that has the marks that releases and parsers look for.

    DeepSeek-V4.1's has ``size`` tokens, of which ``unlike`` remain once case and blanks are alike.
    """
    letters = byte_letters()
    special = {
        word: place for place, word in enumerate((*SPECIAL, *THOUGHTS, *IMAGES), len(letters))
    }
    # 26 letters have another case, and tab, line feed and return are blanks like the space.
    small = [f"word{number}" for number in range(unlike - len(letters) - len(special) + 29)]
    large = [word.upper() for word in small[: size - len(letters) - len(special) - len(small)]]
    words = {word: at for at, word in enumerate([*small, *large], len(letters) + len(special))}
    plain = {"special": True, "lstrip": False, "rstrip": False}
    plain |= {"normalized": False, "single_word": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level |= {"use_regex": True}
    absent = ("truncation", "padding", "normalizer", "post_processor")
    model = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    made = {
        "version": "1.0",
        "added_tokens": [{"id": at, "content": word, **plain} for word, at in special.items()],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {letter: byte for byte, letter in enumerate(letters)} | special | words,
            "merges": [],
            **dict.fromkeys(model),
        },
        **dict.fromkeys(absent),
    }
    return json.dumps(made)


# The keys of params.json, by those of a Mistral 3's language model and of its tower.
PARAMS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
}
OF_TOWER = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("image_size", "num_channels", "patch_size"),
)


def _params(config: Config) -> Config:
    """Return the params.json that Mistral ships beside such a config.json."""
    text, tower = config["text_config"], config["vision_config"]
    result = {key: text[name] for key, name in PARAMS.items()}
    result |= {"tied_embeddings": config["tie_word_embeddings"]}
    result |= {"rope_theta": text["rope_parameters"]["rope_theta"]}
    marks = {"image_token_id": 10, "image_break_token_id": 12, "image_end_token_id": 13}
    made = {"mm_projector_id": "patch_merge", "add_pre_mm_projector_layer_norm": True}
    made |= {"spatial_merge_size": config["spatial_merge_size"], "adapter_bias": False}
    made |= {"max_image_size": tower["image_size"], "rope_theta": 10000.0}
    result["vision_encoder"] = {key: tower[key] for key in OF_TOWER} | marks | made
    if config.get("quantization_config", {}).get("quant_method") == "fp8":
        result["quantization"] = {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}
    return result


def _words(config: Config) -> tuple[int, ...]:
    """Return how many tokens n-gram tables are made for, and how many of them are unlike."""
    text = config.get("text_config", config)
    names = ("vocab_size", "engram_compressed_vocab_size")
    return tuple(text[name] for name in names) if names[1] in text else ()


def _write(directory: Path, text: str, quantization: str | None = None) -> None:
    """Write a config.json, and what releases ask for beside it."""
    config: Config = json.loads(text)
    files = {"config.json": text}
    named = TOKENIZERS.get(config["model_type"])
    about = {"tokenizer_class": named} if named else {}
    files["tokenizer.json"] = tokenizer(*_words(config))
    files["tokenizer_config.json"] = json.dumps(about)
    if quantization:
        files["hf_quant_config.json"] = quantization
    if processor := PROCESSORS.get(config["model_type"]):
        files["preprocessor_config.json"] = json.dumps(processor)
        if own := processor.get("auto_map"):
            files[f"{own['AutoImageProcessor'].partition('.')[0]}.py"] = OWN_IMAGES
    if config["model_type"] == "mistral3" and config.get("config_format") != "hf":
        # With both, vLLM takes a checkpoint as one in Mistral's own format, as on a host.
        files["params.json"] = json.dumps(_params(config))
        files["consolidated.safetensors"] = "\x02" + 7 * "\0" + "{}"  # no tensors
    if own := config.get("auto_map", {}).get("AutoConfig"):
        module, _, name = own.partition(".")
        files[f"{module}.py"] = OWN_CLASS.format(name=name, model_type=config["model_type"])
        files[f"{module}.py"] += OWN_LAYERS if "layers_block_type" in config else ""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            half = directory.parent / f".{os.getpid()}-{name}"  # which no other run reads
            half.write_text(content, encoding="utf-8")
            half.replace(path)
