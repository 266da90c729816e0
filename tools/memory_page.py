# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/memory.md: published figures of memory beside those that Apiary computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout, Limits
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
    known_names,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.memory import (
    GIB,
    memory,
    quantized_online,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.weights import checkpoint_bytes

UNITS = {
    "weights": ("weights per GPU", "GiB"),
    "weights_gb": ("weights per GPU", "GB"),
    "checkpoint_gb": ("checkpoint", "GB"),
    "kv_bytes": ("KV per token and GPU", "bytes"),
    "kv_gib": ("KV of one sequence", "GiB"),
    "kv_tokens": ("KV tokens of an engine", "tokens"),
}
VRAM = 256 * GIB  # MI325X


def model_of(entry: Mapping[str, Any]) -> Architecture:
    """Return the model that a figure is of, as it was loaded."""
    config = knowledge("models/published.yml")["configs"].get(entry["model"])
    model = architecture(config, entry["model"]) if config else known(entry["model"])
    if model is None:
        raise ValueError(f"{entry['model']} is not known")
    if entry.get("bf16"):
        details = {**(model.details or {})}
        details.pop("quantization", None)
        model = dataclasses.replace(model, quantization=None, details=details)
    return quantized_online(model, entry["quantization"]) if "quantization" in entry else model


def ours(entry: Mapping[str, Any]) -> float:
    """Return what Apiary computes for a published figure, in its unit."""
    model = model_of(entry)
    layout = Layout(entry["tp"], expert_parallel=entry.get("ep", False))
    limits = Limits(entry.get("length"), kv_cache_dtype=entry.get("kv_cache_dtype", "auto"))
    quantity = entry["quantity"]
    if quantity == "checkpoint_gb":
        return (checkpoint_bytes(model) or 0) / 1e9
    made = memory(model, layout, limits, VRAM)
    if quantity == "kv_tokens":
        # The same pool as the engine had.
        room = (made.weights_bytes_per_gpu or 0) + round(entry["pool_gib"] * GIB)
        whole = dataclasses.replace(limits, gpu_memory_utilization=1.0)
        return memory(model, layout, whole, room, reserve=0).kv_tokens_per_engine or 0
    found = {
        "weights": (made.weights_bytes_per_gpu or 0) / GIB,
        "weights_gb": (made.weights_bytes_per_gpu or 0) / 1e9,
        "kv_bytes": float(made.kv_bytes_per_token_per_gpu or 0),
        "kv_gib": (made.sequence_bytes_per_gpu or 0) / GIB,
    }
    return found[quantity]


def number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit in ("bytes", "tokens") else f"{value:,.2f}"


def page() -> str:
    """Return the page."""
    facts = knowledge("models/published.yml")
    notes = list(facts["explanations"])
    sources = list(facts["sources"])
    lines = [
        "# Memory: published figures and ours\n",
        "What `apiary model` computes beside every published figure of the models it ships, and",
        "why they differ. GiB is 2^30 bytes, GB 10^9. How it is computed:",
        "[explanation/memory.md](../explanation/memory.md).\n",
        "| model | layout | quantity | published | ours | difference | why | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in facts["figures"]:
        name, unit = UNITS[entry["quantity"]]
        computed = ours(entry)
        loaded = entry.get("quantization") or ("bf16" if entry.get("bf16") else "")
        layout = "" if entry["quantity"] == "checkpoint_gb" else f"TP{entry['tp']}"
        layout += f"/EP{entry['tp']}" if entry.get("ep") else ""
        layout += f" `--quantization {loaded}`" if entry.get("quantization") else ""
        layout += " in BF16" if entry.get("bf16") else ""
        difference = f"{computed / entry['figure'] - 1:+.1%}"
        verdict = difference if entry["within"] is not None else f"**{difference}**, cannot be met"
        lines.append(
            f"| {entry['model']} | {layout} | {name}, {unit} | {number(entry['figure'], unit)} |"
            f" {number(computed, unit)} | {verdict} | [{notes.index(entry['explains']) + 1}] |"
            f" [{chr(ord('a') + sources.index(entry['source']))}] |"
        )
    lines += ["", "Why:\n"]
    lines += [
        f"{index}. {' '.join(text.split())}"
        for index, text in enumerate(facts["explanations"].values(), 1)
    ]
    lines += ["", "Sources:\n"]
    lines += [f"- [{chr(ord('a') + at)}] {facts['sources'][key]}" for at, key in enumerate(sources)]
    lines += ["", "## What fits\n", *capacity()]
    return "\n".join(lines) + "\n"


def capacity() -> list[str]:
    """Return the table of the shipped models on MI325X."""
    reserve = knowledge("models/memory.yml")["reserve"]["bytes"] / GIB
    columns = ("model", "layout", "KV cache", "weights GiB", "KV bytes per token", "pool GiB")
    columns += ("tokens per engine", "sequences per host")
    lines = [
        "The shipped models on eight MI325X at `gpu_memory_utilization` 0.9 with a reserve",
        f"of at least {reserve:.0f} GiB a GPU (an assumption): one engine of TP8 or two of TP4;",
        "sequences of 8,192 tokens.\n",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for name in known_names():
        model = known(name)
        for size in (8, 4):
            for dtype in ("auto", "fp8"):
                if model is None:
                    continue
                layout = Layout(size, replicas=8 // size, expert_parallel=bool(model.experts))
                made = memory(model, layout, Limits(kv_cache_dtype=dtype), VRAM, 8192)
                expert = f"/EP{size}" if model.experts else ""
                if (made.max_sequences or 0) < 1 or made.kv_tokens_per_engine is None:
                    lines.append(f"| {name} | TP{size}{expert} | {dtype} | does not fit ||||| ")
                    continue
                lines.append(
                    f"| {name} | {8 // size} x TP{size}{expert} | {dtype} |"
                    f" {(made.weights_bytes_per_gpu or 0) / GIB:.2f} |"
                    f" {made.kv_bytes_per_token_per_gpu:,} |"
                    f" {(made.kv_pool_bytes_per_gpu or 0) / GIB:.1f} |"
                    f" {made.kv_tokens_per_engine:,} | {made.max_sequences_per_host:,.0f} |"
                )
    return lines
