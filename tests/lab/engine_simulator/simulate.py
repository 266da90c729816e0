# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One level in virtual time: client, network, router and replicas as one discrete-event model."""

from __future__ import annotations

import copy
import heapq
import itertools
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Raw

from engine_simulator import result, traffic
from engine_simulator.parameters import Client, Faults, Parameters
from engine_simulator.replica import Replica, Sequence
from engine_simulator.traffic import Sent

_Event = Literal["due", "free", "arrive", "step", "crash"]
_AT_ONCE = 2e-6  # between pieces that one read brings
_REFUSED_SECONDS = 0.002  # what an error takes to come back


_STARTED = 1.7e9  # the first engine's process, seconds since 1970


def simulate(
    parameters: Parameters,
    load: Load,
    seed: int = 0,
    client: Client | None = None,
    faults: Faults | None = None,
) -> Raw:
    """Return what the load gives on such a deployment; equal arguments give an equal Raw."""
    client, faults = client or Client(), faults or Faults()
    level = Level(parameters, load, seed, client, faults)
    before = [copy.deepcopy(replica.counters) for replica in level.replicas]
    level.run(level.warmups(), load.concurrency or load.warmups, rate=None)
    sent = level.run(level.requests(), load.concurrency, rate=load.request_rate)
    return result.raw(level, load, before, sent)


class Level:
    """The state that warm-up and measurement share."""

    def __init__(
        self, parameters: Parameters, load: Load, seed: int, client: Client, faults: Faults
    ) -> None:
        self.parameters, self.load, self.client, self.faults = parameters, load, client, faults
        # Another engine run of an engine, or another host's, is another process.
        self.started = _STARTED + 1e6 * seed + 3600.0 * load.engine_run
        engine_run = np.random.default_rng([seed, load.engine_run, 1]).standard_normal()
        self.rng = np.random.default_rng([seed, zlib.crc32(load.key.encode())])
        factor = (1 + parameters.engine_run_cov * engine_run) * (
            1 + parameters.level_cov * self.rng.standard_normal()
        )
        self.replicas = [
            Replica(parameters.engine, max(0.1, factor), parameters.step_cov, self.rng)
            for index in range(parameters.replicas)
        ]
        # One receiving queue a replica: processes beyond the cores or replicas share them.
        share = min(client.processes, client.cores) / parameters.replicas
        self.chunk, self.request_cost = client.chunk / share, client.request / share
        self.busy_until = [0.0] * parameters.replicas
        self.seen: list[list[float]] = [[] for replica in self.replicas]
        self.batch: list[list[int]] = [[] for replica in self.replicas]
        self.now = 0.0
        self.crashed = False
        self.measured_from = 0.0

    def warmups(self) -> list[list[Sent]]:
        """Return the warm-up requests."""
        return traffic.warmups_of(self.load, self.client, self.parameters.version)

    def requests(self) -> list[list[Sent]]:
        """Return the measured requests: equal loads make equal ones."""
        rng = np.random.default_rng([self.load.seed, self.load.repeat, self.load.engine_run])
        return traffic.requests_of(self.load, self.client, self.faults, rng)

    def run(self, chains: list[list[Sent]], slots: int | None, rate: float | None) -> list[Sent]:
        """Send all requests and return them with what came back; moves the clock on."""
        requests = [sent for chain in chains for sent in chain]
        if requests:
            self.measured_from = self.now
            Run(self, chains, slots, rate).go()
        return requests


