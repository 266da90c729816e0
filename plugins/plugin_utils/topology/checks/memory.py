# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs' own memory: its size, and errors in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...findings import Finding
from ...gpus import gpu_facts
from .view import View


def sizes(view: View) -> Iterator[Finding]:
    """Find the GPU whose memory is not what its model has, or what its neighbours have."""
    whole = {key: gpu for key, gpu in view.gpus.items() if "#" not in key and gpu.vram_bytes}
    common = Counter((gpu.model, gpu.vram_bytes) for gpu in whole.values())
    for key, gpu in whole.items():
        size, gib = gpu.vram_bytes or 0, gpu_facts(gpu.model).memory.gib
        others = [count for (model, _size), count in common.items() if model == gpu.model]
        # The driver keeps a little for itself: 0.1 to 1 % on captures of MI210 to MI355X.
        if gib and abs(size - gib * 2**30) > gib * 2**30 // 20:
            message = f"GPU {key} has {size / 2**30:.1f} GiB; {gpu.model} has {gib}"
            yield view.finding("TOPO-VRAM", message, (key,))
        elif not gib and common[gpu.model, gpu.vram_bytes] * 2 < sum(others):
            message = f"GPU {key} has {size / 2**30:.1f} GiB, others more"
            yield view.finding("TOPO-VRAM", message, (key,))


def errors(view: View) -> Iterator[Finding]:
    """Find GPUs that have had uncorrectable errors."""
    for slot in view.slots:
        if slot.uncorrectable_errors:
            yield view.finding(
                "TOPO-MEMORY-ERRORS",
                f"GPU {slot.bdf} has had {slot.uncorrectable_errors} uncorrectable memory errors "
                "since the driver was loaded",
                (slot.bdf,),
            )
