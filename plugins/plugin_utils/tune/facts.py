# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exact figures of a planned configuration: arithmetic on the plan, no prediction of speed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..bench.types import Workload
from ..deployment import Layout
from ..documents import knowledge
from ..model.types import Architecture, ModuleMemory
from ..plan.types import Plan
from ..topology.types import Topology
from .types import Fact

# A token looks up one row of an embedding; a vision tower is not read to decode.
_MEASURED = ("kv_tokens_per_host", "weights_bytes_per_gpu")
_NOT_READ = ("embedding", "vision")


def facts(plan: Plan, topology: Topology, workload: Workload) -> tuple[Fact, ...]:
    """Return what is known exactly of a configuration; what is unknown is left out.

    Where engines differ, figures per GPU or per engine are those of the first one.
    """
    sources = knowledge("tune.yml")["facts"]
    measured = next((one.source for one in plan.findings if one.code == "FIT-MEASURED"), None)
    found: dict[str, float | None] = {
        "kv_tokens_per_host": plan.memory.kv_tokens_per_host,
        "weights_bytes_per_gpu": plan.memory.weights_bytes_per_gpu,
        "weight_bytes_read_per_token": _read(plan.memory.modules, plan.model),
        "kv_bytes_read_per_token": _kv_read(plan, workload),
        **_experts(plan.model, plan.layout.engines[0]),
        **dict(_reduces(plan, topology)),
    }
    return tuple(
        Fact(
            name,
            found[name] or 0,
            entry["unit"],
            (measured if name in _MEASURED else None) or entry["source"],
        )
        for name, entry in sources.items()
        if found.get(name) is not None
    )


def _read(modules: tuple[ModuleMemory, ...], model: Architecture) -> float | None:
    """Return the bytes of weights that one GPU reads for a token alone, on average."""
    if not modules:
        return None
    share = 1.0
    if any(one.sharding == "experts" for one in modules):
        if not model.experts or not model.experts_per_token:
            return None
        share = model.experts_per_token / model.experts
    return float(
        sum(
            one.bytes_per_gpu * (share if one.sharding == "experts" else 1)
            for one in modules
            if one.kind not in _NOT_READ
        )
    )


def _kv_read(plan: Plan, workload: Workload) -> float | None:
    """Return the bytes of KV that one GPU reads for a token, halfway through the answer."""
    each = plan.memory.kv_bytes_per_token_per_gpu
    if each is None:
        return None
    return float(each * (workload.input_tokens + workload.output_tokens // 2))


def _experts(model: Architecture, engine: Layout) -> dict[str, float | None]:
    if not model.experts:
        return {}
    if engine.expert_parallel:
        return {"experts_per_gpu": math.ceil(model.experts / engine.gpus)}
    return {"experts_per_gpu": model.experts}


def _reduces(plan: Plan, topology: Topology) -> Iterator[tuple[str, float | None]]:
    """Yield the hops that a token waits for, and the most xGMI or PCIe hops between two GPUs.

    A ring all-reduce over N GPUs takes 2 (N - 1) steps; a layer has two of them.
    """
    size, layers = plan.layout.engines[0].tensor_parallel_size, plan.model.layers
    if layers is not None:
        yield "all_reduce_hops_per_token", 2 * layers * 2 * (size - 1)
    gpus = plan.replicas[0].gpus
    links = [topology.link(a, b) for at, a in enumerate(gpus) for b in gpus[at + 1 :]]
    hops = [None if link is None else link.hops for link in links]
    known = [one for one in hops if one is not None]
    if known and len(known) == len(hops):
        yield "link_hops", max(known)
