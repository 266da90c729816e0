# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many open streams through one router: its memory for each, and what it adds to a token's way.

    python benchmarks/streams.py [--json] [--streams 9000] [--tokens 1000] [--seconds 20]

Engines are processes with eight ports or some more, clients processes with eight addresses each. A
stream is a chat with `stream: true` that stays open; tokens go to streams by chance and carry the
time when they were sent, on the clock that all processes share. The same is measured with nothing
between. A router has two sockets for each stream: where `ulimit -Hn` allows a process fewer, the
router is several processes of one thread that share its port, each with the role's configuration.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import resource
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Queueing,
    RouterSettings,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.router.haproxy import HAProxy, pool_of

PORTS = 8
# Files of a router's process that are no stream's.
OTHERS = 1500
# Opened at a time: as many as wait for the router's answer.
AHEAD = 64
BODY = json.dumps({"model": "org/model", "stream": True, "messages": [{"role": "user"}]})
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: 0\n\n\r\n"
)


@dataclass(frozen=True)
class Measured:
    """One run: milliseconds from when a token was sent to when its client had it."""

    by: str
    processes: int
    streams: int
    opened_a_second: float
    tokens: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    memory_mib: float
    kib_a_stream: float


def engines(pipe: Connection, ports: int, tokens: float, seed: int) -> None:
    """Serve streams; send tokens by chance from "begin" to "end"."""
    listeners = []
    for _port in range(ports):
        one = socket.create_server(("127.0.0.1", 0), backlog=4096)
        one.setblocking(False)
        listeners.append(one)
    pipe.send([one.getsockname()[1] for one in listeners])
    waiting = selectors.DefaultSelector()
    for source in (*listeners, pipe):
        waiting.register(source, selectors.EVENT_READ, source)
    streams: list[socket.socket] = []
    sending, draw, due = False, random.Random(seed), 0.0  # noqa: S311 - no secret
    while True:
        # A selector rounds a shorter time up to a millisecond: tokens that are due go together.
        for key, _events in waiting.select(max(0.0, due - time.monotonic()) if sending else None):
            if key.data is pipe:
                if pipe.recv() == "end":
                    pipe.send("ended")
                    pipe.recv()  # its streams stay open until then
                    return
                sending, due = True, time.monotonic()
                continue
            if key.data in listeners:
                stream, _address = key.data.accept()
                waiting.register(stream, selectors.EVENT_READ, stream)
                continue
            stream = key.data
            waiting.unregister(stream)
            request = stream.recv(65536)
            if request.startswith(b"POST"):
                stream.setblocking(False)
                stream.send(HEAD)
                streams.append(stream)
            else:  # a health check
                stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                stream.close()
        while sending and due < time.monotonic():
            text = b"data: %020d\n\n" % time.monotonic_ns()
            draw.choice(streams).send(b"%x\r\n%s\r\n" % (len(text), text))
            due += draw.expovariate(tokens)


def clients(pipe: Connection, ports: list[int], count: int, number: int) -> None:
    """Open streams, report it, and then the way of each token until the end."""
    waiting, left, opened, flying = selectors.DefaultSelector(), count, 0, 0
    times: list[int] = []
    began = time.monotonic()
    while opened < count:
        while left and flying < AHEAD:
            one = socket.create_connection(
                ("127.0.0.1", ports[left % len(ports)]),
                source_address=(f"127.1.{number}.{1 + left % PORTS}", 0),
            )
            name = f"s{number}-{left}"
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Session-Id: {name}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
            one.sendall((head + BODY).encode())
            one.setblocking(False)
            waiting.register(one, selectors.EVENT_READ, one)
            left, flying = left - 1, flying + 1
        for key, _events in waiting.select(1):
            text = key.data.recv(65536)
            if not text.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"stream {opened}: {text[:200]!r}")
            opened, flying = opened + 1, flying - 1
    pipe.send(time.monotonic() - began)
    waiting.register(pipe, selectors.EVENT_READ, pipe)
    while True:
        for key, _events in waiting.select():
            if key.data is pipe:
                pipe.recv()
                pipe.send(times)
                return
            text = key.data.recv(65536)
            now = time.monotonic_ns()
            times += [
                now - int(part[:20]) for part in text.split(b"data: ")[1:] if part[0:2] != b"0\n"
            ]


