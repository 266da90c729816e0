# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a config's quantization says: the format, bytes per weight, and which modules it skips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..documents import knowledge
from .families import is_size
from .patterns import condense, named_layers

_MOST_BITS = 64
# A quantization of which nothing is known.
UNKNOWN: Mapping[str, Any] = {
    "method": None,
    "bits": None,
    "block": None,
    "group": None,
    "ignore": [],
}
_IGNORE = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude",
    "exclude_modules",
    "llm_int8_skip_modules",
)


def _formats() -> Mapping[str, Any]:
    formats: Mapping[str, Any] = knowledge("models/memory.yml")["weights"]
    return formats


def read(config: Mapping[str, Any] | None, layers: int | None) -> dict[str, Any] | None:
    """Return the quantization of a model of ``layers`` layers, or None for an unquantized one.

    `method`, `bits`, `block` ([rows, columns]), `group`, `zero_point`, `scale_bytes` and `ignore`
    (module patterns); what the config does not say is None or left out. A format with several
    schemes has them under `schemes`, each with its `targets`, and no bits of its own.
    """
    if not isinstance(config, Mapping) or not config:
        return None
    method = _method(config)
    if method is None:
        return dict(UNKNOWN)
    facts = _formats().get(method, {})
    result: dict[str, Any] = {
        "method": method,
        "bits": facts.get("bits"),
        "block": _block(config.get("weight_block_size")),
        "group": facts.get("group"),
        "ignore": [],
    }
    dialect = _DIALECTS.get(facts.get("dialect", ""))
    if dialect is not None:
        result |= dialect(config)
    ignore = [*_ignored(config), *result.get("skipped", ())]
    result["ignore"] = condense(ignore, layers)
    result.pop("skipped", None)
    return result


def online(method: str) -> dict[str, Any] | None:
    """Return the quantization that the engine makes while it loads; None for an unknown method."""
    facts = _formats().get(method, {})
    if not facts.get("online"):
        return None
    block = [128, 128] if facts["online"] == "block" else None
    return {
        "method": method,
        "bits": facts["bits"],
        "block": block,
        "group": facts.get("group"),
        "ignore": [],
    }


def _method(config: Mapping[str, Any]) -> str | None:
    """Return the format's name as vLLM writes it."""
    method = config.get("quant_method")
    producer = config.get("producer")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        method = "modelopt"
    if not isinstance(method, str):
        return None
    return method.lower().replace("compressed_tensors", "compressed-tensors")


def _ignored(config: Mapping[str, Any]) -> list[str]:
    """Return every pattern of modules that stay as they are."""
    inner = config.get("quantization")
    found: list[str] = []
    for source in (config, inner if isinstance(inner, Mapping) else {}):
        for key in _IGNORE:
            if isinstance(source.get(key), list):
                found += [str(item) for item in source[key]]
    dynamic = config.get("dynamic")
    if isinstance(dynamic, Mapping):  # GPTQModel: `-:` and an expression skips
        found += [f"re:{key[2:]}" for key in dynamic if str(key).startswith("-:")]
    return found


