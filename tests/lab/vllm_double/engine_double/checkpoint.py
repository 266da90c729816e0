# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks vLLM makes on a model's config.json before it loads weights."""

from __future__ import annotations

import json
import os
import typing

from engine_double.logs import StartupError

# Where a model keeps its longest context (vLLM takes the smallest of those it finds).
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
)

EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


def read_config(model: str) -> dict[str, typing.Any]:
    """Return the checkpoint's config.json; refuse what is not a local model directory."""
    path = os.path.join(model, "config.json")
    if not os.path.isdir(model):
        if model.startswith("/") or model.count("/") > 1:
            raise StartupError(
                "HFValidationError",
                "Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                f"'{model}'. Use `repo_type` argument if needed.",
            )
        raise StartupError(
            "LocalEntryNotFoundError",
            f"Cannot find '{model}' on the local disk, and this double never downloads.",
        )
    try:
        with open(path, encoding="utf-8") as stream:
            config = json.load(stream)
    except FileNotFoundError:
        raise StartupError("ValueError", f"{model} has no config.json") from None
    except (OSError, ValueError) as problem:
        raise StartupError(
            "OSError",
            f"It looks like the config file at '{path}' is not a valid JSON file: {problem}",
        ) from None
    if not isinstance(config, dict) or "architectures" not in config:
        raise StartupError("ValueError", f"No model architectures are specified in {path}")
    return config


def text_config(config: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Return the part that describes the language model (nested in multimodal checkpoints)."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def max_length(
    config: dict[str, typing.Any], settings: dict[str, typing.Any], lenient: bool
) -> int:
    """Return the context length to serve; refuse one beyond what the checkpoint was made for."""
    text = text_config(config)
    found = [text[key] for key in LENGTH_KEYS if isinstance(text.get(key), int)]
    derived = min(found) if found else 2048
    wanted = settings.get("max_model_len")
    if wanted is None or wanted == -1:
        return derived
    if wanted > derived and not lenient:
        raise StartupError(
            "ValueError",
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={derived}). To allow overriding this maximum, set the env "
            "var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        )
    return int(wanted)


def check_parallel(config: dict[str, typing.Any], settings: dict[str, typing.Any]) -> None:
    """Refuse a TP size that does not divide the heads, and expert parallelism without experts."""
    heads = text_config(config).get("num_attention_heads")
    size = settings["tensor_parallel_size"]
    if isinstance(heads, int) and heads % size:
        raise StartupError(
            "ValueError",
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel "
            f"size ({size}).",
        )
    experts = [text_config(config).get(key) for key in EXPERT_KEYS]
    if settings.get("enable_expert_parallel") and not any(experts):
        raise StartupError(
            "ValueError",
            "Number of experts in the model must be greater than 0 when expert parallelism is "
            "enabled.",
        )


def check_quantization(
    config: dict[str, typing.Any], settings: dict[str, typing.Any], data: dict[str, typing.Any]
) -> str | None:
    """Return the method in force; refuse unknown, mismatched and deprecated ones."""
    described = config.get("quantization_config") or text_config(config).get("quantization_config")
    checkpoint = described.get("quant_method") if isinstance(described, dict) else None
    asked = settings.get("quantization")
    if asked and checkpoint and asked not in _same_method(checkpoint):
        raise StartupError(
            "ValueError",
            f"Quantization method specified in the model config ({checkpoint}) does not match the "
            f"quantization method specified in the `quantization` argument ({asked}).",
        )
    method = asked or checkpoint
    if method is None:
        return None
    if method not in data["quantization"]:
        raise StartupError(
            "ValueError",
            f"Unknown quantization method: {method}. Must be one of {data['quantization']}.",
        )
    if (
        data["checks"]["deprecated_quantization"]
        and method in data["deprecated_quantization"]
        and not settings.get("allow_deprecated_quantization")
    ):
        raise StartupError(
            "ValueError",
            f"The quantization method {method} is deprecated and will be removed in future "
            "versions of vLLM. To bypass, set `--allow-deprecated-quantization`.",
        )
    return str(method)


def _same_method(checkpoint: str) -> tuple[str, ...]:
    # vLLM runs these on the same weights by another kernel or name.
    return (checkpoint, f"{checkpoint}_marlin", f"auto_{checkpoint}")


def check_fp8_blocks(
    config: dict[str, typing.Any], settings: dict[str, typing.Any], data: dict[str, typing.Any]
) -> None:
    """Refuse a block-FP8 MoE whose experts cannot be cut TP ways on block boundaries."""
    if not data["checks"]["fp8_moe_block"] or settings.get("enable_expert_parallel"):
        return
    described = config.get("quantization_config") or {}
    inner, block = (
        text_config(config).get("moe_intermediate_size"),
        described.get("weight_block_size"),
    )
    if described.get("quant_method") != "fp8" or not inner or not block:
        return
    share = inner / settings["tensor_parallel_size"]
    if share % block[0]:
        raise StartupError(
            "ValueError",
            f"The output_size of gate's and up's weight = {share:g} is not divisible by weight "
            f"quantization block_n = {block[0]}.",
        )


def check_backend(settings: dict[str, typing.Any], data: dict[str, typing.Any]) -> None:
    """Refuse an attention backend whose name the version does not have."""
    name = settings.get("attention_backend")
    if name and name.upper() not in data["attention_backends"]:
        raise StartupError(
            "ValueError",
            f"Unknown attention backend: '{name}'. Valid options are: "
            + ", ".join(data["attention_backends"]),
        )
