# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that follow from numbers: layouts as people write them, units, routers' servers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..deployment import MOST_DEVICES, Layout, MixedLayout

_UNIT = re.compile(
    r"apiary-([a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)-(0|[1-9][0-9]?)\.service", re.ASCII
)


def unit_name(deployment: str, replica: int) -> str:
    """Return the unit of a deployment's replica."""
    return f"apiary-{deployment}-{replica}.service"


def replica_number(unit: str, deployment: str | None = None) -> int | None:
    """Return a replica's number from its unit; None where it is no unit, or another deployment's.

    Hosts report units, and all that comes of such a text is this number.
    """
    match = _UNIT.fullmatch(unit)
    if match is None or deployment not in (None, match[1]) or int(match[2]) >= MOST_DEVICES:
        return None
    return int(match[2])


def server_name(host: str, replica: int) -> str:
    """Return a replica's name at the routers."""
    return f"{host}-{replica}"


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
