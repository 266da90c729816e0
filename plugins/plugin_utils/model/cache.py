# SPDX-License-Identifier: GPL-3.0-or-later

"""What the KV cache of one sequence takes on each GPU, in the pages that vLLM keeps it in.

Layers that attend alike form groups of one size (vLLM v1/core/kv_cache_utils.py, 0.14.1 and
0.32.0): every group draws blocks of the same bytes from one pool. A page of attention is made long
enough to hold the recurrent state of a hybrid model, which takes a whole page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..deployment import Layout, Limits
from ..documents import knowledge
from .types import Architecture
from .weights import Split, split_of

_ATTENDING = ("full", "sliding")


def facts() -> dict[str, Any]:
    """Return knowledge/models/memory.yml."""
    found: dict[str, Any] = knowledge("models/memory.yml")
    return found


def step_tokens(architecture: Architecture, limits: Limits) -> int:
    """Return the tokens of the largest step, of the newest release where none is known."""
    own = (architecture.details or {}).get("step") or facts()["step"]
    return int(limits.max_num_batched_tokens or own["batched_tokens"])


def _tokens_in_flight(architecture: Architecture, layout: Layout, limits: Limits) -> int:
    """Return the tokens that a window keeps beyond its own until their steps are done."""
    own = (architecture.details or {}).get("step") or facts()["step"]
    ahead: int = own["in_flight"] - 1
    steps = ahead + split_of(layout).pipeline if ahead else 1
    return steps * step_tokens(architecture, limits)


@dataclass(frozen=True)
class Group:
    """Layers of one kind on one GPU: ``token_bytes`` a layer, or its ``state_bytes``.

    ``index_bytes`` is what a token takes in the indexers of all the layers together.
    """

    kind: str
    layers: int
    token_bytes: int = 0
    state_bytes: int = 0
    index_bytes: int = 0

    @property
    def all_bytes(self) -> int:
        """Return the bytes of one token in all the layers."""
        return self.layers * self.token_bytes + self.index_bytes


def groups(architecture: Architecture, layout: Layout, dtype: str) -> list[Group] | None:
    """Return the layers that keep a cache, by kind; None when one is unknown."""
    details, split = architecture.details or {}, split_of(layout)
    counts = details.get("attention_layers")
    if dtype == "auto":
        dtype = (details.get("quantization") or {}).get("kv_cache", dtype)
    if counts is None or details.get("cache_unknown") or details.get("packed_cache"):
        return None
    shared = details.get("kv_shared_layers") or {}
    found = []
    whole = details.get("windows_ignored") and counts["full"]  # each layer keeps every token
    for kind in _ATTENDING:
        layers = math.ceil((counts[kind] - shared.get(kind, 0)) / split.pipeline)
        if layers <= 0:
            continue
        size = _layer_bytes(architecture, kind, split.tensor, dtype)
        index = _index_bytes(details, split.pipeline) if kind == "full" else 0
        if size is None or index is None:
            return None
        found.append(Group("full" if whole else kind, layers, token_bytes=size, index_bytes=index))
    if counts["linear"]:
        state = state_bytes(architecture, split)
        if state is None:
            return None
        layers = math.ceil(counts["linear"] / split.pipeline)
        found.append(Group("linear", layers, state_bytes=state))
    return found


def _layer_bytes(architecture: Architecture, kind: str, size: int, dtype: str) -> int | None:
    """Return the cache bytes of one token in one attention layer on each GPU."""
    details = architecture.details or {}
    value = facts()["kv_cache"]["bytes"].get(dtype)
    latent = details.get("kv_lora_rank")
    if latent is not None:
        return _latent_bytes(details, latent, value, dtype)
    own = (details.get("attention_dimensions") or {}).get(kind, {})
    kv_heads = own.get("kv_heads") or architecture.kv_heads
    keys = own.get("head_dim") or architecture.head_dim
    if value is None or kv_heads is None or keys is None:
        return None
    values = keys if details.get("wide_values") else own.get("v_head_dim") or keys
    return int(max(1, kv_heads // size) * (keys + values) * value)


def _latent_bytes(
    details: dict[str, Any], latent: int, value: int | None, dtype: str
) -> int | None:
    """Return the bytes of one token's latent, which lies on every GPU."""
    rope, sparse = details.get("qk_rope_head_dim"), details.get("index_topk") is not None
    if sparse and dtype == "fp8_ds_mla":
        return int(facts()["sparse_mla"]["fp8_ds_mla_bytes"])
    return None if value is None or rope is None else int((latent + rope) * value)


def _index_bytes(details: dict[str, Any], stages: int) -> int | None:
    """Return the bytes of one token's index keys in all layers of a pipeline stage."""
    own = details.get("index_cache", {"layers": 0, "bytes": 0})
    if None in own.values():
        return None
    return int(math.ceil(own["layers"] / stages) * own["bytes"])


def state_bytes(architecture: Architecture, split: Split) -> int | None:
    """Return the bytes of one linear layer's state for one sequence on each GPU."""
    parts = (architecture.details or {}).get("state")
    if parts is None:
        return None
    total = 0.0
    for part in parts:
        share = 1 / split.tensor
        if part["parts"]:
            count = part["parts"] if part["parts"] % split.tensor == 0 else split.tensor
            share = count / split.tensor / part["parts"]
        total += part["elements"] * part["bytes"] * share
    return math.ceil(total)


