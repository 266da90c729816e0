# SPDX-License-Identifier: GPL-3.0-or-later

"""What formulas state: towers, recurrent mixers and their state, what only some families add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..documents import knowledge, to_document
from .families import Reader
from .formula import UnknownError, Value, evaluate, scoped
from .modules import applies, module
from .types import Architecture

# Sections of a config.json that describe a tower.
_SECTIONS = ("vision_config", "audio_config", "vision_cfg", "sound_config", "vit_config")
# Of these one says that a model takes recordings; the last is Whisper's, which has no section.
AUDIO = ("audio_config", "sound_config", "audio_processor", "num_mel_bins")


def parameters(keys: Reader, architecture: Architecture) -> dict[str, int] | None:
    """Return the parameters of all towers and projectors, and what of them is never split.

    None, with a finding, if one is not known or a dimension of it is missing.
    """
    known = keys.family.get("towers", {})
    total: Counter[str] | None = Counter(vision_parameters=0)
    found = False
    for section in dict.fromkeys((*known, *_SECTIONS)):
        given = keys.mapping(section)
        if given is None:
            if keys.has(section):
                return None
            continue
        found = True
        size = _parameters(keys, known.get(section), section, architecture)
        total = None if total is None or size is None else total + size
    if known and not found:
        keys.note(
            "MODEL-NO-TOWER",
            f"{architecture.model_type} has a tower, but the file has no"
            f" {' or '.join(known)}; the language model alone is counted",
        )
    return total


def _parameters(
    keys: Reader, tower: str | Mapping[str, str] | None, section: str, architecture: Architecture
) -> Counter[str] | None:
    towers = knowledge("models/towers.yml")["towers"]
    kind = section.partition("_")[0]
    if isinstance(tower, Mapping):  # one wrapper may hold several kinds of tower
        given = keys.mapping(section) or {}
        tower = tower.get(str(given.get("model_type")))
    if tower is None or tower not in towers:
        keys.note(
            "MODEL-UNKNOWN-VISION",
            f"the {kind} tower of {architecture.model_type} is not known; parameters stay unknown",
        )
        return None
    facts = towers[tower]
    family = {part: facts.get(part, {}) for part in ("defaults", "keys")}
    inner = keys.below(section, family)
    if inner is None:
        return None

    def number(name: str) -> int:
        if name != "text_hidden":
            return inner.number(name)
        if architecture.hidden_size is None:
            raise UnknownError(name)
        return architecture.hidden_size

    try:
        value = scoped(facts.get("let", {}), number)
        sizes = {term: evaluate(formula, value) for term, formula in facts["terms"].items()}
    except UnknownError:
        return None
    whole = sum(sizes[term] for term in facts.get("whole", ()))
    return Counter(vision_parameters=sum(sizes.values()), vision_whole=whole)


def quantized(keys: Reader, method: str | None) -> list[str]:
    """Return the paths of what vLLM quantizes of the towers by a method, if no list names them."""
    facts, known = knowledge("models/towers.yml")["towers"], keys.family.get("towers", {})
    towers = [facts[tower] for tower in known.values() if isinstance(tower, str)]
    return [path for tower in towers for path in tower.get("quantized", {}).get(method, ())]


def extra_modules(keys: Reader, architecture: Architecture) -> dict[str, Any] | None:
    """Return `formula_modules`, and `state` where layers recur; None when a number is missing."""
    counts = (architecture.details or {}).get("attention_layers")
    if counts is None:
        return None
    result: dict[str, Any] = {}
    try:
        value = names(keys, architecture, {})
        entries = keys.family.get("extra", ())
        stated = [module(entry, value) for entry in entries if applies(entry, value)]
        if counts["linear"]:
            result["linear_kind"] = keys.family.get("linear")
            mixer = knowledge("models/mixers.yml")["mixers"][result["linear_kind"]]
            value = names(keys, architecture, mixer.get("let", {}))
            entries = ({"per": "linear", **entry} for entry in mixer["modules"])
            stated += [module(entry, value) for entry in entries if applies(entry, value)]
            result["state"] = [_state(keys, part, value) for part in mixer["state"]]
    except UnknownError:
        return None
    result["formula_modules"] = [to_document(item) for item in stated if item.parameters]
    return result


def names(keys: Reader, architecture: Architecture, let: Mapping[str, str]) -> Value:
    """Return what formulas may name: ``let``, the architecture's numbers, keys of the config."""
    details = architecture.details or {}
    counts = details.get("attention_layers") or {}
    own = ("layers", "heads", "kv_heads", "head_dim", "experts")
    derived: dict[str, int | None] = {
        **{name: getattr(architecture, name) for name in own},
        **{kind: counts.get(kind) for kind in ("full", "sliding", "linear")},
        "hidden": architecture.hidden_size,
        "dense": details.get("dense_layers"),
        "moe": details.get("moe_layers"),
        "moe_width": details.get("moe_intermediate_size"),
        "once": 1,
    }

    def value(name: str) -> int:
        if name not in derived:
            return keys.number(name)
        number = derived[name]
        if number is None:
            raise UnknownError(name)
        return number

    return scoped(let, value)


def _state(keys: Reader, part: Mapping[str, Any], value: Value) -> dict[str, Any]:
    """Return the elements of one layer's state for one sequence, their bytes, and how it splits."""
    sizes = knowledge("models/memory.yml")["dtype_bytes"]
    key = part.get("dtype_key")
    named = keys.words(key) if key else part.get("dtype")
    dtype = named or (keys.family.get("state_dtype") if key else None) or "bfloat16"
    return {
        "elements": evaluate(part["elements"], value),
        "bytes": sizes.get(dtype, sizes["float32"]),
        "named": named is not None if key else None,
        "parts": evaluate(part["parts"], value) if "parts" in part else None,
    }