def _block(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and len(value) == 2 and all(map(is_size, value))
    return list(value) if whole else None


def _bits(value: Any) -> int | None:
    return value if is_size(value) and value <= _MOST_BITS else None


def _group(value: Any) -> int | None:
    """Return a group's size; -1 and the like say one group for each row."""
    return value if is_size(value) else None


def _grouped(config: Mapping[str, Any]) -> dict[str, Any]:
    """AWQ, GPTQ and their kin: bits and group_size at the top, scales and zeros for each group.

    Symmetric ones store their zero points too.
    """
    return {
        "bits": _bits(config.get("bits", config.get("w_bit"))),
        "group": _group(config.get("group_size", config.get("q_group_size"))),
        "zero_point": True,
    }


def _bitsandbytes(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        return {"bits": 4, "group": 64}
    return {"bits": 8, "group": None} if config.get("load_in_8bit") else {}


def _compressed_tensors(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return bits, group and block of the one scheme of a checkpoint, or all its schemes."""
    groups = config.get("config_groups")
    found = [
        _scheme(group)
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    return _one_or_all(found)


def _one_or_all(schemes: list[dict[str, Any]]) -> dict[str, Any]:
    if not schemes:
        return {}
    alike = [{key: value for key, value in one.items() if key != "targets"} for one in schemes]
    # One scheme, however many groups write it, is for all that the ignore list leaves.
    if all(one == alike[0] for one in alike) and (len(schemes) == 1 or _general(schemes)):
        return alike[0]
    return {"schemes": schemes}


def _general(schemes: Iterable[Mapping[str, Any]]) -> bool:
    return any("Linear" in scheme["targets"] for scheme in schemes)


def _scheme(group: Mapping[str, Any]) -> dict[str, Any]:
    weights = group["weights"]
    targets = group.get("targets")
    scheme = {
        "targets": [str(one) for one in targets] if isinstance(targets, list) else ["Linear"],
        "bits": _bits(weights.get("num_bits")),
        "group": _group(weights.get("group_size")),
        "block": _block(weights.get("block_structure")),
    }
    if weights.get("symmetric") is False:
        scheme["zero_point"] = True
    if "float8" in str(weights.get("scale_dtype")):
        scheme["scale_bytes"] = 1
    return scheme


def _quark(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemes of AMD Quark: a global one, and others for layers by pattern."""
    own = config.get("layer_quant_config")
    pairs = list(own.items()) if isinstance(own, Mapping) else []
    pairs.append(("Linear", config.get("global_quant_config")))
    found = []
    for target, entry in pairs:
        weight = entry.get("weight") if isinstance(entry, Mapping) else None
        if isinstance(weight, list):  # quantized twice: the last is what is stored
            weight = weight[-1] if weight else None
        if isinstance(weight, Mapping):
            found.append({"targets": [str(target)], **_quark_weight(weight)})
    return _one_or_all(found)


def _quark_weight(weight: Mapping[str, Any]) -> dict[str, Any]:
    digits = "".join(filter(str.isdigit, str(weight.get("dtype", "")).partition("_")[0]))
    grouped = weight.get("qscheme") == "per_group"
    scheme: dict[str, Any] = {
        "bits": _bits(int(digits)) if 0 < len(digits) < 4 else None,
        "group": _group(weight.get("group_size")) if grouped else None,
        "block": None,
    }
    if weight.get("scale_format") == "e8m0":
        scheme["scale_bytes"] = 1
    return scheme


def _modelopt(config: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(config.get("config_groups"), Mapping):
        return _compressed_tensors(config)
    inner = config.get("quantization")
    source = inner if isinstance(inner, Mapping) else config
    algorithm = str(source.get("quant_algo", "")).upper()
    known = knowledge("models/memory.yml")["modelopt_algorithms"].get(algorithm, {})
    group = _group(source.get("group_size"))
    return {**known, **({"group": group} if group and known.get("group") else {})}


_DIALECTS = {
    "grouped": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed_tensors,
    "quark": _quark,
    "modelopt": _modelopt,
}


def bytes_per_weight(quantization: Mapping[str, Any] | None) -> float | None:
    """Return the bytes of one weight of a quantized module, scales included.

    None for an unknown format, and for one of several schemes.
    """
    if quantization is None:
        return float(knowledge("models/memory.yml")["unquantized_bytes"]["value"])
    facts = _formats().get(str(quantization.get("method")))
    return None if facts is None else _scheme_bytes(quantization, facts)


def _scheme_bytes(scheme: Mapping[str, Any], facts: Mapping[str, Any]) -> float | None:
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
    quantization: Mapping[str, Any] | None, names: tuple[str, ...], layers: int
) -> float | None:
    """Return the bytes of one weight of a module, over its layers on average; None if unknown.

    ``names`` are the module's checkpoint paths; one without is never quantized.
    """
    plain = float(knowledge("models/memory.yml")["unquantized_bytes"]["value"])
    if quantization is None or not names:
        return plain
    facts = _formats().get(str(quantization.get("method")), {})
    left = layers - named_layers(names, quantization["ignore"], layers)
    total = plain * (layers - left)
    for scheme in quantization.get("schemes") or [{**quantization, "targets": ["Linear"]}]:
        general = "Linear" in scheme["targets"]
        hit = left if general else min(left, named_layers(names, scheme["targets"], layers))
        each = _scheme_bytes(scheme, facts)
        if hit and each is None:
            return None
        total += hit * (each or 0)
        left -= hit
    return (total + left * plain) / layers if layers else plain


def is_understood(quantization: Mapping[str, Any]) -> bool:
    """Say whether the bytes of a format's weights are known."""
    facts = _formats().get(str(quantization.get("method")))
    if facts is None:
        return False
    schemes = quantization.get("schemes") or [quantization]
    return all(_scheme_bytes(scheme, facts) is not None for scheme in schemes)


def ignored_layers(names: Iterable[str], patterns: Iterable[str], layers: int) -> int:
    """Return for how many of ``layers`` layers the ignore ``patterns`` name one of ``names``."""
    return named_layers(names, patterns, layers)
