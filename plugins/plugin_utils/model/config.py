# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's architecture from its Hugging Face config.json alone: no weights, no hub."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.model import (
    modules,
    quantization,
    vision,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.families import (
    Reader,
    is_size,
    reader,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

# Keys that no weight's shape depends on; the format of the weights is judged by itself.
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_BESIDE_WEIGHTS = {"max_position_embeddings", "dtype", "torch_dtype", "quantization_config", *_MTP}
# Keys that decide how a layer attends; one that cannot be read leaves the KV cache unknown.
_ATTENTION = {"kv_lora_rank", "index_topk", "sliding_window", "use_sliding_window"}
_LAYER_KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read_config(text: str, subject: str) -> Architecture:
    """Return the architecture that a config.json describes; ``subject`` names it in findings.

    Raises ApiaryError with MODEL-NOT-JSON (with line and column) or MODEL-NO-TYPE. A key that is
    needed and missing leaves what depends on it None, with the warning MODEL-MISSING-KEY.
    """
    try:
        config = json.loads(text, parse_constant=_finite, parse_float=_finite)
        json.dumps(config, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as problem:
        message = f"line {problem.lineno}, column {problem.colno}: {problem.msg}"
        raise _not_json(subject, message) from problem
    except RecursionError as problem:
        raise _not_json(subject, "nested too deeply") from problem
    except UnicodeEncodeError as problem:
        raise _not_json(subject, "a text in it is not Unicode") from problem
    except ValueError as problem:
        raise _not_json(subject, str(problem)) from problem
    if not isinstance(config, Mapping):
        raise _no_type(subject, f"a JSON {type(config).__name__}, expected an object")
    return architecture(config, subject)


def _finite(number: str) -> float:
    """Return a number of the file; raises ValueError for what JSON, or a float, cannot hold."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:60]} is not a finite number")
    return value


def _not_json(subject: str, message: str) -> Exception:
    return error("MODEL-NOT-JSON", subject, message, "pass the checkpoint's config.json")


def known(name: str) -> Architecture | None:
    """Return the architecture shipped for a hub name such as `Qwen/Qwen3-8B`, or None."""
    if not _NAME.fullmatch(name):
        return None
    file = f"models/{name.replace('/', '--')}.yml"
    if not (KNOWLEDGE / file).is_file():
        return None
    return architecture(knowledge(file)["config"], f"knowledge/{file}")


def known_names() -> tuple[str, ...]:
    """Return the hub names of the models whose architecture is shipped."""
    files = sorted((KNOWLEDGE / "models").glob("*--*.yml"))
    return tuple(knowledge(f"models/{file.name}")["name"] for file in files)


def _no_type(subject: str, message: str) -> Exception:
    return error(
        "MODEL-NO-TYPE",
        subject,
        message,
        "pass the checkpoint's config.json (not generation_config.json or tokenizer_config.json)",
    )


def architecture(config: Mapping[str, Any], subject: str) -> Architecture:
    """Return the architecture of a parsed config.json; raises ApiaryError MODEL-NO-TYPE."""
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    model_type = config.get("model_type") or first
    if not isinstance(model_type, str):
        raise _no_type(subject, "neither model_type nor architectures is there")
    keys, is_known = reader(config, model_type, subject)
    result = _described(keys, model_type)
    tower = _vision_parameters(keys, result) if is_known else None
    if keys.wrong_keys - _BESIDE_WEIGHTS:
        tower = None  # a shape cannot be read, so no module's parameters are sure
    if not is_known:
        keys.note(
            "MODEL-UNKNOWN-TYPE",
            f"model_type {model_type} is not known: parameters and memory stay unknown",
            "check memory on the host, or add the type to knowledge/models/families.yml",
        )
    if tower is not None:
        details = {**(result.details or {}), "vision_parameters": tower}
        result = dataclasses.replace(result, details=details)
    return dataclasses.replace(
        result,
        total_parameters=modules.total_parameters(result),
        active_parameters=modules.active_parameters(result),
        findings=keys.notes(),
    )


def _vision_parameters(keys: Reader, result: Architecture) -> int | None:
    """Return the parameters of the vision tower, 0 without one, None with a finding if unknown."""
    inner = keys.below("vision_config")
    if inner is None:
        return 0
    tower = str(keys.family.get("vision"))
    if tower not in vision.TOWERS:
        keys.note(
            "MODEL-UNKNOWN-VISION",
            f"the vision tower of {result.model_type} is not known; parameters stay unknown",
            "check memory on the host",
        )
        return None
    return vision.parameters(tower, inner, result.hidden_size)


def _described(keys: Reader, model_type: str) -> Architecture:
    """Return everything but the parameter counts."""
    layers = keys.integer("num_hidden_layers", needed=True)
    heads = keys.integer("num_attention_heads", needed=True)
    hidden = keys.integer("hidden_size", needed=True)
    latent = keys.integer("kv_lora_rank") or None
    equal_heads = keys.family.get("kv_heads") == "heads"
    kv_heads = keys.integer(
        "num_key_value_heads", needed=latent is None and not equal_heads, minimum=1
    )
    if kv_heads is None and equal_heads and not keys.has("num_key_value_heads"):
        kv_heads = heads
    details = _attention_details(keys, latent) | _attention_layers(keys, layers)
    experts = _experts(keys, layers)
    quantized = _quantized(keys, layers)
    details |= experts["details"]
    details |= {
        "tie_word_embeddings": keys.boolean("tie_word_embeddings", needed=bool(keys.family)),
        "norms_per_layer": keys.family.get("norms_per_layer", 2) if keys.family else None,
        "mtp_layers": _mtp_layers(keys),
        "dtype": keys.words("dtype") or keys.words("torch_dtype"),
        "quantization": quantized,
    }
    tower = keys.mapping("vision_config")
    return Architecture(
        model_type=model_type,
        family=None if experts["count"] is None else ("moe" if experts["count"] else "dense"),
        attention=None if keys.wrong_keys & _ATTENTION else _attention(heads, kv_heads, details),
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(keys, hidden, heads, latent),
        experts=experts["count"],
        experts_per_token=experts["top_k"],
        shared_experts=experts["shared"],
        vocab_size=keys.integer("vocab_size", needed=True),
        max_context=keys.integer("max_position_embeddings", needed=True),
        quantization=quantized["method"] if quantized else None,
        vision=None if tower is None else dict(tower),
        details={key: value for key, value in details.items() if value is not None},
    )


def _quantized(keys: Reader, layers: int | None) -> dict[str, Any] | None:
    """Return the quantization, None without one; a format that is not known is noted."""
    given = keys.mapping("quantization_config")
    if given is None and keys.has("quantization_config"):
        return dict(quantization.UNKNOWN)
    quantized = quantization.read(given, layers)
    if quantized is not None and quantization.bytes_per_weight(quantized) is None:
        keys.wrong("quantization_config", "a known format", quantized["method"])
    return quantized


def _mtp_layers(keys: Reader) -> int:
    return next((count for count in map(keys.integer, _MTP) if count), 0)


def _head_dim(
    keys: Reader, hidden: int | None, heads: int | None, latent: int | None
) -> int | None:
    """Return the query/key head size: given, latent (without and with position), or derived."""
    if latent is not None:
        parts = [keys.integer(f"qk_{part}_head_dim", needed=True) for part in ("nope", "rope")]
        return None if None in parts else sum(part for part in parts if part is not None)
    if keys.family.get("head_dim") == "derived" and not keys.has("head_dim"):
        return hidden // heads if hidden and heads else None
    return keys.integer("head_dim", needed=bool(keys.family))


def _attention_details(keys: Reader, latent: int | None) -> dict[str, Any]:
    """Return the dimensions that only some kinds of attention have."""
    details: dict[str, Any] = {}
    norm = keys.family.get("qk_norm")
    if isinstance(norm, Mapping):
        norm = norm["norm"] if keys.boolean(norm["key"], needed=True) else None
    if keys.family:
        details = {
            "qk_norm": norm,
            "qkv_bias": keys.flag("qkv_bias"),
            "output_bias": keys.flag("output_bias"),
            "ffn_bias": keys.flag("ffn_bias"),
            "output_gate": bool(keys.family.get("output_gate")),
            "sinks": bool(keys.family.get("sinks")),
        }
    if latent is None:
        return details
    details["kv_lora_rank"] = latent
    details["q_lora_rank"] = keys.integer("q_lora_rank")
    for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        details[key] = keys.integer(key, needed=True)
    sparse = details["index_topk"] = keys.integer("index_topk") or None
    if sparse:
        for key in ("q_lora_rank", "index_n_heads", "index_head_dim"):
            details[key] = keys.integer(key, needed=True)
    return details


def _attention_layers(keys: Reader, layers: int | None) -> dict[str, Any]:
    """Return how many layers attend fully, within a window, or linearly, and the window."""
    result: dict[str, Any] = {}
    kinds = keys.get("layer_types")
    rule = keys.family.get("attention_layers", "all")
    window = keys.integer("sliding_window")
    sliding = linear = 0
    if kinds is not None and not _are_layer_kinds(kinds, layers):
        keys.wrong("layer_types", "a list with a known kind for each layer", kinds)
        return result
    if isinstance(kinds, list) and layers is not None:
        kinds = kinds[:layers]
        linear = kinds.count("linear_attention")
        sliding = kinds.count("sliding_attention") + kinds.count("chunked_attention")
    elif layers is None or not keys.family:
        return result  # an unknown type may attend in any way
    elif rule == "interval":
        every = keys.integer("full_attention_interval", needed=True)
        linear = layers - layers // every if every else 0
    elif rule == "pattern":
        every = keys.integer("sliding_window_pattern", needed=True)
        sliding = layers - layers // every if every else 0
    elif rule == "no_rope":
        every = keys.integer("no_rope_layer_interval", needed=True)
        window = keys.integer("attention_chunk_size", needed=True)
        sliding = layers - layers // every if every else 0
    elif rule == "all_sliding":
        sliding = layers if window else 0
    elif rule == "use_sliding_window" and keys.boolean("use_sliding_window"):
        first = keys.integer("max_window_layers", needed=True)
        sliding = max(0, layers - first) if first is not None else 0
    if keys.wrong_keys & _ATTENTION:
        return result
    result["attention_layers"] = {
        "full": layers - sliding - linear,
        "sliding": sliding,
        "linear": linear,
    }
    if sliding:
        result["sliding_window"] = window
    if linear:
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        for key in (*(f"linear_{name}" for name in names), "linear_conv_kernel_dim"):
            result[key] = keys.integer(key, needed=True)
    return result


def _are_layer_kinds(value: Any, layers: int | None) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= (layers or 0)
        and all(kind in _LAYER_KINDS for kind in value)
    )


def _attention(heads: int | None, kv_heads: int | None, details: Mapping[str, Any]) -> str | None:
    if details.get("attention_layers", {}).get("linear"):
        return "hybrid"
    if "kv_lora_rank" in details:
        return "sparse_mla" if details.get("index_topk") else "mla"
    if heads is None or kv_heads is None:
        return None
    return "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"


def _experts(keys: Reader, layers: int | None) -> dict[str, Any]:
    """Return expert counts and FFN widths; of an unknown type only what its keys say."""
    facts = keys.family.get("experts")
    if facts is None:
        counts = ("num_experts", "n_routed_experts", "num_local_experts")
        count = None if keys.family else next(filter(None, map(keys.integer, counts)), None)
        width = {"intermediate_size": keys.integer("intermediate_size", needed=bool(keys.family))}
        details = {**width, "dense_layers": layers, "moe_layers": 0} if keys.family else width
        top_k = keys.integer("num_experts_per_tok") if count else None
        dense = 0 if keys.family else count
        shared = 0 if keys.family else None
        return {"count": dense, "top_k": top_k, "shared": shared, "details": details}
    count = keys.integer(facts["count"], needed=True)
    size = keys.integer(facts["size"], needed=True)
    dense = _dense_layers(keys, facts["dense_layers"], layers)
    shared, shared_size = _shared(keys, facts.get("shared"), size)
    dense_key = facts.get("dense_size", "intermediate_size")
    details = {
        "moe_intermediate_size": size,
        "intermediate_size": keys.integer(dense_key, needed=True) if dense else None,
        "dense_layers": dense,
        "moe_layers": None if dense is None or layers is None else layers - dense,
        "shared_expert_intermediate_size": shared_size,
        "shared_expert_gate": bool(facts.get("shared_gate")),
        "router_bias": bool(facts.get("router_bias")),
        "expert_bias": bool(facts.get("expert_bias")),
        "moe_module": keys.family.get("module", "mlp"),
    }
    top_k = keys.integer(facts["top_k"], needed=True)
    if count is not None and top_k is not None and top_k > count:
        keys.wrong(facts["top_k"], f"at most {count}", top_k)
        top_k = None
    return {"count": count, "top_k": top_k, "shared": shared, "details": details}


def _shared(keys: Reader, rule: str | None, size: int | None) -> tuple[int | None, int | None]:
    """Return how many shared experts a MoE layer has and the width of all of them together."""
    if rule is None:
        return 0, 0
    if rule == "same":
        return 1, size
    if rule == "count":
        count = keys.integer("n_shared_experts", needed=True, minimum=0)
        return count, None if count is None or size is None else count * size
    width = keys.integer(rule, needed=True, minimum=0)
    return None if width is None else int(width > 0), width


def _dense_layers(keys: Reader, rule: str, layers: int | None) -> int | None:
    """Return how many layers have a plain FFN instead of experts."""
    if layers is None:
        return None
    if rule == "first_k":
        return _first_dense(keys, layers)
    if rule == "interleave":
        step = keys.integer("interleave_moe_layer_step", needed=True)
        return None if step is None else layers - layers // step
    if rule == "sparse_step":
        step, plain = keys.integer("decoder_sparse_step", needed=True), keys.get("mlp_only_layers")
        if not isinstance(plain, list):
            keys.wrong("mlp_only_layers", "a list of layers", plain)
            return None
        if step is None:
            return None
        named = {layer for layer in plain if is_size(layer, 0) and layer < layers}
        return layers - layers // step + sum((layer + 1) % step == 0 for layer in named)
    return 0


def _first_dense(keys: Reader, layers: int) -> int | None:
    """Return the number of leading dense layers; every later one must have experts."""
    frequency = keys.integer("moe_layer_freq", needed=True)
    first = keys.integer("first_k_dense_replace", needed=True, minimum=0)
    if frequency is not None and frequency > 1:
        keys.wrong("moe_layer_freq", "1", frequency)
        return None
    return None if first is None or frequency is None else min(first, layers)
