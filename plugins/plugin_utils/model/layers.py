# SPDX-License-Identifier: GPL-3.0-or-later

"""Which layers attend fully, within a window or linearly, which have experts, and their widths.

The rules are formulas of knowledge/models/layers.yml; a list in the config decides before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..documents import knowledge
from .families import Reader
from .formula import UnknownError, evaluate

MOST_LAYERS = 4096
FULL, SLIDING, LINEAR, NONE = "full", "sliding", "linear", "none"
DENSE, MOE = "dense", "moe"
# As a formula gives them: a number above 0.
_KINDS = ("", FULL, SLIDING, LINEAR, "hybrid", NONE, DENSE, MOE)
_SPELLING = "hybrid_override_pattern"
_SPELT = "M*-E"
Kinds = list[str] | None


def _facts(section: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = knowledge("models/layers.yml")[section]
    return facts


def attention_kinds(keys: Reader, layers: int) -> Kinds:
    """Return each layer's way to attend: full, sliding, linear, hybrid (both) or none.

    None, noted, if it cannot be read, and for an unknown type without a list.
    """
    rule = keys.family.get("attention_layers", "all")
    spelt = rule == "pattern_string"
    for key in ("layers_block_type",) if spelt else ("layer_types", "layers_block_type"):
        if keys.get(key) is not None and not (spelt and keys.has(_SPELLING)):
            return _named(keys, key, layers, _words("attention_words"))
    return _by_rule(keys, _facts("attention_layers")[rule], layers) if keys.family else None


def ffn_kinds(keys: Reader, rule: str, layers: int) -> Kinds:
    """Return each layer's FFN: dense, moe or none, by a `dense_layers` rule; None once noted."""
    words = _words("ffn_words")
    if keys.get("mlp_layer_types") is not None:
        return _named(keys, "mlp_layer_types", layers, words)
    if rule == "pattern_string" and not keys.has(_SPELLING):
        without = dict.fromkeys(_words("attention_words"), NONE)
        return _named(keys, "layers_block_type", layers, {**without, **words})
    return _by_rule(keys, _facts("dense_layers")[rule], layers)


def _words(section: str) -> dict[str, str]:
    return {word: kind for kind, words in _facts(section).items() for word in words}


def _named(keys: Reader, key: str, layers: int, known: Mapping[str, str]) -> Kinds:
    """Return the kinds that a list in the config names."""
    words = keys.get(key)
    if not isinstance(words, list) or len(words) < layers:
        keys.wrong(key, f"a list with a known kind for each of {layers} layers", words)
        return None
    unknown = [word for word in words[:layers] if not isinstance(word, str) or word not in known]
    if unknown:
        keys.wrong(key, "a list with a known kind for each layer", unknown[0])
        return None
    return [known[word] for word in words[:layers]]


def _by_rule(keys: Reader, rule: str | list[str], layers: int) -> Kinds:
    numbers = _Layer(keys, layers)
    parts = [rule] if isinstance(rule, str) else rule
    result = []
    try:
        for numbers.layer in range(layers):
            result += [_KINDS[evaluate(part, numbers.value)] for part in parts]
    except UnknownError:
        return None
    return result


class _Layer:
    """What the formula of a rule may name, for one layer after the other."""

    def __init__(self, keys: Reader, layers: int) -> None:
        self.keys = keys
        self.layers = layers
        self.layer = 0
        self.lists: dict[str, list[int]] = {}

    def value(self, name: str) -> int:
        """Return a number by name; raises UnknownError for one that is noted."""
        if name in ("layer", "layers"):
            return int(getattr(self, name))
        if name in _KINDS:
            return _KINDS.index(name)
        if name in _facts("attention_layers"):
            return evaluate(_facts("attention_layers")[name], self.value)
        function, _space, rest = name.partition(" ")
        if not rest:
            return self._zero(name, minimum=1)  # a period
        own = getattr(self, f"_{function}", None)
        return int(own(*rest.split(" "))) if own else self.keys.number(name)

    def _zero(self, key: str, minimum: int = 0) -> int:
        value = self.keys.integer(key, needed=True, minimum=minimum)
        if value is None:
            raise UnknownError(key)
        return value

    def _optional(self, key: str) -> int:
        return self.keys.integer(key) or 0

    def _switch(self, key: str) -> bool:
        return bool(self.keys.boolean(key))

    def _listed(self, key: str) -> bool:
        value = self.keys.get(key)
        return isinstance(value, list) and (len(value) >= self.layers or key != "no_rope_layers")

    def _flag(self, key: str) -> int:
        flags = self._list(key)
        if len(flags) < self.layers or not set(flags) <= {0, 1}:
            self.keys.wrong(key, f"a number, or {self.layers} of 0 and 1", flags)
            raise UnknownError(key)
        return flags[self.layer]

    def _among(self, key: str, first: str = "0") -> bool:
        return self.layer + int(first) in self._list(key)

    def _list(self, key: str) -> list[int]:
        if key not in self.lists:
            value: Any = self.keys.get(key)
            words = value.replace(" ", "").split(",") if isinstance(value, str) else [""]
            text = all(word.isdecimal() and len(word) < 6 for word in words)
            listed = [int(word) for word in words] if text else self.keys.integers(key)
            if listed is None:
                raise UnknownError(key)
            self.lists[key] = listed
        return self.lists[key]

    def _letters(self, key: str, letters: str) -> bool:
        text = self.keys.get(key)
        return isinstance(text, str) and bool(text) and set(text) <= set(letters)

    def _letter(self, key: str, letter: str) -> bool:
        text = self.keys.get(key)
        return bool(text[self.layer % len(text)] == letter)

    def _spelt(self, key: str, letter: str) -> bool:
        text = self.keys.get(key)
        if text is None:
            self.keys.missing(key)
            raise UnknownError(key)
        if not self._letters(key, _SPELT) or len(text) != self.layers:
            self.keys.wrong(key, f"{self.layers} letters of {_SPELT}", text)
            raise UnknownError(key)
        return self._letter(key, letter)


