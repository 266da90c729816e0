# SPDX-License-Identifier: GPL-3.0-or-later

"""What a config's quantization says: the format, bytes per weight, and which modules it skips."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import knowledge
from .families import is_size
from .patterns import condense, named_layers

_MOST_BITS = 64
# A quantization of which nothing is known.
UNKNOWN: Mapping[str, Any] = {**dict.fromkeys(("method", "bits", "block", "group")), "ignore": []}
_IGNORE = (
    *("modules_to_not_convert", "ignore", "ignored_layers", "exclude", "exclude_modules"),
    "llm_int8_skip_modules",
)
Scheme = dict[str, Any]
_EXPERT = re.compile(r"experts\.[0-9]{1,6}(?=\.)")


def _format(method: Any) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = knowledge("models/memory.yml")["weights"].get(str(method), {})
    return facts


def read(config: Mapping[str, Any] | None, layers: int | None) -> Scheme | None:
    """Return the quantization of a model of ``layers`` layers, or None for an unquantized one.

    `method`, `bits`, `block` ([rows, columns]), `group`, `zero_point`, `scale_bytes`, `ignore`
    (module patterns) and `kv_cache` (its format); what the config does not say is None or left
    out. A format with several schemes has them under `schemes`, each with its `targets`, and no
    bits of its own; `algorithm` names what ModelOpt mixes.
    """
    if not isinstance(config, Mapping) or not config:
        return None
    producer = _mapping(config.get("producer"))
    made = "modelopt" if producer.get("name") == "modelopt" else None
    method = config.get("quant_method") or made
    if not isinstance(method, str):
        return dict(UNKNOWN)
    method = method.lower().replace("compressed_tensors", "compressed-tensors")
    facts = _format(method)
    result = {
        "method": method,
        "bits": facts.get("bits"),
        "block": _block(config.get("weight_block_size")),
        "group": facts.get("group"),
        "ignore": condense(_ignored(config, facts.get("ignore_keys", _IGNORE)), layers),
    }
    return (
        result
        | (_DIALECTS[facts["dialect"]](config) if "dialect" in facts else {})
        | _cache(config)
    )


def with_experts(quantization: Scheme, method: str, module: str) -> Scheme:
    """Return a quantization whose experts, below ``module``, are in a format of their own."""
    own = _format(method)
    experts = {"targets": [f"{module}.experts"], "bits": own["bits"], "group": own["group"]}
    others = own.get("others") or {key: quantization[key] for key in ("bits", "block", "group")}
    scales = {"scale_bytes": own["group_scale_bytes"]}
    mixed = {"algorithm": own["algorithm"]} if "algorithm" in own else {}
    return quantization | {
        "schemes": [experts | scales, {"targets": ["Linear"], **others}],
        **mixed,
    }


def online(method: str) -> Scheme | None:
    """Return the quantization that the engine makes while it loads; None for an unknown method."""
    facts = _format(method)
    if not facts.get("online"):
        return None
    block = [128, 128] if facts["online"] == "block" else None
    own = {"bits": facts["bits"], "block": block, "group": facts.get("group")}
    return {**UNKNOWN, "method": method, **own}


def _cache(config: Mapping[str, Any]) -> Scheme:
    """Return the KV cache format that a checkpoint brings scales for, which `auto` then means."""
    sources = (_mapping(config.get("quantization")), config)
    named = (
        source.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo") for source in sources
    )
    given = next(filter(None, named), None)
    if isinstance(given, Mapping) and given.get("num_bits") == 8 and given.get("type") == "float":
        given = "FP8"
    return {"kv_cache": "fp8"} if str(given).upper() == "FP8" else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _ignored(config: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return every pattern of modules that stay as they are."""
    sources = (config, _mapping(config.get("quantization")))
    lists = [source[key] for source in sources for key in keys if key in source]
    named = [str(item) for items in lists if isinstance(items, list) for item in items]
    # GPTQModel: `-:` and an expression skips.
    dynamic = map(str, _mapping(config.get("dynamic")))
    return named + [f"re:{key[2:]}" for key in dynamic if key.startswith("-:")]


