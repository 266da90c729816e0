# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send completions at a constant rate, streaming and not, with a key and without, and count.

    python -m loss.load http://10.222.0.11:8080 http://10.222.0.12:8080 --model NAME --seconds 20

It goes to loopback and private addresses only, and ends by count and by time.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import ipaddress
import itertools
import json
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from loss.exchange import KINDS, Ask, Outcome, Pool, exchange

MOST_REQUESTS, MOST_SECONDS = 20_000, 900.0


@dataclass(frozen=True)
class Load:
    """What is sent: ``rate`` requests a second, never more than ``in_flight`` at once.

    A share ``streamed`` of them streams, a share ``keyed`` carries one of ``keys`` keys, a share
    ``kept`` uses a connection again. Each is answered with exactly ``tokens`` tokens.
    """

    targets: tuple[tuple[str, int], ...]
    model: str
    rate: float = 20.0
    seconds: float = 60.0
    requests: int = 5000
    in_flight: int = 200
    tokens: int = 20
    streamed: float = 0.5
    keyed: float = 0.5
    kept: float = 0.5
    keys: int = 100
    key_header: str = "X-Session-Id"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_seconds: float = 30.0
    connect_seconds: float = 5.0  # that a client seeks a router which accepts
    spread: bool = True  # start with another router each time, not always with the first
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.requests <= MOST_REQUESTS or not 0 < self.seconds <= MOST_SECONDS:
            raise ValueError(f"at most {MOST_REQUESTS} requests and {MOST_SECONDS:g} s")
        for host, _ in self.targets:
            if not ipaddress.ip_address(host).is_private:
                raise ValueError(f"{host} is neither loopback nor private")

    def asks(self) -> Iterator[tuple[Ask, bool]]:
        """Yield the requests, and for each whether its connection is kept."""
        chance = random.Random(self.seed)
        for number in range(self.requests):
            stream = chance.random() < self.streamed
            key = f"session-{chance.randrange(self.keys)}" if chance.random() < self.keyed else None
            body = {
                "model": self.model,
                "prompt": f"request {number} {'of ' + key if key else ''}".strip(),
                "max_tokens": self.tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": stream,
            }
            if stream:
                body["stream_options"] = {"include_usage": True}
            ask = Ask(
                number,
                body,
                key,
                self.key_header,
                timeout_seconds=self.timeout_seconds,
                connect_seconds=self.connect_seconds,
                headers=self.headers,
            )
            yield ask, chance.random() < self.kept


@dataclass(frozen=True)
class Report:
    """All outcomes of a load, in order of their end."""

    outcomes: tuple[Outcome, ...]

    def of(self, *kinds: str) -> list[Outcome]:
        return [one for one in self.outcomes if one.kind in kinds]

    @property
    def failed(self) -> list[Outcome]:
        """Return what is not ``ok``."""
        return [one for one in self.outcomes if one.kind != "ok"]

    def counts(self) -> dict[str, int]:
        """Return the number of requests of each kind."""
        return {kind: len(self.of(kind)) for kind in KINDS}

    def replicas(self) -> dict[str, int]:
        """Return how many were answered by each replica."""
        return dict(sorted(Counter(one.replica or "unknown" for one in self.of("ok")).items()))

    def homes(self, started: float = 0.0, ended: float = float("inf")) -> dict[str, set[str]]:
        """Return the replicas that answered each key's requests begun in that time."""
        homes: dict[str, set[str]] = {}
        for one in self.of("ok"):
            if one.key and one.replica and started <= one.started < ended:
                homes.setdefault(one.key, set()).add(one.replica)
        return homes

    def in_flight(self, moment: float) -> list[Outcome]:
        """Return the requests that were under way at a moment of the load."""
        return [one for one in self.outcomes if one.in_flight(moment)]

    def quantiles(self, *which: float) -> list[float]:
        """Return quantiles of the time to the whole answer, in seconds."""
        times = sorted(one.ended - one.started for one in self.of("ok"))
        return [times[min(len(times) - 1, int(one * len(times)))] for one in which] if times else []

    def document(self) -> dict[str, object]:
        """Return counts, reasons, replicas and times, as --json prints them."""
        times = [one.ended - one.started for one in self.of("ok")]
        return {
            "counts": self.counts(),
            "reconnected": sum(one.connects > 1 for one in self.outcomes),
            "reasons": dict(Counter(f"{one.kind}: {one.reason}" for one in self.failed)),
            "replicas": self.replicas(),
            "median_seconds": round(statistics.median(times), 3) if times else None,
            "p99_seconds": round(self.quantiles(0.99)[0], 3) if times else None,
        }

    def table(self) -> str:
        """Return the counts as a table, and a line for each reason of a failure."""
        rows = [("", "requests", *KINDS)]
        for name, stream in (("streaming", True), ("not", False)):
            chosen = Report(tuple(one for one in self.outcomes if one.stream is stream))
            counts = chosen.counts().values()
            rows.append((name, str(len(chosen.outcomes)), *map(str, counts)))
        rows.append(("all", str(len(self.outcomes)), *map(str, self.counts().values())))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        document = self.document()
        lines += [f"{count} × {reason}" for reason, count in document["reasons"].items()]  # type: ignore[attr-defined]
        return "\n".join(lines)


