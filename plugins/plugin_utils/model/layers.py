# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which layers attend fully, within a window or linearly, and which have experts.

Each rule of knowledge/models/families.yml (`attention_layers`, `dense_layers`) is a function here
that returns one word for each layer, or None once it has noted the key that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..documents import is_whole
from .families import Reader, is_size

MOST_LAYERS = 4096
FULL, SLIDING, LINEAR, NONE = "full", "sliding", "linear", "none"
DENSE, MOE = "dense", "moe"
# What config.json files call a layer's way to attend; "hybrid" layers do both.
_ATTENTION_WORDS = {
    "full_attention": FULL,
    "attention": FULL,
    "indexed_attention": FULL,
    "minimax_m3_sparse": FULL,
    "compressed_sparse_attention": FULL,
    "heavily_compressed_attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": SLIDING,
    "linear_attention": LINEAR,
    "kda_attention": LINEAR,
    "mamba": LINEAR,
    "mamba2": LINEAR,
    "conv": LINEAR,
    "short_conv": LINEAR,
    "mlp": NONE,
    "moe": NONE,
    "hybrid": "hybrid",
}
_FFN_WORDS = {"dense": DENSE, "sparse": MOE, "moe": MOE, "hash_moe": MOE, "mlp": DENSE}
_PATTERN = {"M": LINEAR, "*": FULL, "-": NONE, "E": NONE}
_FFN_PATTERN = {"M": NONE, "*": NONE, "-": DENSE, "E": MOE}
Kinds = list[str] | None


def attention_kinds(keys: Reader, layers: int) -> Kinds:
    """Return each layer's way to attend: full, sliding, linear, hybrid (both) or none.

    A list in the config decides before the family's rule. None, noted, if it cannot be read.
    """
    rule = keys.family.get("attention_layers", "all")
    for key in ("layer_types", "layers_block_type"):
        words = keys.get(key)
        if words is not None and rule not in ("pattern_string", "listed"):
            return _words(keys, key, words, layers, _ATTENTION_WORDS)
    if not keys.family:
        return None  # an unknown type may attend in any way
    return _ATTENTION[rule](keys, layers)


def _words(keys: Reader, key: str, words: Any, layers: int, known: dict[str, str]) -> Kinds:
    if not isinstance(words, list) or len(words) < layers:
        keys.wrong(key, f"a list with a known kind for each of {layers} layers", words)
        return None
    kinds = [known.get(word) if isinstance(word, str) else None for word in words[:layers]]
    found = [kind for kind in kinds if kind is not None]
    if len(found) < layers:
        odd = next(word for word, kind in zip(words, kinds, strict=False) if kind is None)
        keys.wrong(key, "a list with a known kind for each layer", odd)
        return None
    return found


def _every(keys: Reader, key: str, layers: int, other: str) -> Kinds:
    """Every n-th layer attends fully, the last of each group."""
    every = keys.integer(key, needed=True)
    if every is None:
        return None
    return [FULL if (layer + 1) % every == 0 else other for layer in range(layers)]


def _all(keys: Reader, layers: int) -> Kinds:
    return [FULL] * layers


def _all_linear(keys: Reader, layers: int) -> Kinds:
    return [LINEAR] * layers


def _all_hybrid(keys: Reader, layers: int) -> Kinds:
    return ["hybrid"] * layers


def _all_sliding(keys: Reader, layers: int) -> Kinds:
    return [SLIDING if keys.integer("sliding_window") else FULL] * layers


def _interval(keys: Reader, layers: int) -> Kinds:
    return _every(keys, "full_attention_interval", layers, LINEAR)


def _pattern(keys: Reader, layers: int) -> Kinds:
    """Every n-th layer attends fully, or as letters say: L local, G global, the last global."""
    letters = keys.get("sliding_window_pattern")
    if not keys.integer("sliding_window") and keys.family.get("window_optional"):
        return [FULL] * layers
    if isinstance(letters, str) and letters and set(letters) <= set("LG"):
        kinds = [
            SLIDING if letters[layer % len(letters)] == "L" else FULL for layer in range(layers)
        ]
        return [*kinds[:-1], FULL]
    return _every(keys, "sliding_window_pattern", layers, SLIDING)


def _first_of(keys: Reader, layers: int) -> Kinds:
    """Every n-th layer attends fully, the first of each group."""
    every = keys.integer("sliding_window_pattern", needed=True)
    if every is None:
        return None
    return [SLIDING if layer % every else FULL for layer in range(layers)]


def _prefixed(keys: Reader, layers: int) -> Kinds:
    """As `pattern`, counted anew after the leading dense layers, which have their own."""
    first = keys.integer("first_k_dense_replace", needed=True, minimum=0)
    every = keys.integer("sliding_window_pattern", needed=True)
    leading = keys.integer("prefix_dense_sliding_window_pattern", needed=True)
    if first is None or every is None or leading is None:
        return None
    kinds = [FULL if (layer + 1) % leading == 0 else SLIDING for layer in range(first)]
    return [*kinds, *(FULL if (n + 1) % every == 0 else SLIDING for n in range(layers - first))]


