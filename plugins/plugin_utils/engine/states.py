# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many sequences a hybrid model's cache has a block of state for, as facts."""

from __future__ import annotations

from ..deployment import Deployment
from ..gpus import gpu_facts
from ..model.cache import pages
from ..model.memory import GIB, memory
from ..model.types import Architecture
from .conditions import Fact

RECURRENT = ("hybrid", "linear")


def states(architecture: Architecture, deployment: Deployment, gpu: str | None) -> dict[str, Fact]:
    """Return the blocks of an engine on whole GPUs; None where nothing recurs or one is unknown."""
    blocks = _blocks(architecture, deployment, gpu)
    requested = deployment.limits.max_num_seqs
    known = blocks is not None and requested is not None
    return {
        "state_blocks": blocks,
        "seqs_open": requested is None,
        "seqs_above_state_blocks": (requested or 0) - (blocks or 0) if known else None,
    }


def _blocks(architecture: Architecture, deployment: Deployment, gpu: str | None) -> int | None:
    vram = gpu_facts(gpu).memory.gib if gpu else None
    layout, limits = deployment.decided, deployment.limits
    longest = limits.max_model_len or architecture.max_context
    if architecture.attention not in RECURRENT or not vram or not longest:
        return None
    pool = memory(architecture, layout, limits, int(vram * GIB)).kv_pool_bytes_per_gpu
    page = pages(architecture, layout, limits, longest)
    if pool is None or page is None or not page.state_blocks:
        return None
    return max(0, pool) // page.block_bytes
