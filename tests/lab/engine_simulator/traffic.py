# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The requests of a load: their lengths, what they share with others, and when they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ansible_collections.apiary.instinct.plugins.module_utils.load.prompts import replayed
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Workload

from engine_simulator.parameters import Client, Faults

# Qwen3-VL makes one token of 32 x 32 pixels: patch_size 16, spatial_merge_size 2 (config.json).
_PIXELS_PER_TOKEN = 1024


@dataclass
class Sent:
    """One request. Its first ``shared`` prompt tokens are the text ``shares``; beside that, a
    session's next turn finds all of its own past. ``times`` are when the client saw each token.
    """

    number: int
    prompt: int
    output: int
    shares: str | None = None
    shared: int = 0
    images: int = 0
    session: str | None = None
    past: int = 0
    requested_input: int = 0
    requested_output: int = 0
    error: str = ""
    start: float = 0.0
    arrival: float = 0.0
    replica: int = 0
    slot: int = 0
    hit: int = 0
    times: tuple[float, ...] = ()
    end: float = 0.0
    due: float | None = None  # of a trace


def backend_of(load: Load) -> str:
    """Return which client sends such a load: vLLM's supports no sessions and mixes."""
    return "builtin" if load.workload.kind in ("mixed", "sessions", "trace") else "vllm"


def warmups_of(load: Load, client: Client, version: str) -> list[list[Sent]]:
    """Return the requests before those measured: vLLM's client sends the load's first prompt over
    and over, and before 0.11.2 none (vllm/benchmarks/serve.py); ours sends others."""
    first = _request(0, (load.workload.parts or (load.workload,))[0], client)
    own = backend_of(load) == "builtin"
    if not own and release(version) < (0, 11, 2):
        return []
    shares, shared = (None, 0) if own else ("first", first.prompt)
    return [
        [Sent(-1 - number, first.prompt, first.output, shares, shared, first.images)]
        for number in range(load.warmups)
    ]


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `0.11.2.post2` is 0, 11, 2."""
    return tuple(int(part) for part in version.split(".")[:3])


def requests_of(
    load: Load, client: Client, faults: Faults, rng: np.random.Generator
) -> list[list[Sent]]:
    """Return the measured requests in the order they are sent; those of a list wait for another."""
    workload = load.workload
    if workload.trace:
        return _replayed(load, client, faults, rng)
    parts = workload.parts or (workload,)
    picks = rng.integers(0, len(parts), load.requests).tolist()
    sent = [_request(number, parts[pick], client) for number, pick in enumerate(picks)]
    _spoil(sent, faults, rng)
    turns = max(1, workload.turns)
    return [sent[first : first + turns] for first in range(0, len(sent), turns)]


def _replayed(
    load: Load, client: Client, faults: Faults, rng: np.random.Generator
) -> list[list[Sent]]:
    """Return the requests of a trace: a turn finds the one before it and its answer."""
    chains, number = [], 0
    for turns in replayed(list(load.workload.trace), load.requests, load.request_rate):
        past, chain = 0, []
        for turn in turns:
            assert turn.traced is not None
            due, prompt, answer = turn.traced
            sent = Sent(number, round(prompt * client.input_factor), answer, due=due)
            sent.past = past if past <= sent.prompt else 0
            sent.session = f"session-{turn.conversation}"
            sent.requested_input, sent.requested_output = prompt, answer
            past, number = sent.prompt + answer, number + 1
            chain.append(sent)
        chains.append(chain)
    _spoil([sent for chain in chains for sent in chain], faults, rng)
    return chains


def _request(number: int, workload: Workload, client: Client) -> Sent:
    requested = workload.input_tokens
    if workload.images and workload.image_pixels is not None:
        width, height = workload.image_pixels
        requested += workload.images * round(width * height / _PIXELS_PER_TOKEN)
    session, turn = divmod(number, max(1, workload.turns))
    past = 0
    if turn:
        new = workload.input_tokens - workload.prefix_tokens + workload.output_tokens
        past, requested = (
            requested + (turn - 1) * new + workload.output_tokens,
            requested + turn * new,
        )
    prompt = round(requested * client.input_factor)
    request = Sent(
        number,
        prompt,
        workload.output_tokens,
        images=workload.images,
        past=past,
        requested_input=requested,
        requested_output=workload.output_tokens,
    )
    if client.identical:
        request.shares, request.shared = "one", prompt
    elif workload.prefixes:
        request.shares = f"prefix-{workload.name}-{session % workload.prefixes}"
        request.shared = min(workload.prefix_tokens, prompt)
    if workload.turns > 1:
        request.session = f"session-{session}"
    return request


def _spoil(sent: list[Sent], faults: Faults, rng: np.random.Generator) -> None:
    if faults.error_share:
        for request, drawn in zip(sent, rng.random(len(sent)), strict=True):
            if drawn < faults.error_share:
                request.error = "Internal Server Error"
    if faults.stop_share:
        for request, drawn in zip(sent, rng.random(len(sent)), strict=True):
            if drawn < faults.stop_share:
                request.output = max(1, int(request.output * (0.29 + 0.6 * rng.random())))


def arrivals(rate: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return when the requests of an open loop are sent: Poisson arrivals, stretched to end after
    count / rate seconds as `vllm bench serve` does (get_request of vllm/benchmarks/serve.py)."""
    times = np.cumsum(rng.exponential(1.0 / rate, count))
    return times * (count / rate / times[-1])
