# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's architecture from its Hugging Face config.json alone: no weights, no hub."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ..documents import KNOWLEDGE, knowledge
from ..findings import error
from . import modules, quantization, towers
from .attention import DECISIVE, attention_details, attention_name, head_dim
from .families import LARGEST, Reader, is_size, reader
from .layers import MOST_LAYERS, experts
from .towers import extra_modules
from .types import Architecture

_MTP = (
    *("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    *("num_mtp_layers", "mtp_num_layers"),
)
_ACTIVATIONS = ("hidden_act", "hidden_activation", "mlp_hidden_act")
# What a family says of its norms, or else.
_NORMS = (("norms_per_layer", 2), ("norm_bias", False), ("final_norm", True))
# Keys that no weight's shape depends on; the format of the weights is judged by itself.
_BESIDE_WEIGHTS = {"max_position_embeddings", "dtype", "torch_dtype", "quantization_config", *_MTP}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def read_config(text: str, subject: str, beside: Mapping[str, Any] | None = None) -> Architecture:
    """Return the architecture that a config.json describes; ``subject`` names it in findings.

    ``beside`` has what other files say: `quantization_config`, for one without, `config_format`.

    Raises ApiaryError with MODEL-NOT-JSON (with line and column) or MODEL-NO-TYPE. A key that is
    needed and missing leaves what depends on it None, with the warning MODEL-MISSING-KEY.
    """
    config = read_json(text, subject)
    if not isinstance(config, Mapping):
        raise error("MODEL-NO-TYPE", subject, f"a JSON {type(config).__name__}, expected an object")
    return architecture({**(beside or {}), **config}, subject)


def read_json(text: str, subject: str) -> Any:
    """Return the JSON of a file that comes with a model; raises ApiaryError MODEL-NOT-JSON."""
    try:
        value = json.loads(text, parse_constant=str, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as problem:
        message = f"line {problem.lineno}, column {problem.colno}: {problem.msg}"
    except RecursionError:
        message = "nested too deeply"
    except UnicodeEncodeError:
        message = "a text in it is not Unicode"
    except ValueError as problem:
        message = str(problem)
    else:
        return value
    raise error("MODEL-NOT-JSON", subject, message)


def _finite(number: str) -> float | str:
    """Return a number of the file, or its text where no float can hold it.

    vLLM and transformers read NaN and Infinity, too, which NVIDIA's configs have; as a text none
    is taken for a dimension, and our own documents stay JSON.
    """
    value = float(number)
    return value if math.isfinite(value) else number[:60]


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


def architecture(config: Mapping[str, Any], subject: str) -> Architecture:
    """Return the architecture of a parsed config.json; raises ApiaryError MODEL-NO-TYPE."""
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    model_type = config.get("model_type") or first
    if not isinstance(model_type, str):
        raise error("MODEL-NO-TYPE", subject, "neither model_type nor architectures is there")
    keys, is_known = reader(config, model_type, subject)
    result = _described(keys, model_type)
    details = {**(result.details or {}), **_classes(config, first, model_type)}
    if is_known:
        details |= _formula_sizes(keys, result)
    else:
        keys.note(
            "MODEL-UNKNOWN-TYPE",
            f"model_type {model_type} is not known: {_unknown_parts(result)} stay unknown",
        )
    result = dataclasses.replace(result, details=details)
    return dataclasses.replace(
        result,
        total_parameters=modules.total_parameters(result),
        active_parameters=modules.active_parameters(result),
        findings=keys.notes(),
    )


def _classes(config: Mapping[str, Any], first: Any, model_type: str) -> dict[str, Any]:
    """Return the class that the config names, its format, if it brings code, its text's type."""
    beside = config.get("auto_map")
    code = isinstance(beside, Mapping) and "AutoConfig" in beside
    name = first if isinstance(first, str) else None
    found: dict[str, Any] = {"class": name, "remote_code": code or None}
    found["config_format"] = "hf" if config.get("config_format") == "hf" else None
    text = config.get("text_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    if isinstance(kind, str) and kind != f"{model_type}_text":
        found["text_type"] = kind
    return {key: value for key, value in found.items() if value is not None}


def _formula_sizes(keys: Reader, result: Architecture) -> dict[str, Any]:
    """Return the towers' parameters and the modules that formulas state, if all are known."""
    sizes = towers.parameters(keys, result)
    extras = extra_modules(keys, result)
    if sizes is None or extras is None or keys.wrong_keys - _BESIDE_WEIGHTS:
        return {}  # a shape cannot be read, so no module's parameters are sure
    sharding = keys.family.get("tower_sharding")
    names = towers.quantized(keys, result.quantization) or None
    return {**sizes, "vision_sharding": sharding, "vision_names": names, **extras}


def _unknown_parts(result: Architecture) -> str:
    """Name what the keys of an unknown type left open."""
    sizes = (result.layers, result.heads, result.hidden_size, result.vocab_size)
    counts = (result.details or {}).get("attention_layers")
    unknown = {
        "whether it has experts": result.family is None,
        "layers, heads and sizes that its keys name otherwise": None in sizes,
        "which layers attend fully, within a window or linearly": counts is None,
        "parameters and memory": True,
    }
    return ", ".join(part for part, holds in unknown.items() if holds)


def _described(keys: Reader, model_type: str) -> Architecture:
    """Return everything but the parameter counts."""
    layers = keys.integer("num_hidden_layers", needed=True, most=MOST_LAYERS)
    attends = keys.family.get("attention_layers") != "all_linear"
    heads = keys.integer("num_attention_heads", needed=True) if attends else None
    hidden = keys.integer("hidden_size", needed=True)
    latent = keys.integer("kv_lora_rank") or None
    kv_heads = _kv_heads(keys, heads, latent) if attends else None
    details = attention_details(keys, layers, latent)
    found = experts(keys, layers)
    quantized = _quantized(keys, layers)
    details |= found.details
    details |= {
        "tie_word_embeddings": keys.boolean("tie_word_embeddings", needed=bool(keys.family)),
        **({name: keys.family.get(name, value) for name, value in _NORMS} if keys.family else {}),
        "mtp_layers": _mtp_layers(keys),
        "dtype": keys.words("dtype") or keys.words("torch_dtype"),
        "quantization": quantized,
        "rope_scaling": rope_scaling(keys),
        "audio": any(map(keys.has, towers.AUDIO)) or None,
        "activation": next(filter(None, map(keys.words, _ACTIVATIONS)), None),
    }
    count, tower = found.count, keys.mapping("vision_config")
    unreadable = keys.wrong_keys & DECISIVE
    size = head_dim(keys, hidden, heads, latent) if attends else None
    return Architecture(
        model_type=model_type,
        family=None if count is None else ("moe" if count else "dense"),
        attention=None if unreadable else attention_name(heads, kv_heads, details),
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=size,
        experts=count,
        experts_per_token=found.per_token,
        shared_experts=found.shared,
        vocab_size=keys.integer("vocab_size", needed=True),
        max_context=max_context(keys),
        quantization=quantized["method"] if quantized else None,
        vision=dict(tower) if tower is not None else None,
        details={key: value for key, value in details.items() if value is not None},
    )


def _kv_heads(keys: Reader, heads: int | None, latent: int | None) -> int | None:
    equal = keys.family.get("kv_heads") == "heads"
    needed = latent is None and not equal
    given = keys.integer("num_key_value_heads", needed=needed, minimum=1)
    if given is None and equal and not keys.has("num_key_value_heads"):
        return heads
    return given


def _quantized(keys: Reader, layers: int | None) -> dict[str, Any] | None:
    """Return the quantization, None without one; a format that is not known is noted."""
    key = "quantization_config" if keys.has("quantization_config") else "compression_config"
    given = keys.mapping(key)
    if given is None and keys.has(key):
        return dict(quantization.UNKNOWN)
    quantized = quantization.read(given, layers)
    own = keys.family.get("expert_format", ())
    method = next(filter(None, (one["formats"].get(keys.words(one["key"])) for one in own)), None)
    if quantized is not None and method:
        quantized = quantization.with_experts(quantized, method, keys.family["module"])
    if quantized is not None and not quantization.is_understood(quantized):
        keys.wrong("quantization_config", "a known format", quantized["method"])
    return quantized


def _mtp_layers(keys: Reader) -> int:
    return next((count for count in map(keys.integer, _MTP) if count), 0)


# Types whose max_position_embeddings is the scaled length already, as vLLM's
# _get_and_verify_max_len takes them (config/model.py, 0.32.0).
_SCALED = ("su", "longrope", "llama3", "mrope", "default")
_YARN = ("yarn", "deepseek_yarn", "deepseek_llama_scaling")


def rope_scaling(keys: Reader) -> dict[str, Any] | None:
    """Return `type`, `factor` and `original_context` of the scaling; None without one."""
    for key in ("rope_scaling", "rope_parameters"):
        given = keys.get(key)
        if isinstance(given, Mapping):
            by_kind = given.get("full_attention")  # newer files have one for each kind of layer
            return _scaling(by_kind if isinstance(by_kind, Mapping) else given)
    return None


def _scaling(given: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = given.get("rope_type") or given.get("type")
    if not isinstance(kind, str) or kind == "default":
        return None
    factor, original = given.get("factor"), given.get("original_max_position_embeddings")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        factor = None
    return {
        "type": kind,
        "factor": factor if factor is not None and 0 < factor <= LARGEST else None,
        "original_context": original if is_size(original) else None,
    }


def max_context(keys: Reader) -> int | None:
    """Return the longest sequence in tokens: max_position_embeddings, with rope scaling.

    YaRN files give the scaled length already; where one still has the original length, the factor
    over it is what the file asks for. Gemma 3's length is scaled, whatever its factor.
    """
    length = keys.integer("max_position_embeddings", needed=True)
    scaling = rope_scaling(keys)
    if length is None or scaling is None or keys.family.get("scaled_context"):
        return length
    factor, original = scaling["factor"], scaling["original_context"]
    if scaling["type"] in _SCALED or factor is None or factor <= 1:
        return length
    if scaling["type"] in _YARN:
        return max(length, min(int((original or 0) * factor), LARGEST))
    return min(int(length * factor), LARGEST)