def _no_rope(keys: Reader, layers: int) -> Kinds:
    """Layers with rotary positions attend within chunks; a list of 0 and 1 may name them."""
    listed = keys.get("no_rope_layers")
    if not isinstance(listed, list) or len(listed) < layers:
        kinds = _every(keys, "no_rope_layer_interval", layers, SLIDING)
    else:
        kinds = [SLIDING if chunked else FULL for chunked in listed[:layers]]
    if keys.integer("attention_chunk_size", needed=True) is None:
        return None
    return kinds


def _use_sliding_window(keys: Reader, layers: int) -> Kinds:
    if not keys.boolean("use_sliding_window"):
        return [FULL] * layers
    first = keys.integer("max_window_layers", needed=True, minimum=0)
    if first is None:
        return None
    return [SLIDING if layer >= first else FULL for layer in range(layers)]


def _period(keys: Reader, layers: int) -> Kinds:
    """One layer of each period attends (Jamba)."""
    return _periodic(keys, "attn_layer", layers, FULL, LINEAR)


def _periodic(keys: Reader, prefix: str, layers: int, hit: str, other: str) -> Kinds:
    period = keys.integer(f"{prefix}_period", needed=True)
    offset = keys.integer(f"{prefix}_offset", needed=True, minimum=0)
    if period is None or offset is None:
        return None
    return [hit if layer % period == offset % period else other for layer in range(layers)]


def _indices(keys: Reader, layers: int) -> Kinds:
    """The listed layers attend, none where there is no list."""
    if not keys.has("attn_layer_indices"):
        return [LINEAR] * layers
    listed = keys.integers("attn_layer_indices")
    if listed is None:
        return None
    return [FULL if layer in listed else LINEAR for layer in range(layers)]


def _listed(keys: Reader, layers: int) -> Kinds:
    """Lists of the layers that attend fully and linearly, counted from 1 (Kimi Linear)."""
    kinds = _plain_words(keys, layers)
    if kinds is not None:
        return kinds
    listed = keys.integers("full_attn_layers")
    if listed is None:
        return None
    return [FULL if layer + 1 in listed else LINEAR for layer in range(layers)]


def _plain_words(keys: Reader, layers: int) -> Kinds:
    words = keys.get("layer_types")
    return None if words is None else _words(keys, "layer_types", words, layers, _ATTENTION_WORDS)


def _flags(keys: Reader, layers: int) -> Kinds:
    """A list with 1 for each layer that keeps a window (MiMo), else the rule `pattern_first`."""
    listed = keys.integers("hybrid_layer_pattern")
    if listed is None or len(listed) < layers:
        return None
    return [SLIDING if flag else FULL for flag in listed[:layers]]


def _linear_flags(keys: Reader, layers: int) -> Kinds:
    """A list with 1 for each layer that attends fully, 0 for linear (MiniMax)."""
    listed = keys.integers("attn_type_list")
    if listed is None or len(listed) < layers:
        return None
    return [FULL if flag else LINEAR for flag in listed[:layers]]


def _pattern_string(keys: Reader, layers: int) -> Kinds:
    """One letter or word a layer: M Mamba, * attention, - dense FFN, E experts (Nemotron-H)."""
    letters = keys.get("hybrid_override_pattern")
    if letters is None:
        words = keys.get("layers_block_type")
        if words is None:
            keys.missing("hybrid_override_pattern")
            return None
        return _words(keys, "layers_block_type", words, layers, _ATTENTION_WORDS)
    return _letters(keys, letters, layers, _PATTERN)


def _letters(keys: Reader, letters: Any, layers: int, known: dict[str, str]) -> Kinds:
    if isinstance(letters, str) and len(letters) == layers and set(letters) <= set(known):
        return [known[letter] for letter in letters]
    keys.wrong("hybrid_override_pattern", f"{layers} letters of {''.join(known)}", letters)
    return None


def _double(keys: Reader, layers: int) -> Kinds:
    """Two attention blocks a layer (LongCat)."""
    return [FULL] * (2 * layers)


_ATTENTION: dict[str, Callable[[Reader, int], Kinds]] = {
    "all": _all,
    "all_linear": _all_linear,
    "all_hybrid": _all_hybrid,
    "all_sliding": _all_sliding,
    "double": _double,
    "first_of": _first_of,
    "flags": _flags,
    "indices": _indices,
    "interval": _interval,
    "linear_flags": _linear_flags,
    "listed": _listed,
    "no_rope": _no_rope,
    "pattern": _pattern,
    "pattern_string": _pattern_string,
    "period": _period,
    "prefixed": _prefixed,
    "use_sliding_window": _use_sliding_window,
}


