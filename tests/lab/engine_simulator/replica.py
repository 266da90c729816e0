# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One simulated engine: vLLM V1's scheduler, step by step, decode runs in one piece."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from engine_simulator.parameters import Engine
from engine_simulator.traffic import Sent

_NOISE = 8192


@dataclass
class Sequence:
    """A request inside the engine; ``pieces`` are the steps (first, end) that gave its tokens."""

    sent: Sent
    hit: int = 0
    loaded: int = 0
    computed: int = 0
    produced: int = 0
    joined: int = -1
    done_at: int = -1
    scheduled: float = -1.0
    pieces: list[tuple[int, int]] = field(default_factory=list)

    @property
    def to_compute(self) -> int:
        """Prompt tokens still missing; after a preemption the answer so far is prompt too."""
        return self.sent.prompt + self.produced - self.hit - self.computed


@dataclass
class Kept:
    """What is computed of a prompt: its first ``tokens``, of which ``own`` take room."""

    tokens: int
    own: int


@dataclass
class Action:
    """What the engine is busy with: steps that end at ``ends`` with ``tokens`` in each."""

    ends: np.ndarray
    prefill: list[tuple[Sequence, int]]
    blocked: bool


@dataclass
class Counters:
    """What /metrics counts."""

    prompt: int = 0
    cached: int = 0
    queries: int = 0
    generated: int = 0
    preempted: int = 0
    succeeded: int = 0
    scheduled: int = 0
    queue_seconds: float = 0.0
    ttft: list[float] = field(default_factory=list)