def _block(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and len(value) == 2 and all(map(is_size, value))
    return list(value) if whole else None


def _bits(value: Any) -> int | None:
    return value if is_size(value) and value <= _MOST_BITS else None


def _group(value: Any) -> int | None:
    """Return a group's size; -1 and the like say one group for each row."""
    return value if is_size(value) else None


def _grouped(config: Mapping[str, Any]) -> Scheme:
    """AWQ, GPTQ and their kin: scales and zero points for each group, of symmetric ones too."""
    return {
        "bits": _bits(config.get("bits", config.get("w_bit"))),
        "group": _group(config.get("group_size", config.get("q_group_size"))),
        "zero_point": True,
    }


def _bitsandbytes(config: Mapping[str, Any]) -> Scheme:
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        return {"bits": 4, "group": 64}
    return {"bits": 8, "group": None} if config.get("load_in_8bit") else {}


def _compressed_tensors(config: Mapping[str, Any]) -> Scheme:
    """Return bits, group and block of the one scheme of a checkpoint, or all its schemes."""
    schemes = []
    for group in _mapping(config.get("config_groups")).values():
        weights, targets = _mapping(group).get("weights"), _mapping(group).get("targets")
        if isinstance(weights, Mapping):
            scheme = {
                "targets": list(map(str, targets)) if isinstance(targets, list) else ["Linear"],
                "bits": _bits(weights.get("num_bits")),
                "group": _group(weights.get("group_size")),
                "block": _block(weights.get("block_structure")),
            }
            if weights.get("symmetric") is False:
                scheme["zero_point"] = True
            if re.search("uint8|float8", str(weights.get("scale_dtype"))):
                scheme["scale_bytes"] = 1
            schemes.append(scheme)
    return _merged(schemes)


def _merged(schemes: list[Scheme]) -> Scheme:
    """Return the one scheme for all that the ignore list leaves, however many groups write it."""
    if not schemes:
        return {}
    first, *others = (
        {key: value for key, value in scheme.items() if key != "targets"} for scheme in schemes
    )
    general = not others or any("Linear" in scheme["targets"] for scheme in schemes)
    return first if general and all(other == first for other in others) else {"schemes": schemes}


def _quark(config: Mapping[str, Any]) -> Scheme:
    """Return the schemes of AMD Quark: a global one, and others for layers by pattern."""
    entries = {**_mapping(config.get("layer_quant_config"))}
    pairs = [*entries.items(), ("Linear", config.get("global_quant_config"))]
    schemes = []
    for target, entry in pairs:
        weight = _mapping(entry).get("weight")
        if isinstance(weight, list):  # quantized twice: the last is what is stored
            weight = weight[-1] if weight else None
        if isinstance(weight, Mapping):
            digits = "".join(filter(str.isdigit, str(weight.get("dtype", "")).partition("_")[0]))
            grouped = weight.get("qscheme") == "per_group"
            scheme = {
                "targets": [str(target)],
                "bits": _bits(int(digits)) if 0 < len(digits) < 4 else None,
                "group": _group(weight.get("group_size")) if grouped else None,
                "block": None,
            }
            if weight.get("scale_format") == "e8m0":
                scheme["scale_bytes"] = 1
            schemes.append(scheme)
    return _merged(schemes)


def _modelopt(config: Mapping[str, Any]) -> Scheme:
    inner = config.get("quantization")
    source = inner if isinstance(inner, Mapping) else config
    if isinstance(source.get("quantized_layers"), Mapping):
        return _mixed(source["quantized_layers"])
    if isinstance(config.get("config_groups"), Mapping):
        return _compressed_tensors(config)
    return _algorithm(source)


def _mixed(layers: Mapping[str, Any]) -> Scheme:
    """Return the schemes of MIXED_PRECISION: an algorithm for each module, by its name."""
    targets: dict[str, dict[str, None]] = {}
    schemes: dict[str, Scheme] = {}
    names = set()
    for name, entry in layers.items():
        found = _algorithm(_mapping(entry))
        names.add(str(_mapping(entry).get("quant_algo")).upper())
        schemes[str(found)] = {"bits": None, **found}
        module = _EXPERT.sub("experts.*", name[max(0, name.find("layers.")) :])
        targets.setdefault(str(found), {})[module] = None
    return {
        "algorithm": next((name for name in sorted(names) if name.startswith("W4A16")), "mixed"),
        "schemes": [{"targets": list(targets[key]), **schemes[key]} for key in schemes],
    }


def _algorithm(source: Mapping[str, Any]) -> Scheme:
    algorithms = knowledge("models/memory.yml")["modelopt_algorithms"]
    scheme: Scheme = {**algorithms.get(str(source.get("quant_algo", "")).upper(), {})}
    if scheme.get("group"):
        scheme["group"] = _group(source.get("group_size")) or scheme["group"]
    return scheme


_DIALECTS = {
    "grouped": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed_tensors,
    "quark": _quark,
    "modelopt": _modelopt,
}


def plain_bytes() -> float:
    """Return the bytes of one weight that is not quantized."""
    return float(knowledge("models/memory.yml")["unquantized_bytes"]["value"])


def _scheme_bytes(scheme: Mapping[str, Any], facts: Mapping[str, Any]) -> float | None:
    """Return the bytes of one weight, scales included; None for an unknown scheme."""
    bits = scheme.get("bits")
    if bits is None:
        return None
    size = bits / 8
    if scheme.get("block"):
        rows, columns = scheme["block"]
        size += facts.get("block_scale_bytes", 4) / (rows * columns)
    elif scheme.get("group"):
        each = scheme.get("scale_bytes", facts.get("group_scale_bytes", 2))
        if scheme.get("zero_point"):
            each += bits / 8
        size += each / scheme["group"]
    return float(size)


def module_bytes(
    quantization: Mapping[str, Any] | None, names: tuple[str, ...], layers: int, first: int = 0
) -> float | None:
    """Return the bytes of one weight of a module, over its layers on average; None if unknown.

    ``names`` are the module's checkpoint paths; one without is never quantized. No layer before
    ``first`` has it.
    """
    plain = plain_bytes()
    if quantization is None or not names:
        return plain
    facts = _format(quantization.get("method"))
    left = layers - named_layers(names, quantization["ignore"], layers, first)
    total = plain * (layers - left)
    for scheme in quantization.get("schemes") or [{**quantization, "targets": ["Linear"]}]:
        general = "Linear" in scheme["targets"]
        hit = left if general else min(left, named_layers(names, scheme["targets"], layers, first))
        each = _scheme_bytes(scheme, facts)
        if hit and each is None:
            return None
        total += hit * (each or 0)
        left -= hit
    return (total + left * plain) / layers if layers else plain


def is_understood(quantization: Mapping[str, Any]) -> bool:
    """Return whether the bytes of a format's weights are known."""
    facts = _format(quantization.get("method"))
    schemes = quantization.get("schemes") or [quantization]
    return all(_scheme_bytes(scheme, facts) is not None for scheme in schemes)