class Run:
    """Requests on their way through one level: ``due`` of those in ``ready`` may go now."""

    def __init__(
        self, level: Level, chains: list[list[Sent]], slots: int | None, rate: float | None
    ) -> None:
        self.level, self.events = level, list[tuple[float, int, _Event, Any]]()
        self.order = itertools.count()
        self.sequences: dict[int, Sequence] = {}
        self.version = [0] * len(level.replicas)
        self.in_flight = [0] * len(level.replicas)
        self.ready = deque(chains)
        self.following: dict[int, Iterator[Sent]] = {}
        self.open = rate is not None
        width = min(slots or len(chains), level.client.slots or len(chains), len(chains))
        self.free = deque(range(width))
        self.due = 0 if self.open else len(chains)
        if rate is None:
            self._push(level.now, "due", 0)
        else:
            begins = [chain[0].due for chain in chains]
            times = traffic.arrivals(rate, len(chains), level.rng).tolist()
            for own, time in zip(begins, times, strict=True):
                self._push(level.now + (time if own is None else own), "due", 1)
        self.began = level.now
        if level.faults.crash_after is not None and chains[0][0].number >= 0:
            self._push(level.now + level.faults.crash_after, "crash", None)

    def go(self) -> None:
        """Work through the events until every request came back."""
        level = self.level
        while self.events:
            time, _order, kind, what = heapq.heappop(self.events)
            if kind == "step":
                index, version = what
                if version == self.version[index]:
                    level.now = time
                    self._step(index, time)
            elif kind == "arrive":
                self._arrive(time, what)
            elif kind == "due":
                self.due += what
                self._send_due(time)
            elif kind == "free":
                level.now = max(level.now, time)
                following = next(self.following[what], None)
                if following is None:
                    self.free.append(what)
                    self._send_due(time)
                elif self.open and following.due and self.began + following.due > time:
                    # Its client has not asked yet.
                    self.following[what] = itertools.chain([following], self.following[what])
                    following.due, later = None, self.began + following.due
                    self._push(later, "free", what)
                else:
                    self._send(time, what, following)
            elif self.sequences or self.ready:
                self._crash(time)

    def _push(self, time: float, kind: _Event, what: Any) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, what))

    def _send_due(self, time: float) -> None:
        while self.due and self.free and self.ready:
            self.due -= 1
            slot, chain = self.free.popleft(), iter(self.ready.popleft())
            self.following[slot] = chain
            self._send(time, slot, next(chain))

    def _send(self, time: float, slot: int, sent: Sent) -> None:
        level = self.level
        sent.start, sent.slot = time, slot
        index = self._route(sent.number if self.open else slot)
        sent.replica = index
        self.in_flight[index] += 1
        begun = max(time, level.busy_until[index]) + level.request_cost
        level.busy_until[index] = begun if level.request_cost else level.busy_until[index]
        if sent.error or level.crashed:
            sent.error = sent.error or "Cannot connect to host: Connection refused"
            self._complete(sent, begun + _REFUSED_SECONDS)
            return
        self._push(begun + level.parameters.engine.network, "arrive", sent)

    def _route(self, share: int) -> int:
        if self.level.parameters.routing == "shard":
            return share % len(self.in_flight)
        return self.in_flight.index(min(self.in_flight))

    def _arrive(self, time: float, sent: Sent) -> None:
        if self.level.crashed:
            sent.error = "Server disconnected"
            self._complete(sent, time)
            return
        replica, sequence = self.level.replicas[sent.replica], Sequence(sent)
        sent.arrival = time
        self.sequences[sent.number] = sequence
        idle = replica.action is None
        shorter = replica.arrive(sequence, time)
        if idle:
            self._begin(sent.replica, time)
        elif shorter is not None:
            self._announce(sent.replica, shorter)

    def _begin(self, index: int, time: float) -> None:
        end = self.level.replicas[index].begin(time)
        if end is not None:
            self._announce(index, end)

    def _announce(self, index: int, end: float) -> None:
        self.version[index] += 1
        self._push(end, "step", (index, self.version[index]))

    def _step(self, index: int, time: float) -> None:
        level, replica = self.level, self.level.replicas[index]
        before = len(replica.ends)
        decoding = replica.decoding
        done = replica.finish()
        if level.chunk:
            first = decoding + sum(1 for item in replica.running if item.joined == replica.steps)
            self._receive(index, before, first)
        for sequence in done:
            sent = sequence.sent
            sent.times = self._times(index, sequence)
            self._complete(sent, sent.times[-1])
        self._begin(index, time)

    def _receive(self, index: int, before: int, tokens: int) -> None:
        """The client takes the chunks of these steps one after another."""
        level, replica = self.level, self.level.replicas[index]
        cost = tokens * level.chunk
        ends = np.array(replica.ends[before:])
        ladder = cost * np.arange(len(ends))
        late = np.maximum.accumulate(np.maximum(ends - ladder, level.busy_until[index]))
        seen = late + ladder + cost
        level.busy_until[index] = float(seen[-1])
        level.seen[index].extend(seen.tolist())
        level.batch[index].extend([tokens] * len(ends))

    def _times(self, index: int, sequence: Sequence) -> tuple[float, ...]:
        """When the client saw each token."""
        level, replica = self.level, self.level.replicas[index]
        network = level.parameters.engine.network
        seen = level.seen[index] if level.chunk else replica.ends
        # Its place among the chunks of a step: spread evenly, and the same in every step.
        early = level.chunk * (1.0 - (sequence.sent.number * 0.6180339887) % 1.0)
        batch = level.batch[index]
        times: list[float] = []
        for first, end in sequence.pieces:
            if early:
                pairs = zip(seen[first:end], batch[first:end], strict=True)
                times.extend(time + network - early * count for time, count in pairs)
            else:
                times.extend([time + network for time in seen[first:end]])
        if level.client.buffered:
            return tuple(times[-1] + _AT_ONCE * piece for piece in range(len(times)))
        return tuple(times)

    def _complete(self, sent: Sent, time: float) -> None:
        sent.end = time
        self.in_flight[sent.replica] -= 1
        self.sequences.pop(sent.number, None)
        self._push(time, "free", sent.slot)

    def _crash(self, time: float) -> None:
        """All engines die at once: what is in flight breaks off, what comes is refused."""
        level = self.level
        level.crashed = True
        level.now = max(level.now, time)
        for index, replica in enumerate(level.replicas):
            replica.action = None
            replica.waiting.clear()
            replica.running.clear()
            self.version[index] += 1
        for sequence in list(self.sequences.values()):
            sequence.sent.error = "Server disconnected"
            self._complete(sequence.sent, time)
