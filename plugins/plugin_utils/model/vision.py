# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of a vision tower and its projector, for the towers whose shape is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def parameters(tower: str, vision: Mapping[str, Any], text_hidden: int) -> int | None:
    """Return the number of parameters, or None when the tower or one of its keys is unknown."""
    count = {"qwen3_vl": _qwen3_vl, "kimi": _kimi, "gemma3": _gemma3}.get(tower)
    if count is None:
        return None
    try:
        return int(count(vision, text_hidden))
    except (KeyError, TypeError, IndexError):
        return None


def _block(hidden: int, intermediate: int) -> int:
    """Return one pre-norm transformer block with biases: qkv, output, two-layer FFN, two norms."""
    attention = 4 * hidden * hidden + 4 * hidden
    ffn = 2 * hidden * intermediate + intermediate + hidden
    return attention + ffn + 4 * hidden


def _merger(merged: int, norm: int, out: int) -> int:
    """Return a patch merger: norm, then two linear layers from ``merged`` to ``out`` features."""
    return 2 * norm + merged * merged + merged + merged * out + out


def _qwen3_vl(vision: Mapping[str, Any], text_hidden: int) -> int:
    hidden, out = vision["hidden_size"], vision["out_hidden_size"]
    merged = hidden * vision["spatial_merge_size"] ** 2
    patch = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    deepstack = len(vision["deepstack_visual_indexes"])
    return int(
        patch * hidden
        + hidden
        + vision["num_position_embeddings"] * hidden
        + vision["depth"] * _block(hidden, vision["intermediate_size"])
        + _merger(merged, hidden, out)
        + deepstack * _merger(merged, merged, out)
    )


def _kimi(vision: Mapping[str, Any], text_hidden: int) -> int:
    hidden = vision["vt_hidden_size"]
    rows, columns = vision["merge_kernel_size"]
    positions = vision["init_pos_emb_height"] * vision["init_pos_emb_width"]
    return int(
        3 * vision["patch_size"] ** 2 * hidden
        + hidden
        + positions * hidden
        + vision["vt_num_hidden_layers"] * _block(hidden, vision["vt_intermediate_size"])
        + 2 * hidden
        + _merger(hidden * rows * columns, hidden, text_hidden)
    )


def _gemma3(vision: Mapping[str, Any], text_hidden: int) -> int:
    hidden = vision["hidden_size"]
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    return int(
        vision["num_channels"] * vision["patch_size"] ** 2 * hidden
        + hidden
        + patches * hidden
        + vision["num_hidden_layers"] * _block(hidden, vision["intermediate_size"])
        + 2 * hidden
        + hidden * text_hidden
        + hidden
    )