@dataclass
class Running:
    """A load under way in a thread of its own."""

    load: Load
    epoch: float = field(default_factory=time.monotonic)
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    held_back: int = 0

    def now(self) -> float:
        """Return the seconds since the load began."""
        return time.monotonic() - self.epoch

    def report(self) -> Report:
        """Return what has ended so far."""
        return Report(tuple(self.outcomes))

    def go_on(self, seconds: float) -> None:
        """Let the load go on for so long."""
        time.sleep(seconds)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        pool, tasks = Pool(), set[asyncio.Task[None]]()
        turns = itertools.cycle(range(len(self.load.targets)))
        for number, (ask, kept) in enumerate(self.load.asks()):
            due = number / self.load.rate
            if due > self.load.seconds:
                break
            while not self.stopped.is_set() and (wait := due - self.now()) > 0:
                await asyncio.sleep(min(wait, 0.05))
            if len(tasks) >= self.load.in_flight:
                self.held_back += 1
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self.stopped.is_set():
                break
            turn = next(turns) if self.load.spread else 0
            targets = [*self.load.targets[turn:], *self.load.targets[:turn]]
            task = asyncio.create_task(self._one(ask, targets, pool if kept else None))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks)
        pool.close()

    async def _one(self, ask: Ask, targets: list[tuple[str, int]], pool: Pool | None) -> None:
        self.outcomes.append(await exchange(ask, targets, self.epoch, pool))


@contextmanager
def under(load: Load, warm: float = 1.0) -> Iterator[Running]:
    """Keep a load up while the block runs; those under way at its end are awaited.

    The block begins after ``warm`` seconds of load.
    """
    running = Running(load)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        running.go_on(warm)
        yield running
    finally:
        running.stopped.set()
        thread.join()


def parse_target(url: str) -> tuple[str, int]:
    """Return host and port of a URL."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.hostname or "127.0.0.1", parts.port or 80


def main(argv: Sequence[str] | None = None) -> int:
    """Run a load from the command line; exit 1 when a request was lost or cut."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="+", type=parse_target, metavar="URL")
    parser.add_argument("--json", action="store_true")
    options = {
        one.name: one for one in dataclasses.fields(Load) if isinstance(one.default, (int, float))
    }
    parser.add_argument("--model", required=True)
    for name, one in options.items():
        if not isinstance(one.default, bool):
            flag = f"--{name.replace('_', '-')}"
            parser.add_argument(flag, type=type(one.default), default=one.default)
    arguments = vars(parser.parse_args(argv))
    as_json, targets = arguments.pop("json"), tuple(arguments.pop("targets"))
    running = Running(Load(targets=targets, **arguments))
    running.run()
    report = running.report()
    print(json.dumps(report.document(), indent=2) if as_json else report.table())
    return 1 if report.of("lost", "cut") else 0


if __name__ == "__main__":
    sys.exit(main())
