# SPDX-License-Identifier: GPL-3.0-or-later

"""How a model attends: heads and their sizes, windows, latents, indexers, recurrent state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..documents import knowledge
from .families import Reader, is_size
from .layers import FULL, LINEAR, SLIDING, attention_kinds

# Keys that decide how a layer attends; one that cannot be read leaves the KV cache unknown.
DECISIVE = {"kv_lora_rank", "index_topk", "sliding_window", "use_sliding_window"}


def attention_details(keys: Reader, layers: int | None, latent: int | None) -> dict[str, Any]:
    """Return the dimensions of attention that only some families have, and the layers by kind."""
    details = _weights(keys)
    if latent is not None:
        details |= _latent(keys, latent)
    if layers is None:
        return details
    kinds = attention_kinds(keys, layers)
    if kinds is None or keys.wrong_keys & DECISIVE:
        return details
    counts = Counter(kinds)
    details["attention_layers"] = {
        kind: counts[kind] + (counts["hybrid"] if kind != SLIDING else 0)
        for kind in (FULL, SLIDING, LINEAR)
    }
    if counts[SLIDING]:
        details["sliding_window"] = keys.integer(_window_key(keys), needed=True)
    if keys.family.get("attention_weights") == "extra":
        details["attention_in_extra"] = True
    if keys.family.get("cache") == "unknown":
        details["cache_unknown"] = True
    if packed := keys.family.get("packed_cache"):
        caches = [{n: keys.formula(f) for n, f in cache.items()} for cache in packed["caches"]]
        details["packed_cache"] = {**packed, "caches": caches}
    details |= _own_dimensions(keys, kinds)
    details |= _kv_shared(keys, kinds)
    if "indexer_types" in keys.text and isinstance(keys.get("indexer_types"), list):
        details["indexer_layers"] = keys.get("indexer_types")[:layers].count("full")
    details |= _index_cache(keys, details)
    return details


def _index_cache(keys: Reader, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many layers keep an indexer's keys, and the bytes of one token in each."""
    own = keys.family.get("index_cache")
    if own is not None:
        return {"index_cache": {name: keys.formula(formula) for name, formula in own.items()}}
    if not details.get("index_topk"):
        return {}
    size, scale = details["index_head_dim"], knowledge("models/memory.yml")["sparse_mla"]
    layers = details.get("indexer_layers", details["attention_layers"][FULL])
    each = None if size is None else size + scale["indexer_scale_bytes"]
    return {"index_cache": {"layers": layers, "bytes": each}}


def _window_key(keys: Reader) -> str:
    chunked = keys.family.get("attention_layers") == "no_rope"
    return "attention_chunk_size" if chunked else "sliding_window"


def _weights(keys: Reader) -> dict[str, Any]:
    """Return which biases, norms, gates and sinks the attention of a known family has."""
    if not keys.family:
        return {}
    norm = keys.family.get("qk_norm")
    if isinstance(norm, Mapping):
        norm = norm["norm"] if keys.boolean(norm["key"], needed=True) else None
    return {
        "qk_norm": norm,
        **{name: keys.flag(name) for name in ("qkv_bias", "output_bias", "ffn_bias")},
        **{name: bool(keys.family.get(name)) for name in ("output_gate", "sinks")},
    }


def _latent(keys: Reader, latent: int) -> dict[str, Any]:
    """Return the dimensions of multi-head latent attention and of its sparse indexer."""
    details: dict[str, Any] = {
        "kv_lora_rank": latent,
        "q_lora_rank": keys.integer("q_lora_rank") or None,
    }
    for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        details[key] = keys.integer(key, needed=True)
    sparse = details["index_topk"] = keys.integer("index_topk") or None
    if sparse:
        for key in ("q_lora_rank", "index_n_heads", "index_head_dim"):
            details[key] = keys.integer(key, needed=True)
    return details


def head_dim(keys: Reader, hidden: int | None, heads: int | None, latent: int | None) -> int | None:
    """Return the query/key head size: given, latent (without and with position), or derived."""
    if latent is not None:
        parts = [keys.integer(f"qk_{part}_head_dim", needed=True) for part in ("nope", "rope")]
        return None if None in parts else sum(part for part in parts if part is not None)
    if keys.family.get("head_dim") == "derived" and not keys.has("head_dim"):
        if hidden and heads and hidden < heads:
            keys.wrong("hidden_size", f"at least {heads}, one a head", hidden)
        return (hidden // heads or None) if hidden and heads else None
    return keys.integer("head_dim", needed=bool(keys.family))


def _own_dimensions(keys: Reader, kinds: list[str]) -> dict[str, Any]:
    """Return the heads of full and sliding layers where the two are not alike."""
    result: dict[str, dict[str, Any]] = {FULL: {}, SLIDING: {}}
    for kind, names in keys.family.get("kinds", {}).items():
        for what, key in names.items():
            given = keys.get(key)
            value = given if isinstance(given, bool) else keys.integer(key)
            if value:
                result[kind][what] = value
    for what, key in _BY_LAYER.items():
        for kind, values in _by_layer(keys, key, kinds).items():
            if len(values) > 1:
                expected = f"the same {key} in all {kind} layers"
                keys.wrong("per_layer_config", expected, sorted(values))
            elif values:
                result[kind][what] = values.pop()
    found = {kind: own for kind, own in result.items() if own}
    return {"attention_dimensions": found} if found else {}


# What one layer may have of its own, and the key that says so.
_BY_LAYER = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "v_head_dim": "v_head_dim",
}


def _by_layer(keys: Reader, key: str, kinds: list[str]) -> dict[str, set[int]]:
    """Return the values that layers have of their own, by kind of layer."""
    listed, mapped = keys.get(f"{key}_per_layer"), keys.get("per_layer_config")
    result: dict[str, set[int]] = {FULL: set(), SLIDING: set()}
    own: dict[int, Any] = {}
    if isinstance(mapped, Mapping):
        own = {
            int(layer): entry.get(key)
            for layer, entry in mapped.items()
            if str(layer).isdecimal() and len(str(layer)) < 6 and isinstance(entry, Mapping)
        }
    elif isinstance(listed, list):
        own = dict(enumerate(listed))
    for layer, value in own.items():
        if layer < len(kinds) and kinds[layer] in result and is_size(value):
            result[kinds[layer]].add(value)
    return result


def _kv_shared(keys: Reader, kinds: list[str]) -> dict[str, Any]:
    """Return how many layers of each kind use an earlier layer's keys and values."""
    if not keys.family.get("kv_shared"):
        return {}
    shared = keys.integer("num_kv_shared_layers") or 0
    last = Counter(kinds[len(kinds) - min(shared, len(kinds)) :])
    return {"kv_shared_layers": {kind: last[kind] for kind in (FULL, SLIDING)}}


def attention_name(
    heads: int | None, kv_heads: int | None, details: Mapping[str, Any]
) -> str | None:
    """Return mha, gqa, mqa, mla, sparse_mla, hybrid, or linear for layers that only recur."""
    counts = details.get("attention_layers", {})
    if counts.get(LINEAR):
        return "hybrid" if counts[FULL] or counts[SLIDING] else LINEAR
    if "kv_lora_rank" in details:
        return "sparse_mla" if details.get("index_topk") else "mla"
    if heads is None or kv_heads is None:
        return None
    return "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
