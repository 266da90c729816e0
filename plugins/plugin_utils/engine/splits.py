# SPDX-License-Identifier: GPL-3.0-or-later

"""What is left when an architecture's layers are split over the GPUs of one engine."""

from __future__ import annotations

import math

from ..deployment import Layout
from ..documents import knowledge
from ..model.modules import modules
from ..model.patterns import named_layers
from ..model.types import Architecture
from .conditions import Fact


def splits(architecture: Architecture, layout: Layout) -> dict[str, Fact]:
    """Return the facts on heads, experts, feed-forward layers and the vision tower."""
    size = layout.tensor_parallel_size
    heads = architecture.heads
    return {
        "heads_per_rank": heads // size if heads and heads % size == 0 else None,
        "heads_modulo_tp": None if heads is None else heads % size,
        "vocabulary_modulo_tp": _vocabulary_modulo(architecture, size),
        "kv_heads_split": _kv_heads_split(architecture, size),
        **_expert_split(architecture, layout),
        **_ffn_split(architecture, size),
        **_attention_split(architecture, size),
        **_vision_split(architecture, size),
    }


def _kv_heads_split(architecture: Architecture, size: int) -> bool | None:
    """Say whether KV heads are split or copied evenly; MLA has one latent, which is copied."""
    if architecture.attention in ("mla", "sparse_mla"):
        return True
    kv_heads = architecture.kv_heads
    if not kv_heads:
        return None
    return kv_heads % size == 0 or size % kv_heads == 0


def _vocabulary_modulo(architecture: Architecture, size: int) -> int | None:
    """Return the words of the padded embedding table that are left over."""
    table = next((item for item in modules(architecture) or () if item.kind == "embedding"), None)
    hidden = architecture.hidden_size
    return table.parameters // hidden % size if table and hidden else None


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
    if named_layers(module.names, scheme["ignore"], module.layers):
        return 1, ""
    if scheme.get("block"):
        return int(scheme["block"][0]), "block"
    return (int(scheme["group"]), "group") if scheme.get("group") else (1, "")


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
    whole = math.gcd(step, width // parts, architecture.hidden_size or 0)
    return {
        "moe_block_common": whole if kind == "block" else None,
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


def _attention_split(architecture: Architecture, size: int) -> dict[str, Fact]:
    """Return what is left when each GPU gets its heads of block-quantized projections."""
    widths = _attention_widths(architecture, size)
    if widths is None:
        return {"attention_split_remainder": None}
    for kind, width in widths.items():
        step, name = _unit(architecture, kind) or (1, "")
        if name == "block" and width % step:
            return {
                "attention_split_remainder": width % step,
                "attention_width": width,
                "attention_block": step,
            }
    return {"attention_split_remainder": 0}


def _attention_widths(architecture: Architecture, size: int) -> dict[str, int] | None:
    """Return the columns of each projection on a GPU; {} if nothing is split, None if unknown."""
    details, heads, dim = architecture.details or {}, architecture.heads, architecture.head_dim
    if heads is None:
        return None
    if size == 1 or heads % size:
        return {}
    own = heads // size
    if architecture.attention in ("mla", "sparse_mla"):
        nope, rope, value = (
            details.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        if nope is None or rope is None or value is None:
            return None
        query = own * (nope + rope)
        return {"q_b": query, "q": query, "kv_b": own * (nope + value), "o": own * value}
    if dim is None or not architecture.kv_heads:
        return None
    return {"q": own * dim, "kv": max(1, architecture.kv_heads // size) * dim, "o": own * dim}


def _vision_split(architecture: Architecture, size: int) -> dict[str, Fact]:
    """Return what a vision tower that is split over the GPUs leaves of whole FP8 blocks."""
    if architecture.details is None:
        return {}
    if architecture.vision is None:
        return {"vision": False, "vision_width": 0, "vision_part": 0, "vision_block_remainder": 0}
    names = knowledge("vllm/models.yml")["vision"]
    widths = [architecture.vision.get(key) for key in names["width_keys"]]
    width = next((item for item in widths if isinstance(item, int)), None)
    if width is None:
        return {"vision": True}
    scheme = architecture.details.get("quantization") or {}
    ignored = any(
        part in pattern for pattern in scheme.get("ignore", ()) for part in names["parts"]
    )
    block = int(scheme["block"][0]) if scheme.get("block") and not ignored else 1
    return {
        "vision": True,
        "vision_width": width,
        "vision_part": width // size,
        "vision_block_remainder": width % (size * block) if block > 1 and size > 1 else 0,
    }
