# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count parameters of transformers' own models, built on the meta device: no weights, no GPU.

    inside.py < request.json > answer.json

Runs in an environment with torch and transformers, which Apiary's own has not. The request has
`types`: the model types to make configs of (the class's defaults, and a small one whose dimensions
all differ), and `configs`: config.json documents by name. The answer has their counts, the made
configs, and for what could not be built one line why.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

transformers.logging.set_verbosity_error()

# Dimensions of a small model, no two of them alike, for what a type has of them.
SMALL = {
    "hidden_size": 192,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 40,
    "intermediate_size": 328,
    "vocab_size": 1003,
    "num_hidden_layers": 7,
    "num_experts": 5,
    "n_routed_experts": 5,
    "num_local_experts": 5,
    "moe_num_experts": 5,
    "moe_intermediate_size": 72,
    "shared_expert_intermediate_size": 88,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_shared_experts": 2,
    "num_shared_experts": 2,
    "first_k_dense_replace": 2,
    "kv_lora_rank": 24,
    "q_lora_rank": 56,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "index_n_heads": 3,
    "index_head_dim": 28,
    "sliding_window": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 36,
    "attention_bias": True,
    "mlp_bias": True,
    "use_qk_norm": True,
    "qk_layernorm": True,
}
# What a type's class leaves open, or cannot build without.
NEEDED: dict[str, dict[str, Any]] = {
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2},
    "hunyuan_v1_dense": {"head_dim": 64},
    "hunyuan_v1_moe": {"head_dim": 64, "num_experts": 4, "moe_topk": 2},
    "ministral": {"head_dim": 64},
    "nemotron": {"num_key_value_heads": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "qwen3_moe": {"head_dim": 128},
    "glm4_moe": {"head_dim": 128},
    "mellum": {"head_dim": 128},
    "gemma4": {"vision_config": {}},
    "dbrx": {"attn_config": {"rope_theta": 500000.0, "kv_n_heads": 4}},
}
HEAD_DIM = ("glm4v_moe", "qwen3_omni_moe_thinker", "qwen3_vl_moe")
# Keys that no parameter's shape depends on, and that would only fill the record.
BESIDE = {
    *("return_dict", "output_hidden_states", "chunk_size_feed_forward", "is_encoder_decoder"),
    *("id2label", "label2id", "problem_type", "_name_or_path", "transformers_version"),
    *("output_attentions", "architectures", "use_cache", "initializer_range", "rope_parameters"),
    *("attention_dropout", "hidden_act", "rms_norm_eps", "layer_norm_eps", "norm_eps", "dtype"),
    *("router_aux_loss_coef", "output_router_logits", "time_step_limit", "quantization_config"),
    "activation_sparsity_pattern",
}


def build(config: Any) -> Any:
    """Return the model of a config, without memory for its weights."""
    with torch.device("meta"):
        for factory in (AutoModelForImageTextToText, AutoModelForCausalLM):
            if type(config) in factory._model_mapping:
                return factory.from_config(config)
    raise KeyError(f"no model class for {type(config).__name__}")


def count(config: Any) -> int:
    """Return the parameters of a config's model, tied ones once."""
    return sum(parameter.numel() for parameter in build(config).parameters())


def plain(value: Any) -> Any:
    """Return a config's document without what no shape depends on."""
    if isinstance(value, dict):
        return {
            key: plain(item)
            for key, item in sorted(value.items())
            if key not in BESIDE and item is not None and not key.endswith("_token_id")
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def made(kind: str, small: bool) -> Any:
    """Return a config of a type: its class's defaults, or a small one."""
    cls = CONFIG_MAPPING[kind]
    defaults = cls(**NEEDED.get(kind, {}))
    text = getattr(defaults, "text_config", None)
    if text is not None:
        # One of the two decides in the engine, the other here: let them agree.
        defaults.tie_word_embeddings = getattr(text, "tie_word_embeddings", True)
    if not small:
        if kind in HEAD_DIM:
            text.head_dim = 128
        return defaults
    own = text if text is not None else defaults
    has = {key for key, value in own.to_dict().items() if value is not None}
    changes = {key: value for key, value in SMALL.items() if key in has}
    if kind in HEAD_DIM:
        changes["head_dim"] = SMALL["head_dim"]
    changes["pad_token_id"] = 0  # the class's own may lie beyond the small vocabulary
    if "layer_types" in has and kind == "lfm2_moe":
        changes["layer_types"] = (["conv", "full_attention"] * 4)[:7]
    if text is None:
        return cls(**{**NEEDED.get(kind, {}), **changes})
    more = {key: value for key, value in NEEDED.get(kind, {}).items() if key.endswith("_config")}
    return cls(text_config=changes, tie_word_embeddings=defaults.tie_word_embeddings, **more)


def real(document: dict[str, Any]) -> Any:
    """Return the config of a config.json, as its own class reads it."""
    kind = {"kimi_k2": "deepseek_v3"}.get(document["model_type"], document["model_type"])
    document = {key: item for key, item in document.items() if key != "quantization_config"}
    document["model_type"] = kind
    text = document.get("text_config")
    if isinstance(text, dict):
        text = {key: item for key, item in text.items() if key != "quantization_config"}
        inner = {"kimi_k2": "deepseek_v3"}.get(text.get("model_type"), text.get("model_type"))
        document["text_config"] = {**text, "model_type": inner}
    if kind == "kimi_k25":
        tower = document["vision_config"]
        # The names that transformers gave what the checkpoint calls otherwise.
        renamed = {
            key.removeprefix("vt_").replace("init_pos_emb", "pos_emb"): item
            for key, item in tower.items()
        }
        document["vision_config"] = renamed
    config = CONFIG_MAPPING[kind].from_dict(document)
    inner = getattr(config, "text_config", None)
    if inner is None or inner is config:
        return config
    if "vision_config" not in document:
        return inner  # the class would make up a tower that the file does not have
    tied = document.get("tie_word_embeddings", getattr(inner, "tie_word_embeddings", True))
    config.tie_word_embeddings = inner.tie_word_embeddings = tied
    return config


def attempt(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as problem:  # any of many libraries' errors, reported as one line
        return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:120]}"


def main() -> int:
    request = json.load(sys.stdin)
    answer: dict[str, Any] = {"transformers": transformers.__version__, "zoo": {}, "real": {}}
    for kind in request["types"]:
        if kind not in CONFIG_MAPPING:
            continue
        for label, small in (("default", False), ("small", True)):
            config = attempt(made, kind, small)
            found = config if isinstance(config, str) else attempt(count, config)
            entry = {"config": None, "parameters": None, "problem": found}
            if isinstance(found, int):
                entry = {"config": plain(config.to_dict()), "parameters": found}
            answer["zoo"][f"{kind} {label}"] = entry
    for name, document in request["configs"].items():
        config = attempt(real, document)
        answer["real"][name] = config if isinstance(config, str) else attempt(count, config)
    json.dump(answer, sys.stdout, indent=1, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