def kv_bytes_per_token(architecture: Architecture, layout: Layout, dtype: str) -> int | None:
    """Return the cache bytes that each further token takes on each GPU, or None if unknown.

    Only layers that attend fully grow with the sequence; windows and recurrent state do not.
    """
    if packed := _packed(architecture, layout, 1, 1):
        return packed.block_bytes // packed.most_tokens
    found = groups(architecture, layout, dtype)
    if found is None:
        return None
    return sum(group.all_bytes for group in found if group.kind == "full")


@dataclass(frozen=True)
class Pages:
    """The pool's unit: ``block_bytes`` on each GPU, and how many of them one sequence takes.

    ``most_tokens`` are those of a block of packed layers that attend to all tokens.
    """

    block_bytes: int
    blocks_per_sequence: int
    state_blocks: int
    most_tokens: int = 1

    @property
    def sequence_bytes(self) -> int:
        return self.block_bytes * self.blocks_per_sequence

    @property
    def state_bytes(self) -> int:
        return self.block_bytes * self.state_blocks


def pages(architecture: Architecture, layout: Layout, limits: Limits, length: int) -> Pages | None:
    """Return how a sequence of ``length`` tokens is kept; None when something is unknown."""
    tokens = _tokens_in_flight(architecture, layout, limits)
    if packed := _packed(architecture, layout, length, tokens):
        return packed
    found = groups(architecture, layout, limits.kv_cache_dtype)
    if not found:
        return None
    if {group.kind for group in found} == {"full"}:
        # One kind only: blocks of 16 tokens waste less than a sequence's last block.
        return Pages(sum(group.all_bytes for group in found), length, 0)
    window = (architecture.details or {}).get("sliding_window")
    if window is None and any(group.kind == "sliding" for group in found):
        return None
    block, page = _page(architecture, found)
    # So many layers share a block: the fewest of a kind, unless the most are hardly more.
    least, most = (pick(group.layers for group in found) for pick in (min, max))
    size = most if most < 1.5 * least else least
    taken = {"full": 0, "sliding": 0, "linear": 0}
    states = (architecture.details or {}).get("state_blocks", facts()["recurrent_state"]["blocks"])
    for group in found:
        number = math.ceil(group.layers / size)
        if group.kind == "linear":
            taken["linear"] += number * states
            continue
        each = block * max(1, page // (block * group.token_bytes))  # a small layer's page is longer
        kept = length
        if group.kind == "sliding":
            kept = min(length, (window or 0) - 1 + tokens)
        # One more for a window that starts within a block.
        taken[group.kind] += number * (math.ceil(kept / each) + (group.kind == "sliding"))
    return Pages(size * page, sum(taken.values()), taken["linear"])


def _page(architecture: Architecture, found: list[Group]) -> tuple[int, int]:
    """Return the tokens of an attention block and the bytes of one layer's page."""
    latent = (architecture.details or {}).get("kv_lora_rank") is not None
    state = max((group.state_bytes for group in found), default=0)
    sizes = [group.token_bytes for group in found if group.token_bytes]
    block: int = facts()["block_tokens"]["value"]
    if not sizes:
        return block, state
    if state:
        unit: int = facts()["block_tokens"]["hybrid_latent"] if latent else block
        block = unit * math.ceil(state / (unit * max(sizes)))
    return block, block * max(sizes)


def _packed(architecture: Architecture, layout: Layout, length: int, tokens: int) -> Pages | None:
    """Return the pages of a model whose layers keep unlike ones, which lie in one block.

    Layers with as many tokens in a page and the same window share a table, or several, so that
    those of whole patterns fill them best (vLLM v1/core/kv_cache_planning.py 0.33.0).
    """
    details, stages = architecture.details or {}, split_of(layout).pipeline
    caches = (details.get("packed_cache") or {}).get("caches", ())
    if details.get("cache_unknown") or any(None in cache.values() for cache in caches):
        return None
    tables: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for cache in caches:
        if layers := math.ceil(cache["layers"] / stages):
            table = tables.setdefault((cache["tokens"], cache["window"]), [])
            table.append((layers, cache["bytes"]))
    if not any(len(own) > 1 for own in tables.values()):
        return None
    split = {key: own for key, own in tables.items() if len({number for number, _size in own}) == 1}
    least = max((own[0][0] for own in split.values() if len(own) > 1), default=0)
    # Of as many layers of each kind in a block as waste the fewest places, the most.
    alike = [own[0][0] for own in split.values()]
    repeats = least and min(
        range(least, max(alike) + 1),
        key=lambda each: (sum(-number % each for number in alike), -each),
    )
    # Without such a pattern, windows and states are split to fit a block of all other layers.
    room = max(own[0][1] if at[1] else sum(n * one for n, one in own) for at, own in tables.items())
    block = taken = 0
    for (each, window), own in tables.items():
        fitting = repeats if least or not window else max(1, room // own[0][1])
        number = math.ceil(own[0][0] / fitting) if fitting and (each, window) in split else 1
        block = max(block, sum(math.ceil(layers / number) * size for layers, size in own))
        kept = min(length, max(0, window) and window - 1 + tokens) if window else length
        taken += number * (math.ceil(kept / each) + bool(window))
    whole = max((each for each, window in tables if not window), default=1)
    return Pages(block, taken, 0, whole)
