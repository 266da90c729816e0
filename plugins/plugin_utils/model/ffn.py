# SPDX-License-Identifier: GPL-3.0-or-later

"""The feed-forward half of a model: dense layers, experts, shared experts, and their widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .families import Reader
from .layers import DENSE, MOE, ffn_kinds

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