class Replica:
    """A replica in virtual time; the caller owns the clock and finishes each action."""

    def __init__(self, engine: Engine, factor: float, cov: float, rng: np.random.Generator) -> None:
        self.engine, self.factor = engine, factor
        self.noise = np.maximum(0.5, 1.0 + cov * rng.standard_normal(2 * _NOISE)) * factor
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.decoding = 0
        self.context = 0
        self.kv_used = 0
        self.steps = 0
        self.ends: list[float] = []
        # The least recently used first; ``cached_tokens`` is what all of it takes.
        self.cache: OrderedDict[str, Kept] = OrderedDict()
        self.offloaded: OrderedDict[str, int] = OrderedDict()
        self.cached_tokens = 0
        self.seen_shapes: set[int] = set()
        self.finishing: list[tuple[int, int, Sequence]] = []
        self.order = 0
        self.action: Action | None = None
        self.counters = Counters()
        self.gauges: list[tuple[float, int, int, int]] = []

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self.running)

    def arrive(self, sequence: Sequence, now: float) -> float | None:
        """Queue a request; return the new end of the action where it became shorter."""
        self.waiting.append(sequence)
        action = self.action
        if action is None or action.blocked or len(action.ends) == 1:
            return None
        steps = int(np.searchsorted(action.ends, now)) + 1
        if steps >= len(action.ends):
            return None
        action.ends = action.ends[:steps]
        return float(action.ends[-1])

    def begin(self, now: float) -> float | None:
        """Schedule from ``now`` and return when that ends; None: nothing to do."""
        if not self.running and not self.waiting:
            self.action = None
            return None
        self._make_room()
        prefill = self._prefill(now)
        ends = self._mixed_step(now, prefill) if prefill else self._decode_run(now)
        self.action = Action(ends, prefill, blocked=bool(self.waiting))
        self._look(now)
        return float(ends[-1])

    def finish(self) -> list[Sequence]:
        """Apply the action and return the sequences that are complete."""
        action = self.action
        if action is None:
            raise ValueError("the replica is idle")
        self.action = None
        steps = len(action.ends)
        self.steps += steps
        self.ends.extend(action.ends.tolist())
        self.context += self.decoding * steps
        self.kv_used += self.decoding * steps
        self.counters.generated += self.decoding * steps
        self._look(float(action.ends[-1]))
        done = []
        while self.finishing and self.finishing[0][0] <= self.steps:
            at, _order, sequence = heapq.heappop(self.finishing)
            if sequence.done_at == at:
                done.append(sequence)
                self._leave(sequence, done=True)
        for sequence, tokens in action.prefill:
            sequence.computed += tokens
            self.kv_used += tokens
            if sequence.to_compute == 0 and self._first_token(sequence):
                done.append(sequence)
        if done:
            gone = {id(sequence) for sequence in done}
            self.running = [item for item in self.running if id(item) not in gone]
        return done

    def _look(self, now: float) -> None:
        """Note the gauges of /metrics."""
        self.gauges.append((now, len(self.running), len(self.waiting), self.kv_used))

    def _first_token(self, sequence: Sequence) -> bool:
        """Let a computed prompt give its next token; say whether that was its last."""
        sent = sequence.sent
        if sent.shares is not None:
            self.keep(sent.shares, sent.shared, sent.shared)
        sequence.produced += 1
        self.counters.generated += 1
        if sequence.produced == 1:
            self.counters.ttft.append(self.ends[-1] - sent.arrival)
        if sequence.produced >= sent.output:
            sequence.pieces.append((self.steps - 1, self.steps))
            self.kv_used -= sequence.computed
            self._served(sequence)
            return True
        sequence.joined = self.steps
        sequence.done_at = self.steps + sent.output - sequence.produced
        self.order += 1
        heapq.heappush(self.finishing, (sequence.done_at, self.order, sequence))
        self.decoding += 1
        self.context += sent.prompt + sequence.produced
        return False

    def _leave(self, sequence: Sequence, done: bool) -> None:
        """Take a decoding sequence out of the batch, done or preempted."""
        decoded = self.steps - sequence.joined
        sequence.pieces.append((sequence.joined - 1, self.steps))
        sequence.produced += decoded
        self.decoding -= 1
        self.context -= sequence.sent.prompt + sequence.produced
        self.kv_used -= sequence.computed + decoded
        sequence.done_at = -1
        if done:
            self._served(sequence)

    def _served(self, sequence: Sequence) -> None:
        counters, sent = self.counters, sequence.sent
        counters.succeeded += 1
        counters.prompt += sent.prompt
        counters.queries += sent.prompt
        counters.cached += sent.hit
        if sent.session is not None:
            tokens = sent.prompt + sequence.produced
            self.keep(sent.session, tokens, tokens - sent.shared)

    def keep(self, key: str, tokens: int, own: int) -> None:
        """Have the cache know the first tokens of a prompt, as what was used last."""
        known = self.cache.pop(key, Kept(0, 0))
        self.cached_tokens += max(own, known.own) - known.own
        self.cache[key] = Kept(max(tokens, known.tokens), max(own, known.own))

    def forget(self, key: str) -> None:
        """Have the cache know nothing of a prompt any more."""
        self.cached_tokens -= self.cache.pop(key, Kept(0, 0)).own

    def _evict(self, tokens: int) -> None:
        """Make room for tokens: whole blocks of what was used longest ago go, its last ones first.

        What the engine offloads is kept in the host's memory, the least recently used goes there.
        """
        size, limit = self.engine.block_size, self.engine.offload_tokens
        if self.kv_used + self.cached_tokens + tokens <= self.engine.kv_tokens:
            return
        for key, kept in list(self.cache.items()):
            excess = self.kv_used + self.cached_tokens + tokens - self.engine.kv_tokens
            if excess <= 0:
                break
            if limit and kept.own:
                self.offloaded[key] = max(self.offloaded.pop(key, 0), kept.tokens)
            gone = min(kept.own, -(-excess // size) * size)
            kept.tokens, kept.own = kept.tokens - gone, kept.own - gone
            self.cached_tokens -= gone
            if gone and not kept.own:
                del self.cache[key]
        while sum(self.offloaded.values()) > limit:
            self.offloaded.popitem(last=False)

    def _make_room(self) -> None:
        """Preempt the youngest sequences until each that decodes has room for one token more."""
        while self.decoding > 1 and self.kv_used + self.decoding > self.engine.kv_tokens:
            youngest = self.running.pop()
            if youngest.joined >= 0:
                self._leave(youngest, done=False)
            else:
                self.kv_used -= youngest.computed
            youngest.joined, youngest.computed, youngest.hit = -1, 0, 0
            self.counters.preempted += 1
            self.waiting.appendleft(youngest)

    def _prefill(self, now: float) -> list[tuple[Sequence, int]]:
        """Give the step's token budget to started prompts, then to waiting ones."""
        budget = self.engine.max_num_batched_tokens - self.decoding
        room = self.engine.kv_tokens - self.kv_used - self.decoding
        if not self.decoding:
            room = max(room, budget)  # a prompt alone always goes on
        chunks = []
        # Only the youngest can be unfinished: a budget that is left admits the next.
        for sequence in reversed(self.running):
            if sequence.joined >= 0:
                break
            tokens = min(sequence.to_compute, budget, room)
            if tokens > 0:
                chunks.append((sequence, tokens))
                budget, room = budget - tokens, room - tokens
        while self.waiting and budget > 0 and len(self.running) < self.engine.max_num_seqs:
            sequence = self.waiting[0]
            hit, loaded = self._hit(sequence.sent)
            need = sequence.sent.prompt + sequence.produced - hit
            tokens = min(need, budget)
            if tokens > room and self.running:
                break
            self.waiting.popleft()
            sequence.hit, sequence.loaded = hit, loaded
            if sequence.scheduled < 0:
                sequence.scheduled = now
                sequence.sent.hit = hit
                self.counters.scheduled += 1
                self.counters.queue_seconds += max(0.0, now - sequence.sent.arrival)
            self.running.append(sequence)
            chunks.append((sequence, tokens))
            budget, room = budget - tokens, room - tokens
        self._evict(sum(tokens for _sequence, tokens in chunks))
        return chunks

    def _hit(self, sent: Sent) -> tuple[int, int]:
        """Tokens of the prompt in the prefix cache: whole blocks, and never the last token.

        The second number is how many of them are in the host's memory alone.
        """
        if not self.engine.prefix_caching:
            return 0, 0
        here = there = 0
        for key, most in ((sent.shares, sent.shared), (sent.session, sent.past)):
            # What follows a shared prefix is found only behind it.
            if key in self.cache and (key != sent.session or here >= sent.shared):
                self.cache.move_to_end(key)
                here = max(here, min(self.cache[key].tokens, most))
            if key in self.offloaded:
                self.offloaded.move_to_end(key)
                there = max(there, min(self.offloaded[key], most))
        size = self.engine.block_size
        here, there = (min(count, sent.prompt - 1) // size * size for count in (here, there))
        return max(here, there), max(0, there - here)

    def _mixed_step(self, now: float, prefill: list[tuple[Sequence, int]]) -> np.ndarray:
        engine = self.engine
        tokens = sum(chunk for sequence, chunk in prefill)
        begun = [sequence for sequence, _chunk in prefill if not sequence.computed]
        images = sum(sequence.sent.images for sequence in begun)
        loaded = sum(sequence.loaded for sequence in begun)
        seconds = (
            engine.step
            + engine.sequence * (self.decoding + len(prefill))
            + engine.kv_token * self.context
            + engine.prefill_token * tokens
            + engine.image * images
            + engine.offload_token * loaded
            + self._experts(self.decoding + tokens)
        ) * self.noise[self.steps % _NOISE] + self._jit(self.decoding + len(prefill))
        return np.array([now + seconds])

    def _decode_run(self, now: float) -> np.ndarray:
        """All decode until the first is complete or the KV cache is full."""
        engine, count = self.engine, self.decoding
        while self.finishing[0][2].done_at != self.finishing[0][0]:
            heapq.heappop(self.finishing)  # preempted since
        steps = self.finishing[0][0] - self.steps
        steps = min(steps, _NOISE, max(1, (engine.kv_tokens - self.kv_used) // count))
        first = engine.step + engine.sequence * count + engine.kv_token * self.context
        first += self._experts(count)
        jit = self._jit(count)
        self._evict(count * steps)
        begin = self.steps % _NOISE
        if steps == 1:
            return np.array([now + first * self.noise[begin] + jit])
        seconds = first + engine.kv_token * count * np.arange(steps)
        seconds *= self.noise[begin : begin + steps]
        seconds[0] += now + jit
        return np.cumsum(seconds)

    def _experts(self, tokens: int) -> float:
        """What the experts cost that so many tokens touch."""
        return self.engine.experts * (1.0 - (1.0 - self.engine.expert_share) ** tokens)

    def _jit(self, size: int) -> float:
        """What the first step of a batch size costs on top, sizes by powers of two."""
        shape = size.bit_length()
        if not self.engine.jit or shape in self.seen_shapes:
            return 0.0
        self.seen_shapes.add(shape)
        return self.engine.jit
