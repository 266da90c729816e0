# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of a vision tower and its projector, for the towers whose shape is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ansible_collections.apiary.instinct.plugins.plugin_utils.model.families import Reader


class _UnknownError(Exception):
    """A dimension of the tower is not known; the reader has noted which."""


class _Dimensions:
    """The numbers of a vision_config; reading an unknown one raises _UnknownError."""

    def __init__(self, keys: Reader) -> None:
        self._keys = keys

    def read(self, names: Iterable[str]) -> list[int]:
        """Return several numbers, having noted every one that cannot be read."""
        values = [self._keys.integer(name, needed=True) for name in names]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            raise _UnknownError
        return known

    def list(self, name: str, length: int | None = None) -> list[int]:
        values = self._keys.integers(name, length)
        if values is None:
            raise _UnknownError
        return values


def parameters(tower: str, keys: Reader, text_hidden: int | None) -> int | None:
    """Return the parameters of one of TOWERS, or None when a dimension is unknown.

    ``keys`` reads the vision_config, and notes what is missing or wrong there.
    """
    try:
        return TOWERS[tower](_Dimensions(keys), text_hidden)
    except _UnknownError:
        return None


def _block(hidden: int, intermediate: int) -> int:
    """Return one pre-norm transformer block with biases: qkv, output, two-layer FFN, two norms."""
    attention = 4 * hidden * hidden + 4 * hidden
    ffn = 2 * hidden * intermediate + intermediate + hidden
    return attention + ffn + 4 * hidden


def _merger(merged: int, norm: int, out: int) -> int:
    """Return a patch merger: norm, then two linear layers from ``merged`` to ``out`` features."""
    return 2 * norm + merged * merged + merged + merged * out + out


def _qwen3_vl(d: _Dimensions, text_hidden: int | None) -> int:
    names = ("hidden_size", "out_hidden_size", "intermediate_size", "depth")
    hidden, out, intermediate, depth = d.read(names)
    merge, positions = d.read(("spatial_merge_size", "num_position_embeddings"))
    channels, frames, patch = d.read(("in_channels", "temporal_patch_size", "patch_size"))
    deepstack = len(d.list("deepstack_visual_indexes"))
    merged = hidden * merge**2
    return (
        channels * frames * patch**2 * hidden
        + hidden
        + positions * hidden
        + depth * _block(hidden, intermediate)
        + _merger(merged, hidden, out)
        + deepstack * _merger(merged, merged, out)
    )


def _kimi(d: _Dimensions, text_hidden: int | None) -> int:
    names = ("vt_hidden_size", "vt_intermediate_size", "vt_num_hidden_layers", "patch_size")
    hidden, intermediate, layers, patch = d.read(names)
    height, width = d.read(("init_pos_emb_height", "init_pos_emb_width"))
    rows, columns = d.list("merge_kernel_size", 2)
    if text_hidden is None:
        raise _UnknownError
    return (
        3 * patch**2 * hidden
        + hidden
        + height * width * hidden
        + layers * _block(hidden, intermediate)
        + 2 * hidden
        + _merger(hidden * rows * columns, hidden, text_hidden)
    )


def _gemma3(d: _Dimensions, text_hidden: int | None) -> int:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_channels")
    hidden, intermediate, layers, channels = d.read(names)
    image, patch = d.read(("image_size", "patch_size"))
    if text_hidden is None:
        raise _UnknownError
    return (
        channels * patch**2 * hidden
        + hidden
        + (image // patch) ** 2 * hidden
        + layers * _block(hidden, intermediate)
        + 2 * hidden
        + hidden * text_hidden
        + hidden
    )


TOWERS: dict[str, Callable[[_Dimensions, int | None], int]] = {
    "qwen3_vl": _qwen3_vl,
    "kimi": _kimi,
    "gemma3": _gemma3,
}
