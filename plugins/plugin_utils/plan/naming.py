# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts as people write them."""

from __future__ import annotations

from collections.abc import Sequence

from ..deployment import Layout, MixedLayout


def layout_name(sizes: Sequence[int], expert_parallel: bool) -> str:
    """Return DP2/TP4/EP4, or TP4+TP2+TP2 (`/EP` with expert parallelism) where engines differ."""
    if len(set(sizes)) == 1:
        name = f"DP{len(sizes)}/TP{sizes[0]}"
        return f"{name}/EP{sizes[0]}" if expert_parallel else name
    return "+".join(f"TP{size}" for size in sizes) + ("/EP" if expert_parallel else "")


def name_of(layout: Layout | MixedLayout) -> str:
    """Return a layout's name, such as DP1/TP8/PP2 over 2 hosts."""
    if isinstance(layout, MixedLayout):
        return layout_name(layout.sizes, layout.expert_parallel)
    sizes = (layout.tensor_parallel_size,) * layout.replicas
    name = layout_name(sizes, layout.expert_parallel)
    if layout.pipeline_parallel_size > 1:
        name += f"/PP{layout.pipeline_parallel_size}"
    return name + (f" over {layout.nodes} hosts" if layout.nodes > 1 else "")
