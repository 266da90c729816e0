# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client's self-test in virtual time: the same client against a mock that keeps its times."""

from __future__ import annotations

from typing import Any

import numpy as np
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, SelfTest

from engine_simulator.parameters import Client

TTFT, ITL = 0.1, 0.03
_TOKENS = 30


def self_test(client: Client, load: Load) -> SelfTest:
    """Return what each process saw of a mock: a request a slot, begun at even distances."""
    slots = load.concurrency or max(1, round((load.request_rate or 1.0) * 2))
    slots = min(slots, client.slots or slots)
    processes = min(client.processes, slots)
    shards = tuple(
        _shard(client, len(range(process, slots, processes))) for process in range(processes)
    )
    return SelfTest(TTFT, ITL, shards, (0,) * processes)


def _shard(client: Client, slots: int) -> dict[str, Any]:
    share = min(1.0, client.cores / client.processes)
    period = TTFT + ITL * (_TOKENS - 1)
    starts = np.arange(slots) * period / slots
    due = starts[:, None] + TTFT + ITL * np.arange(_TOKENS)[None, :]
    # Sends and chunks wait in one line for the process, in the order they fall due.
    work = np.concatenate([starts, due.ravel()])
    cost = np.concatenate(
        [np.full(slots, client.request / share), np.full(due.size, client.chunk / share)]
    )
    order = np.argsort(work, kind="stable")
    before = np.cumsum(cost[order]) - cost[order]
    done = np.maximum.accumulate(work[order] - before) + before + cost[order]
    seen = np.empty_like(done)
    seen[order] = done
    sent_late = seen[:slots] - starts
    tokens = seen[slots:].reshape(due.shape) + sent_late[:, None]
    return {
        "completed": slots,
        "failed": 0,
        "duration": float(tokens.max() - starts.min()),
        "input_lens": [16] * slots,
        "output_lens": [_TOKENS] * slots,
        "ttfts": (tokens[:, 0] - starts).tolist(),
        "itls": np.diff(tokens, axis=1).tolist(),
        "start_times": starts.tolist(),
        "errors": [""] * slots,
    }
