# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rules ask about: facts derived from architecture, deployment, GPU and version."""

from __future__ import annotations

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment, Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import flags, literals
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.versions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.model import quantization
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.modules import modules
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture

Fact = str | int | float | bool | None


def facts(
    architecture: Architecture, deployment: Deployment, gpu: str | None, version: str, port: int
) -> dict[str, Fact]:
    """Return the facts of one engine by name; None is unknown. ``version`` is a known one."""
    layout, limits = deployment.layout, deployment.limits
    details = architecture.details or {}
    size = layout.tensor_parallel_size
    heads, kv_heads = architecture.heads, architecture.kv_heads
    per_rank = heads // size if heads and heads % size == 0 else None
    device = knowledge("gpus.yml")["models"].get(gpu) or {}
    result: dict[str, Fact] = {
        "version": version,
        "gpu": gpu,
        "gfx": device.get("gfx"),
        "model_name": deployment.model.name,
        "listen_address": deployment.listen_address,
        "port": port,
        "model_type": architecture.model_type,
        "family": architecture.family,
        "attention": architecture.attention,
        "quantization": architecture.quantization,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": architecture.head_dim,
        "heads_per_rank": per_rank,
        "heads_modulo_tp": None if heads is None else heads % size,
        "kv_heads_split": _kv_heads_split(architecture, size),
        "aiter_mla_heads": _aiter_mla_heads(per_rank, version),
        "sliding_layers": (details.get("attention_layers") or {}).get("sliding"),
        "sinks": details.get("sinks"),
        "max_context": architecture.max_context,
        "context_excess": _difference(limits.max_model_len, architecture.max_context),
        "seqs_above_batched_tokens": _difference(
            limits.max_num_seqs, limits.max_num_batched_tokens
        ),
        "moe_intermediate_size": details.get("moe_intermediate_size"),
        "tensor_parallel_size": size,
        "expert_parallel": layout.expert_parallel,
        "kv_format_known": _kv_format_known(limits.kv_cache_dtype, version),
    }
    for name in (
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "start_timeout_seconds",
        "drain_timeout_seconds",
    ):
        result[name] = getattr(limits, name)
    return result | _expert_split(architecture, layout) | _ffn_split(architecture, size)


def _kv_format_known(dtype: str, version: str) -> bool | None:
    """Say whether a version has a KV cache format; None where its parser says so itself."""
    formats = literals(version, "CacheDType")
    if not formats or flags(version)["--kv-cache-dtype"].choices:
        return None
    return dtype in formats


def _difference(value: int | None, bound: int | None) -> int | None:
    return None if value is None or bound is None else value - bound


def _kv_heads_split(architecture: Architecture, size: int) -> bool | None:
    """Say whether KV heads are split or copied evenly; MLA has one latent, which is copied."""
    if architecture.attention in ("mla", "sparse_mla"):
        return True
    kv_heads = architecture.kv_heads
    if not kv_heads:
        return None
    return kv_heads % size == 0 or size % kv_heads == 0


def _aiter_mla_heads(per_rank: int | None, version: str) -> bool | None:
    """Say whether AITER's dense MLA kernel takes this many heads a GPU in this version."""
    if per_rank is None:
        return None
    for entry in knowledge("vllm/rules.yml")["aiter_mla_heads"]["versions"]:
        if "until" in entry and order(version) > order(entry["until"]):
            continue
        return bool(
            per_rank in entry.get("counts", ())
            or per_rank < entry.get("below", 0)
            or ("multiple_of" in entry and per_rank % entry["multiple_of"] == 0)
        )
    return None


def _unit(architecture: Architecture, kind: str) -> tuple[int, str] | None:
    """Return what a split must be a multiple of, and whether that is a block or a group.

    None where the architecture is unknown. MXFP4 weights are padded, so they split anywhere.
    """
    kinds = modules(architecture)
    if kinds is None:
        return None
    scheme = (architecture.details or {}).get("quantization")
    module = next((item for item in kinds if item.kind == kind), None)
    if scheme is None or module is None or scheme["method"] == "mxfp4":
        return 1, ""
    if quantization.ignored_layers(module.names, scheme["ignore"], module.layers):
        return 1, ""
    if scheme["block"]:
        return int(scheme["block"][0]), "block"
    return (int(scheme["group"]), "group") if scheme["group"] else (1, "")


def _expert_split(architecture: Architecture, layout: Layout) -> dict[str, Fact]:
    """Return what is left when each GPU gets its columns of every expert; whole ones under EP."""
    width = (architecture.details or {}).get("moe_intermediate_size")
    unit = _unit(architecture, "experts")
    if architecture.experts == 0:
        return {"moe_split_remainder": 0, "moe_block_remainder": 0}
    if width is None or unit is None:
        return {"moe_split_remainder": None, "moe_block_remainder": None}
    step, kind = unit
    parts = 1 if layout.expert_parallel else layout.tensor_parallel_size
    grouped = kind == "group"
    return {
        "block_size": step if kind == "block" else None,
        "moe_block_remainder": width % (parts * step) if kind == "block" else 0,
        "moe_split_remainder": width % (parts * (step if grouped else 1)),
        "moe_unit_note": f" in groups of {step}" if grouped else "",
    }


def _ffn_split(architecture: Architecture, size: int) -> dict[str, Fact]:
    """Return what is left when each GPU gets its columns of the dense and shared FFNs."""
    details = architecture.details or {}
    widths = {
        "ffn": details.get("intermediate_size") if details.get("dense_layers") else 0,
        "shared_expert": details.get("shared_expert_intermediate_size", 0),
    }
    result: dict[str, Fact] = {"ffn_split_remainder": 0}
    for kind, width in widths.items():
        unit = _unit(architecture, kind)
        if width is None or unit is None:
            return {"ffn_split_remainder": None}
        # A layer that is not split may end in a part of a block.
        step = unit[0] if size > 1 else 1
        if width % (size * step):
            note = f" in {unit[1]}s of {step}" if step > 1 else ""
            return {
                "ffn_split_remainder": width % (size * step),
                "ffn_width": width,
                "ffn_unit_note": note,
            }
    return result