class Doubles:
    """Engines in processes of their own, and clients that come through a router or without."""

    def __init__(self, count: int, tokens: float) -> None:
        # A file for each stream, and some that are none.
        each = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHERS
        self.count, self.number = count, -(-count // each)
        self.pipes: list[Connection] = []
        self.processes: list[multiprocessing.Process] = []
        self.ports: list[int] = []
        for seed in range(self.number):
            self._start(engines, -(-PORTS // self.number), tokens / self.number, seed)
            self.ports += self.pipes[-1].recv()
        self.engines = tuple(self.pipes)

    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        here, there = multiprocessing.Pipe()
        one = multiprocessing.Process(target=what, args=(there, *arguments), daemon=True)
        one.start()
        there.close()
        self.pipes.append(here)
        self.processes.append(one)

    def measure(self, by: str, processes: int, ports: list[int], seconds: float) -> Measured:
        """Open streams at ports, have tokens sent for a while, and return what clients saw."""
        for number in range(self.number):
            share = self.count // self.number + (number < self.count % self.number)
            self._start(clients, ports, share, number)
        watching = self.pipes[self.number :]
        took = max(one.recv() for one in watching)
        for one in self.engines:
            one.send("begin")
        time.sleep(seconds)  # it is the measurement
        for one in self.engines:
            one.send("end")
        for one in self.engines:
            one.recv()
        for one in watching:
            one.send("end")
        times = sorted(found for one in watching for found in one.recv())
        for one in self.engines:
            one.send("over")
        for process in self.processes:
            process.join()
        at = [times[min(len(times) - 1, int(len(times) * part))] / 1e6 for part in (0.5, 0.99, 1)]
        opened = self.count / took
        p50, p99, worst = at
        return Measured(by, processes, self.count, opened, len(times), p50, p99, worst, 0.0, 0.0)


def resident(processes: set[int]) -> float:
    """Return the most memory that processes had, in MiB."""
    kib = 0
    for process in processes:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return kib / 1024


def share(count: int, processes: int) -> int:
    """Return the connections of one of a router's processes; the kernel draws which gets one."""
    return count + 100 if processes == 1 else int(1.1 * count / processes)


async def routed(count: int, tokens: float, seconds: float, processes: int) -> Measured:
    """Measure with our router as the role configures it, in one process or several."""
    settings = RouterSettings(queueing=Queueing(concurrency=count))
    doubles = Doubles(count, tokens)
    pool = pool_of(doubles.ports, count)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-")))
        routers = []
        for number in range(processes):
            router = HAProxy(directory / str(number), [pool], settings)
            threads = router.settings.threads if processes == 1 else 1
            router.settings = replace(
                router.settings, connections=share(count, processes), threads=threads
            )
            router.write()
            routers.append(await stack.enter_async_context(router))
        workers = {worker for router in routers for worker in router.workers()}
        before = resident(workers)
        found = await asyncio.to_thread(doubles.measure, "Apiary", processes, [pool.port], seconds)
        after = resident(workers)
    return replace(found, memory_mib=after, kib_a_stream=1024 * (after - before) / count)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--streams", default=9000, show_default=True)
@click.option(
    "--tokens", default=1000.0, show_default=True, help="Tokens a second, of all streams."
)
@click.option("--seconds", default=20.0, show_default=True, help="How long tokens are sent.")
def main(as_json: bool, streams: int, tokens: float, seconds: float) -> None:
    """Measure a router's memory and delay with many open streams."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 2 * OTHERS:
        raise click.ClickException(f"{hard} files (ulimit -Hn) are too few, {2 * OTHERS} the least")
    processes = 1
    while 2 * share(streams, processes) + OTHERS > hard:
        processes += 1
    doubles = Doubles(streams, tokens)
    rows = [
        doubles.measure("nothing between", 0, doubles.ports, seconds),
        asyncio.run(routed(streams, tokens, seconds, processes)),
    ]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        print(
            ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in asdict(row).items()
            )
        )


if __name__ == "__main__":
    main()