_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


@dataclass(frozen=True)
class Experts:
    """``count`` is 0 for a dense model; ``details`` go into the architecture's."""

    count: int | None
    per_token: int | None
    shared: int | None
    details: Mapping[str, Any] = field(default_factory=dict)


def experts(keys: Reader, layers: int | None) -> Experts:
    """Return experts and FFN widths; of an unknown type only what its keys say."""
    facts = keys.family.get("experts")
    if not keys.family:
        return _of_unknown_type(keys)
    if facts is None or _without_experts(keys, facts):
        return _dense(keys, facts, layers)
    count = keys.integer(facts["count"], needed=True)
    size = _width(keys, facts["size"])
    kinds = None if layers is None else ffn_kinds(keys, facts["dense_layers"], layers)
    dense = None if kinds is None else kinds.count(DENSE)
    shared, shared_size = _shared(keys, facts.get("shared"), size)
    per_token = _width(keys, facts["top_k"])
    if count is not None and per_token is not None and per_token > count:
        keys.wrong(facts["top_k"], f"at most {count}", per_token)
        per_token = None
    details = {
        "moe_intermediate_size": size,
        "intermediate_size": _width(keys, facts.get("dense_size", "intermediate_size"))
        if dense
        else None,
        "dense_layers": dense,
        "moe_layers": None if kinds is None else kinds.count(MOE),
        "first_moe_layer": kinds.index(MOE)
        if kinds and len(kinds) == layers and MOE in kinds
        else 0,
        "shared_expert_intermediate_size": shared_size,
        "shared_expert_gate": bool(facts.get("shared_gate")),
        **{name: bool(facts.get(name)) for name in ("router_bias", "expert_bias")},
        "expert_input_size": keys.integer(facts["latent"]) or None if "latent" in facts else None,
        "moe_module": keys.family.get("module", "mlp"),
        "ffn_matrices": _matrices(keys),
    }
    return Experts(count, per_token, shared, details)


def _matrices(keys: Reader) -> int:
    """Return 3 for gate, up and down, 2 for an FFN without a gate."""
    return 2 if keys.family.get("ffn") == "plain" else 3


def _width(keys: Reader, fact: str) -> int | None:
    """Return a width that a key or a formula over keys says."""
    if fact.isidentifier():
        return keys.integer(fact, needed=True)
    return keys.formula(fact)


def _without_experts(keys: Reader, facts: Mapping[str, Any]) -> bool:
    """Return whether a family that may have experts has none here."""
    switch = facts.get("if")
    if switch is not None:
        return not keys.get(switch)
    least = facts.get("at_least", 1)
    if not facts.get("optional") and "at_least" not in facts:
        return False
    count = keys.integer(facts["count"])
    return count < least if count is not None else bool(facts.get("optional"))


def _dense(keys: Reader, facts: Mapping[str, Any] | None, layers: int | None) -> Experts:
    rule = None if facts is None else facts["dense_layers"]
    kinds = ffn_kinds(keys, rule, layers) if rule == "pattern_string" and layers else None
    has_ffn = keys.family.get("ffn") != "none"
    dense = kinds.count(DENSE) if kinds is not None else layers if has_ffn else 0
    width = keys.family.get("ffn_width", "intermediate_size")
    details = {
        "intermediate_size": _width(keys, width) if has_ffn else None,
        "dense_layers": dense,
        "moe_layers": 0,
        "ffn_matrices": _matrices(keys),
    }
    return Experts(0, None, 0, details)


def _of_unknown_type(keys: Reader) -> Experts:
    count = next(filter(None, map(keys.integer, _COUNTS)), None)
    per_token = keys.integer("num_experts_per_tok") if count else None
    return Experts(count, per_token, None, {"intermediate_size": keys.integer("intermediate_size")})


def _shared(keys: Reader, rule: str | None, size: int | None) -> tuple[int | None, int | None]:
    """Return how many shared experts a MoE layer has and the width of all of them together."""
    if rule is None:
        return 0, 0
    if rule == "same":
        return 1, size
    if rule == "count":
        count = keys.integer("n_shared_experts", needed=True, minimum=0)
        return count, None if count is None or size is None else count * size
    width = _width(keys, rule) if not rule.isidentifier() else keys.integer(rule, True, 0)
    return None if width is None else int(width > 0), width