def ffn_kinds(keys: Reader, rule: str, layers: int) -> Kinds:
    """Return each layer's FFN: dense, moe or none, by a `dense_layers` rule; None once noted.

    A list in the config (`mlp_layer_types`) decides before the rule.
    """
    words = keys.get("mlp_layer_types")
    if words is not None:
        return _words(keys, "mlp_layer_types", words, layers, _FFN_WORDS)
    return _FFN[rule](keys, layers)


def _no_dense(keys: Reader, layers: int) -> Kinds:
    return [MOE] * layers


def _first_k(keys: Reader, layers: int) -> Kinds:
    """Leading dense layers, then experts in every n-th layer; or a list of 0 and 1."""
    frequency = keys.get("moe_layer_freq")
    if isinstance(frequency, list):
        return _moe_flags(keys, frequency, layers)
    first = keys.integer("first_k_dense_replace", needed=True, minimum=0)
    every = keys.integer("moe_layer_freq", needed=True)
    if first is None or every is None:
        return None
    return [MOE if layer >= first and layer % every == 0 else DENSE for layer in range(layers)]


def _moe_flags(keys: Reader, flags: Sequence[Any], layers: int) -> Kinds:
    if len(flags) < layers or not all(is_whole(flag) and flag in (0, 1) for flag in flags):
        keys.wrong("moe_layer_freq", f"a number, or {layers} of 0 and 1", flags)
        return None
    return [MOE if flag else DENSE for flag in flags[:layers]]


def _interleave(keys: Reader, layers: int) -> Kinds:
    """The layers of a list have experts, or every n-th, the last of each group (Llama 4)."""
    listed = keys.get("moe_layers")
    if isinstance(listed, list) and all(is_size(layer, 0) for layer in listed):
        return [MOE if layer in listed else DENSE for layer in range(layers)]
    step = keys.integer("interleave_moe_layer_step", needed=True)
    if step is None:
        return None
    return [MOE if (layer + 1) % step == 0 else DENSE for layer in range(layers)]


def _sparse_step(keys: Reader, layers: int) -> Kinds:
    """Every n-th layer has experts, but for the named ones (Qwen)."""
    step, plain = keys.integer("decoder_sparse_step", needed=True), keys.get("mlp_only_layers")
    if not isinstance(plain, list):
        keys.wrong("mlp_only_layers", "a list of layers", plain)
        return None
    if step is None:
        return None
    return [
        MOE if (layer + 1) % step == 0 and layer not in plain else DENSE for layer in range(layers)
    ]


def _expert_period(keys: Reader, layers: int) -> Kinds:
    return _periodic(keys, "expert_layer", layers, MOE, DENSE)


def _span(keys: Reader, layers: int) -> Kinds:
    """From a first to a last layer, every n-th has experts (ERNIE)."""
    first = keys.integer("moe_layer_start_index", needed=True, minimum=0)
    step = keys.integer("moe_layer_interval", needed=True)
    last = keys.get("moe_layer_end_index")
    if last in (None, -1):
        last = layers - 1
    if first is None or step is None or not is_size(last, 0):
        return None
    return [
        MOE if first <= layer <= last and (layer + 1) % step == 0 else DENSE
        for layer in range(layers)
    ]


def _enumerated(keys: Reader, layers: int) -> Kinds:
    """Layers with experts as numbers in one text, `4,5,6` (Step); all but the first without it."""
    text = keys.words("moe_layers_enum")
    if text is None:
        return [DENSE, *([MOE] * (layers - 1))]
    numbers = text.replace(" ", "").split(",")
    if not all(number.isdecimal() and len(number) < 6 for number in numbers):
        keys.wrong("moe_layers_enum", "layer numbers with commas between", text)
        return None
    chosen = {int(number) for number in numbers}
    return [MOE if layer in chosen else DENSE for layer in range(layers)]


def _ffn_letters(keys: Reader, layers: int) -> Kinds:
    letters = keys.get("hybrid_override_pattern")
    if letters is not None:
        return _letters(keys, letters, layers, _FFN_PATTERN)
    words = keys.get("layers_block_type")
    if not isinstance(words, list):
        return None
    return [
        _FFN_WORDS.get(word, NONE) if isinstance(word, str) else NONE for word in words[:layers]
    ]


def _double_and_moe(keys: Reader, layers: int) -> Kinds:
    """Two dense FFNs beside the experts in each layer (LongCat)."""
    return [DENSE, DENSE, MOE] * layers


def _both(keys: Reader, layers: int) -> Kinds:
    """A dense FFN beside the experts in each layer (Gemma 4)."""
    return [DENSE, MOE] * layers


_FFN: dict[str, Callable[[Reader, int], Kinds]] = {
    "none": _no_dense,
    "both": _both,
    "double_and_moe": _double_and_moe,
    "enumerated": _enumerated,
    "expert_period": _expert_period,
    "first_k": _first_k,
    "interleave": _interleave,
    "pattern_string": _ffn_letters,
    "span": _span,
    "sparse_step": _sparse_step,
}
